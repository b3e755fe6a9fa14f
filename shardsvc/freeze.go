package shardsvc

import (
	"slices"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
	"github.com/headrace/headrace/sources"
)

// carriedKept is how many carried cuts a group or rank keeps: the newest ones.
const carriedKept = 3

// freeze makes the cut that q waits for, or shares the one that another rank of
// the generation has made for the same step.
func (c *Core) freeze(q *ask) {
	if s := c.sameStep(&q.cut); s != nil {
		c.answerCut(q.w, q.call, s)
		return
	}
	r := q.w.rank
	k := &keptCut{id: q.cut.Cut, state: CutFrozen, epoch: c.epoch, generation: c.generation, incarnation: r.incarnation,
		rank: cut.Group, step: q.cut.Step, path: q.cut.Path}
	if q.cut.Carried {
		k.state = CutCarried
	}
	if c.cfg.Model == Private {
		k.rank = int64(r.no)
	}
	c.closeStep(r, k.step)
	body := c.members(r, k.step)
	body.ID, body.Epoch, body.Generation, body.Rank, body.Step = cut.ID(k.id), k.epoch, k.generation, cut.Rank(k.rank), k.step
	body.WorldSize, body.Exact = max(c.worldSize, 1), c.cfg.Model != Shared || q.cut.Exact
	c.addCut(k, body)
	c.reportCut(ReportCutFrozen, k, "")
	c.answerCut(q.w, q.call, k)
	if h := c.yields; h != nil && h.cut == k.id {
		c.endHold(CutOK, "")
	}
	if k.state == CutCarried {
		c.dropOldCarried(k.rank)
	}
}

// closeStep: who counted as having reported the step because it was told END can
// not ack with it any more, should it be given rows again.
func (c *Core) closeStep(r *rank, step int64) {
	if c.folds {
		return
	}
	for _, x := range c.ranks {
		if (x == r || c.cfg.Model == Replicated) && x.generation == c.generation && x.ended && x.step < step {
			x.step = step
			c.dirtyRank(x)
		}
	}
}

func (c *Core) dropOldCarried(rank int64) {
	n := 0
	for i := len(c.cuts) - 1; i >= 0; i-- {
		if k := c.cuts[i]; k.state == CutCarried && k.rank == rank {
			if n++; n > carriedKept {
				c.forgetCut(k, "newer ones are carried")
			}
		}
	}
}

// members is the cut of rank r, or of the group, at a step, without segments.
func (c *Core) members(r *rank, step int64) *cut.Cut {
	body := &cut.Cut{}
	var own *lines
	if c.cfg.Model == Private {
		own = c.linesOf(r.base)
	}
	for _, d := range c.datasets {
		if d == nil {
			continue
		}
		s := cut.Dataset{Name: d.name, Unit: d.opt.Unit}
		if o := &d.opt; o.Shuffle {
			s.Shuffle = &cut.Shuffle{Seed: o.Seed, Block: o.Block, InOrder: o.InOrder, VirtualRanks: o.VirtualRanks}
		}
		for _, p := range d.parts {
			q := cut.Partition{Number: p.no, Identity: p.identity, Estimated: p.estimated}
			done := cut.Tally{}
			if c.cfg.Model != Private { // of a private rank nobody counts what others hold
				q.Done, q.DoneUnits = p.folded, cut.Units{Acked: p.units[line.Acked], Excluded: p.units[line.Excluded], Dropped: p.units[line.Dropped]}
				done = p.records
			}
			for n := q.Done; n < p.begun(); n++ {
				ps := p.line(n)
				if c.cfg.Model == Private {
					set, records := ps.ofRank(r, step, own.of(p, n), own.recordsOf(p, n))
					addPass(&q, &done, ps, &set, records, 0, 0)
				} else {
					set, records := ps.ofGroup(step)
					addPass(&q, &done, ps, &set, records, ps.kinds[line.Excluded], ps.kinds[line.Dropped])
				}
			}
			if q.Done > 0 {
				q.DoneRecords = &done
			}
			for _, e := range p.excluded {
				q.Excluded = append(q.Excluded, cut.Exclusion{Pass: e.pass, Piece: cut.Piece{Segment: e.segment, Start: e.start, End: e.end},
					Units: e.units, Kind: e.kind, Reason: e.reason, When: e.when})
			}
			s.Partitions = append(s.Partitions, q)
		}
		body.Datasets = append(body.Datasets, s)
	}
	return body
}

// ofGroup: all that was settled before the generation and its acks since.
func (ps *pass) ofGroup(step int64) (set line.Set, records cut.Tally) {
	set, records = ps.base.Clone(), ps.records
	for i := range ps.acks {
		if k := &ps.acks[i]; k.step <= step {
			set.Add(k.start, k.end, line.Acked)
			records.Add(k.Tally)
		}
	}
	return set, records
}

// ofRank: what it restored or bound last, and its own acks since.
func (ps *pass) ofRank(r *rank, step int64, own *line.Set, records cut.Tally) (line.Set, cut.Tally) {
	set := own.Clone()
	for i := range ps.acks {
		if k := &ps.acks[i]; k.rank == r.no && k.step <= step {
			set.Add(k.start, k.end, line.Acked)
			records.Add(k.Tally)
		}
	}
	return set, records
}

// whole is a kept cut with the segments up to the highest position that it names.
func (c *Core) whole(k *keptCut) *cut.Cut {
	body := k.decode()
	body.Version, body.Job, body.Model = cut.Version, c.cfg.Job, c.cfg.Model
	for i := range body.Datasets {
		for j := range body.Datasets[i].Partitions {
			q := &body.Datasets[i].Partitions[j]
			if p := c.partition(q.Number); p != nil && p.identity == q.Identity {
				q.Name = p.name
				q.Segments, q.Complete = p.segmentsOf(q)
			}
		}
	}
	return body
}

// segmentsOf lists the segments that q needs, and whether these are all for ever.
func (p *partition) segmentsOf(q *cut.Partition) (segs []sources.Segment, complete bool) {
	high := int64(-1)
	for i := range q.Passes {
		high = max(high, q.Passes[i].Low.Segment)
		if n := len(q.Passes[i].Ranges); n > 0 {
			high = max(high, q.Passes[i].Ranges[n-1].End.Segment)
		}
	}
	for _, e := range q.Excluded {
		high = max(high, e.Piece.Segment)
	}
	if n := len(p.Segs); n > 0 && (q.Later() || p.ds.opt.Shuffle && len(q.Passes)+len(q.Excluded) > 0) {
		high = p.Segs[n-1].ID
	}
	for i := range p.Segs {
		if s := &p.Segs[i]; s.ID <= high {
			segs = append(segs, sources.Segment{ID: s.ID, Start: s.Start, End: s.End, Sealed: s.Sealed, Locator: slices.Clone(s.Locator), Name: s.Name})
		}
	}
	return segs, p.Complete && len(segs) == len(p.Segs)
}

package shardsvc

import (
	"slices"

	"github.com/headrace/headrace/shardsvc/line"
	"github.com/headrace/headrace/sources"

	"github.com/headrace/headrace/shardsvc/cut"
)

// members is the cut of the group, or of rank r, at a step, without segments. A rank with
// a model of its own has the records of its last cut (own) and its acks since.
func (lg *ledger) members(r *account, step int64, own *lines) *cut.Cut {
	body := &cut.Cut{}
	for _, d := range lg.datasets {
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
			if !lg.perRank { // a private rank's cut does not count the records of other ranks
				q.Done, q.DoneUnits = p.folded, cut.Units{Acked: p.units[line.Acked], Excluded: p.units[line.Excluded], Dropped: p.units[line.Dropped]}
				done = p.records
			}
			for n := q.Done; n < p.begun(); n++ {
				ps := p.line(n)
				if lg.perRank {
					set, records := ps.ofRank(r, step, own.of(p, n), own.recordsOf(p, n))
					addPass(&q, &done, ps, &set, records, 0, 0)
				} else {
					set, records, dropped := ps.ofGroup(step)
					addPass(&q, &done, ps, &set, records, ps.kinds[line.Excluded], dropped)
				}
			}
			if q.Done > 0 {
				q.DoneRecords = &done
			}
			for _, e := range p.excluded {
				q.Excluded = append(q.Excluded, cut.Exclusion{Pass: e.pass, Piece: cut.Piece{Segment: e.segment, Start: e.start, End: e.end},
					Units: e.units, Kind: e.kind, Reason: e.reason, When: e.when})
			}
			for _, x := range p.dropped {
				if x.step <= step || !x.loose {
					q.Dropped = append(q.Dropped, cut.Drop{Pass: x.pass, Piece: cut.Piece{Segment: x.segment, Start: x.start, End: x.end}, Units: x.units, Step: x.step})
				}
			}
			s.Partitions = append(s.Partitions, q)
		}
		body.Datasets = append(body.Datasets, s)
	}
	return body
}

// ofGroup is what was settled before the generation began, and its acks and drops up to
// step. dropped counts the units of all drops in it.
func (ps *pass) ofGroup(step int64) (set line.Set, records cut.Tally, dropped int64) {
	set, records = ps.base.Clone(), ps.records
	for i := range ps.acks {
		if k := &ps.acks[i]; k.step <= step {
			set.Add(k.start, k.end, line.Acked)
			records.Add(k.Tally)
		}
	}
	dropped = ps.kinds[line.Dropped]
	ps.eachLoose(func(x *drop, start, end int64) {
		if x.step <= step {
			set.Add(start, end, line.Dropped)
		} else {
			dropped -= x.units
		}
	})
	return set, records, dropped
}

// ofRank is what the rank restored or bound last, and its own acks up to step.
func (ps *pass) ofRank(r *account, step int64, own *line.Set, records cut.Tally) (line.Set, cut.Tally) {
	set := own.Clone()
	for i := range ps.acks {
		if k := &ps.acks[i]; k.rank == r.no && k.step <= step {
			set.Add(k.start, k.end, line.Acked)
			records.Add(k.Tally)
		}
	}
	return set, records
}

// withSegments completes a body with the segments up to the highest position that it
// names.
func (lg *ledger) withSegments(body *cut.Cut) *cut.Cut {
	for i := range body.Datasets {
		for j := range body.Datasets[i].Partitions {
			q := &body.Datasets[i].Partitions[j]
			if p := lg.partition(q.Number); p != nil && p.identity == q.Identity {
				q.Name = p.name
				if u := p.ds.opt.unit(p.in); u != p.ds.opt.Unit {
					q.Unit = u
				}
				q.Segments, q.Complete = p.segmentsOf(q)
			}
		}
	}
	return body
}

// segmentsOf lists the segments that q needs. complete says that no other segment will
// ever follow them.
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
	for _, x := range q.Dropped {
		high = max(high, x.Piece.Segment)
	}
	if n := len(p.Segs); n > 0 && (q.Later() || p.ds.opt.Shuffle && len(q.Passes)+len(q.Excluded) > 0) {
		high = p.Segs[n-1].ID
	}
	if n := len(p.Segs); n > 0 && !p.ds.opt.isPushed(p.identity) && len(p.Segs[n-1].Locator) > 0 && slices.ContainsFunc(p.Segs, trimmed) {
		high = p.Segs[n-1].ID // the last one tells the source what it has forgotten (sources.Forgetter)
	}
	for i := range p.Segs {
		if s := &p.Segs[i]; s.ID <= high {
			segs = append(segs, sources.Segment{ID: s.ID, Start: s.Start, End: s.End, Sealed: s.Sealed, Locator: slices.Clone(s.Locator), Name: s.Name})
		}
	}
	return segs, p.Complete && len(segs) == len(p.Segs)
}

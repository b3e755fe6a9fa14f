package shardsvc

import (
	"math"
	"slices"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
)

// CutInfo is a kept cut without its body.
type CutInfo struct {
	ID         uint64
	State      CutState
	Order      uint64 // grows
	Epoch      uint32
	Generation uint32
	Rank       int64 // cut.Group, or whose
	Step       int64
	Path       string
	Units      cut.Units // of all datasets
	Records    cut.Tally // in Units.Acked
}

// Cuts lists what is kept, voided ones too, in order.
func (c *Core) Cuts() []CutInfo {
	var all []CutInfo
	for _, k := range c.cuts {
		if k.state == cutUnbound {
			continue
		}
		all = append(all, k.info())
	}
	return all
}

func (k *keptCut) info() CutInfo {
	i := CutInfo{ID: k.id, State: k.state, Order: k.order, Epoch: k.epoch, Generation: k.generation, Rank: k.rank, Step: k.step, Path: k.path}
	if k.state != CutVoided {
		i.Units, i.Records = k.units, k.records // people and metrics ask often, and a body may be megabytes
	}
	return i
}

// CutBody is a kept cut, as its manifest has it.
func (c *Core) CutBody(id uint64) (*cut.Cut, bool) {
	k := c.kept(id)
	if k == nil || k.state == CutVoided || k.state == cutUnbound {
		return nil, false
	}
	return c.whole(k), true
}

// MarkInfo is a low mark of one (partition, pass): all before it is in the cuts
// that the mark is of.
type MarkInfo struct {
	Partition PartitionNo
	Identity  string
	Pass      uint32
	Segment   int64 // of the source, or 0 where the pass is shuffled
	Offset    int64
	Units     int64 // from there to head
	Shuffled  bool  // Segment and Offset are in order space: a source can make nothing of them unless Units is 0
}

// BoundMarks are what a broker may be told as our progress: the low mark of the
// newest bound cut (private: of the union of the ranks' newest). One a partition,
// in its oldest pass that is not wholly bound; partitions without segments have
// none. Where nothing can ever be bound, or a shared job never did, it is what is
// acked.
func (c *Core) BoundMarks(id DatasetID) []MarkInfo {
	return c.lowMarks(id, c.boundLow(id))
}

// boundLow gives the bound mark of any pass of a dataset, folded ones too.
func (c *Core) boundLow(id DatasetID) func(*pass) int64 {
	d := c.dataset(id)
	if d == nil || d.acksBind || !d.folds {
		return func(ps *pass) int64 {
			if ps.n < ps.p.folded {
				return ps.p.LineEnd()
			}
			return ps.marks().bound
		}
	}
	l := c.linesOf(c.newestBound(nil))
	return func(ps *pass) int64 { return l.of(ps.p, ps.n).Low }
}

// HoldMarks are what must not be deleted: the low mark of the oldest kept cut
// (private: of the union of the ranks' oldest). Without a kept cut they are the
// BoundMarks.
func (c *Core) HoldMarks(id DatasetID) []MarkInfo {
	held := c.oldest()
	if held == nil {
		return c.BoundMarks(id)
	}
	bound := c.boundLow(id)
	return c.lowMarks(id, func(ps *pass) int64 { return min(held.of(ps.p, ps.n).Low, bound(ps)) })
}

func (c *Core) lowMarks(id DatasetID, low func(*pass) int64) []MarkInfo {
	d := c.dataset(id)
	if d == nil {
		return nil
	}
	var all []MarkInfo
	for _, p := range d.parts {
		if len(p.Segs) == 0 {
			continue
		}
		end := p.LineEnd()
		ps, at := p.line(0), int64(0)
		for n := range max(p.begun(), 1) {
			ps = p.line(n)
			if at = low(ps); at < end || !p.Complete {
				break
			}
		}
		m := MarkInfo{Partition: p.no, Identity: p.identity, Pass: ps.n, Units: ps.Units(at, end), Shuffled: p.ds.opt.Shuffle}
		place := ps.StartPlace(at)
		m.Segment, m.Offset = place.Segment, place.Offset
		all = append(all, m)
	}
	return all
}

// oldest is the union of the oldest cuts that are kept for somebody to go back to;
// nil: there is none.
func (c *Core) oldest() *lines {
	var first []*keptCut // of each rank
	for _, k := range c.cuts {
		if k.state != CutBound && k.state != CutCarried {
			continue
		}
		i := slices.IndexFunc(first, func(x *keptCut) bool { return x.rank == k.rank })
		switch {
		case i < 0:
			first = append(first, k)
		case c.after(first[i], k):
			first[i] = k
		}
	}
	var l *lines
	for _, k := range first {
		l = l.union(c.linesOf(k))
	}
	return l
}

// RewindPlan says what a Rewind would do.
type RewindPlan struct {
	Refused string // why it can not be done; empty: it can
	Again   []AgainInfo
	Records cut.Tally // in all of Again, without times
	Voided  []CutInfo // cuts that would not count any more
	Fenced  []uint32  // ranks whose processes would have to start again
	Gone    Gone
}

// AgainInfo counts acked units of one (partition, pass) that would be pending
// again.
type AgainInfo struct {
	Name      string
	Partition PartitionNo
	Label     string // what people call the partition
	Pass      uint32
	Units     int64
}

// PlanRewind is the dry run of a Rewind to a cut as its manifest has it; nil: to
// the start. What is deleted at the source, the caller knows.
func (c *Core) PlanRewind(k *cut.Cut, deleted []Deletion) (plan RewindPlan) {
	ranks, t, reason := c.rewindTarget(k, "")
	if reason != "" {
		return RewindPlan{Refused: reason}
	}
	var want *lines
	switch {
	case t.kept != nil:
		want = c.linesOf(t.kept)
	case t.foreign != nil:
		want = c.linesOfFit(t.fit)
	}
	for _, p := range c.parts {
		if p == nil {
			continue
		}
		all, more := int64(0), int64(0)
		for n := range max(p.begun(), want.passes(p)) {
			units, others := c.comesAgain(p.line(n), ranks, want.of(p, n))
			if all, more = all+units, more+others; units > 0 {
				plan.Again = append(plan.Again, AgainInfo{p.ds.name, p.no, p.label(), n, units})
			}
		}
		plan.Records.Add(c.recordsAgain(p, ranks, want, all, more))
	}
	for _, x := range c.cuts {
		newer := k == nil || t.kept != nil && x != t.kept && c.after(x, t.kept) ||
			t.foreign != nil && (x.epoch > k.Epoch || x.epoch == k.Epoch && x.step > k.Step || c.cfg.Model != Replicated && c.hasMore(x, want))
		if newer && x.state < CutVoided && (k == nil || x.rank == int64(k.Rank)) {
			plan.Voided = append(plan.Voided, x.info())
		}
	}
	plan.Gone = c.gone(ranks, &t, deleted)
	for _, w := range c.workers {
		if c.cfg.Model == Replicated || k == nil || int64(w.rank.no) == int64(k.Rank) {
			plan.Fenced = append(plan.Fenced, w.rank.no)
		}
	}
	return plan
}

// comesAgain counts what of a pass is acked, by ranks or all, and not in want; and
// the reverse.
func (c *Core) comesAgain(ps *pass, ranks []*rank, want *line.Set) (units, more int64) {
	minus := func(m, n line.Map) (units int64) {
		for _, x := range n {
			m.Clear(x.Start, x.End)
		}
		for _, x := range ps.excludedOnLine() {
			m.Clear(x.Start, x.End)
		}
		for _, x := range m {
			units += ps.Units(x.Start, x.End)
		}
		return units
	}
	if c.cfg.Model != Private {
		return minus(ps.done.Spans(), want.Spans()), minus(want.Spans(), ps.done.Spans())
	}
	for _, r := range ranks {
		set, _ := ps.ofRank(r, math.MaxInt64, c.linesOf(r.base).of(ps.p, ps.n), cut.Tally{})
		units += minus(set.Spans(), want.Spans())
		more += minus(want.Spans(), set.Spans())
	}
	return units, more
}

// recordsAgain are those in units that are acked, by ranks or all, and not in want,
// if not so many more are in want only.
func (c *Core) recordsAgain(p *partition, ranks []*rank, want *lines, units, more int64) cut.Tally {
	if more > 0 {
		return cut.Untold(units)
	}
	was := p.tally()
	if c.cfg.Model == Private {
		was = cut.Tally{}
		for _, r := range ranks {
			was.Add(c.linesOf(r.base).allRecords(p, math.MaxInt))
			for _, ps := range p.passes {
				for i := range ps.acks {
					if k := &ps.acks[i]; k.rank == r.no {
						was.Add(k.Tally)
					}
				}
			}
		}
	}
	now := want.allRecords(p, math.MaxInt)
	if now.Untold > was.Untold { // units that were told later are untold in want: whose rows they are is not known
		return cut.Untold(units)
	}
	was.Without(now)
	return cut.Tally{Rows: was.Rows, Untold: was.Untold}.Within(units)
}

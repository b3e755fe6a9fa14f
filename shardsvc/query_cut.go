package shardsvc

import (
	"slices"

	"github.com/headrace/headrace/shardsvc/cut"
)

// CutInfo is a kept cut without its body.
type CutInfo struct {
	ID         uint64
	State      CutState
	Order      uint64 // grows with every cut that is kept
	Epoch      uint32
	Generation uint32
	Rank       int64 // cut.Group, or the rank that it belongs to
	Step       int64
	Path       string
	Units      cut.Units // of all datasets
	Records    cut.Tally // in Units.Acked
}

// Cuts lists all kept cuts, voided ones too, in order.
func (ck *checkpoints) Cuts() []CutInfo {
	var all []CutInfo
	for _, k := range ck.cuts {
		if k.state == cutUnbound {
			continue
		}
		all = append(all, k.info())
	}
	return all
}

func (k *keptCut) info() CutInfo {
	state := k.state
	if state == cutReturned {
		state = CutMemory
	}
	i := CutInfo{ID: k.id, State: state, Order: k.order, Epoch: k.epoch, Generation: k.generation, Rank: k.rank, Step: k.step, Path: k.path}
	if k.state != CutVoided {
		i.Units, i.Records = k.units, k.records // people and metrics ask often, and a body may be megabytes
	}
	return i
}

// CutBody is a kept cut, as its manifest has it.
func (ck *checkpoints) CutBody(id uint64) (*cut.Cut, bool) {
	k := ck.kept(id)
	if k == nil || k.state == CutVoided || k.state == cutUnbound {
		return nil, false
	}
	return ck.whole(k), true
}

// BoundMarks are the positions that a broker may be told as our progress: the low mark of
// the newest bound cut; for private, that of the union of the ranks' newest cuts. There is
// one for each partition, in its oldest pass that is not wholly bound. A partition without
// segments has none. If no cut can be bound, or a shared job never bound one, they follow
// what is acked. Example: the newest bound cut has [0, 300), and 500 is acked: the mark is
// 300.
func (ck *checkpoints) BoundMarks(id DatasetID) []MarkInfo {
	return ck.ledger.lowMarks(id, ck.boundLow(id))
}

// boundLow gives the bound mark of any pass of a dataset, folded ones too.
func (ck *checkpoints) boundLow(id DatasetID) func(*pass) int64 {
	d := ck.ledger.dataset(id)
	if d != nil && ck.model.byStep && ck.onMemory() {
		l := ck.onStorage()
		return func(ps *pass) int64 { return min(ps.marks().bound, l.of(ps.p, ps.n).Low) }
	}
	if d == nil || d.acksBind || ck.model.byStep {
		return func(ps *pass) int64 {
			if ps.n < ps.p.folded {
				return ps.p.LineEnd()
			}
			return ps.marks().bound
		}
	}
	l := ck.linesOf(ck.newestBound(nil))
	return func(ps *pass) int64 { return l.of(ps.p, ps.n).Low }
}

// onMemory says whether a model began with a cut that is on no storage.
func (ck *checkpoints) onMemory() bool {
	return slices.ContainsFunc(ck.cuts, func(k *keptCut) bool { return k.state == cutReturned })
}

// onStorage is the union of the newest bound cuts of the group, or of each rank.
func (ck *checkpoints) onStorage() *lines {
	return ck.unionOfFirst(func(k *keptCut) bool { return k.state == CutBound }, ck.after)
}

// RetainMarks are the positions from which the source must keep its records: the low mark
// of the oldest kept cut; for private, that of the union of the ranks' oldest cuts. If no
// cut is kept, they are the BoundMarks.
func (ck *checkpoints) RetainMarks(id DatasetID) []MarkInfo {
	oldest := ck.oldest()
	if oldest == nil {
		return ck.BoundMarks(id)
	}
	bound := ck.boundLow(id)
	return ck.ledger.lowMarks(id, func(ps *pass) int64 { return min(oldest.of(ps.p, ps.n).Low, bound(ps)) })
}

// oldest is the union of each owner's oldest bound or carried cut; nil: there is none.
func (ck *checkpoints) oldest() *lines {
	kept := func(k *keptCut) bool { return k.state == CutBound || k.state == CutCarried }
	return ck.unionOfFirst(kept, func(k, x *keptCut) bool { return ck.after(x, k) })
}

// unionOfFirst is the union of each owner's first wanted cut; nil: there is none.
func (ck *checkpoints) unionOfFirst(wanted func(*keptCut) bool, before func(k, x *keptCut) bool) *lines {
	var first []*keptCut
	for _, k := range ck.cuts {
		if !wanted(k) {
			continue
		}
		i := slices.IndexFunc(first, func(x *keptCut) bool { return x.rank == k.rank })
		switch {
		case i < 0:
			first = append(first, k)
		case before(k, first[i]):
			first[i] = k
		}
	}
	var l *lines
	for _, k := range first {
		l = l.union(ck.linesOf(k))
	}
	return l
}

// RewindPlan says what a Rewind would do.
type RewindPlan struct {
	Refused string // why it cannot be done; empty: it can
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
	Unit      string
}

// PlanRewind is the dry run of a Rewind to a cut as its manifest has it; nil: to the
// start. The caller knows what is deleted at the source.
func (ck *checkpoints) PlanRewind(k *cut.Cut, deleted []Deletion) (plan RewindPlan) {
	ranks, t, reason := ck.rewindTarget(k, "")
	if reason != "" {
		return RewindPlan{Refused: reason}
	}
	shares, want := ck.shares(ranks), ck.linesOf(t.kept)
	if t.foreign != nil {
		want = ck.ledger.linesOfFit(t.fit)
	}
	for _, p := range ck.ledger.parts {
		if p == nil {
			continue
		}
		all, more := int64(0), int64(0)
		for n := range max(p.begun(), want.passes(p)) {
			units, others := ck.ledger.comesAgain(p.line(n), shares, want.of(p, n))
			if all, more = all+units, more+others; units > 0 {
				plan.Again = append(plan.Again, AgainInfo{p.ds.name, p.no, p.label(), n, units, p.ds.opt.unit(p.in)})
			}
		}
		plan.Records.Add(ck.ledger.recordsAgain(p, shares, want, all, more))
	}
	for _, x := range ck.cuts {
		newer := k == nil || t.kept != nil && x != t.kept && ck.after(x, t.kept) ||
			t.foreign != nil && (x.epoch > k.Epoch || x.epoch == k.Epoch && x.step > k.Step || ck.overlaps(x, want))
		if newer && x.state.kept() && (k == nil || x.rank == int64(k.Rank)) {
			plan.Voided = append(plan.Voided, x.info())
		}
	}
	plan.Gone = ck.ledger.gone(shares, ck.linesOf(t.kept), t.fit, deleted)
	for _, w := range ck.group.workers {
		if k == nil || int64(k.Rank) == ck.ownerOf(w.rank) {
			plan.Fenced = append(plan.Fenced, w.rank.no)
		}
	}
	return plan
}

// GoneOf lists the input of a kept cut that is deleted. For a private rank it lists only
// records that going back would take out of the rank's model or hands. The rest of the
// input concerns other ranks.
func (ck *checkpoints) GoneOf(id uint64, deleted []Deletion) Gone {
	k := ck.kept(id)
	if k == nil || !k.state.kept() || len(deleted) == 0 {
		return Gone{}
	}
	var ranks []*rank
	if k.rank != cut.Group {
		ranks = append(ranks, ck.group.rankOf(uint32(k.rank)))
	}
	return ck.ledger.gone(ck.shares(ranks), ck.linesOf(k), nil, deleted)
}

// shares are the records that ranks with models of their own have.
func (ck *checkpoints) shares(ranks []*rank) (all []share) {
	for _, r := range ranks {
		if ck.ownerOf(r) != cut.Group {
			all = append(all, share{r.account, ck.ownLines(r)})
		}
	}
	return all
}

package shardsvc

import (
	"slices"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
)

// foldCut folds the acks that are in a bound cut into the settled sets: they need no step
// any more. The cut has the acks of a generation and an owner up to a step. body holds the
// records of a private rank's cut; nil: the steps say everything.
func (lg *ledger) foldCut(body *lines, owner int64, generation uint32, step int64) {
	in := func(x *piece) bool { return x.step <= step && x.generation == generation && includes(owner, x.rank) }
	for _, p := range lg.parts {
		if p == nil || p.ds.folds {
			continue
		}
		was := p.records
		for _, ps := range p.passes {
			lg.foldPieces(ps, func(x *piece) bool { return in(x) && (body == nil || x.step > 0 || body.holds(ps, x)) })
		}
		if p.records != was {
			lg.dirtyPartition(p)
		}
		lg.changed(p)
	}
}

// includes says whether acks of rank no may be in a cut of an owner.
func includes(owner int64, no uint32) bool { return owner == cut.Group || owner == int64(no) }

// holds says whether all of a piece is in the cut. An ack with step 0 is below every step,
// so only the records of the cut say whether it came before the cut was frozen.
func (l *lines) holds(ps *pass, x *piece) bool {
	whole := true
	l.of(ps.p, ps.n).Gaps(x.start, x.end, func(int64, int64) { whole = false })
	return whole
}

func (lg *ledger) foldPieces(ps *pass, in func(*piece) bool) {
	lg.keepPieces(ps, func(x *piece) bool {
		if !in(x) {
			return true
		}
		ps.base.Add(x.start, x.end, line.Acked)
		ps.folded += ps.Units(x.start, x.end)
		lg.basis(ps).Add(x.Tally)
		lg.dirtyPass(ps)
		return false
	})
}

// markBound sets the bound marks where acks fold: they follow the newest bound cut, which
// lies at l. While no cut is bound, acked records count as bound.
func (lg *ledger) markBound(l *lines, bound bool) {
	lg.someBound = bound
	for _, d := range lg.datasets {
		if d != nil {
			d.acksBind = !bound
		}
	}
	for _, p := range lg.parts {
		if p == nil || p.ds.acksBind {
			continue
		}
		p.boundDone = 0
		for n := range p.begun() {
			ps, set := p.line(n), l.of(p, n)
			if ps.boundLow, ps.boundUnits = set.Low, ps.UnitsOf(set); n < p.folded {
				p.boundDone += ps.boundUnits
			}
		}
	}
}

// anyAcked says whether any record is acked, so that it is in a model.
func (lg *ledger) anyAcked() bool {
	for _, p := range lg.parts {
		if p != nil && (p.units[line.Acked] > 0 || slices.ContainsFunc(p.passes, func(ps *pass) bool { return ps.kinds[line.Acked] > 0 })) {
			return true
		}
	}
	return false
}

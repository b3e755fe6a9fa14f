package shardsvc

import (
	"math"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
)

// resettle makes base, and the acks for which keep is true, the settled records of ps. The
// rest below the frontier is pending, except for leased ranges. again counts the units that
// were acked and are pending now; more counts the units that were not acked and are acked
// now. The caller counts the records of base. Example: [0, 300) was settled and base is
// [0, 200): again is 100.
func (lg *ledger) resettle(ps *pass, base line.Set, keep func(*piece) bool) (again, more int64) {
	was := ps.done.Clone()
	lg.keepPieces(ps, keep)
	ps.base = base
	if ps.done != &ps.base {
		lg.rebuildDone(ps)
	}
	again, more = ps.UnitsIn(was.Minus(ps.done)), ps.UnitsIn(ps.done.Minus(&was))
	ps.kinds[line.Excluded] = ps.excludedUnits()
	dropped, loose := ps.droppedUnits()
	ps.kinds[line.Dropped] = dropped
	ps.kinds[line.Acked] = ps.UnitsOf(ps.done) - ps.kinds[line.Excluded] - dropped
	ps.folded = ps.UnitsOf(&ps.base) - ps.kinds[line.Excluded] - (dropped - loose)
	lg.advance(ps, ps.done.High())
	lg.repend(ps)
	if len(ps.tries) > 0 {
		lg.dropTries(ps, 0, ps.frontier)
	}
	lg.dirtyPass(ps)
	ps.p.ds.done = false
	return again, more
}

// repend makes pending everything that is planned and neither settled nor leased.
func (lg *ledger) repend(ps *pass) {
	ps.p.ds.pending -= ps.pendingUnits
	ps.pending, ps.pendingUnits = ps.pending[:0], 0
	var taken line.Set
	taken.Low, taken.Above = ps.done.Low, append(taken.Above, ps.done.Above...)
	for l := ps.leases; l != nil; l = l.pnext {
		taken.Add(l.prefix, l.end, line.Acked)
	}
	taken.Gaps(0, ps.frontier, func(start, end int64) { lg.addPending(ps, start, end) })
}

// excludedUnits counts the units of the pass that stay settled, whichever cut the job goes
// back to.
func (ps *pass) excludedUnits() (n int64) {
	for _, e := range ofPass(ps.p.excluded, ps.n) {
		n += e.units
	}
	return n
}

// unfold makes the folded passes from n on passes again. All of their units are settled.
func (lg *ledger) unfold(p *partition, n uint32) {
	if n >= p.folded {
		return
	}
	live := p.passes
	last := p.folded
	p.passes, p.folded = nil, n
	for ; n < last; n++ {
		ps := lg.newPass(p, n)
		ps.base.Low, ps.done.Low, ps.frontier = p.LineEnd(), p.LineEnd(), p.LineEnd()
		ps.kinds[line.Excluded] = ps.excludedUnits()
		ps.kinds[line.Dropped], _ = ps.droppedUnits()
		ps.kinds[line.Acked] = ps.Units(0, ps.frontier) - ps.kinds[line.Excluded] - ps.kinds[line.Dropped]
		ps.folded = ps.kinds[line.Acked]
		for i, k := range ps.kinds {
			p.units[i] -= k
		}
		lg.dirtyPass(ps)
	}
	p.passes = append(p.passes, live...)
	lg.dirtyPartition(p)
}

// begin makes the passes up to n, if the partition has a line for them.
func (lg *ledger) begin(p *partition, n uint32) {
	if p.ds.opt.Shuffle && !p.Complete {
		return // it has no order yet
	}
	for p.begun() <= n && p.begun() < uint32(p.ds.opt.Passes) {
		if ps := p.last(); ps != nil && ps.frontier < p.LineEnd() {
			old := ps.frontier // a later pass begins when all of it is planned
			lg.advance(ps, p.LineEnd())
			lg.addPending(ps, old, p.LineEnd())
		}
		lg.dirtyPass(lg.newPass(p, p.begun()))
	}
}

// plus adds to m the excluded ranges: they stay settled in any case.
func (ps *pass) plus(m line.Map) line.Set {
	m.With(ps.excludedOnLine(), line.Excluded)
	return line.SetOf(m)
}

// goBack makes l and the excluded ranges the settled records of the whole job. With nil,
// only excluded ranges stay settled. Excluded ranges that are in the model of the cut are
// not excluded any more, except for bad records (givesWay). No lease may be out.
func (lg *ledger) goBack(l *lines) (again comesAgain) {
	for _, p := range lg.parts {
		if p == nil {
			continue
		}
		var want []line.Set
		if l != nil {
			want = l.parts[p.no]
		}
		was, units, more := p.tally(), int64(0), int64(0)
		whole := uint32(0) // passes that stay folded
		for whole < p.folded && int64(whole) < int64(len(want)) && want[whole].Low == p.LineEnd() && !p.dropsIn(whole, l) && len(p.givesWay(whole, l)) == 0 {
			whole++
		}
		lg.unfold(p, whole)
		if len(want) > 0 {
			lg.begin(p, uint32(len(want)-1))
		}
		more += lg.readmit(p, l)
		lg.redrop(p, l)
		// A bad record stays excluded, although the cut has read it.
		if records := l.allRecords(p, int(whole)).Within(p.units[line.Acked]); records != p.records {
			p.records = records
			lg.dirtyPartition(p)
		}
		for _, ps := range p.passes {
			n, m := lg.resettle(ps, ps.plus(l.of(p, ps.n).Spans()), func(*piece) bool { return false })
			units, more = units+n, more+m
			ps.records = l.recordsOf(p, ps.n).Within(ps.folded)
		}
		again.add(p.cameBack(was, units, more))
		lg.changed(p)
	}
	return again
}

// goBackRank moves the model of rank r from own to l. Records that own has and l has not
// are not settled any more. Records that l has and own has not, which must be pending,
// become settled. The records of other ranks stay. Example: own [0, 300), l [0, 200):
// [200, 300) is pending again.
func (lg *ledger) goBackRank(r *account, own, l *lines) (again comesAgain) {
	for _, p := range lg.parts {
		if p == nil || p.ds.folds {
			continue
		}
		was, units, more := p.tally(), int64(0), int64(0)
		for n := range max(p.begun(), l.passes(p)) {
			minus, plus := own.of(p, n).Minus(l.of(p, n)), l.of(p, n).Minus(own.of(p, n))
			if len(minus)+len(plus) == 0 && n < p.folded {
				continue
			}
			lg.unfold(p, n)
			lg.begin(p, n)
			ps := p.passes[n-p.folded]
			base := ps.base.Spans()
			base.Without(minus)
			base.With(plus, line.Acked)
			back, forth := lg.resettle(ps, ps.plus(base), func(k *piece) bool { return k.rank != r.no })
			units, more = units+back, more+forth
		}
		lg.recount(p, own.allRecords(p, math.MaxInt), l.allRecords(p, math.MaxInt))
		again.add(p.cameBack(was, units, more))
		lg.changed(p)
	}
	return again
}

// recount corrects the records of p's bases: minus left them, and plus came.
func (lg *ledger) recount(p *partition, minus, plus cut.Tally) {
	if minus == plus {
		return
	}
	p.records.Without(minus)
	p.records.Add(plus)
	units := p.units[line.Acked]
	for _, ps := range p.passes {
		units += ps.folded
	}
	p.records = p.records.Within(units)
	lg.dirtyPartition(p)
}

// passes counts the passes of p that are in l.
func (l *lines) passes(p *partition) uint32 {
	if l == nil {
		return 0
	}
	return uint32(len(l.parts[p.no]))
}

// takeBack makes the acks of rank r above a step pending again.
func (lg *ledger) takeBack(r *account, above int64) (again comesAgain) {
	for _, p := range lg.parts {
		if p == nil || p.ds.folds {
			continue
		}
		for _, ps := range p.passes {
			again.add(lg.unsettle(ps, r, above))
		}
		lg.changed(p)
	}
	return again
}

// revokeLeases takes all leases from w. Rows that w was handed do not count as lost.
func (lg *ledger) revokeLeases(w *holder, reason string) {
	for w.leases != nil {
		l := w.leases
		lg.reply(Reply{To: w.session(), Kind: ReplyRevoke, Token: l.token, Reason: reason})
		lg.reclaim(l, untouched, ReclaimedRestore)
	}
}

// hasMoreThan says whether has holds a record that is neither in want nor excluded.
func (lg *ledger) hasMoreThan(has, want *lines) bool {
	for _, p := range lg.parts {
		if p == nil {
			continue
		}
		for n := range has.passes(p) {
			excluded, more := line.SetOf(p.line(n).excludedOnLine()), false
			for _, s := range has.of(p, n).Spans() {
				want.of(p, n).Gaps(s.Start, s.End, func(start, end int64) {
					excluded.Gaps(start, end, func(int64, int64) { more = true })
				})
			}
			if more {
				return true
			}
		}
	}
	return false
}

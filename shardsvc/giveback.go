package shardsvc

import (
	"fmt"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
)

// How a range comes back.
type back uint8

const (
	untouched back = iota // never handed to a trainer, or dropped by it: tries stay
	lost                  // handed out and lost: one more try
	unread                // it could not be read or decoded: one more failure
)

// giveBack makes [from, l.end) pending again and closes l if nothing is left.
func (lg *ledger) giveBack(l *lease, from int64, how back) {
	ps := l.pass
	t := l.tries
	if how != untouched {
		t = t.oneMore(how == unread)
	}
	end := l.end
	ps.leasedUnits -= ps.Units(from, end)
	l.end = from
	end = lg.comeBack(ps, from, end)
	if l.asked && l.askAt >= from {
		l.asked = false
	}
	if l.prefix == l.end {
		lg.unlink(l)
	}
	if from < end {
		lg.setTries(ps, from, end, t)
		lg.addPending(ps, from, end)
	}
	lg.changed(ps.p)
}

// reclaim ends a lease for good: its rest is pending again, and its token is unknown.
func (lg *ledger) reclaim(l *lease, how back, reason Reclaimed) {
	ps := l.pass
	at, end := ps.StartPlace(l.prefix), l.reach()-l.shift
	lg.report(Report{Kind: ReportReclaimed, Dataset: ps.p.ds.id, Partition: ps.p.no, Pass: ps.n, Rank: l.w.account.no,
		Segment: at.Segment, Start: at.Offset, End: end, Units: ps.Units(l.prefix, l.reach()), Token: l.token, Agent: l.w.speaker.name, Reclaimed: reason})
	lg.stats.Reclaims++
	open := l.prefix < l.end
	lg.giveBack(l, l.prefix, how)
	if open {
		lg.leases.erase(l.slot)
	}
}

// addPending makes a range pending. Each part keeps its stored tries.
func (lg *ledger) addPending(ps *pass, start, end int64) {
	units := ps.Units(start, end)
	ps.pendingUnits += units
	ps.p.ds.pending += units
	ps.pending.Set(start, end, 0)
	i, j := ps.tries.Overlap(start, end)
	for ; i < j; i++ {
		s := ps.tries[i]
		ps.pending.Set(max(s.Start, start), min(s.End, end), s.Val)
	}
}

// setTries stores t for a range; 0 is not stored.
func (lg *ledger) setTries(ps *pass, start, end int64, t tries) {
	if t == 0 && len(ps.tries) == 0 {
		return
	}
	if i, j := ps.tries.Overlap(start, end); j == i+1 && ps.tries[i].Start <= start && ps.tries[i].End >= end && ps.tries[i].Val == uint32(t) {
		return
	}
	lg.rewriteTries(ps, start, end, func() {
		if t == 0 {
			ps.tries.Clear(start, end)
		} else {
			ps.tries.Set(start, end, uint32(t))
		}
	})
}

// rewriteTries applies change, which touches only [start, end), and stores the result.
func (lg *ledger) rewriteTries(ps *pass, start, end int64, change func()) {
	i, j := ps.tries.Overlap(max(start-1, 0), end+1)
	for ; i < j; i++ {
		lg.putTries(ps, ps.tries[i], true)
	}
	change()
	lg.dropTries(ps, max(start-1, 0), end+1) // a settled part that was split off
	i, j = ps.tries.Overlap(max(start-1, 0), end+1)
	for ; i < j; i++ {
		lg.putTries(ps, ps.tries[i], false)
	}
}

func (lg *ledger) putTries(ps *pass, s line.Span, gone bool) {
	at := ps.StartPlace(s.Start)
	key := func(b []byte) []byte {
		return appendRangeKey(b, keyTries, ps.p.ds.id, ps.p.no, ps.n, at.Segment, at.Offset)
	}
	if gone {
		lg.fx.put(Delete, key, nil)
		return
	}
	v := triesValue{ps.EndPlace(s.End), s.Val}
	lg.fx.put(Set, key, v.append)
}

// dropTries deletes the tries of ranges that are wholly settled now.
func (lg *ledger) dropTries(ps *pass, start, end int64) {
	i, j := ps.tries.Overlap(start, end)
	n := i
	for k := i; k < j; k++ {
		if s := ps.tries[k]; ps.done.Prefix(s.Start) >= s.End {
			lg.putTries(ps, s, true)
		} else {
			ps.tries[n] = s
			n++
		}
	}
	ps.tries = append(ps.tries[:n], ps.tries[j:]...)
}

func (lg *ledger) clearTries(ps *pass, start, end int64) {
	i, j := ps.tries.Overlap(start, end)
	for ; i < j; i++ {
		lg.putTries(ps, ps.tries[i], true)
	}
	ps.tries.Clear(start, end)
}

// forgiveFailures forgets how often ranges could not be read. It keeps how often they were
// lost.
func (lg *ledger) forgiveFailures(ps *pass) {
	old := append(line.Map(nil), ps.tries...)
	for _, s := range old {
		if tries(s.Val).failures() > 0 {
			lg.setTries(ps, s.Start, s.End, tries(s.Val).forgiven())
		}
	}
	old = append(old[:0], ps.pending...)
	for _, s := range old {
		ps.pending.Set(s.Start, s.End, uint32(tries(s.Val).forgiven()))
	}
	for l := ps.leases; l != nil; l = l.pnext {
		l.tries = l.tries.forgiven()
	}
}

// owned returns the open lease that k names, if one of a's processes holds it.
func (lg *ledger) owned(a *speaker, k Token) *lease {
	if s := lg.find(k); s != nil && s.l != nil && s.l.w.speaker == a {
		return s.l
	}
	return nil
}

func (lg *ledger) release(a *speaker, r *Release) {
	l := lg.owned(a, r.Token)
	if l == nil {
		return
	}
	from := min(max(l.line(r.Prefix), l.prefix), l.end)
	lg.reportBack(l, from, ReclaimedReleased)
	lg.giveBack(l, from, untouched)
}

// maxFailures is how often reading a range of an input with an end may fail. If the source
// is away, that says nothing about the range, and does not count.
const maxFailures = 3

func (lg *ledger) readFailure(a *speaker, f *ReadFailure) {
	l := lg.owned(a, f.Token)
	if l == nil {
		return
	}
	from := min(max(l.line(f.At), l.prefix), l.end)
	switch {
	case f.Lost != nil:
		lg.readLoss(l, from, f)
		return
	case len(f.Bad) > 0:
		lg.readBad(l, from, f)
		return
	}
	p, d := l.pass.p, l.pass.p.ds
	at, end := l.pass.StartPlace(from), max(from, l.reach())-l.shift
	failures := l.tries.failures() + 1
	if !f.Permanent && f.Away {
		lg.reportBack(l, from, ReclaimedSourceAway)
		lg.giveBack(l, from, untouched)
		return
	}
	lg.reportBack(l, from, ReclaimedReadFailed)
	lg.giveBack(l, from, unread)
	if f.Permanent || failures >= maxFailures && !p.Growing() { // a dataset without an end waits until its source answers
		then := ""
		if !f.Permanent {
			then = fmt.Sprintf("; when the source answers again, run `headrace dataset resume %s`: it goes on there, and nothing is lost", d.name)
		}
		lg.failDataset(d, fmt.Sprintf("partition %s pass %d: [%d, %d) of segment %d cannot be read (%s, try %d): %s%s",
			p.label(), l.pass.n, at.Offset, end, at.Segment, f.Kind, failures, f.Message, then), false)
	}
}

func (lg *ledger) reportBack(l *lease, from int64, reason Reclaimed) {
	ps := l.pass
	at, end := ps.StartPlace(from), max(from, l.reach())
	lg.stats.Reclaims++
	lg.report(Report{Kind: ReportReclaimed, Dataset: ps.p.ds.id, Partition: ps.p.no, Pass: ps.n, Rank: l.w.account.no,
		Segment: at.Segment, Start: at.Offset, End: end - l.shift, Units: ps.Units(from, end), Token: l.token, Agent: l.w.speaker.name, Reclaimed: reason})
}

// unsettle takes the acks of rank r above a step out of the settled set. The base and the
// excluded ranges stay.
func (lg *ledger) unsettle(ps *pass, r *account, above int64) (all comesAgain) {
	var again []line.Span
	lg.keepPieces(ps, func(k *piece) bool {
		if k.rank != r.no || k.step <= above {
			return true
		}
		again = append(again, line.Span{Start: k.start, End: k.end})
		all.Tally.Add(cut.Tally{Rows: k.Rows, Untold: k.Untold})
		return false
	})
	if len(again) == 0 {
		return all
	}
	lg.rebuildDone(ps)
	for _, s := range again {
		n := ps.Units(s.Start, s.End)
		ps.kinds[line.Acked] -= n
		all.units += n
		lg.addPending(ps, s.Start, s.End)
	}
	ps.p.ds.done = false
	return all
}

// rebuildDone computes done from the base, the acks and the drops.
func (lg *ledger) rebuildDone(ps *pass) {
	ps.done.Low, ps.done.Above = ps.base.Low, append(ps.done.Above[:0], ps.base.Above...)
	for _, k := range ps.acks {
		ps.done.Add(k.start, k.end, line.Acked)
	}
	ps.eachLoose(func(_ *drop, start, end int64) { ps.done.Add(start, end, line.Dropped) })
}

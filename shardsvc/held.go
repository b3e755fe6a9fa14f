package shardsvc

import (
	"slices"

	"github.com/headrace/headrace/shardsvc/line"
)

// held takes a lease that its holder asserts again.
func (lg *ledger) held(a *speaker, w *holder, known bool, h *Held) {
	if p := lg.partition(h.Partition); p != nil && p.ds.opt.Shuffle {
		h.Segment = 0 // a trainer that came back names the segment it read
	}
	lg.clipHeld(h)
	if w == nil {
		lg.refuseHeld(a, h, "its worker has not joined")
		return
	}
	if s := lg.find(h.Token); s != nil {
		lg.heldAgain(a, w, s, h)
		return
	}
	if h.Token.Term < lg.term && lg.settledBy(w, h) {
		lg.heldReply(a, h, h.End, h.End)
		return
	}
	if h.Token.Term >= lg.term || h.Token.Epoch != lg.epoch || !lg.recovering || !known || h.Token.Sequence>>slotBits > maxTaken {
		lg.refuseHeld(a, h, "unknown or fenced token: its rows belong to others")
		return
	}
	lg.heldOver(a, w, h)
}

// clipHeld shortens a lease that ended ahead of head. Its segment was sealed meanwhile,
// and the holder was not told yet. Example: lease [480, 2000), sealed at 510: it ends at
// 510.
func (lg *ledger) clipHeld(h *Held) {
	p := lg.partition(h.Partition)
	if p == nil || p.ds.opt.Shuffle || p.Growing() {
		return
	}
	if i := p.SegByID(h.Segment); i >= 0 && i == len(p.Segs)-1 {
		if s := &p.Segs[i]; s.Start <= h.Start && max(h.Start, h.Frontier) <= s.End {
			h.End = min(h.End, s.End)
		}
	}
}

func (lg *ledger) refuseHeld(a *speaker, h *Held, reason string) {
	lg.reply(Reply{To: a.session, Kind: ReplyHeld, Token: h.Token, Refused: true, Reason: reason})
	lg.report(Report{Kind: ReportHeldRefused, Dataset: h.Dataset, Partition: h.Partition, Pass: h.Pass,
		Segment: h.Segment, Start: h.Start, End: h.End, Token: h.Token, Agent: a.name, Reason: reason})
}

// settledBy says whether everything that h claims is settled, and no rank but w's settled
// it. In a shared model acks fold at once, so it is not known which rank settled what: then
// it is enough that everything is settled. A folded pass is settled wholly.
func (lg *ledger) settledBy(w *holder, h *Held) bool {
	if w.state == fenced {
		return false
	}
	if lg.folds && lg.ofFoldedPass(h) {
		return true
	}
	ps, from, end := lg.claimed(h)
	if ps == nil || from < end {
		return false
	}
	start, _ := ps.OnLine(line.Place{Segment: h.Segment, Offset: h.Start})
	return !slices.ContainsFunc(ps.acks, func(k piece) bool { return k.start < end && start < k.end && k.rank != w.account.no })
}

func (lg *ledger) ofFoldedPass(h *Held) bool {
	p := lg.partition(h.Partition)
	return p != nil && p.ds.id == h.Dataset && h.Token.Epoch == lg.epoch && h.Pass < p.folded
}

// claimed returns the part of h that is not settled, on the line: [from, end).
func (lg *ledger) claimed(h *Held) (ps *pass, from, end int64) {
	p := lg.partition(h.Partition)
	if p == nil || p.ds.id != h.Dataset || h.Token.Epoch != lg.epoch || h.Pass < p.folded || h.Pass >= p.begun() {
		return nil, 0, 0
	}
	ps = p.passes[h.Pass-p.folded]
	if at := ps.trimmedAway(h.Segment); at >= 0 {
		return ps, at, at
	}
	start, ok := ps.OnLine(line.Place{Segment: h.Segment, Offset: h.Start})
	end, ok2 := ps.OnLine(line.Place{Segment: h.Segment, Offset: h.End})
	if !ok || !ok2 || start > end {
		return nil, 0, 0
	}
	return ps, max(start, ps.done.Prefix(start)), end
}

// heldAgain is for a lease that both sides know. The lease shrinks to the asserted part.
func (lg *ledger) heldAgain(a *speaker, w *holder, s *slot, h *Held) {
	l := s.l
	switch {
	case s.holder() != w || w.state == fenced || s.token.Epoch != lg.epoch:
		lg.refuseHeld(a, h, "another worker holds it")
		return
	case l == nil:
		lg.heldReply(a, h, s.final, s.final)
		return
	case l.line(h.Start) > l.prefix:
		lg.refuseHeld(a, h, "it claims less than the lease: rows before its start are not settled")
		lg.reclaim(l, lost, ReclaimedNotReasserted)
		return
	}
	l.asserted = true
	l.frontier = min(max(l.line(h.Frontier), l.prefix), l.end)
	lg.growTo(l.pass.p, line.Place{Segment: l.segment, Offset: l.frontier - l.shift})
	if end := max(l.line(h.End), l.prefix); end < l.end {
		lg.reportBack(l, end, ReclaimedNotReasserted)
		lg.giveBack(l, end, untouched)
	}
	lg.heldReply(a, h, l.prefix-l.shift, l.end-l.shift)
}

func (lg *ledger) heldReply(a *speaker, h *Held, prefix, end int64) {
	lg.reply(Reply{To: a.session, Kind: ReplyHeld, Token: h.Token, Prefix: prefix, End: end})
}

// heldOver takes over a lease of an older term, if its rows are nobody else's.
func (lg *ledger) heldOver(a *speaker, w *holder, h *Held) {
	p := lg.partition(h.Partition)
	if p == nil || p.ds.id != h.Dataset {
		lg.refuseHeld(a, h, "no such partition")
		return
	}
	if h.Pass < p.folded {
		lg.heldReply(a, h, h.End, h.End)
		return
	}
	if h.Pass >= p.begun() {
		lg.refuseHeld(a, h, "that pass has not begun")
		return
	}
	ps := p.passes[h.Pass-p.folded]
	if i := p.SegByID(h.Segment); i >= 0 && ps.Order == nil && p.Segs[i].Sealed {
		h.End = max(h.Start, min(h.End, p.Segs[i].End)) // it ended ahead of head, where nothing comes any more
	}
	lg.growTo(p, line.Place{Segment: h.Segment, Offset: max(h.Start, min(h.Frontier, h.End))}) // delivered records were there
	if ps.trimmedAway(h.Segment) >= 0 {
		lg.heldReply(a, h, h.End, h.End)
		return
	}
	start, ok := ps.OnLine(line.Place{Segment: h.Segment, Offset: h.Start})
	end, ok2 := ps.OnLine(line.Place{Segment: h.Segment, Offset: h.End})
	if !ok || !ok2 || start > end {
		lg.refuseHeld(a, h, "no such range")
		return
	}
	prefix := ps.done.Prefix(start)
	if prefix >= end {
		lg.heldReply(a, h, h.End, h.End)
		return
	}
	if ps.done.Touches(prefix, end) || lg.overlapsLease(ps, prefix, end) || p.holder != nil && p.holder != w {
		lg.refuseHeld(a, h, "its rows belong to others")
		return
	}
	old := ps.frontier
	if end > old {
		lg.advance(ps, end)
		lg.addPending(ps, old, max(old, start))
	}
	units := ps.Units(prefix, min(end, max(old, prefix))) // the rest was not planned
	ps.pending.Clear(prefix, end)
	ps.pendingUnits -= units
	p.ds.pending -= units
	t := tries(0)
	i, j := ps.tries.Overlap(prefix, end)
	for ; i < j; i++ {
		t = max(t, tries(ps.tries[i].Val))
	}
	l := lg.open(lg.leases.takeOver(h.Token), ps, w, prefix, end, t)
	lg.setEnded(w.account, false)
	l.start, l.asserted = start, true
	l.frontier = min(max(l.line(h.Frontier), prefix), end)
	lg.changed(p)
	lg.heldReply(a, h, prefix-l.shift, end-l.shift)
}

// overlapsLease says whether a part of [start, end) is leased.
func (lg *ledger) overlapsLease(ps *pass, start, end int64) bool {
	// A range that is pending is not leased. After a restart everything that is planned and
	// not settled is pending, so this answers for nearly all leases. There may be many of them.
	planned := min(end, ps.frontier)
	if i, j := ps.pending.Overlap(start, planned); start >= planned || i+1 == j && ps.pending[i].Start <= start && planned <= ps.pending[i].End {
		return false
	}
	for l := ps.leases; l != nil; l = l.pnext {
		if l.prefix < end && start < l.end {
			return true
		}
	}
	return false
}

// growTo moves head to at, if at lies beyond it. The end of an unsealed segment is not
// stored while it grows. A position that was stored, settled or delivered proves that the
// segment had grown so far.
func (lg *ledger) growTo(p *partition, at line.Place) {
	if n := len(p.Segs); n > 0 && !p.ds.opt.Shuffle {
		if s := &p.Segs[n-1]; s.ID == at.Segment && !s.Sealed && at.Offset > s.End && at.Offset <= line.Max && p.Total+at.Offset-s.End <= line.Max {
			lg.setHead(p, at.Offset)
			if lg.started {
				lg.changed(p) // the next lease may begin at the new head
			}
		}
	}
}

// confirmed says that w has named everything that it holds. A lease that it did not name
// never arrived.
func (lg *ledger) confirmed(w *holder) {
	for l := w.leases; l != nil; {
		next := l.wnext
		if !l.asserted {
			lg.reclaim(l, untouched, ReclaimedNotReasserted)
		} else {
			l.asserted, l.asked = false, false
		}
		l = next
	}
}

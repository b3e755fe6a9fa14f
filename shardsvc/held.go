package shardsvc

// held re-asserts a lease.
func (c *Core) held(a *agent, h *Held) {
	if p := c.partition(h.Partition); p != nil && p.ds.opt.Shuffle {
		h.Segment = 0 // a trainer that came back names the segment it read
	}
	w := a.byNumber[h.Worker]
	if w == nil {
		c.refuseHeld(a, h, "its worker has not joined")
		return
	}
	if s := c.find(h.Token); s != nil {
		c.heldAgain(a, w, s, h)
		return
	}
	if h.Token.Term >= c.term || h.Token.Epoch != c.epoch || !c.recovering || !a.known {
		c.refuseHeld(a, h, "unknown or fenced token: its rows belong to others")
		return
	}
	c.heldOver(a, w, h)
}

func (c *Core) refuseHeld(a *agent, h *Held, reason string) {
	c.reply(Reply{To: a.session, Kind: ReplyHeld, Was: h.Token, Token: h.Token, Refused: true, Reason: reason})
	c.report(Report{Kind: ReportHeldRefused, Dataset: h.Dataset, Partition: h.Partition, Pass: h.Pass,
		Segment: h.Segment, Start: h.Start, End: h.End, Token: h.Token, Agent: a.name, Reason: reason})
}

// heldAgain: both sides know the lease; it shrinks to what is asserted.
func (c *Core) heldAgain(a *agent, w *worker, s *slot, h *Held) {
	l := s.l
	switch {
	case s.holder() != w || w.fenced || s.epoch != c.epoch:
		c.refuseHeld(a, h, "another worker holds it")
		return
	case l == nil:
		c.heldReply(a, h, c.leases.current(h.Token), s.final, s.final)
		return
	case l.line(h.Start) > l.prefix:
		c.refuseHeld(a, h, "it claims less than the lease: rows before its start are not settled")
		c.reclaim(l, lost, "not_reasserted")
		return
	}
	l.asserted = true
	l.frontier = min(max(l.line(h.Frontier), l.prefix), l.end)
	if end := max(l.line(h.End), l.prefix); end < l.end {
		c.reportBack(l, end, "not_reasserted")
		c.giveBack(l, end, untouched)
	}
	c.heldReply(a, h, l.token, l.prefix-l.shift, l.end-l.shift)
}

func (c *Core) heldReply(a *agent, h *Held, token Token, prefix, end int64) {
	c.reply(Reply{To: a.session, Kind: ReplyHeld, Was: h.Token, Token: token, Prefix: prefix, End: end})
}

// heldOver takes over a lease of an older term, if its rows are nobody else's.
func (c *Core) heldOver(a *agent, w *worker, h *Held) {
	p := c.partition(h.Partition)
	if p == nil || p.ds.id != h.Dataset {
		c.refuseHeld(a, h, "no such partition")
		return
	}
	if h.Pass < p.folded {
		c.heldReply(a, h, h.Token, h.End, h.End)
		return
	}
	if h.Pass >= p.begun() {
		c.refuseHeld(a, h, "that pass has not begun")
		return
	}
	ps := p.passes[h.Pass-p.folded]
	c.growTo(p, place{h.Segment, h.End})
	start, ok := ps.onLine(place{h.Segment, h.Start})
	end, ok2 := ps.onLine(place{h.Segment, h.End})
	if !ok || !ok2 || start > end {
		c.refuseHeld(a, h, "no such range")
		return
	}
	prefix := ps.done.prefix(start)
	if prefix >= end {
		c.heldReply(a, h, h.Token, h.End, h.End)
		return
	}
	if ps.done.touches(prefix, end) || c.overlapsLease(ps, prefix, end) || p.holder != nil && p.holder != w {
		c.refuseHeld(a, h, "its rows belong to others")
		return
	}
	if old := ps.frontier; end > old {
		c.advance(ps, end)
		c.addPending(ps, old, end)
	}
	units := ps.units(prefix, end)
	ps.pending.clear(prefix, end)
	ps.pendingUnits -= units
	p.ds.pending -= units
	t := tries(0)
	i, j := ps.tries.overlap(prefix, end)
	for ; i < j; i++ {
		t = max(t, tries(ps.tries[i].val))
	}
	l := c.newLease(ps, w, prefix, end, t)
	l.start, l.asserted = start, true
	l.frontier = min(max(l.line(h.Frontier), prefix), end)
	c.leases.retell(h.Token, l)
	c.changed(p)
	c.heldReply(a, h, l.token, prefix-l.shift, end-l.shift)
}

func (c *Core) overlapsLease(ps *pass, start, end int64) bool {
	for l := ps.leases; l != nil; l = l.pnext {
		if l.prefix < end && start < l.end {
			return true
		}
	}
	return false
}

// growTo: the end of an unsealed segment is not stored as it grows; what was
// stored or is held beyond it proves how far it had grown.
func (c *Core) growTo(p *partition, at place) {
	if n := len(p.segs); n > 0 && !p.ds.opt.Shuffle {
		if s := &p.segs[n-1]; s.id == at.segment && !s.sealed && at.offset > s.end && at.offset <= maxLine && p.total+at.offset-s.end <= maxLine {
			p.total += at.offset - s.end
			p.ds.total += at.offset - s.end
			s.end = at.offset
		}
	}
}

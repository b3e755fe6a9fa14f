package shardsvc

import "slices"

// maxSuperseded incarnations of an agent are remembered as ones that may not
// come back.
const maxSuperseded = 8

// agent is a known agent: it has a session, or had one less than a TTL ago.
type agent struct {
	name        string
	incarnation uint64
	superseded  []uint64
	session     Session // 0: lost
	lastHeard   Time
	helloed     bool // in this term
	known       bool // since before this term
	gone        bool
	workers     []*worker
	byNumber    map[uint32]*worker // of this incarnation
	dirty       bool
}

func (c *Core) newAgent(name string, incarnation uint64) *agent {
	a := &agent{name: name, incarnation: incarnation, lastHeard: c.now, byNumber: map[uint32]*worker{}}
	c.agents = append(c.agents, a)
	c.byName[name] = a
	return a
}

// hello opens or resumes a session; false: it was turned away.
func (c *Core) hello(m *Message) bool {
	h := m.Hello
	if m.Session == 0 || c.sessions[m.Session] != nil {
		c.rejected("agent %q says hello twice on session %d", h.Agent, m.Session)
		return false
	}
	a := c.byName[h.Agent]
	switch {
	case a == nil:
		a = c.newAgent(h.Agent, h.Incarnation)
		c.timers.push(timer{at: c.now + c.cfg.SessionTTL, kind: timerSession, a: a})
	case slices.Contains(a.superseded, h.Incarnation):
		c.reply(Reply{To: m.Session, Kind: ReplyClose, Reason: "a newer process of agent " + h.Agent + " took over"})
		return false
	case a.incarnation != h.Incarnation:
		c.closeSession(a, "a newer process of agent "+h.Agent+" took over")
		for _, w := range a.workers {
			c.detach(w, a.lastHeard+c.cfg.SessionTTL)
		}
		a.superseded = append(a.superseded, a.incarnation)
		if n := len(a.superseded) - maxSuperseded; n > 0 {
			a.superseded = a.superseded[n:]
		}
		a.incarnation = h.Incarnation
	default:
		c.closeSession(a, "a newer stream of agent "+h.Agent+" took over")
		for _, w := range a.workers {
			w.unconfirmed = w.state != detached
		}
	}
	a.session, a.helloed = m.Session, true
	c.sessions[m.Session] = a
	c.dirtyAgent(a)
	c.reply(Reply{To: m.Session, Kind: ReplyHello, Term: c.term, Epoch: c.epoch, Generation: c.generation})
	return true
}

// closeSession cuts an agent from its stream. Its TTL goes on.
func (c *Core) closeSession(a *agent, reason string) {
	if a.session == 0 {
		return
	}
	c.reply(Reply{To: a.session, Kind: ReplyClose, Reason: reason})
	c.lost(a.session)
}

// lost: the stream broke. Requests are numbered in the stream and end with it.
func (c *Core) lost(s Session) {
	a := c.sessions[s]
	if a == nil {
		return
	}
	delete(c.sessions, s)
	a.session = 0
	for _, w := range a.workers {
		c.dropRequests(w)
	}
}

// asserted ends the part of a message that says who and what is still there:
// what the agent holds of a worker that came again, and did not name, never
// arrived; workers that it did not name are without an agent.
func (c *Core) asserted(a *agent) {
	for _, w := range c.rejoined {
		for l := w.leases; l != nil; {
			next := l.wnext
			if !l.asserted {
				c.reclaim(l, untouched, "not_reasserted")
			} else {
				l.asserted, l.asked = false, false
			}
			l = next
		}
	}
	clear(c.rejoined)
	c.rejoined = c.rejoined[:0]
	for _, w := range a.workers {
		if w.unconfirmed {
			w.unconfirmed = false
			c.detach(w, c.now+c.cfg.SessionTTL)
		}
	}
	c.checkRecovery()
}

// sessionDue ends an agent that was not heard for a TTL.
func (c *Core) sessionDue(a *agent) {
	if a.gone {
		return
	}
	if at := a.lastHeard + c.cfg.SessionTTL; c.now < at {
		c.timers.push(timer{at: at, kind: timerSession, a: a})
		return
	}
	c.expire(a)
}

func (c *Core) expire(a *agent) {
	c.report(Report{Kind: ReportExpired, Agent: a.name})
	c.closeSession(a, "the session expired: nothing was heard for its TTL")
	for _, w := range slices.Clone(a.workers) {
		if w.gone { // the end of the generation took it
			continue
		}
		if w.state == detached && c.now < w.deadline {
			continue // its own process was seen later than its agent
		}
		c.workerLost(w, lost, "expired")
	}
	if slices.ContainsFunc(a.workers, func(w *worker) bool { return !w.gone }) {
		a.lastHeard = c.now
		c.timers.push(timer{at: c.now + c.cfg.SessionTTL, kind: timerSession, a: a})
		return
	}
	a.gone = true
	delete(c.byName, a.name)
	c.agents = slices.DeleteFunc(c.agents, func(x *agent) bool { return x == a })
	c.fx.put(Delete, func(b []byte) []byte { return append(append(b, keyAgent), a.name...) }, nil)
}

// held re-asserts a lease.
func (c *Core) held(a *agent, h *Held) {
	w := a.byNumber[h.Worker]
	if w == nil {
		c.refuseHeld(a, h, "its worker has not joined")
		return
	}
	if l := c.find(h.Token); l != nil {
		c.heldAgain(a, w, l, h)
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
func (c *Core) heldAgain(a *agent, w *worker, l *lease, h *Held) {
	switch {
	case l.w != w || l.w.fenced || l.token.Epoch != c.epoch:
		c.refuseHeld(a, h, "another worker holds it")
		return
	case !l.open:
		c.heldReply(a, h, l.token, l.prefix-l.shift, l.end-l.shift)
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
	l.start, l.asserted, l.was = start, true, h.Token
	l.frontier = min(max(l.line(h.Frontier), prefix), end)
	c.leases.retold[h.Token] = l
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

// checkRecovery ends the wait of a new term when every known agent is back
// with every worker that may run.
func (c *Core) checkRecovery() {
	if !c.recovering {
		return
	}
	for _, a := range c.agents {
		if !a.helloed {
			return
		}
	}
	for _, r := range c.ranks {
		if r.others || r.attached && r.worker == nil {
			return
		}
	}
	c.recovered()
}

// recoveryDue: one TTL has passed; who is not back is lost.
func (c *Core) recoveryDue() {
	if !c.recovering {
		return
	}
	for _, a := range slices.Clone(c.agents) {
		if !a.helloed {
			c.expire(a)
		}
	}
	ended := false
	for _, r := range c.ranks {
		if r.attached && r.worker == nil {
			r.attached, r.fenced = false, true
			ended = c.cfg.Model == Replicated && r.generation == c.generation
		}
		r.others = r.older > 0
		c.dirtyRank(r)
	}
	if ended {
		c.endGeneration("a member did not come back after a restart of the master")
	}
	c.recovered()
}

func (c *Core) recovered() {
	if !c.recovering {
		return
	}
	c.recovering = false
	c.report(Report{Kind: ReportRecovered})
	for _, d := range c.datasets {
		if d != nil {
			c.kick(d)
		}
	}
}

package shardsvc

import (
	"slices"
)

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
		c.reply(Reply{To: m.Session, Kind: ReplyClose, Close: CloseReplaced, Reason: "a newer process of agent " + h.Agent + " took over"})
		return false
	case a.incarnation != h.Incarnation:
		c.closeSession(a, CloseReplaced, "a newer process of agent "+h.Agent+" took over")
		for _, w := range a.workers {
			c.detach(w, a.lastHeard+c.cfg.SessionTTL)
		}
		a.superseded = append(a.superseded, a.incarnation)
		if n := len(a.superseded) - maxSuperseded; n > 0 {
			a.superseded = a.superseded[n:]
		}
		a.incarnation = h.Incarnation
	default:
		c.closeSession(a, CloseReplaced, "a newer stream of agent "+h.Agent+" took over")
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
func (c *Core) closeSession(a *agent, code CloseCode, reason string) {
	if a.session == 0 {
		return
	}
	c.reply(Reply{To: a.session, Kind: ReplyClose, Close: code, Reason: reason})
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
	c.closeSession(a, CloseExpired, "the session expired: nothing was heard for its TTL")
	for _, w := range slices.Clone(a.workers) {
		if w.gone { // the end of the generation took it
			continue
		}
		if w.state == detached && c.now < w.deadline {
			continue // its own process was seen later than its agent
		}
		c.workerLost(w, "expired")
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
	var gone []*rank
	for _, r := range c.ranks {
		if r.attached && r.worker == nil {
			r.attached, r.fenced = false, true
			gone = append(gone, r)
			ended = c.cfg.Model == Replicated && r.generation == c.generation
		}
		r.others, r.unheard = r.older > 0, false
		c.dirtyRank(r)
	}
	for _, r := range gone {
		if c.cfg.Model == Private {
			c.rankGone(r)
		}
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
	c.recovering, c.yieldsDue = false, true
	c.report(Report{Kind: ReportRecovered})
	for i := 0; i < len(c.workers); i++ {
		c.restoreWaiting(c.workers[i])
	}
	for _, d := range c.datasets {
		if d != nil {
			c.kick(d)
		}
	}
}

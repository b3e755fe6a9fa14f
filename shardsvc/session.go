package shardsvc

import "slices"

// maxSuperseded is how many incarnations of an agent are remembered as ones that may not
// come back.
const maxSuperseded = 8

// agent is a known agent. It has a session, or its last one ended less than a TTL ago. It
// stays known for longer while one of its processes is not given up (LostAfter).
type agent struct {
	speaker
	incarnation uint64
	superseded  []uint64
	lastHeard   Time
	clock       nodeClock
	life        agentLife
	known       bool // since before this term
	workers     []*worker
	byNumber    map[uint32]*worker // of this incarnation
	dirty       bool
}

// agentLife is where an agent stands in this term.
type agentLife uint8

const (
	agentAwaited agentLife = iota // stored by an earlier term, and not heard in this one
	agentHere                     // it said hello, and its session has not expired
	agentExpired                  // it was not heard for a TTL, and its processes are not all given up
	agentGone                     // it is not known any more
)

// heard says that a's session lives.
func (gr *group) heard(a *agent, m *Message) {
	a.lastHeard = gr.now
	a.clock.heard(gr.shell, m.SentAt)
}

func (gr *group) newAgent(name string, incarnation uint64) *agent {
	a := &agent{speaker: speaker{name: name}, incarnation: incarnation, lastHeard: gr.now, byNumber: map[uint32]*worker{}}
	gr.agents = append(gr.agents, a)
	gr.byName[name] = a
	return a
}

// speaksOn is the agent whose session it is; nil: it has ended.
func (gr *group) speaksOn(s Session) *agent { return gr.sessions[s] }

// isKnown says whether a is known since before this term.
func (a *agent) isKnown() bool { return a.known }

// process is what a calls by a number; nil: it has no such process.
func (a *agent) process(number uint32) *worker { return a.byNumber[number] }

// holder is the same process as the ledger knows it.
func (a *agent) holder(number uint32) *holder {
	if w := a.byNumber[number]; w != nil {
		return &w.holder
	}
	return nil
}

// hello opens or resumes a session. It returns false if the agent was turned away.
func (gr *group) hello(m *Message) bool {
	h := m.Hello
	if m.Session == 0 || gr.sessions[m.Session] != nil {
		gr.ledger.rejected("agent %q says hello twice on session %d", h.Agent, m.Session)
		return false
	}
	a := gr.byName[h.Agent]
	switch {
	case a == nil:
		a = gr.newAgent(h.Agent, h.Incarnation)
		gr.timers.push(timer{at: gr.now + gr.cfg.SessionTTL, kind: timerSession, of: a})
	case slices.Contains(a.superseded, h.Incarnation):
		gr.reply(Reply{To: m.Session, Kind: ReplyClose, Close: CloseReplaced, Reason: "a newer process of agent " + h.Agent + " took over"})
		return false
	case a.incarnation != h.Incarnation:
		gr.closeSession(a, CloseReplaced, "a newer process of agent "+h.Agent+" took over")
		for _, w := range a.workers {
			gr.detach(w, a.lastHeard+gr.cfg.LostAfter)
		}
		a.superseded = append(a.superseded, a.incarnation)
		if n := len(a.superseded) - maxSuperseded; n > 0 {
			a.superseded = a.superseded[n:]
		}
		a.incarnation = h.Incarnation
		if h.Clock == 0 {
			a.clock = nodeClock{}
		}
	default:
		gr.closeSession(a, CloseReplaced, "a newer stream of agent "+h.Agent+" took over")
		for _, w := range a.workers {
			w.unconfirmed = !w.isDetached()
		}
	}
	a.session = m.Session
	a.life = agentHere
	if a.clock.name != h.Clock {
		a.clock = nodeClock{name: h.Clock}
	}
	gr.sessions[m.Session] = a
	gr.dirtyAgent(a)
	gr.reply(Reply{To: m.Session, Kind: ReplyHello, Term: gr.term, Epoch: gr.epoch, Generation: gr.generation})
	return true
}

// closeSession closes an agent's stream. Its TTL goes on.
func (gr *group) closeSession(a *agent, code CloseCode, reason string) {
	if a.session == 0 {
		return
	}
	gr.reply(Reply{To: a.session, Kind: ReplyClose, Close: code, Reason: reason})
	gr.lost(a.session)
}

// lost says that the stream of a session broke. Requests are numbered in their stream, so
// they end with it.
func (gr *group) lost(s Session) {
	a := gr.sessions[s]
	if a == nil {
		return
	}
	delete(gr.sessions, s)
	a.session = 0
	for _, w := range a.workers {
		gr.ledger.dropRequests(&w.holder)
	}
}

// asserted ends the part of a message that says which processes and leases are still
// there. Only the first message of a session has it, and messages in which processes join. If
// a process came again and its agent did not name a lease of it, that lease never arrived. A
// process that the agent did not name has no agent.
func (gr *group) asserted(a *agent, first bool) {
	if !first && len(gr.rejoined) == 0 {
		return
	}
	gr.confirmRejoined()
	for _, w := range a.workers {
		if w.unconfirmed {
			w.unconfirmed = false
			gr.detach(w, gr.now+gr.cfg.SessionTTL)
		}
	}
	gr.checkRecovery()
}

func (gr *group) confirmRejoined() {
	for _, w := range gr.rejoined {
		gr.ledger.confirmed(&w.holder)
	}
	clear(gr.rejoined)
	gr.rejoined = gr.rejoined[:0]
}

// sessionDue ends an agent that was not heard for a TTL.
func (gr *group) sessionDue(a *agent) {
	if a.life == agentGone {
		return
	}
	at := a.lastHeard + gr.cfg.SessionTTL
	if gr.recovering && a.life == agentAwaited {
		at = a.lastHeard + gr.cfg.LostAfter // nobody else knows what it holds
	}
	if gr.now < at {
		gr.timers.push(timer{at: at, kind: timerSession, of: a})
		return
	}
	gr.expire(a)
}

// expire ends an agent's session. Its trainers are lost with it, unless LostAfter is
// longer: they have ended themselves by now, but steps that the master has not heard of may
// lie on their node.
func (gr *group) expire(a *agent) {
	if a.life != agentExpired {
		gr.ledger.report(Report{Kind: ReportExpired, Agent: a.name})
	}
	a.life = agentExpired
	gr.closeSession(a, CloseExpired, "the session expired: nothing was heard for its TTL")
	for _, w := range slices.Clone(a.workers) {
		if w.gone() { // it went with its generation
			continue
		}
		if lost := a.lastHeard + gr.cfg.LostAfter; gr.now < lost {
			gr.detach(w, lost)
		}
		if w.isDetached() && gr.now < w.deadline {
			continue // its own process was seen later than its agent
		}
		gr.workerLost(w, ReclaimedExpired)
	}
	if slices.ContainsFunc(a.workers, func(w *worker) bool { return !w.gone() }) {
		a.lastHeard = gr.now
		gr.timers.push(timer{at: gr.now + gr.cfg.SessionTTL, kind: timerSession, of: a})
		return
	}
	a.life = agentGone
	delete(gr.byName, a.name)
	gr.agents = slices.DeleteFunc(gr.agents, func(x *agent) bool { return x == a })
	gr.fx.put(Delete, func(b []byte) []byte { return append(append(b, keyAgent), a.name...) }, nil)
}

// checkRecovery ends the wait of a new term when every known agent is back
// with every worker that may run.
func (gr *group) checkRecovery() {
	if !gr.recovering {
		return
	}
	for _, a := range gr.agents {
		if a.life == agentAwaited {
			return
		}
	}
	for _, r := range gr.ranks {
		if r.others() || r.away() {
			return
		}
	}
	gr.recovered()
}

// recoveryDue ends the wait of a new term after LostAfter (one TTL, unless it is set
// longer). An agent or process that is not back by then is lost.
func (gr *group) recoveryDue() {
	if !gr.recovering {
		return
	}
	for _, a := range slices.Clone(gr.agents) {
		if a.life == agentAwaited {
			gr.expire(a)
		}
	}
	var gone []*rank
	for _, r := range gr.ranks {
		if r.away() {
			r.process = givenUp
			gone = append(gone, r)
			gr.ledger.report(Report{Kind: ReportGivenUp, Rank: r.no, Incarnation: r.incarnation, Reason: "not heard since the master started"})
		}
		if r.unheard {
			gr.ledger.report(Report{Kind: ReportGivenUp, Rank: r.no, Reason: "earlier processes of the rank were not heard since the master started"})
		}
		r.unheard = false
		gr.ledger.dirtyRank(r.account)
	}
	for _, r := range gone {
		gr.kind.lost(r, "a member did not come back after a restart of the master")
	}
	gr.recovered()
}

func (gr *group) recovered() {
	if !gr.recovering {
		return
	}
	gr.recovering = false
	gr.ledger.report(Report{Kind: ReportRecovered})
	gr.above.allKnown()
	gr.ledger.kickAll()
}

func (gr *group) dirtyAgent(a *agent) {
	if !a.dirty {
		a.dirty = true
		gr.dirtyAgents = append(gr.dirtyAgents, a)
	}
}

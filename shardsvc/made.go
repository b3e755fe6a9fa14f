package shardsvc

import "slices"

// Two processes of one rank: the one that was made later is the rank's. The order in
// which they arrive does not tell it, because the agent of the older one may have stood
// still meanwhile, or its way to the master was cut.
//
// Each join says when its process was made, on the clock of its node. Between two
// processes of one node that is exact. Between two nodes it is as exact as the fastest
// message that each agent has sent lately: a node's time is taken to ours by the least lag
// that was seen between the two. If all of them were on their way for 2 s, its process
// counts as made 2 s later than it was. So agents name a new process only when their Hello
// was answered: then there are two messages at least, one of them after the answer.
//
// Nothing of it is stored. After a restart of the master a newcomer that was made before
// it waits until the processes that were there have joined again, or a TTL has passed.
// Of a process that has ended before nothing is known, and arrival counts.

// made is when a process was made.
type made struct {
	clock uint64 // of its node; 0: unknown
	at    Time   // on that clock; 0: unknown
	here  Time   // on ours, or earlier
}

// before says whether a process is known to have been made earlier than another one.
func (m made) before(o made) bool {
	switch {
	case m.at == 0 || o.at == 0:
		return false
	case m.clock != 0 && m.clock == o.clock:
		return m.at < o.at
	}
	return m.here < o.here
}

// newcomer is a process that joins for the first time, and others may come back that were
// made later.
type newcomer struct {
	agent   *agent
	session Session
	join    Join
	at      made
}

// waits keeps a newcomer of a new term back.
func (gr *group) waits(n newcomer) bool {
	if !gr.recovering || n.at.at == 0 || n.at.here >= gr.began || len(gr.waiting) == 0 && !slices.ContainsFunc(gr.ranks, (*rank).away) {
		return false
	}
	gr.waiting = append(gr.waiting, n)
	return true
}

// letIn has them join, those whose agent still speaks for them, once the new term has
// recovered.
func (gr *group) letIn() {
	if gr.recovering || len(gr.waiting) == 0 {
		return
	}
	waiting := gr.waiting
	gr.waiting = nil
	for i := range waiting {
		if n := &waiting[i]; n.agent.session == n.session {
			gr.join(n.agent, &n.join, n.at)
		}
	}
	gr.confirmRejoined()
}

// lagWindow is for how long a lag counts, twice at most. Clocks that drift apart by
// 100 us a second are wrong by 12 ms in that time.
const lagWindow = 60 * Second

// nodeClock is what an agent's messages tell about the clock of its node.
type nodeClock struct {
	name  uint64 // see Hello.Clock
	lag   Time   // of ours against it: the least in this window, and the time on the way
	last  Time   // the least in the window before
	since Time   // when this window began; 0: nothing was heard
}

// heard takes the time at which a message was sent.
func (k *nodeClock) heard(now, sentAt Time) {
	lag := now - sentAt
	switch {
	case sentAt <= 0:
	case k.since == 0:
		k.lag, k.last, k.since = lag, lag, now
	case now >= k.since+lagWindow:
		k.lag, k.last, k.since = lag, k.lag, now
	default:
		k.lag = min(k.lag, lag)
	}
}

// made is when a process was made that was made at a time of the node's.
func (k *nodeClock) made(at, sentAt Time) made {
	if at <= 0 || k.since == 0 {
		return made{}
	}
	at = min(at, sentAt)
	return made{clock: k.name, at: at, here: at + min(k.lag, k.last)}
}

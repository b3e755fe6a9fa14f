package shardsvc

import "slices"

// Of two processes of one rank, the one that was made later keeps the rank. The order in
// which they join does not tell which one that is: the agent of the older process may have
// stood still, or its connection was cut.
//
// Each join says when its process was made, on the clock of its node. Between two
// processes of one node that is exact. Between two nodes it is as exact as the fastest
// message that each agent has sent lately. The master takes the least lag that it saw as
// the difference of the clocks. Example: if all messages of an agent took 2 s, its
// processes count as made 2 s later than they were. So agents name a new process only
// after their Hello was answered: then there are at least two messages, and one of them
// came after the answer.
//
// Nothing of this is stored. After a restart of the master, a newcomer that was made before
// the restart waits until the processes that were there have joined again, or LostAfter has
// passed. Of a process that ended before that, nothing is known, and the order of arrival
// counts.

// made is when a process was made.
type made struct {
	clock uint64 // of its node; 0: unknown
	at    Time   // on that clock; 0: unknown
	here  Time   // that time on our clock, or a little later
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

// newcomer is a process that joins for the first time while others may come back that were
// made later.
type newcomer struct {
	agent   *agent
	session Session
	join    Join
	at      made
}

// waits says whether a newcomer of a new term must wait, and keeps it.
func (gr *group) waits(n newcomer) bool {
	if !gr.recovering || n.at.at == 0 || n.at.here >= gr.began || len(gr.waiting) == 0 && !slices.ContainsFunc(gr.ranks, (*rank).away) {
		return false
	}
	gr.waiting = append(gr.waiting, n)
	return true
}

// letIn has the newcomers join once the new term has recovered, if their agents still
// speak for them.
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

// lagWindow is how long a lag counts; it may count for twice as long. Clocks that drift
// apart by 100 us a second are wrong by 12 ms in that time.
const lagWindow = 60 * Second

// nodeClock is what the messages of an agent say about the clock of its node.
type nodeClock struct {
	name  uint64 // see Hello.Clock
	lag   Time   // our clock minus this one, plus the time on the way: the least in this window
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

// made translates the time at which a process was made from the clock of its node to ours.
func (k *nodeClock) made(at, sentAt Time) made {
	if at <= 0 || k.since == 0 {
		return made{}
	}
	at = min(at, sentAt)
	return made{clock: k.name, at: at, here: at + min(k.lag, k.last)}
}

package shardsvc

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestNothingIsLostOrTakenTwiceWhateverBreaks runs random machines against the
// oracle. Guarantee 1: every record is settled at the end, and END is answered only
// then. Guarantee 3: "Once acked, a record stays acked".
func TestNothingIsLostOrTakenTwiceWhateverBreaks(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newSim(rt, t)
		rt.Repeat(map[string]func(*rapid.T){
			"start":         func(*rapid.T) { s.someStarts() },
			"request":       func(*rapid.T) { s.someRequest() },
			"request2":      func(*rapid.T) { s.someRequest() },
			"deliver":       func(*rapid.T) { s.someDelivery() },
			"deliver2":      func(*rapid.T) { s.someDelivery() },
			"ack":           func(*rapid.T) { s.someAck() },
			"ack2":          func(*rapid.T) { s.someAck() },
			"release":       func(*rapid.T) { s.someRelease() },
			"answer":        func(*rapid.T) { s.someAnswer() },
			"kill":          func(*rapid.T) { s.someKill() },
			"close":         func(*rapid.T) { s.someClose() },
			"reclaim":       func(*rapid.T) { s.someReclaim() },
			"unhook":        func(*rapid.T) { s.someUnhooked() },
			"break":         func(*rapid.T) { s.someBreak() },
			"reconnect":     func(*rapid.T) { s.someReconnect() },
			"agent dies":    func(*rapid.T) { s.someAgentDies() },
			"time":          func(*rapid.T) { s.pass(Time(rapid.IntRange(1, 4000).Draw(rt, "ms")) * Millisecond) },
			"list":          func(*rapid.T) { s.list(rapid.IntRange(0, 2).Draw(rt, "complete") == 0) },
			"retention":     func(*rapid.T) { s.someRetention() },
			"looks":         func(*rapid.T) { s.someLook() },
			"reads":         func(*rapid.T) { s.someReadsOn() },
			"bad":           func(*rapid.T) { s.someBad() },
			"letters":       func(*rapid.T) { s.someLettersWritten() },
			"ask":           func(*rapid.T) { s.someAsk() },
			"ask2":          func(*rapid.T) { s.someAsk() },
			"pause yields":  func(*rapid.T) { s.somePause() },
			"yields paused": func(*rapid.T) { s.somePaused() },
			"exact":         func(*rapid.T) { s.someExactAsk() },
			"save":          func(*rapid.T) { s.someSave() },
			"bind":          func(*rapid.T) { s.someBind() },
			"drop":          func(*rapid.T) { s.someDrop() },
			"lose memory":   func(*rapid.T) { s.loseMemory() },
			"resolve":       func(*rapid.T) { s.someLookDone() },
			"restore":       func(*rapid.T) { s.someRestore() },
			"restore2":      func(*rapid.T) { s.someRestore() },
			"rewind":        func(*rapid.T) { s.someRewind() },
			"pause":         func(*rapid.T) { s.step(&SetPaused{1, true}, false) },
			"resume":        func(*rapid.T) { s.step(&SetPaused{1, false}, false) },
			"crash":         func(*rapid.T) { s.crash() },
			"":              func(*rapid.T) {},
		})
		s.finish()
		s.excludedAgain()
	})
}

// TestACutHoldsExactlyItsRecordsWhateverBreaks plays a busier world: trainers work, save and
// die. Guarantee 4: "A checkpoint carries the exact set of records that are in its model. After
// a restore, Headrace delivers exactly the rest of the input".
func TestACutHoldsExactlyItsRecordsWhateverBreaks(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newSim(rt, t)
		s.list(false)
		rt.Repeat(map[string]func(*rapid.T){
			"team":          func(*rapid.T) { s.team() },
			"team2":         func(*rapid.T) { s.team() },
			"work":          func(*rapid.T) { s.someWork() },
			"work2":         func(*rapid.T) { s.someWork() },
			"work3":         func(*rapid.T) { s.someWork() },
			"all work":      func(*rapid.T) { s.allWork() },
			"all work2":     func(*rapid.T) { s.allWork() },
			"ask":           func(*rapid.T) { s.someAsk() },
			"pause yields":  func(*rapid.T) { s.somePause() },
			"yields paused": func(*rapid.T) { s.somePaused() },
			"all paused":    func(*rapid.T) { s.allPaused() },
			"exact":         func(*rapid.T) { s.someExactAsk() },
			"save":          func(*rapid.T) { s.someAsk(); s.someSave(); s.someBind() },
			"save2":         func(*rapid.T) { s.someAsk(); s.someSave(); s.someBind() },
			"write":         func(*rapid.T) { s.someSave() },
			"bind":          func(*rapid.T) { s.someBind() },
			"drop":          func(*rapid.T) { s.someDrop() },
			"lose memory":   func(*rapid.T) { s.loseMemory() },
			"kill":          func(*rapid.T) { s.someKill() },
			"close":         func(*rapid.T) { s.someClose() },
			"reclaim":       func(*rapid.T) { s.someReclaim() },
			"restore":       func(*rapid.T) { s.allRestore() },
			"resolve":       func(*rapid.T) { s.someLookDone() },
			"rewind":        func(*rapid.T) { s.someRewind() },
			"retention":     func(*rapid.T) { s.someRetention() },
			"looks":         func(*rapid.T) { s.someLook() },
			"unhook":        func(*rapid.T) { s.someUnhooked() },
			"reconnect":     func(*rapid.T) { s.someReconnect() },
			"time":          func(*rapid.T) { s.pass(Time(rapid.IntRange(1, 9000).Draw(rt, "ms")) * Millisecond) },
			"list":          func(*rapid.T) { s.list(rapid.IntRange(0, 2).Draw(rt, "complete") == 0) },
			"crash":         func(*rapid.T) { s.crash() },
			"lose all":      func(*rapid.T) { s.loseAll() },
			"":              func(*rapid.T) {},
		})
		s.finish()
	})
}

// team starts the trainers that are missing.
func (s *sim) team() {
	for rank := range uint32(3) {
		a := s.agents[int(rank)%len(s.agents)]
		if a.session == 0 {
			s.connect(a)
		}
		if !slices.ContainsFunc(s.trainers, func(t *simTrainer) bool { return t.rank == rank }) {
			s.startTrainer(rank, a)
		}
	}
}

func (s *sim) someWork() {
	if t := s.some(); t != nil {
		s.request(t)
		s.ackAll(t)
	}
}

func (s *sim) allWork() {
	for _, t := range slices.Clone(s.trainers) {
		s.request(t)
		s.ackAll(t)
	}
}

func (s *sim) allRestore() {
	for _, t := range slices.Clone(s.trainers) {
		if t.gated {
			s.restore(t)
		}
	}
}

// finish heals everything and reads the input to its end.
func (s *sim) finish() {
	s.calm = true
	s.list(true)
	s.step(&SetPaused{1, false}, false)
	for round := 0; !s.ended; round++ {
		if round > 3000 {
			s.t.Fatalf("the input was not read to its end: datasets %+v, workers %+v", s.w.core.Datasets(), s.w.core.Workers())
		}
		for _, a := range s.agents {
			if a.session == 0 {
				s.connect(a)
			}
		}
		for rank := range uint32(3) {
			if !slices.ContainsFunc(s.trainers, func(t *simTrainer) bool { return t.rank == rank }) {
				s.startTrainer(rank, s.agents[int(rank)%len(s.agents)])
			}
		}
		for _, t := range slices.Clone(s.trainers) {
			s.killIfTold(t)
			s.rehook(t)
			for len(t.asks) > 0 {
				s.answer(t)
			}
			s.ackAll(t)
			s.request(t)
			if t.gated && t.restoring == 0 {
				s.restore(t)
			}
		}
		for len(s.looks) > 0 {
			s.someLookDone()
		}
		s.pass(500 * Millisecond)
	}
}

func (s *sim) ackAll(t *simTrainer) {
	if t.agent == nil || t.agent.session == 0 || t.gated && (s.wiped || t.calling) { // restore() returns first
		return
	}
	for _, l := range slices.Clone(t.leases) {
		if t.agent.session != 0 {
			s.readOn(t, l)
		}
	}
	if t.agent.session == 0 || !slices.Contains(s.trainers, t) {
		return
	}
	t.step++
	m := &Message{}
	for _, l := range t.leases {
		if l.step = t.step; t.paused == 0 {
			l.frontier = max(l.frontier, s.there(l))
		}
		m.Acks = append(m.Acks, s.ackOf(l, l.frontier, t.step))
	}
	m.Steps = []StepReport{{t.number, t.step}}
	s.send(t.agent, m)
}

func (s *sim) some() *simTrainer {
	if len(s.trainers) == 0 {
		return nil
	}
	return s.trainers[rapid.IntRange(0, len(s.trainers)-1).Draw(s.t, "trainer")]
}

func (s *sim) someLease() (*simTrainer, *simLease) {
	t := s.some()
	if t == nil || len(t.leases) == 0 {
		return nil, nil
	}
	return t, t.leases[rapid.IntRange(0, len(t.leases)-1).Draw(s.t, "lease")]
}

func (s *sim) someAgent() *simAgent {
	return s.agents[rapid.IntRange(0, len(s.agents)-1).Draw(s.t, "agent")]
}

func (s *sim) someStarts() {
	s.startTrainer(uint32(rapid.IntRange(0, 2).Draw(s.t, "rank")), s.someAgent())
}

func (s *sim) someRequest() {
	if t := s.some(); t != nil {
		s.request(t)
	}
}

func (s *sim) request(t *simTrainer) {
	if t.agent == nil || t.agent.session == 0 || !t.joined || t.ending {
		return
	}
	s.nextReq++
	s.send(t.agent, &Message{Requests: []LeaseRequest{{ID: s.nextReq, Worker: t.number, Dataset: 1, Virtual: s.someVirtual(),
		Rate: float64(rapid.IntRange(0, 20).Draw(s.t, "rate")), Count: uint32(rapid.IntRange(1, 3).Draw(s.t, "count"))}}})
}

func (s *sim) someDelivery() {
	if t, l := s.someLease(); l != nil && t.agent != nil && t.paused == 0 {
		l.frontier = rapid.Int64Range(l.frontier, max(l.frontier, s.there(l))).Draw(s.t, "frontier")
	}
}

func (s *sim) someAck() {
	t, l := s.someLease()
	if l == nil || t.agent == nil || t.gated && t.calling {
		return
	}
	m := &Message{}
	for prefix := l.prefix; len(m.Acks) == 0 || prefix < l.frontier && rapid.Bool().Draw(s.t, "and another step"); {
		t.step++
		prefix = rapid.Int64Range(prefix, l.frontier).Draw(s.t, "prefix")
		m.Acks = append(m.Acks, s.ackOf(l, prefix, t.step))
	}
	m.Steps = []StepReport{{t.number, t.step}}
	if rapid.Bool().Draw(s.t, "twice") {
		m.Acks = append(m.Acks, m.Acks[len(m.Acks)-1])
	}
	s.send(t.agent, m)
}

func (s *sim) someRelease() {
	t, l := s.someLease()
	if l == nil || t.agent == nil || t.agent.session == 0 {
		return
	}
	token, from := l.token, l.frontier
	l.end = from
	t.leases = slices.DeleteFunc(t.leases, func(l *simLease) bool { return l.prefix >= l.end })
	if rapid.IntRange(0, 3).Draw(s.t, "fails") == 0 {
		s.send(t.agent, &Message{Failures: []ReadFailure{{Token: token, At: from, Kind: "io", Message: "flaky"}}})
		s.step(&SetPaused{1, false}, false)
		return
	}
	s.send(t.agent, &Message{Releases: []Release{{Token: token, Prefix: from}}})
}

func (s *sim) someAnswer() {
	if t := s.some(); t != nil && len(t.asks) > 0 {
		s.answer(t)
	}
}

func (s *sim) answer(t *simTrainer) {
	ask := t.asks[0]
	t.asks = t.asks[1:]
	i := slices.IndexFunc(t.leases, func(l *simLease) bool { return l.token == ask.Token })
	if i < 0 || t.agent == nil || t.agent.session == 0 {
		return
	}
	l := t.leases[i]
	at := max(ask.At, l.frontier)
	m := &Message{Answers: []StealAnswer{{Token: l.token, At: at, Refused: at >= l.end}}}
	l.end = min(l.end, at)
	if l.prefix >= l.end {
		t.leases = slices.Delete(t.leases, i, i+1)
	}
	s.send(t.agent, m)
}

func (s *sim) someKill() {
	if t := s.some(); t != nil {
		s.kill(t)
	}
}

// kill ends a process. If its agent has a session, the agent says so.
func (s *sim) kill(t *simTrainer) {
	a := t.agent
	n := t.number
	s.remove(t)
	if a != nil {
		s.send(a, &Message{Leaves: []Leave{{Worker: n, Reason: LeaveKilled, Ended: true}}})
	}
}

func (s *sim) killIfTold(t *simTrainer) {
	if t.ending {
		s.kill(t)
	}
}

func (s *sim) someClose() {
	t := s.some()
	if t == nil || t.agent == nil || t.agent.session == 0 {
		return
	}
	a, n := t.agent, t.number
	s.remove(t)
	s.send(a, &Message{Leaves: []Leave{{Worker: n, Reason: LeaveClosed}}})
}

// someReclaim: an operator takes back the leases of a rank. Its process may still run, but the
// master refuses everything that it says.
func (s *sim) someReclaim() {
	e := &Reclaim{Rank: uint32(rapid.IntRange(0, 2).Draw(s.t, "rank"))}
	plan := s.w.core.PlanReclaim(e)
	if plan.Refused != "" {
		return
	}
	if s.model == Shared {
		s.t.Fatalf("shared: rows of rank %d may be in the model, but a reclaim is not refused", e.Rank)
	}
	e.Incarnation = plan.Incarnation
	before := s.leasesOf(e.Rank)
	if len(before) < plan.Leases {
		s.t.Fatalf("the dry run says that rank %d holds %d leases, it holds %d", e.Rank, plan.Leases, len(before))
	}
	lose := rapid.IntRange(0, 10).Draw(s.t, "crash") == 10
	if s.step(e, lose); lose {
		return
	}
	if s.w.core.PlanReclaim(e).Refused == "" {
		s.t.Fatalf("rank %d was taken back, and its process is still there", e.Rank)
	}
	if left := s.leasesOf(e.Rank); len(left) > 0 {
		s.t.Fatalf("rank %d was taken back, and still holds %s", e.Rank, tok(left[0]))
	}
}

// leasesOf returns the tokens of a rank's leases, as the core has them.
func (s *sim) leasesOf(rank uint32) (all []Token) {
	for _, p := range s.w.core.parts {
		if p == nil {
			continue
		}
		for _, ps := range p.passes {
			for l := ps.leases; l != nil; l = l.pnext {
				if l.w.account.no == rank {
					all = append(all, l.token)
				}
			}
		}
	}
	return all
}

// someUnhooked: a trainer's connection breaks. The trainer may come back within its TTL.
func (s *sim) someUnhooked() {
	t := s.some()
	if t == nil {
		return
	}
	if t.agent == nil {
		s.rehook(t)
		return
	}
	if t.agent.session == 0 {
		return
	}
	a, n := t.agent, t.number
	s.orphan(t, s.w.now+simTTL)
	s.send(a, &Message{Leaves: []Leave{{Worker: n, Reason: LeaveLost}}})
}

// orphan takes a trainer's agent away. The trainer keeps the records that were delivered to it.
func (s *sim) orphan(t *simTrainer, deadline Time) {
	t.lastAgent, t.agent, t.deadline, t.asks = t.agent, nil, deadline, nil
	for _, l := range t.leases {
		l.end = l.frontier
	}
	t.leases = slices.DeleteFunc(t.leases, func(l *simLease) bool { return l.prefix >= l.end })
}

func (s *sim) rehook(t *simTrainer) {
	if t.agent != nil || t.lastAgent.session == 0 {
		return
	}
	t.agent = t.lastAgent
	t.agent.nextNo++
	t.number = t.agent.nextNo
	m := &Message{}
	s.attach(m, t)
	s.send(t.agent, m)
}

func (s *sim) someBreak() {
	if a := s.someAgent(); a.session != 0 {
		old := a.session
		a.session = 0
		if rapid.Bool().Draw(s.t, "noticed") {
			s.step(&Lost{Session: old}, false)
		}
	}
}

func (s *sim) someReconnect() {
	if a := s.someAgent(); a.session == 0 {
		s.connect(a)
	}
}

// someAgentDies ends an agent. Its trainers keep the rows that they have, and a new agent takes
// over the socket.
func (s *sim) someAgentDies() {
	a := s.someAgent()
	old := a.session
	a.session = 0
	for _, t := range s.trainers {
		if t.agent == a {
			s.orphan(t, a.lastHeard+simTTL)
		}
	}
	if old != 0 && rapid.Bool().Draw(s.t, "noticed") {
		s.step(&Lost{Session: old}, false)
	}
	s.nextInc++
	a.inc, a.nextNo = s.nextInc, 0 // a new process counts its workers from 1
	s.connect(a)
}

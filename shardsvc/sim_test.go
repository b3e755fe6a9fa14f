package shardsvc

import (
	"maps"
	"slices"

	"github.com/headrace/headrace/shardsvc/oracle"
	"pgregory.net/rapid"
)

// The simulation plays agents and trainers that behave, on machines that do not:
// streams break with messages in them, processes die, the master crashes between
// Step and commit. The oracle keeps every unit.

const simTTL = 5 * Second

type sim struct {
	t        *rapid.T
	w        *world
	model    string
	opt      Options
	book     *oracle.Book
	agents   []*simAgent
	trainers []*simTrainer
	granted  map[Token]*simLease // every lease that the core ever granted
	nextInc  uint64
	nextReq  uint64
	segments int64
	sizes    map[[2]int64][2]int64 // bounds by partition and segment
	lost     map[[2]int64]int64    // by partition and segment: the source has deleted everything below it
	complete bool
	calm     bool // the end of the run: nothing breaks any more
	ended    bool
	newest   map[uint32]uint64 // by rank: the incarnation that joined last
	cutSim
	live  bool             // each partition has one segment, which grows
	heads map[uint32]int64 // by partition; the core may not know them yet

	virtualOf map[uint64]uint32 // by request: its virtual rank
}

type simAgent struct {
	name      string
	inc       uint64
	session   Session
	lastHeard Time
	nextNo    uint32
}

type simTrainer struct {
	rank       uint32
	inc        uint64
	agent      *simAgent // nil: the trainer is orphaned
	lastAgent  *simAgent
	number     uint32
	joined     bool
	generation uint32
	deadline   Time // when the watchdog of an orphaned trainer ends it
	step       int64
	ending     bool
	resume     Resume
	gated      bool // it was told to restore
	restored   bool
	start      bool // it sees no checkpoint that can be restored, so it asks to start
	call       uint64
	restoring  uint64 // its restore call that is not answered yet, or 0
	since      Time   // when the core first told it to call again
	calling    bool   // it waits for the answer to a restore, also after a reconnect
	offered    uint64
	try        uint64   // the cut that it was told to try
	failed     []uint64 // cuts that it could not read or was refused
	leases     []*simLease
	asks       []Reply
	simPause
}

type simLease struct {
	token                        Token
	rank                         uint32
	part, pass                   uint32
	segment                      int64
	start, prefix, end, frontier int64
	said                         int64 // where its last ack ended
	settled                      int64 // durably acked up to here, as the oracle knows it
	pieces                       []Piece
	step                         int64
}

// there returns the end of the lease's records that the source has by now.
func (s *sim) there(l *simLease) int64 {
	if s.live {
		return max(l.start, min(l.end, s.heads[l.part]))
	}
	return l.end
}

// ranges are the source's own ranges of [from, to) of a lease.
func (s *sim) ranges(l *simLease, from, to int64) (rs []oracle.Range) {
	for _, p := range l.pieces {
		lo, hi := max(from, p.OrderStart), min(to, p.OrderStart+p.End-p.Start, s.there(l))
		if lo < hi {
			d := p.Start - p.OrderStart
			rs = append(rs, oracle.Range{Partition: s.src(l.part), Pass: l.pass, Segment: p.Segment, Start: lo + d, End: hi + d})
		}
	}
	return rs
}

func (s *sim) fail(err error) {
	if err != nil {
		s.t.Fatalf("%v", err)
	}
}

// step gives the core an event. With lose, the master dies before the commit.
func (s *sim) step(ev Event, lose bool) {
	w := s.w
	w.fx.Reset()
	w.wake = w.core.Step(w.now, ev, &w.fx)
	w.core.Flush(&w.fx)
	s.fail(w.core.CheckInvariants())
	if lose {
		s.crash()
		return
	}
	s.committed(ev)
}

// committed takes the results of a Step that were committed. They are promises now, and are
// sent.
func (s *sim) committed(ev Event) {
	w := s.w
	commit(w.store, w.fx.Puts)
	s.excluded(w.fx.Reports)
	replies := slices.Clone(w.fx.Replies)
	pieces := slices.Clone(w.fx.Pieces)
	reports := slices.Clone(w.fx.Reports)
	said := acksOf(ev)
	for _, r := range replies {
		if r.Kind == ReplyAck {
			s.promiseAck(r, said)
		}
	}
	for _, r := range reports {
		s.cutReport(r)
	}
	for _, r := range replies {
		if r.Kind == ReplyRevoke { // before the grants: a process that restores uses none of its old rows
			s.revoked(r.Token)
		}
	}
	for _, r := range replies {
		s.promise(r, pieces)
	}
	s.sameUnits()
	for _, r := range replies {
		s.deliver(r, pieces)
	}
	for _, r := range reports {
		if r.Kind == ReportRejected || r.Kind == ReportDiverged {
			s.t.Fatalf("unexpected report: %s", r.text())
		}
	}
}

// crash kills the master and starts it again from what was committed.
func (s *sim) crash() {
	for _, a := range s.agents {
		a.session = 0
	}
	s.looks = nil
	s.w.restart0(s.t)
	s.committed(&Start{})
}

func (w *world) restart0(t *rapid.T) {
	w.core = New(w.cfg)
	for _, k := range slices.Sorted(maps.Keys(w.store)) {
		if err := w.core.Load([]byte(k), w.store[k]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.core.Loaded(); err != nil {
		t.Fatal(err)
	}
	w.fx.Reset()
	w.wake = w.core.Step(w.now, &Start{}, &w.fx)
	w.core.Flush(&w.fx)
	if err := w.core.CheckInvariants(); err != nil {
		t.Fatal(err)
	}
}

// send speaks as agent a; its message may be lost with the master.
func (s *sim) send(a *simAgent, m *Message) {
	if a.session == 0 {
		return
	}
	m.Session = a.session
	a.lastHeard = s.w.now
	s.step(m, !s.calm && rapid.IntRange(0, 60).Draw(s.t, "crash") == 60)
}

// connect says hello with all that the agent's trainers hold.
func (s *sim) connect(a *simAgent) {
	s.w.next++
	a.session = s.w.next
	m := &Message{Hello: &Hello{Agent: a.name, Incarnation: a.inc}}
	for _, t := range s.trainers {
		if t.agent == a {
			s.attach(m, t)
		}
	}
	s.send(a, m)
}

func (s *sim) attach(m *Message, t *simTrainer) {
	m.Joins = append(m.Joins, Join{Worker: t.number, Rank: t.rank, Incarnation: t.inc, WorldSize: 3, Generation: t.generation, Resume: t.resume})
	for _, l := range t.leases {
		m.Held = append(m.Held, Held{Token: l.token, Worker: t.number, Dataset: 1, Partition: l.part, Pass: l.pass, Segment: l.segment,
			Start: l.prefix, End: l.end, Frontier: l.frontier})
	}
	t.asks, t.restoring = nil, 0 // a call that was not answered is sent again
}

// pass lets d of time pass, as the core and the watchdogs see it.
func (s *sim) pass(d Time) {
	w := s.w
	for end := w.now + d; w.now < end; {
		w.now = min(end, max(w.wake, w.now+Millisecond), w.now+Second)
		for _, a := range s.agents {
			if a.session != 0 {
				s.send(a, &Message{})
			}
		}
		for _, t := range slices.Clone(s.trainers) {
			dead := t.agent == nil && w.now >= t.deadline || t.agent != nil && t.agent.session == 0 && w.now >= t.agent.lastHeard+simTTL
			if dead {
				s.remove(t)
			}
		}
		s.step(&Tick{}, false)
	}
}

func (s *sim) startTrainer(rank uint32, a *simAgent) {
	s.nextInc++
	a.nextNo++
	t := &simTrainer{rank: rank, inc: s.nextInc, agent: a, number: a.nextNo}
	if !s.calm {
		t.resume = []Resume{ResumeDefault, ResumeDefault, ResumeDefault, ResumeBound, ResumeStart}[rapid.IntRange(0, 4).Draw(s.t, "resume")]
		t.restored = t.resume == ResumeStart
	}
	s.trainers = append(s.trainers, t)
	m := &Message{}
	s.attach(m, t)
	if a.session == 0 {
		s.remove(t) // the trainer finds no master and gives up
		return
	}
	t.gated = s.wiped && !t.restored
	if s.send(a, m); t.gated && slices.Contains(s.trainers, t) {
		s.restore(t)
	}
}

package shardsvc

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/headrace/headrace/shardsvc/oracle"
	"github.com/headrace/headrace/sources"
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
	granted  map[Token]*simLease // every lease the core ever promised
	nextInc  uint64
	nextReq  uint64
	segments int64
	complete bool
	calm     bool // the end of the run: nothing breaks any more
	ended    bool
	newest   map[uint32]uint64 // incarnation that came last, by rank
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
	agent      *simAgent // nil: orphaned
	lastAgent  *simAgent
	number     uint32
	joined     bool
	generation uint32
	deadline   Time // orphaned: its watchdog
	step       int64
	ending     bool
	leases     []*simLease
	asks       []Reply
}

type simLease struct {
	token                        Token
	rank                         uint32
	part, pass                   uint32
	segment                      int64
	start, prefix, end, frontier int64
	settled                      int64 // oracle's: acked durably up to here
	pieces                       []Piece
	step                         int64
}

// ranges are the source's own ranges of [from, to) of a lease.
func (l *simLease) ranges(from, to int64) (rs []oracle.Range) {
	for _, p := range l.pieces {
		lo, hi := max(from, p.OrderStart), min(to, p.OrderStart+p.End-p.Start)
		if lo < hi {
			d := p.Start - p.OrderStart
			rs = append(rs, oracle.Range{Partition: l.part, Pass: l.pass, Segment: p.Segment, Start: lo + d, End: hi + d})
		}
	}
	return rs
}

func (s *sim) fail(err error) {
	if err != nil {
		s.t.Fatalf("%v", err)
	}
}

// step gives the core an event. lose: the master dies before the commit.
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
	commit(w.store, w.fx.Puts)
	replies := slices.Clone(w.fx.Replies)
	pieces := slices.Clone(w.fx.Pieces)
	for _, r := range replies {
		s.promise(r, pieces)
	}
	for _, r := range replies {
		s.deliver(r, pieces)
	}
	for _, r := range w.fx.Reports {
		if r.Kind == ReportRejected || r.Kind == ReportDiverged {
			s.t.Fatalf("unexpected report: %s", r.text())
		}
	}
}

// promise tells the oracle what the core committed, delivered or not.
func (s *sim) promise(r Reply, pieces []Piece) {
	switch r.Kind {
	case ReplyJoin:
		if r.Refused {
			break
		}
		t := s.byNumber(r.To, r.Worker)
		if t != nil && !t.joined {
			s.newest[t.rank] = t.inc
		}
		var n int64
		switch {
		case t == nil: // it died meanwhile
		case s.model == Private && !t.joined:
			n = s.book.Again(func(rank uint32) bool { return rank == t.rank })
		case s.model == Replicated && r.Units > 0:
			n = s.book.Again(func(uint32) bool { return true })
		}
		if t != nil && n != r.Units && !t.joined {
			s.t.Fatalf("rank %d joined: %d units pending again, oracle says %d", t.rank, r.Units, n)
		}
	case ReplyGrant:
		l := &simLease{token: r.Token, part: r.Partition, pass: r.Pass, segment: r.Segment, start: r.Start, prefix: r.Start, end: r.End,
			frontier: r.Start, settled: r.Start, pieces: slices.Clone(pieces[r.PieceLo:r.PieceHi])}
		if t := s.byNumber(r.To, r.Worker); t != nil {
			l.rank = t.rank
		}
		for _, x := range l.ranges(l.start, l.end) {
			s.fail(s.book.Grant(x))
		}
		s.nobodyUses(l)
		s.inOrder(l)
		s.granted[r.Token] = l
	case ReplyAck:
		l := s.granted[r.Token]
		if r.Code == Durable && r.Prefix > l.settled {
			for _, x := range l.ranges(l.settled, r.Prefix) {
				s.fail(s.book.Ack(x, l.rank))
			}
			l.settled = r.Prefix
		}
	case ReplyHeld:
		if l := s.granted[r.Was]; !r.Refused && r.Prefix < r.End {
			s.granted[r.Token] = l
			for _, x := range l.ranges(r.Prefix, r.End) {
				s.fail(s.book.Grant(x))
			}
			if r.Prefix < l.settled {
				s.t.Fatalf("%s was acked up to %d, held answers %d", tok(r.Was), l.settled, r.Prefix)
			}
		}
	case ReplyStanding:
		if r.State == End {
			s.fail(s.book.Done())
			s.ended = true
		}
	}
}

// nobodyUses: "rows in the hands of a trainer that may still run are never given
// to another" (guarantee 6).
func (s *sim) nobodyUses(g *simLease) {
	if s.model == Replicated || s.model == Private {
		return
	}
	for _, t := range s.trainers {
		for _, l := range t.leases {
			if l.part == g.part && l.pass == g.pass && l.segment == g.segment && l.prefix < g.end && g.start < l.end {
				s.t.Fatalf("%s [%d, %d) was granted while rank %d inc %d uses [%d, %d)", tok(g.token), g.start, g.end, t.rank, t.inc, l.prefix, l.end)
			}
		}
	}
}

// inOrder: "order within a partition on request": nothing before a strict lease
// waits to be granted. (CheckInvariants knows that one worker has all leases.)
func (s *sim) inOrder(g *simLease) {
	if !s.opt.Strict {
		return
	}
	for _, ps := range s.w.core.parts[g.part].passes {
		end := ps.p.lineEnd()
		if ps.n == g.pass {
			end, _ = ps.onLine(place{g.segment, g.start})
		}
		if ps.n <= g.pass && (ps.frontier < end || len(ps.pending) > 0 && ps.pending[0].start < end) {
			s.t.Fatalf("pass %d [%d, %d) was granted before what lies before it", g.pass, g.start, g.end)
		}
	}
}

func (s *sim) byNumber(to Session, number uint32) *simTrainer {
	for _, t := range s.trainers {
		if t.agent != nil && t.agent.session == to && t.number == number {
			return t
		}
	}
	return nil
}

func (s *sim) deliver(r Reply, pieces []Piece) {
	i := slices.IndexFunc(s.agents, func(a *simAgent) bool { return a.session == r.To })
	if i < 0 {
		return
	}
	a := s.agents[i]
	t := s.byNumber(r.To, r.Worker)
	switch r.Kind {
	case ReplyClose:
		a.session = 0
	case ReplyJoin:
		if t != nil && r.Refused {
			if t.inc == s.newest[t.rank] && s.model == Shared {
				s.t.Fatalf("shared: a living trainer was refused: %s", r.Reason)
			}
			s.remove(t)
		} else if t != nil {
			t.joined, t.generation = true, r.Generation
		}
	case ReplyFence:
		if t != nil {
			s.remove(t)
		}
	case ReplyEnd:
		if t != nil {
			t.ending = true
		}
	case ReplyGrant:
		if t != nil {
			t.leases = append(t.leases, s.granted[r.Token])
		}
	case ReplyHeld, ReplyAck, ReplySteal:
		s.deliverLease(a, r)
	}
}

func (s *sim) deliverLease(a *simAgent, r Reply) {
	token := r.Token
	if r.Kind == ReplyHeld {
		token = r.Was
	}
	for _, t := range s.trainers {
		i := slices.IndexFunc(t.leases, func(l *simLease) bool { return l.token == token })
		if i < 0 || t.agent != a {
			continue
		}
		l := t.leases[i]
		bad := r.Refused || r.Kind == ReplyAck && r.Code != Durable
		switch {
		case bad && (s.model != Replicated && s.model != Private || r.Code == Invalid):
			s.t.Fatalf("a living holder was refused: %s", r.text(nil))
		case bad:
			s.remove(t)
			return
		case r.Kind == ReplySteal:
			t.asks = append(t.asks, r)
			return
		case r.Kind == ReplyHeld:
			l.token, l.end = r.Token, r.End
		}
		l.prefix = max(l.prefix, r.Prefix)
		l.frontier = max(l.frontier, l.prefix)
		if l.prefix >= l.end {
			t.leases = slices.Delete(t.leases, i, i+1)
		}
		return
	}
}

func (s *sim) remove(t *simTrainer) {
	t.leases = nil
	s.trainers = slices.DeleteFunc(s.trainers, func(x *simTrainer) bool { return x == t })
}

// crash: the master dies and starts again from what was committed.
func (s *sim) crash() {
	s.w.restart0(s.t)
	for _, a := range s.agents {
		a.session = 0
	}
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
	commit(w.store, w.fx.Puts)
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
	m.Joins = append(m.Joins, Join{Worker: t.number, Rank: t.rank, Incarnation: t.inc, WorldSize: 3, Generation: t.generation})
	for _, l := range t.leases {
		m.Held = append(m.Held, Held{Token: l.token, Worker: t.number, Dataset: 1, Partition: l.part, Pass: l.pass, Segment: l.segment,
			Start: l.prefix, End: l.end, Frontier: l.frontier})
	}
	t.asks = nil
}

func newSim(t *rapid.T, tb testing.TB) *sim {
	s := &sim{t: t, granted: map[Token]*simLease{}, newest: map[uint32]uint64{}, model: rapid.SampledFrom([]string{Shared, Replicated, Private}).Draw(t, "model")}
	s.w = &world{t: tb, cfg: Config{Job: "j", Model: s.model, SessionTTL: simTTL, History: 3}, now: 1000 * Second, store: map[string][]byte{}}
	s.w.restart0(t)
	s.opt = Options{Passes: rapid.IntRange(1, 3).Draw(t, "passes"), Initial: 7, Min: rapid.Int64Range(1, 6).Draw(t, "min"), Max: 40, Target: 2 * Second, Stall: 60 * Second}
	switch rapid.IntRange(0, 3).Draw(t, "order") {
	case 0:
		s.opt.Strict = true
	case 1:
		s.opt.Shuffle, s.opt.Block, s.opt.Seed = true, rapid.Int64Range(1, 9).Draw(t, "block"), rapid.Uint64().Draw(t, "seed")
	}
	s.book = oracle.New(uint32(s.opt.Passes))
	s.step(&ApplyDataset{ID: 1, Name: "d", Options: s.opt}, false)
	for n := range uint32(2) {
		s.step(&AddPartition{Dataset: 1, Number: n + 1, Identity: fmt.Sprint("p", n+1)}, false)
	}
	s.step(&PartitionsListed{Dataset: 1}, false)
	for i := range 2 {
		s.nextInc++
		a := &simAgent{name: fmt.Sprint("a", i), inc: s.nextInc}
		s.agents = append(s.agents, a)
		s.connect(a)
	}
	return s
}

// list adds a segment to both partitions.
func (s *sim) list(complete bool) {
	if s.complete {
		return
	}
	s.complete = complete
	id := s.segments
	s.segments++
	for part := range uint32(2) {
		start := rapid.Int64Range(0, 50).Draw(s.t, "start")
		size := rapid.Int64Range(0, 60).Draw(s.t, "size")
		s.book.List(oracle.Range{Partition: part + 1, Segment: id, Start: start, End: start + size})
		s.step(&AddSegments{Partition: part + 1, Complete: complete,
			Segments: []sources.Segment{{ID: id, Start: start, End: start + size, Sealed: true}}}, false)
	}
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
	s.trainers = append(s.trainers, t)
	m := &Message{}
	s.attach(m, t)
	if a.session == 0 {
		s.remove(t) // it finds no master and gives up
		return
	}
	s.send(a, m)
}

package sim

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
)

// Messages between trainer and agent on the socket (docs/PROTOCOL.md).
type (
	hello struct {
		t      *trainer
		resume []hold.Resume
		rows   []int // of each resumed stream
		join   *pb.Join
	}
	welcome struct{ j hold.Joined }
	open    struct {
		stream, dataset, virtual uint32
		rows                     int
		rounds                   *hold.Rounds
	}
	credit struct {
		stream uint32
		n      int
	}
	frame struct {
		stream  uint32
		batches []*batchInHand
		sent    Time
	}
	over  struct{ stream uint32 }
	step  struct{ ev hold.Stepped }
	acked struct{ stream, through uint32 }
	ping  struct{ t Time }
	pong  struct{ t, session Time }
	shut  struct{ stream uint32 }
	bye   struct{}

	fenced  string
	refused string
)

// sit accepts a trainer's connection.
func (a *agent) sit(l *link) {
	var s *seat
	l.ends[1].take = func(msg any) {
		if h, ok := msg.(hello); ok {
			s = a.hello(l, h)
			return
		}
		if s != nil {
			s.take(msg)
		}
	}
	l.ends[1].broken = func() {
		if s != nil {
			s.broken()
		}
	}
}

func (a *agent) hello(l *link, h hello) *seat {
	if !h.t.alive && h.join.Generation == 0 {
		return nil // it ended before it was let in
	}
	a.workers++
	s := &seat{a: a, number: a.workers, t: h.t, l: l}
	h.join.Worker = s.number
	for i, r := range h.resume {
		f := s.newFeed(r.Stream, r.Dataset, h.rows[i])
		f.delivered, f.rounds = r.Acked+uint32(len(r.Batches)), r.Rounds != nil
		f.stepped = r.Stepped
		s.unstepped += int(f.delivered - f.stepped)
	}
	a.seats = append(a.seats, s)
	before, knew := a.files[s.t]
	a.files[s.t] = s.number
	a.do(&hold.Join{Join: h.join, Resume: h.resume})
	if why := a.fx.Invalid; why != "" { // it came back before its end was noticed
		if delete(a.files, s.t); knew {
			a.files[s.t] = before
		}
		a.seats = a.seats[:len(a.seats)-1]
		l.send(1, refused("resume: "+why))
		return nil
	}
	return s
}

func (s *seat) joined(j hold.Joined) {
	if j.Refused {
		if j.Superseded {
			s.t.superseded(j.Reason)
		}
		s.l.send(1, refused(j.Reason))
		return
	}
	s.welcome = true
	s.l.send(1, welcome{j})
}

func (s *seat) take(msg any) {
	a := s.a
	switch m := msg.(type) {
	case open:
		f := s.newFeed(m.stream, m.dataset, m.rows)
		f.rounds = m.rounds != nil
		a.do(&hold.Open{Stream: f.id, Dataset: m.dataset, Virtual: m.virtual, Tracked: true, Rounds: m.rounds})
	case credit:
		if f := a.feed(hold.Stream{Worker: s.number, Number: m.stream}); f != nil {
			f.credit += m.n
			f.poke()
		}
	case arrived:
		a.do(&hold.Arrived{Stream: hold.Stream{Worker: s.number, Number: m.stream}, Through: m.through, Last: m.last})
	case step:
		ev := m.ev
		ev.Stream.Worker = s.number
		a.do(&ev)
		if f := a.feed(ev.Stream); f != nil {
			s.steppedTo(f, ev.Through)
		}
	case *pb.CutCall:
		c := proto.Clone(m).(*pb.CutCall)
		c.Worker = s.number
		a.do(&hold.Call{Call: c})
	case nowPaused:
		a.do(&hold.YieldsPaused{Worker: s.number, Cut: m.cut})
	case ping:
		if a.do(&hold.Ping{Worker: s.number}); !a.fx.Mute {
			s.l.send(1, pong{m.t, Time(a.fx.Session)})
		}
	case shut:
		id := hold.Stream{Worker: s.number, Number: m.stream}
		s.streams = slices.DeleteFunc(s.streams, func(f *feed) bool { return f.id == id && f.stop() })
		a.do(&hold.Close{Stream: id})
	case bye:
		s.leave(pb.Leave_CLOSED, false)
	}
}

// broken: the connection ended without BYE. Everything that the trainer said before was handled.
func (s *seat) broken() {
	a, t := s.a, s.t
	for _, f := range s.streams {
		f.stop()
	}
	if s.left {
		return
	}
	if !t.alive {
		s.leave(s.reason(), true)
		return
	}
	watch := func(then func()) {
		if !t.alive {
			then()
			return
		}
		t.ended = append(t.ended, func() { a.after(a.w.time(0, 5*millisecond), then) })
	}
	gone := func() { s.leave(s.reason(), true) }
	a.after(500*millisecond, func() {
		switch {
		case !t.alive:
			gone()
		case a.w.plan.model == shared:
			s.killed = true
			t.kill("its agent ends it: its connection broke while it lived")
			watch(gone)
		default:
			s.leave(pb.Leave_LOST, false)
			watch(gone)
		}
	})
}

func (s *seat) reason() pb.Leave_Reason {
	if s.killed {
		return pb.Leave_KILLED
	}
	return pb.Leave_EXITED
}

func (s *seat) leave(why pb.Leave_Reason, ended bool) {
	a := s.a
	s.left = true
	for _, f := range s.streams {
		f.stop()
	}
	if ended {
		a.rest(s)
	}
	a.seats = slices.DeleteFunc(a.seats, func(o *seat) bool { return o == s })
	a.do(&hold.Gone{Worker: s.number, Reason: why, Ended: ended, Crash: ended && s.t.crashed})
}

// quit makes sure that the process ends. The end of its connection tells the rest.
func (s *seat) quit(why string) {
	s.killed = true
	s.t.ending = s.a.w.now
	s.l.send(1, fenced("the agent ends this process: "+why))
	s.a.after(min(200*millisecond, s.a.w.plan.ttl/20), func() { s.t.kill("ended by its agent: " + why) })
}

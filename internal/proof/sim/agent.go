package sim

import (
	"fmt"
	"time"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc/wire"
)

const never Time = 1<<63 - 1

// node is a machine: an agent, and trainers that connect to its socket.
type node struct {
	name  string
	no    int
	boots int
	agent *agent     // nil or dead: there is none now
	files []*trainer // trainers of a shared model whose step files are on this node
	cut   Time       // until then the node cannot reach the master
	links []*link

	memory   []*copied // checkpoints of its trainers
	replicas []*copied // of other nodes' trainers
}

// agent is the shell around hold.Core, and does what agent/feed does beside it.
type agent struct {
	process
	node    *node
	core    *hold.Core
	fx      hold.Effects
	born    Time
	ticks   Time
	link    *link   // to the master
	with    *master // at its other end
	met     bool
	retry   Time
	seats   []*seat
	workers uint32
	doubted Time // when the session last stopped being trusted

	files map[*trainer]uint32 // processes that the core knows from step files, by worker number
}

// seat is the agent's side of one control connection.
type seat struct {
	a       *agent
	number  uint32
	t       *trainer
	l       *link
	streams []*feed
	welcome bool
	left    bool
	killed  bool

	unstepped           int  // batches that were delivered and not stepped
	single              bool // one of them is a record by itself
	onWay, singlesOnWay int  // frames that may leave and have not left
}

func (w *World) startAgent(n *node) {
	if n.agent != nil && n.agent.alive {
		return
	}
	w.agents++
	a := &agent{node: n, born: w.now, ticks: never, retry: 20 * millisecond, files: map[*trainer]uint32{}}
	a.begin(w, fmt.Sprintf("%s/agent%d", n.name, w.agents))
	a.core = hold.New(hold.Config{
		Hello:    &pb.Hello{Protocol: 1, Agent: n.name, Incarnation: uint64(w.agents), Clock: n.clockName()},
		Prefetch: time.Second, AckDelay: 2 * time.Millisecond,
	})
	found := n.agent != nil
	n.agent = a
	w.tracef(a.name, "starts")
	wait := Time(0)
	if found {
		wait = 150 * millisecond // how long trainers may take to come back
	}
	a.after(wait, func() {
		a.takeStepFiles()
		a.connect()
	})
	a.ended = append(a.ended, func() { w.agentDown(n) })
}

// now is the agent's clock: that of its node.
func (a *agent) now() Time { return a.node.clock(a.w.now) }

// clock is the node's clock at t. Each node has another clock, and it changes with a boot. It is never 0.
func (n *node) clock(t Time) Time {
	return t + 1 + Time(n.clockName()*0x9E3779B97F4A7C15%uint64(1000*second))
}

// clockName names the clock of one boot of the node.
func (n *node) clockName() uint64 { return uint64(n.no)<<32 + uint64(n.boots) + 1 }

func (a *agent) connect() {
	w, m := a.w, a.w.master
	if w.now < a.node.cut || m == nil || !m.alive {
		a.again()
		return
	}
	l := w.newLink(w.plan.delay/4, w.plan.delay, &a.process, &m.process)
	l.far, a.link, a.with, a.met = true, l, m, false
	a.node.links = append(a.node.links, l)
	m.accept(l)
	l.ends[0].take = func(msg any) {
		if a.link != l {
			return
		}
		switch msg := msg.(type) {
		case turnedAway:
			w.tracef(a.name, "turned away: %s", string(msg))
			if !a.met && msg != "" && !w.sameAgent(a) {
				a.kill("another process has its name")
			}
		case []byte:
			m := w.fromMaster(msg)
			a.met = a.met || m.Hello != nil
			if a.met {
				a.retry = 20 * millisecond
			}
			a.do(&hold.Received{Message: m})
		}
	}
	l.ends[0].broken = func() {
		if a.link == l {
			a.disconnect("the stream broke")
		}
	}
	a.do(&hold.Connected{})
}

func (a *agent) again() {
	a.after(a.w.time(a.retry/2, a.retry), func() {
		if a.link == nil {
			a.connect()
		}
	})
	a.retry = min(2*a.retry, 500*millisecond)
}

func (a *agent) disconnect(why string) {
	l := a.link
	a.link = nil
	l.hangUp(0)
	a.w.tracef(a.name, "no session: %s", why)
	a.do(&hold.Disconnected{})
	a.again()
}

// do gives the core one event and carries out what it decides. It must not be called while it runs.
func (a *agent) do(ev hold.Event) hold.Verdict {
	if !a.alive {
		return hold.Over
	}
	w := a.w
	if _, ping := ev.(*hold.Ping); !ping { // pings are many, and little follows from them
		w.events++
	}
	a.fx.Reset()
	if a.core.SessionLeft(a.now()) == 0 {
		a.doubted = w.now
	}
	wake := a.core.Step(a.now(), ev, &a.fx)
	if err := a.core.Check(); err != nil {
		w.fail("%s, after %T: %v", a.name, ev, err)
	}
	if w.tracing {
		a.trace(ev)
	}
	verdict := a.fx.Verdict
	if _, join := ev.(*hold.Join); a.fx.Invalid != "" && !join {
		w.fail("%s: %T was refused: %s", a.name, ev, a.fx.Invalid)
	}
	if a.link != nil {
		for _, m := range a.fx.Send {
			a.link.send(0, wire.Marshal(m))
		}
	}
	a.carryOut()
	if why := a.fx.Reconnect; why != "" && a.link != nil {
		l := a.link
		a.after(0, func() {
			if a.link == l {
				a.disconnect(why)
			}
		})
	}
	if wake < a.ticks {
		a.ticks = wake
		a.after(max(0, wake-a.now()), func() {
			if a.ticks == wake {
				a.ticks = never
				a.do(&hold.Tick{})
			}
		})
	}
	return verdict
}

func (a *agent) seat(worker uint32) *seat {
	for _, s := range a.seats {
		if s.number == worker {
			return s
		}
	}
	return nil
}

func (a *agent) feed(id hold.Stream) *feed {
	if s := a.seat(id.Worker); s != nil {
		for _, f := range s.streams {
			if f.id == id {
				return f
			}
		}
	}
	return nil
}

// carryOut does the same as feed.Server.Apply.
func (a *agent) carryOut() {
	fx := &a.fx
	for _, j := range fx.Joined {
		if s := a.seat(j.Worker); s != nil {
			s.joined(j)
		}
	}
	for _, g := range fx.Grants {
		if f := a.feed(g.Stream); f != nil {
			f.granted(g)
		}
	}
	for _, r := range fx.Rounds {
		if f := a.feed(r.Stream); f != nil {
			f.decide(r)
		}
	}
	for _, e := range fx.Ends {
		if f := a.feed(e.Stream); f != nil {
			f.shrunk(e)
		}
	}
	for _, k := range fx.Acked {
		if s := a.seat(k.Stream.Worker); s != nil {
			s.l.send(1, acked{k.Stream.Number, k.Through})
		}
	}
	for _, r := range fx.Answers {
		if s := a.seat(r.Worker); s != nil {
			s.l.send(1, answer{r})
		}
	}
	for _, st := range fx.States {
		if f := a.feed(st.Stream); f != nil {
			f.standing(st.State, st.Reason)
		}
	}
	for _, k := range fx.Fenced {
		if s := a.seat(k.Worker); s != nil {
			s.l.send(1, fenced(k.Reason))
		}
	}
	for _, h := range fx.Pauses {
		if s := a.seat(h.Worker); s != nil {
			s.l.send(1, pauseOn{h})
		}
	}
	for _, k := range fx.Kill {
		if s := a.seat(k.Worker); s != nil {
			s.quit(k.Reason)
		}
	}
	for _, number := range fx.Forgotten {
		a.forgotten(number)
	}
	if fx.Live {
		for _, s := range a.seats {
			for _, f := range s.streams {
				f.live()
			}
		}
	}
}

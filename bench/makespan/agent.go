package main

import (
	"fmt"
	"time"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc/wire"
)

// Settings of a real agent and client.
const (
	prefetch = time.Second            // of package agent
	ackDelay = 5 * time.Millisecond   // how long an agent's ack waits for others
	window   = 2                      // batches at the trainer, as the Python client asks: the one that it works on, and one more
	oneWay   = 200 * time.Microsecond // one way between agent and master
)

// node is an agent: the real core hold, with simulated reading and trainers. A record is one unit, and
// reading takes no time.
type node struct {
	*clock
	core     *hold.Core
	fx       hold.Effects
	send     func(message []byte)
	trainers map[hold.Stream]*trainer
	nextWake int64
}

func newNode(c *clock, name string, incarnation uint64, send func(message []byte)) *node {
	n := &node{clock: c, send: send, trainers: map[hold.Stream]*trainer{}, nextWake: hold.Never}
	n.core = hold.New(hold.Config{
		Hello:    &pb.Hello{Protocol: 1, Agent: name, Incarnation: incarnation},
		Prefetch: prefetch, AckDelay: ackDelay,
	})
	return n
}

// step gives one event to the core and carries out what it decides.
func (n *node) step(ev hold.Event) hold.Verdict {
	n.fx.Reset()
	wake := n.core.Step(n.now, ev, &n.fx)
	verdict := n.fx.Verdict
	if n.fx.Invalid != "" {
		panic("the agent's core refused an event: " + n.fx.Invalid)
	}
	for _, m := range n.fx.Send {
		b := wire.Marshal(m)
		n.after(oneWay, func() { n.send(b) })
	}
	var woken []*trainer
	for _, j := range n.fx.Joined {
		if j.Refused {
			panic("join refused: " + j.Reason)
		}
		for _, t := range n.trainers {
			if t.stream.Worker == j.Worker {
				t.joined = true
				woken = append(woken, t)
			}
		}
	}
	for _, g := range n.fx.Grants {
		t := n.trainers[g.Stream]
		t.leases = append(t.leases, &held{g.Lease, g.Grant.LeaseStart, g.Grant.LeaseEnd})
		t.drained = false
		woken = append(woken, t)
	}
	for _, e := range n.fx.Ends {
		if t := n.trainers[e.Stream]; t != nil {
			t.cut(e.Lease, e.End)
			woken = append(woken, t)
		}
	}
	for _, s := range n.fx.States {
		t := n.trainers[s.Stream]
		t.drained = s.State == pb.Standing_DRAINED || s.State == pb.Standing_END
		t.ended = t.ended || s.State == pb.Standing_END
		woken = append(woken, t)
	}
	if wake < n.nextWake || n.nextWake <= n.now {
		n.nextWake = wake
		if wake != hold.Never {
			n.at(wake, func() { n.tick(wake) })
		}
	}
	for _, t := range woken {
		t.feed()
	}
	return verdict
}

func (n *node) tick(due int64) {
	if n.nextWake == due {
		n.nextWake = hold.Never
		n.step(&hold.Tick{})
	}
}

// trainer is a worker and the reader that feeds it.
type trainer struct {
	*node
	s       *scenario
	worker  int // its number in the scenario
	stream  hold.Stream
	leases  []*held
	queue   []int64 // rows of batches that were sent and not yielded
	busy    bool
	joined  bool
	drained bool
	ended   bool
	dead    bool
	stepped uint32
	onStep  func(rows int64)
}

// held is a lease as its reader sees it.
type held struct {
	id      hold.Lease
	at, end int64
}

func (t *trainer) cut(id hold.Lease, end int64) {
	for _, l := range t.leases {
		if l.id == id {
			l.end = min(l.end, end)
		}
	}
}

// feed sends whole batches while the trainer has credit, and starts it.
func (t *trainer) feed() {
	for !t.dead && t.joined && t.atTrainer() < window && t.deliver() {
	}
	if t.busy || t.dead || len(t.queue) == 0 {
		return
	}
	rows := t.queue[0]
	t.queue = t.queue[1:]
	t.busy = true
	t.after(t.s.batchTime(t.rand, t.worker, rows), func() { t.done(rows) })
	t.feed()
}

func (t *trainer) atTrainer() int {
	n := len(t.queue)
	if t.busy {
		n++
	}
	return n
}

func (t *trainer) done(rows int64) {
	if t.dead {
		return
	}
	t.busy = false
	t.stepped++
	t.onStep(rows)
	t.step(&hold.Stepped{Stream: t.stream, Step: int64(t.stepped), Batches: 1, Through: t.stepped})
	t.feed()
}

// deliver sends one batch if there are enough rows, or if no more will come.
func (t *trainer) deliver() bool {
	var ev hold.Deliver
	ev.Stream = t.stream
	need := t.s.rows
	type move struct {
		l  *held
		to int64
	}
	var moves []move
	for _, l := range t.leases {
		if n := min(need, l.end-l.at); n > 0 {
			ev.Takes = append(ev.Takes, hold.Take{Lease: l.id, To: l.at + n, Tally: hold.Tally{Rows: n}})
			moves = append(moves, move{l, l.at + n})
			need -= n
		}
	}
	if len(moves) == 0 || need > 0 && !t.drained {
		if !t.ended {
			t.step(&hold.Hungry{Stream: t.stream})
		}
		return false
	}
	ev.Sizes = []int32{int32(len(ev.Takes))}
	if v := t.step(&ev); v != hold.Go {
		if v == hold.Untrusted {
			panic(fmt.Sprintf("at %v: the session is not trusted, although nothing is wrong with it", time.Duration(t.now)))
		}
		return false
	}
	for _, m := range moves {
		if m.l.at = m.to; m.l.at == m.l.end {
			t.step(&hold.Exhausted{Lease: m.l.id, Tail: m.l.end})
		}
	}
	t.leases = compact(t.leases)
	t.queue = append(t.queue, t.s.rows-need)
	return true
}

func compact(ls []*held) []*held {
	out := ls[:0]
	for _, l := range ls {
		if l.at < l.end {
			out = append(out, l)
		}
	}
	clear(ls[len(out):])
	return out
}

// kill is SIGKILL: the agent knows at once that the process has ended.
func (t *trainer) kill() {
	t.dead = true
	t.step(&hold.Gone{Worker: t.stream.Worker, Reason: pb.Leave_KILLED, Ended: true, Detail: "signal: killed"})
	delete(t.trainers, t.stream)
}

package main

import (
	"fmt"
	"runtime"
	"time"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
)

// playOurs plays a scenario with the real cores of master and agents: two
// agents, the workers spread over them.
func playOurs(s scenario) outcome { return playLeases(s, 0, func() {}) }

// playLeases does the same with leases of at most `largest` records (0: the default). It calls atEnd while
// all state still exists.
func playLeases(s scenario, largest int64, atEnd func()) outcome {
	c := newClock(s.seed)
	m := newMaster(c, &s, largest)
	o := &ours{clock: c, s: &s, m: m}
	for k := range 2 {
		session := shardsvc.Session(k + 1)
		n := newNode(c, []string{"a1", "a2"}[k], uint64(k+1), func(b []byte) { m.message(session, b) })
		m.nodes[session] = n
		o.nodes = append(o.nodes, n)
		n.step(&hold.Connected{})
	}
	o.running = make([]*trainer, len(s.rates))
	for w := range s.rates {
		c.at(s.startAt[w], func() { o.start(w) })
	}
	c.at(s.dies, func() { o.running[s.victim].kill() })
	c.at(s.back, func() { o.start(s.victim) })
	c.run(func() bool { return o.finished() })
	atEnd()
	runtime.KeepAlive(m)
	if o.stepped < s.records {
		panic(fmt.Sprintf("seed %d: trainers were told the end of data after %d of %d records", s.seed, o.stepped, s.records))
	}
	return outcome{ratio: s.ratio(o.end), grants: m.grants, repeated: o.stepped - s.records}
}

type ours struct {
	*clock
	s       *scenario
	m       *master
	nodes   []*node
	running []*trainer
	started uint32
	stepped int64
	end     int64
}

// start starts worker w as a new process.
func (o *ours) start(w int) {
	o.started++
	n := o.nodes[w*len(o.nodes)/len(o.s.rates)]
	t := &trainer{node: n, s: o.s, worker: w, stream: hold.Stream{Worker: o.started, Number: 1}, onStep: func(rows int64) {
		o.stepped += rows
		o.end = o.now
	}}
	n.trainers[t.stream] = t
	o.running[w] = t
	n.step(&hold.Join{Join: &pb.Join{Worker: o.started, Rank: uint32(w), Incarnation: uint64(o.started), WorldSize: uint32(len(o.s.rates))}})
	n.step(&hold.Open{Stream: t.stream, Dataset: 1, Tracked: true})
	t.feed()
}

// finished reports whether every record is settled and every living trainer was told the end.
func (o *ours) finished() bool {
	if o.now > int64(time.Second)+4*(o.s.ideal()-int64(time.Second))+int64(time.Minute) {
		panic("the job has not ended after four times the ideal")
	}
	for _, t := range o.running {
		if t == nil || !t.dead && !t.ended {
			return false
		}
	}
	return true
}

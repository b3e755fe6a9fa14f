package main

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// clock is virtual time. The event that is due next happens next; of the same time, the one planned first.
type clock struct {
	now   int64 // ns
	seq   int
	queue events
	rand  *rand.Rand
}

func newClock(seed uint64) *clock {
	return &clock{now: int64(time.Second), rand: rand.New(rand.NewPCG(seed, 0))}
}

// at plans do for a time, or for now if that time has passed.
func (c *clock) at(when int64, do func()) {
	c.seq++
	heap.Push(&c.queue, event{max(when, c.now), c.seq, do})
}

func (c *clock) after(d time.Duration, do func()) { c.at(c.now+int64(d), do) }

// run goes on until nothing is planned, or stop gives true.
func (c *clock) run(stop func() bool) {
	for len(c.queue) > 0 && !stop() {
		e := heap.Pop(&c.queue).(event)
		c.now = e.when
		e.do()
	}
}

type event struct {
	when int64
	seq  int
	do   func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].when < q[j].when || q[i].when == q[j].when && q[i].seq < q[j].seq
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*q = old[:len(old)-1]
	return e
}

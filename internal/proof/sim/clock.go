package sim

import "math/rand/v2"

// Time is virtual nanoseconds since the run began.
type Time = int64

const (
	microsecond Time = 1e3
	millisecond Time = 1e6
	second      Time = 1e9
)

// clock is the queue of all planned events. Events of the same moment happen in the order in which they
// were planned.
type clock struct {
	now  Time
	seq  uint64
	heap []planned
}

type planned struct {
	at  Time
	seq uint64
	do  func()
}

func (p *planned) before(q *planned) bool { return p.at < q.at || p.at == q.at && p.seq < q.seq }

func (c *clock) at(t Time, do func()) {
	c.seq++
	c.heap = append(c.heap, planned{max(t, c.now), c.seq, do})
	h := c.heap
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(&h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

// next takes the earliest event off the queue and sets the time to its moment.
func (c *clock) next() (do func(), ok bool) {
	h := c.heap
	if len(h) == 0 {
		return nil, false
	}
	first := h[0]
	n := len(h) - 1
	h[0] = h[n]
	h[n] = planned{}
	h = h[:n]
	c.heap = h
	for i := 0; ; {
		low := 2*i + 1
		if low >= n {
			break
		}
		if low+1 < n && h[low+1].before(&h[low]) {
			low++
		}
		if !h[low].before(&h[i]) {
			break
		}
		h[i], h[low] = h[low], h[i]
		i = low
	}
	c.now = first.at
	return first.do, true
}

// dice is the one source of chance.
type dice struct{ r *rand.Rand }

// newDice makes the dice of a seed. 0: those of the world; others belong to one trouble each.
func newDice(seed, of uint64) dice {
	return dice{rand.New(rand.NewPCG(seed, 0x6865616472616365+of))}
}

// oneIn is true once in n times.
func (d dice) oneIn(n int) bool { return d.r.IntN(n) == 0 }

// of draws from [lo, hi].
func (d dice) of(lo, hi int) int { return lo + d.r.IntN(hi-lo+1) }

// time draws from [lo, hi], small values more often than large ones.
func (d dice) time(lo, hi Time) Time {
	f := d.r.Float64()
	return lo + Time(f*f*float64(hi-lo))
}

func pick[T any](d dice, from []T) T { return from[d.r.IntN(len(from))] }

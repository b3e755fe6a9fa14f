package shardsvc

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/headrace/headrace/sources"
)

// pairs is a core with one worker that takes leases and acks each of them a message later.
type pairs struct {
	c   *Core
	fx  Effects
	now Time
	msg Message
	due []Ack
}

func newPairs(partitions int, opt Options) *pairs {
	p := &pairs{c: New(Config{Job: "j"}), now: Second}
	p.step(&Start{})
	p.step(&ApplyDataset{ID: 1, Name: "d", Options: opt})
	for n := range uint32(partitions) {
		p.step(&AddPartition{Dataset: 1, Number: n + 1, Identity: fmt.Sprint(n)})
	}
	p.step(&Message{Session: 1, Hello: &Hello{Agent: "a", Incarnation: 1}, Joins: []Join{{Worker: 1, Incarnation: 1}}})
	p.msg = Message{Session: 1, Requests: []LeaseRequest{{ID: 1, Worker: 1, Dataset: 1, Count: 16}}}
	return p
}

func (p *pairs) step(ev Event) { p.c.Step(p.now, ev, &p.fx) }

// round asks for 16 leases and acks those of the round before, last one first.
func (p *pairs) round() {
	p.fx.Reset()
	p.now += Millisecond
	p.msg.Acks = append(p.msg.Acks[:0], p.due...)
	p.due = p.due[:0]
	p.step(&p.msg)
	p.c.Flush(&p.fx)
	for i := range p.fx.Replies {
		if r := &p.fx.Replies[i]; r.Kind == ReplyGrant {
			p.due = append(p.due, Ack{Token: r.Token, Prefix: r.End})
		}
	}
	for i, j := 0, len(p.due)-1; i < j; i, j = i+1, j-1 {
		p.due[i], p.due[j] = p.due[j], p.due[i]
	}
}

// TestSteadyStateAllocatesNothing: after a warm-up, grants and acks allocate nothing.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	p := newPairs(100, Options{Passes: 1, Initial: 10, Min: 10, Max: 10, Target: Second, Stall: 600 * Second})
	for n := range uint32(100) {
		p.step(&AddSegments{Partition: n + 1, Segments: []sources.Segment{{End: 1 << 50}}})
	}
	for range 2 * keepClosed / 16 {
		p.round()
	}
	if n := testing.AllocsPerRun(1000, p.round); n != 0 {
		t.Errorf("%v allocations for 16 pairs", n)
	}
}

// TestClosedLeasesTakeNoMoreMemory: the memory for them was taken at the start.
func TestClosedLeasesTakeNoMoreMemory(t *testing.T) {
	p := newPairs(1, Options{Passes: 1, Initial: 10, Min: 10, Max: 10, Target: Second})
	p.step(&AddSegments{Partition: 1, Segments: []sources.Segment{{End: 1 << 50}}})
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for range 20 {
		p.round()
	}
	early := p.due[0]
	before := heap()
	for range keepClosed/16 + 4 {
		p.round()
	}
	if grown := heap() - before; grown > 64<<10 {
		t.Errorf("%d bytes more after %d leases", grown, keepClosed)
	}
	answer := func(k Ack) Code {
		p.fx.Reset()
		p.step(&Message{Session: 1, Acks: []Ack{k}})
		return p.fx.Replies[0].Code
	}
	late := early
	late.Token, late.Prefix = p.fx.Replies[0].Token, p.fx.Replies[0].Prefix // of the newest closed lease
	beyond := late
	beyond.Prefix++
	for k, want := range map[Ack]Code{late: Durable, beyond: Invalid, early: Stale} {
		if got := answer(k); got != want {
			t.Errorf("%+v is answered %v, want %v", k, got, want)
		}
	}
}

// TestMemoryFollowsLeasesNotTheInput: one worker holds an early lease while the others read on
// through 20,000 small segments. The core keeps one hole and few segments.
func TestMemoryFollowsLeasesNotTheInput(t *testing.T) {
	const segments = 20_000
	p := newPairs(1, Options{Passes: 1, Initial: 10, Min: 10, Max: 10, Target: Second})
	p.step(&Message{Session: 2, Hello: &Hello{Agent: "slow", Incarnation: 1}, Joins: []Join{{Worker: 1, Rank: 1, Incarnation: 2}}})
	ev := &AddSegments{Partition: 1, Complete: true}
	for i := range int64(segments) {
		ev.Segments = append(ev.Segments, sources.Segment{ID: i, Start: i, End: i + 10, Sealed: true})
	}
	p.step(ev)
	p.fx.Reset()
	p.step(&Message{Session: 2, Requests: []LeaseRequest{{ID: 1, Worker: 1, Dataset: 1}}})
	held := p.fx.Replies[0].Token
	for range segments / 16 / 2 {
		p.round()
	}
	ps := p.c.parts[1].passes[0]
	if n := len(ps.done.Above); n > 2 {
		t.Errorf("%d settled ranges are kept above the low mark, want one", n)
	}
	p.step(&Message{Session: 2, Acks: []Ack{{Token: held, Prefix: 10}}})
	for range 16 {
		p.round()
	}
	if n := len(p.c.parts[1].Segs); n > segments*6/10 {
		t.Errorf("half of the input is read, and %d of %d segments are kept, want at most 60 %%", n, segments)
	}
	if err := p.c.CheckInvariants(); err != nil {
		t.Fatal(err)
	}
	before := len(p.fx.arena)
	p.fx.Reset()
	p.c.Flush(&p.fx)
	if len(p.fx.arena) > before+1000 {
		t.Errorf("a flush wrote %d bytes, want at most 1000 more than the %d of the last one", len(p.fx.arena), before)
	}
}

// A rank is not drained while its agent does not know the rank's newest lease
// (docs/ROUNDS.md). The agent reports the highest sequence that it knows. So a later lease must
// have a higher sequence, even if it gets the slot of a closed lease.
func TestALaterLeaseHasAHigherSequence(t *testing.T) {
	p := newPairs(1, Options{Passes: 1, Initial: 10, Min: 10, Max: 10, Target: Second, Stall: 600 * Second})
	p.step(&AddSegments{Partition: 1, Segments: []sources.Segment{{End: 1 << 50}}})
	last, granted := uint64(0), 0
	for granted < 3*keepClosed {
		p.round()
		for i := range p.fx.Replies {
			if r := &p.fx.Replies[i]; r.Kind == ReplyGrant {
				if granted++; r.Token.Sequence <= last {
					t.Fatalf("lease %d has sequence %#x, the one before it %#x", granted, r.Token.Sequence, last)
				}
				last = r.Token.Sequence
			}
		}
	}
}

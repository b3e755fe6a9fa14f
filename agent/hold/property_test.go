package hold_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
)

// The agent's part of guarantees 1, 2 and 6: whatever breaks, only one trainer at a time has a
// record, each record gets into the model once, and none is forgotten.
func TestWhateverBreaksEachRecordIsSteppedOnce(t *testing.T) {
	for _, model := range []string{"shared", "private"} {
		t.Run(model, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				w := newWorld(t, model)
				w.join()
				w.connect()
				w.carry(8)
				t.Repeat(w.actions())
				w.finish()
			})
		})
	}
}

// Guarantee 6, shared: when a session expires, no two trainers have the same row at any moment.
func TestWhenASessionExpiresNoRowIsInTwoHands(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, "shared")
		w.expires = true
		w.join()
		w.connect()
		w.carry(8)
		actions := w.actions()
		actions["expire"] = func(*rapid.T) {
			w.disconnect()
			w.now += 6e9
			w.do(&hold.Tick{})
			w.master.Expire()
		}
		t.Repeat(actions)
		w.finish()
	})
}

// actions returns all events that may happen at any moment.
func (w *world) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"carry": func(t *rapid.T) { w.carry(rapid.IntRange(1, 6).Draw(t, "messages")) },
		"time": func(t *rapid.T) {
			// While the link is down, less than a TTL passes. Expiry has a test of its own.
			w.now += int64(rapid.IntRange(1, 300).Draw(t, "ms")) * 1e6
			w.do(&hold.Tick{})
			if w.link != nil {
				w.carry(20)
				w.do(&hold.Tick{})
				w.carry(20)
			}
		},
		"join": func(t *rapid.T) {
			if len(w.numbers) < 3 {
				w.join()
			}
		},
		"die": func(t *rapid.T) {
			if len(w.numbers) > 1 {
				w.leave(rapid.SampledFrom(w.numbers).Draw(t, "worker"), pb.Leave_EXITED)
			}
		},
		"deliver": func(t *rapid.T) {
			if len(w.numbers) > 0 {
				w.deliver(w.workers[rapid.SampledFrom(w.numbers).Draw(t, "worker")], int64(rapid.IntRange(1, 100).Draw(t, "units")))
			}
		},
		"step": func(t *rapid.T) {
			if len(w.numbers) > 0 {
				if x := w.workers[rapid.SampledFrom(w.numbers).Draw(t, "worker")]; len(x.batches) > 0 {
					w.step(x, rapid.IntRange(1, 3).Draw(t, "batches"), rapid.IntRange(1, 3).Draw(t, "run"))
				}
			}
		},
		"ask": func(t *rapid.T) {
			if len(w.numbers) > 0 {
				x := w.workers[rapid.SampledFrom(w.numbers).Draw(t, "worker")]
				w.ask(x, max(1, x.step+int64(rapid.IntRange(-2, 1).Draw(t, "ahead"))))
			}
		},
		"steal": func(t *rapid.T) {
			if n := w.master.Leases(); n > 0 {
				i := rapid.IntRange(0, n-1).Draw(t, "lease")
				from, end := w.master.LeaseSpan(i)
				w.master.StealFrom(i, rapid.Int64Range(from, end).Draw(t, "at"))
			}
		},
		"head": func(t *rapid.T) {
			if len(w.numbers) > 0 {
				if x := w.workers[rapid.SampledFrom(w.numbers).Draw(t, "worker")]; len(x.leases) > 0 {
					l := rapid.SampledFrom(x.leases).Draw(t, "lease")
					w.do(&hold.HeadSeen{Lease: l.id, Head: rapid.Int64Range(l.start, l.end+50).Draw(t, "head"), Waits: rapid.Bool().Draw(t, "waits")})
				}
			}
		},
		"break": func(t *rapid.T) { w.disconnect() },
		"restart": func(t *rapid.T) {
			w.disconnect()
			w.master.Restart()
		},
		"mend": func(t *rapid.T) { w.connect() },
	}
}

// finish lets all trainers go on without faults until the end of data.
func (w *world) finish() {
	w.disconnect()
	w.connect()
	if len(w.numbers) == 0 {
		w.join()
	}
	for range 2000 {
		w.now += 5e6
		w.do(&hold.Tick{})
		w.carry(50)
		for _, n := range append([]uint32(nil), w.numbers...) {
			x := w.workers[n]
			if x == nil {
				continue
			}
			if x.fenced {
				w.leave(n, pb.Leave_EXITED)
				w.join()
				continue
			}
			w.deliver(x, 50)
			if len(x.batches) > 0 {
				w.step(x, len(x.batches), 1)
			}
		}
		if w.master.Done() {
			break
		}
	}
	if !w.master.Done() {
		w.t.Fatalf("only %d of %d units are settled at the end; %s", w.master.Settled(), worldUnits, w.core.Dump())
	}
	if twice := w.master.Overlap(); twice != "" {
		w.t.Fatalf("these units were settled twice: %s", twice)
	}
	for _, s := range w.master.Acked() { // whatever broke, each ack has the tally of its records
		want := recordsOf(s.From, s.To)
		if got := (hold.Tally{Rows: s.Tally.GetRows(), Oldest: s.Tally.GetOldest(), Newest: s.Tally.GetNewest()}); s.Tally == nil || got != want {
			w.t.Fatalf("[%d, %d) was acked with the tally %v, want %+v", s.From, s.To, s.Tally, want)
		}
	}
	for u := range int64(worldUnits) {
		if n := w.stepped[u]; n == 0 || n > 1 && !w.expires {
			w.t.Fatalf("unit %d is in the model %d times, want once", u, w.stepped[u])
		}
	}
	w.settleDown()
}

// settleDown waits until the master has answered that all stepped batches are durable.
func (w *world) settleDown() {
	for range 20 {
		w.now += 5e6
		w.do(&hold.Tick{})
		w.carry(50)
	}
	for _, n := range w.numbers {
		x := w.workers[n]
		for call, step := range x.asked {
			if step <= x.step {
				w.t.Fatalf("call %d of worker %d (step %d of %d) has no answer; %s", call, n, step, x.step, w.core.Dump())
			}
		}
		if x.acked != x.through {
			w.t.Fatalf("worker %d: %d of %d stepped batches are durable; %s", n, x.acked, x.through, w.core.Dump())
		}
	}
}

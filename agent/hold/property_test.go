package hold_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headrace/headrace/agent/hold"
	"github.com/headrace/headrace/agent/toymaster"
	pb "github.com/headrace/headrace/api/headrace/v1"
)

// world is an agent's core between a master and trainers, with messages that
// take their time and streams that break at any moment. Each unit is a record.
type world struct {
	t      *rapid.T
	core   *hold.Core
	fx     hold.Effects
	now    hold.Time
	master *toymaster.Master
	link   *toymaster.Session
	toUs   []*pb.MasterMessage
	toThem []*pb.AgentMessage

	workers map[uint32]*worker
	numbers []uint32
	last    uint32
	inHand  map[int64]uint32 // unit -> worker that has it unstepped
	stepped map[int64]int    // how often a unit got into the model
	expires bool             // sessions do: what was stepped and not answered comes again
}

type worker struct {
	number  uint32
	joined  bool
	fenced  bool
	leases  []*lease
	batches [][]rng // delivered, not stepped
	tokens  [][]hold.Span
	acked   uint32
	through uint32
	step    int64
	ended   bool // END was said
}

type lease struct {
	id             hold.Lease
	token          hold.Token
	at, end, start int64
}

type rng struct{ from, to int64 }

func (w *world) do(ev hold.Event) {
	w.fx.Reset()
	w.core.Step(w.now, ev, &w.fx)
	if err := w.core.Check(); err != nil {
		w.t.Fatalf("after %T: %v", ev, err)
	}
	w.toThem = append(w.toThem, w.fx.Send...)
	for _, j := range w.fx.Joined {
		if x := w.workers[j.Worker]; x != nil {
			x.joined = !j.Refused
		}
	}
	for _, g := range w.fx.Grants {
		x := w.workers[g.Stream.Worker]
		x.leases = append(x.leases, &lease{id: g.Lease, token: g.Token, at: g.Grant.LeaseStart, start: g.Grant.LeaseStart, end: g.Grant.LeaseEnd})
	}
	for _, e := range w.fx.Ends {
		for _, l := range w.workers[e.Stream.Worker].leases {
			if l.id == e.Lease {
				if e.End < l.at {
					w.t.Fatalf("lease %d ends at %d, delivered up to %d", l.id, e.End, l.at)
				}
				l.end = e.End
			}
		}
	}
	for _, r := range w.fx.Tokens {
		for _, l := range w.workers[r.Stream.Worker].leases {
			if l.id == r.Lease {
				l.token = r.Token
			}
		}
	}
	for _, a := range w.fx.Acked {
		x := w.workers[a.Stream.Worker]
		if x == nil {
			continue
		}
		if a.Through > x.through || a.Through < x.acked {
			w.t.Fatalf("worker %d: acked through %d of %d, %d before", x.number, a.Through, x.through, x.acked)
		}
		x.acked = a.Through
	}
	for _, f := range w.fx.Fenced {
		if x := w.workers[f.Worker]; x != nil {
			x.fenced = true
		}
	}
	for _, s := range w.fx.States {
		if x := w.workers[s.Stream.Worker]; x != nil && s.State == pb.Standing_END {
			x.ended = true
		}
	}
	kill := append([]hold.WorkerReason(nil), w.fx.Kill...)
	reconnect := w.fx.Reconnect
	for _, k := range kill {
		w.leave(k.Worker, pb.Leave_KILLED)
	}
	if reconnect != "" {
		w.disconnect()
	}
}

func (w *world) connect() {
	if w.link != nil {
		return
	}
	w.link = w.master.Open(func(m *pb.MasterMessage) { w.toUs = append(w.toUs, m) })
	w.do(&hold.Connected{})
}

func (w *world) disconnect() {
	if w.link == nil {
		return
	}
	w.master.Close(w.link)
	w.link, w.toUs, w.toThem = nil, nil, nil
	w.do(&hold.Disconnected{})
}

// carry moves up to n messages each way.
func (w *world) carry(n int) {
	for range n {
		if len(w.toThem) > 0 && w.link != nil {
			m := w.toThem[0]
			w.toThem = w.toThem[1:]
			w.master.Handle(w.link, m)
		}
		if len(w.toUs) > 0 && w.link != nil {
			m := w.toUs[0]
			w.toUs = w.toUs[1:]
			w.do(&hold.Received{Message: m})
		}
	}
}

func (w *world) join() {
	w.last++
	x := &worker{number: w.last}
	w.workers[x.number] = x
	w.numbers = append(w.numbers, x.number)
	w.do(&hold.Join{Join: &pb.Join{Worker: x.number, Rank: x.number, Incarnation: uint64(x.number) + 100}})
	w.do(&hold.Open{Stream: hold.Stream{Worker: x.number, Number: 1}, Dataset: 1, Tracked: true})
}

// leave: a trainer's process has ended; what it had in hand is nobody's.
func (w *world) leave(number uint32, why pb.Leave_Reason) {
	x := w.workers[number]
	if x == nil {
		return
	}
	for u, by := range w.inHand {
		if by == number {
			delete(w.inHand, u)
		}
	}
	delete(w.workers, number)
	for i, n := range w.numbers {
		if n == number {
			w.numbers = append(w.numbers[:i:i], w.numbers[i+1:]...)
			break
		}
	}
	w.do(&hold.Gone{Worker: number, Reason: why, Ended: true})
}

// deliver cuts one batch of n units and asks for it.
func (w *world) deliver(x *worker, n int64) {
	ev := &hold.Deliver{Stream: hold.Stream{Worker: x.number, Number: 1}}
	var took []rng
	var spans []hold.Span
	type move struct {
		l  *lease
		to int64
	}
	var moves []move
	for _, l := range x.leases {
		if take := min(n, l.end-l.at); take > 0 {
			ev.Cuts = append(ev.Cuts, hold.Cut{Lease: l.id, To: l.at + take})
			took = append(took, rng{l.at, l.at + take})
			spans = append(spans, hold.Span{Token: l.token, Dataset: 1, Partition: 1, From: l.at, To: l.at + take})
			moves = append(moves, move{l, l.at + take})
			n -= take
		}
	}
	if len(took) == 0 {
		w.do(&hold.Hungry{Stream: ev.Stream})
		return
	}
	ev.Sizes = []int32{int32(len(took))}
	w.do(ev)
	if w.fx.Verdict != hold.Go {
		return
	}
	for _, m := range moves {
		m.l.at = m.to
	}
	x.batches = append(x.batches, took)
	x.tokens = append(x.tokens, spans)
	for _, r := range took {
		for u := r.from; u < r.to; u++ {
			if by, held := w.inHand[u]; held {
				w.t.Fatalf("unit %d was delivered to worker %d while worker %d has it", u, x.number, by)
			}
			if w.stepped[u] > 0 && !w.expires {
				w.t.Fatalf("unit %d is in the model and was delivered to worker %d", u, x.number)
			}
			w.inHand[u] = x.number
		}
	}
}

func (w *world) step(x *worker, n int) {
	n = min(n, len(x.batches))
	for range n {
		for _, r := range x.batches[0] {
			for u := r.from; u < r.to; u++ {
				w.stepped[u]++
				delete(w.inHand, u)
			}
		}
		x.batches, x.tokens = x.batches[1:], x.tokens[1:]
	}
	x.through += uint32(n)
	x.step++
	w.do(&hold.Stepped{Stream: hold.Stream{Worker: x.number, Number: 1}, Step: x.step, Batches: uint32(n), Through: x.through})
	if w.fx.Invalid != "" {
		w.t.Fatalf("step refused: %s", w.fx.Invalid)
	}
}

const worldUnits = 2000

func newWorld(t *rapid.T, model string) *world {
	w := &world{
		t: t, now: 1, workers: map[uint32]*worker{}, inHand: map[int64]uint32{}, stepped: map[int64]int{},
		master: toymaster.New(model, toymaster.Segment{ID: 0, Start: 0, End: worldUnits}),
	}
	w.master.Units = 64
	w.core = hold.New(hold.Config{Hello: &pb.Hello{Agent: "a", Incarnation: 1, Protocol: 1}, Prefetch: time.Second, AckDelay: time.Millisecond})
	return w
}

// Guarantees 1, 2 and 6 as far as an agent keeps them: whatever breaks, a record
// is in the hands of one trainer at a time, gets into the model once, and none is
// forgotten.
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

// Guarantee 6, shared: a session expires, and at no moment are rows in two hands.
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

// actions are what may happen at any moment.
func (w *world) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"carry": func(t *rapid.T) { w.carry(rapid.IntRange(1, 6).Draw(t, "messages")) },
		"time": func(t *rapid.T) {
			// Shorter than a TTL unless the link is up: expiry is its own test.
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
					w.step(x, rapid.IntRange(1, 3).Draw(t, "batches"))
				}
			}
		},
		"steal": func(t *rapid.T) {
			if n := w.master.Leases(); n > 0 {
				i := rapid.IntRange(0, n-1).Draw(t, "lease")
				from, end := w.master.LeaseSpan(i)
				w.master.StealFrom(i, rapid.Int64Range(from, end).Draw(t, "at"))
			}
		},
		"break": func(t *rapid.T) { w.disconnect() },
		"mend":  func(t *rapid.T) { w.connect() },
	}
}

// finish lets everybody go on undisturbed until the end of data.
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
				w.step(x, len(x.batches))
			}
		}
		if w.master.Done() {
			break
		}
	}
	if !w.master.Done() {
		w.t.Fatalf("%d of %d units settled; %s", w.master.Settled(), worldUnits, w.core.Dump())
	}
	if twice := w.master.Overlap(); twice != "" {
		w.t.Fatalf("settled twice: %s", twice)
	}
	for u := range int64(worldUnits) {
		if n := w.stepped[u]; n == 0 || n > 1 && !w.expires {
			w.t.Fatalf("unit %d is in the model %d times", u, w.stepped[u])
		}
	}
	w.settleDown()
}

// settleDown: everything that was stepped is answered as durable.
func (w *world) settleDown() {
	for range 20 {
		w.now += 5e6
		w.do(&hold.Tick{})
		w.carry(50)
	}
	for _, n := range w.numbers {
		if x := w.workers[n]; x.acked != x.through {
			w.t.Fatalf("worker %d: %d of %d stepped batches are durable; %s", n, x.acked, x.through, w.core.Dump())
		}
	}
}

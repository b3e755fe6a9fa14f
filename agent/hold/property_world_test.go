package hold_test

import (
	"encoding/json"
	"time"

	"pgregory.net/rapid"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/proof/toymaster"
)

// world is an agent's core between a master and trainers. Messages may be late, and streams may
// break at any moment. Each unit is a record.
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
	expires bool             // sessions may expire: then stepped records that were not answered as durable come again
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
	ended   bool // it was told END

	taken    map[int64][]rng // by step: the records that got into its model
	lastCall uint64
	asked    map[uint64]int64 // by call: the step whose cut it asks for
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
					w.t.Fatalf("lease %d was cut to end at %d, but it was delivered up to %d", l.id, e.End, l.at)
				}
				l.end = e.End
			}
		}
	}
	for _, a := range w.fx.Acked {
		x := w.workers[a.Stream.Worker]
		if x == nil {
			continue
		}
		if a.Through > x.through || a.Through < x.acked {
			w.t.Fatalf("worker %d was told that its batches are durable through %d; it has stepped %d, and was told %d before", x.number, a.Through, x.through, x.acked)
		}
		x.acked = a.Through
	}
	for _, f := range w.fx.Fenced {
		if x := w.workers[f.Worker]; x != nil {
			x.fenced = true
		}
	}
	for _, r := range w.fx.Answers {
		w.answered(r)
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
	x := &worker{number: w.last, taken: map[int64][]rng{}, asked: map[uint64]int64{}}
	w.workers[x.number] = x
	w.numbers = append(w.numbers, x.number)
	w.do(&hold.Join{Join: &pb.Join{Worker: x.number, Rank: x.number, Incarnation: uint64(x.number) + 100}})
	w.do(&hold.Open{Stream: hold.Stream{Worker: x.number, Number: 1}, Dataset: 1, Tracked: true})
}

// leave ends a trainer's process. No trainer has its unstepped rows any more.
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
			records := recordsOf(l.at, l.at+take)
			ev.Takes = append(ev.Takes, hold.Take{Lease: l.id, To: l.at + take, Tally: records})
			took = append(took, rng{l.at, l.at + take})
			spans = append(spans, hold.Span{Token: l.token, Dataset: 1, Partition: 1, From: l.at, To: l.at + take, Told: true, Tally: records})
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

// step reports, run times, that the oldest n batches are in the model.
func (w *world) step(x *worker, n, run int) {
	if n = min(n, len(x.batches)); n == 0 {
		run = 1
	} else {
		run = min(run, len(x.batches)/n)
	}
	for i := range n * run {
		step := x.step + 1 + int64(i/n)
		x.taken[step] = append(x.taken[step], x.batches[0]...)
		for _, r := range x.batches[0] {
			for u := r.from; u < r.to; u++ {
				w.stepped[u]++
				delete(w.inHand, u)
			}
		}
		x.batches, x.tokens = x.batches[1:], x.tokens[1:]
	}
	x.through += uint32(n * run)
	x.step += int64(run)
	w.do(&hold.Stepped{Stream: hold.Stream{Worker: x.number, Number: 1}, Step: x.step, Batches: uint32(n), Through: x.through, Run: uint32(run)})
	if w.fx.Invalid != "" {
		w.t.Fatalf("the core refused a step: %s", w.fx.Invalid)
	}
}

// ask asks for the cut at a step of x.
func (w *world) ask(x *worker, step int64) {
	if w.master.Model == "shared" {
		step = x.step // a cut of a shared model has the records that are acked now, whatever step is asked for
	}
	x.lastCall++
	x.asked[x.lastCall] = step
	w.do(&hold.Call{Call: &pb.CutCall{Worker: x.number, Id: x.lastCall, Call: &pb.CutCall_Ask{
		Ask: &pb.CutAsk{Cut: uint64(x.number)<<32 | x.lastCall, Step: step}}}})
	if w.fx.Invalid != "" {
		w.t.Fatalf("the core refused an ask: %s", w.fx.Invalid)
	}
}

// answered checks the answer to a call. Each call is answered once. A cut has exactly the records
// that its trainer had stepped by that step. In `shared` it has all records that the asker had
// stepped, and only records that somebody has stepped.
func (w *world) answered(r *pb.CutReply) {
	x := w.workers[r.Worker]
	if x == nil {
		w.t.Fatalf("call %d of worker %d, which is gone, was answered", r.Id, r.Worker)
	}
	step, open := x.asked[r.Id]
	if !open {
		w.t.Fatalf("call %d of worker %d was answered twice, or never asked", r.Id, r.Worker)
	}
	delete(x.asked, r.Id)
	if r.Code != pb.CutReply_OK {
		if r.Code != pb.CutReply_FENCED {
			w.t.Fatalf("call %d of worker %d was answered %s: %s", r.Id, r.Worker, r.Code, r.Reason)
		}
		return
	}
	var c toymaster.Cut
	if err := json.Unmarshal(r.Body, &c); err != nil {
		w.t.Fatal(err)
	}
	in := map[int64]bool{}
	for _, p := range c.Parts {
		for u := p.From; u < p.To; u++ {
			in[u] = true
		}
	}
	want := 0
	for s, ranges := range x.taken {
		if s > step {
			continue
		}
		for _, r := range ranges {
			for u := r.from; u < r.to; u++ {
				if want++; !in[u] {
					w.t.Fatalf("worker %[3]d stepped unit %[1]d at step %[2]d, but its cut at step %[4]d does not have the unit; %[5]s", u, s, x.number, step, w.core.Dump())
				}
			}
		}
	}
	if w.master.Model == "shared" {
		for u := range in {
			if w.stepped[u] == 0 {
				w.t.Fatalf("unit %d is in a cut, but was never stepped", u)
			}
		}
		return
	}
	if len(in) != want {
		w.t.Fatalf("worker %d: the cut at step %d has %d units, its model has %d", x.number, step, len(in), want)
	}
}

// recordsOf returns the tally of some units. Every third unit has no record, and every seventh
// record has no time.
func recordsOf(from, to int64) (t hold.Tally) {
	for u := from; u < to; u++ {
		if u%3 != 0 {
			t.Rows++
		}
		if u%3 != 0 && u%7 != 0 {
			t.Seen(1000 + u*613%1999)
		}
	}
	return t
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

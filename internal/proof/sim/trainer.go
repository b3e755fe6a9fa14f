package sim

import (
	"fmt"
	"slices"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
)

const shared, replicated, private = "shared", "replicated", "private"

// trainer is one process: a main thread that takes batches and steps, and the
// client's control thread with its watchdog.
type trainer struct {
	process
	node  *node
	slot  *slot
	group *group // replicated
	rank  uint32
	inc   uint64
	born  Time

	l          *link
	agent      *agent // at the other end of l; or the last one there
	welcomed   bool
	generation uint32
	streams    []*reader
	outbox     []step
	lingers    bool // the messages in outbox leave soon

	watchdog
	said Time // when HELLO was sent

	step       int64
	model      *model // not for shared: its own model, or the group's
	base       *model // the model to which it has gone back
	ready      bool   // it has restored, or begins from the start
	late       bool   // shared: it restores the checkpoint with which the present model began, while others train
	before     int    // shared: the value of backs when it began to restore
	opened     bool   // its streams are open
	saving     bool
	looked     bool     // it has looked at the checkpoints
	canRead    []uint64 // cuts that it has said it can read from memory
	order      uint64   // the highest order of those and of its own cuts
	calls      uint64
	asks       []*call // open calls
	busy       bool    // computing, or in the barrier
	fenced     bool
	crashed    bool // a record has crashed it, or it has aborted
	noFile     bool // its step file is gone
	died       Time
	lag        Time   // the longest time that a Hello which named it was on its way and waited at the master
	lost       Time   // when a master gave it up; 0: it did not
	silence    Time   // how long that master had not heard of it then
	untold     string // the agent that could have reported its steps by then
	finished   bool   // it ends with success
	ending     Time   // when its agent began to end it
	givenUp    bool   // by the master, after it had been let in
	pace       Time   // of one batch
	paused     uint64 // the cut of the present pause
	saidPaused bool
	idles      bool
}

// reader is the trainer's side of one stream.
type reader struct {
	number, dataset       uint32
	virtual               uint32 // bit_exact: the virtual rank, counted from 1
	rows                  int
	batches               []*batchInHand // received and not acked
	received              uint32
	yielded               uint32
	step                  int64  // the last step reported of it
	stepped, acked, asked uint32 // asked: credits given so far
	ended                 bool
	rounding
}

func (r *reader) batch(number uint32) *batchInHand { return r.batches[number-r.acked-1] }

func (w *World) startTrainer(s *slot, g *group, rank uint32, n *node) *trainer {
	w.incarnations++
	t := &trainer{node: n, slot: s, group: g, rank: rank, inc: w.incarnations}
	t.begin(w, fmt.Sprintf("%s/rank%d.%d", n.name, rank, t.inc))
	t.born = w.now
	t.model = w.modelFor(t)
	t.ready = w.plan.saves == 0 && w.plan.model != shared || w.plan.model == shared && w.served
	if w.plan.model == shared && w.served && w.loaded != nil && w.oneIn(3) {
		t.ready, t.late = false, true
	}
	t.pace = w.time(w.plan.pace/20, w.plan.pace)
	t.makeStreams()
	w.trainers = append(w.trainers, t)
	w.everybody, n.files = append(w.everybody, t), append(n.files, t)
	t.ended = append(t.ended, func() {
		t.died = w.now
		w.trainerDown(t)
	})
	t.woken = t.continued
	w.tracef(t.name, "starts")
	t.watchdog = newWatchdog(w, w.now)
	t.after(w.time(5*millisecond, 100*millisecond), t.connect)
	t.after(w.plan.ttl/5, t.control)
	return t
}

// connect says HELLO to the agent on its node's socket, with all that it holds.
func (t *trainer) connect() {
	w, a := t.w, t.node.agent
	if t.l != nil || t.fenced {
		return
	}
	if a == nil || !a.alive {
		t.after(50*millisecond, t.connect)
		return
	}
	l := w.newLink(20*microsecond, 500*microsecond, &t.process, &a.process)
	t.l, t.agent, t.welcomed, t.said = l, a, false, w.now
	a.sit(l)
	l.ends[0].take = func(msg any) {
		if t.l == l {
			t.take(msg)
		}
	}
	l.ends[0].broken = func() {
		if t.l == l {
			w.tracef(t.name, "its agent is gone")
			t.l = nil
			t.connect()
		}
	}
	h := hello{t: t, join: &pb.Join{Rank: t.rank, Incarnation: t.inc, WorldSize: uint32(w.worldOf(t)), Generation: t.generation, Resume: t.resumesFrom(), MadeAt: t.node.clock(t.born)}}
	t.outbox = nil // its content follows from the resumed streams
	if t.generation != 0 && t.opened {
		for _, r := range t.streams {
			e := r.resume()
			e.Rounds = r.begin(w)
			h.resume = append(h.resume, e)
			h.rows = append(h.rows, r.rows)
		}
	}
	l.send(0, h)
}

func (r *reader) resume() hold.Resume {
	e := hold.Resume{Stream: r.number, Dataset: r.dataset, Virtual: r.virtual, Tracked: true, Stepped: r.stepped, Acked: r.acked}
	for _, b := range r.batches {
		e.Batches = append(e.Batches, hold.ResumedBatch{Number: b.number, Rows: uint32(len(b.recs)), Stepped: b.stepped, Step: b.step, Spans: slices.Clone(b.spans)})
	}
	return e
}

func (t *trainer) take(msg any) {
	w := t.w
	switch m := msg.(type) {
	case welcome:
		first := t.generation == 0
		t.welcomed, t.generation = true, m.j.Generation
		if first && w.plan.model == shared {
			t.step = m.j.LastStep // the step of its predecessor, whose model it continues
		}
		t.paused = 0 // if there is a pause, it is told again
		t.watchdog = newWatchdog(w, t.said)
		w.tracef(t.name, "is in: generation %d epoch %d, %d units pending again", m.j.Generation, m.j.Epoch, m.j.PendingAgain)
		for _, r := range m.j.Resumed {
			if r.Refused {
				t.fence("what it held belongs to others: " + r.Reason)
				return
			}
		}
		switch {
		case !t.opened && t.ready:
			t.openStreams()
		case t.opened:
			for _, r := range t.streams {
				r.asked = r.received
				t.credits(r)
			}
		case first:
			t.restore()
		}
		t.flush()
		t.work()
	case answer:
		t.answered(m.r)
	case pauseOn:
		t.told(m.h)
	case refused:
		t.fence(string(m))
	case fenced:
		t.fence(string(m))
	case frame:
		r := t.streams[m.stream-1]
		for _, b := range m.batches {
			if b.number != r.received+1 {
				w.fail("%s: batch %d follows batch %d", t.name, b.number, r.received)
				return
			}
			r.received++
			r.batches, r.sizes = append(r.batches, b), append(r.sizes, uint64(len(b.recs)))
			w.books.received(t, b.recs, m.sent)
		}
		if w.plan.rounds {
			t.l.send(0, arrived{r.number, r.received, false})
		}
		t.work()
	case decided:
		t.hear(m.round)
	case acked:
		r := t.streams[m.stream-1]
		if m.through > r.stepped {
			w.fail("%s: acked through batch %d, stepped %d", t.name, m.through, r.stepped)
			return
		}
		for r.acked < m.through {
			w.books.acked(t, r.batches[0].recs)
			r.batches = r.batches[1:]
			r.acked++
		}
		t.work()
	case over:
		t.streams[m.stream-1].ended = true
		t.work()
	case pong:
		t.watchdog.answered(m)
	}
}

// resumesFrom is the value of resume in init().
func (t *trainer) resumesFrom() pb.Join_Resume {
	if t.ready || t.late || t.inc%4 == 0 {
		return pb.Join_DEFAULT
	}
	return pb.Join_BOUND
}

func (t *trainer) openStreams() {
	if t.l == nil || !t.welcomed {
		return // WELCOME calls this again
	}
	t.opened = true
	for _, r := range t.streams {
		t.l.send(0, open{r.number, r.dataset, r.virtual, r.rows, r.begin(t.w)})
		r.asked = r.received
		t.credits(r)
	}
}

// credits keeps a window of batches on the way.
func (t *trainer) credits(r *reader) {
	if n := int(r.yielded) + t.w.plan.window - int(r.asked); n > 0 && t.l != nil && t.welcomed {
		r.asked += uint32(n)
		t.l.send(0, credit{r.number, n})
	}
}

// fence: it does not belong to the group any more, and its process ends.
func (t *trainer) fence(why string) {
	if t.fenced {
		return
	}
	t.w.tracef(t.name, "FENCED: %s", why)
	t.fenced = true
	t.after(t.w.time(0, 50*millisecond), func() { t.kill("it was fenced") })
}

// work is the main thread: it takes the next batches, or ends.
func (t *trainer) work() {
	w := t.w
	if t.busy || t.fenced || t.finished || t.generation == 0 || !t.opened {
		return
	}
	if w.plan.exact > 0 {
		t.workExact()
		return
	}
	var ready []*reader
	ended := true
	for _, r := range t.streams {
		if r.yields(w) > 0 {
			ready = append(ready, r)
		}
		ended = ended && r.atEnd(w)
	}
	if w.plan.rounds && !ended {
		next := t.roundStream()
		ready = slices.DeleteFunc(ready, func(r *reader) bool { return r != next })
	}
	if t.paused != 0 {
		ready = nil
		t.sayPaused()
	}
	switch {
	case len(ready) > 0:
		r := pick(w.dice, ready)
		k := min(uint32(w.of(1, w.plan.accumulate)), r.yields(w))
		if w.plan.rounds {
			k = 1
		}
		r.yielded += k
		if w.plan.rounds {
			t.judgeRound(r)
		}
		t.credits(r)
		t.busy = true
		t.after(t.pace*Time(k), func() { t.computed(r, k) })
	case ended:
		t.finish()
	case t.paused != 0 || w.plan.rounds:
	case t.group != nil:
		t.busy = true
		t.after(w.time(50*millisecond, 300*millisecond), func() {
			// No batch came: an idle rank takes part in the step all the same.
			for _, r := range t.streams {
				if r.received > r.yielded {
					t.busy = false
					t.work()
					return
				}
			}
			t.computed(t.streams[0], 0)
		})
	case !t.idles && w.oneIn(4):
		t.idles = true
		t.after(w.time(100*millisecond, second), func() {
			if t.idles = false; !t.busy && !t.fenced && !t.finished {
				t.stepped(t.streams[0], 0, t.step+1)
			}
		})
	}
}

// computed: k batches of r are computed.
func (t *trainer) computed(r *reader, k uint32) {
	if t.crashes(r, k) {
		return
	}
	if t.group != nil {
		t.group.arrive(t, r, k)
		return
	}
	t.into(r, k)
	said := func() {
		t.stepped(r, k, t.step+int64(t.w.of(1, 2)))
		t.maySave(t.model)
		t.busy = false
		t.work()
	}
	if t.w.plan.model == shared { // it may die in between
		t.after(t.w.time(0, t.pace/4), said)
		return
	}
	said()
}

// into puts the oldest k unstepped batches of r into the model.
func (t *trainer) into(r *reader, k uint32) {
	for n := r.stepped + 1; n <= r.stepped+k; n++ {
		recs := r.batch(n).recs
		t.model.add(recs)
		t.w.books.stepped(t, recs)
	}
}

// stepped reports the step.
func (t *trainer) stepped(r *reader, k uint32, s int64) {
	t.step = s
	for range k {
		r.stepped++
		b := r.batch(r.stepped)
		b.stepped, b.step = true, s
		r.step = s
		t.w.books.said(t, b.recs)
	}
	if t.w.tracing {
		t.w.tracef(t.name, "step %d: %d batches of stream %d, through %d", s, k, r.number, r.stepped)
	}
	say := hold.Stepped{Stream: hold.Stream{Number: r.number}, Step: s, Batches: k, Through: r.stepped, Run: 1}
	if n := len(t.outbox); n > 0 && k > 0 && r.virtual == 0 {
		if last := &t.outbox[n-1].ev; last.Stream == say.Stream && last.Batches == k && last.Step == s-1 {
			say.Run += last.Run
			t.outbox = t.outbox[:n-1]
		}
	}
	t.outbox = append(t.outbox, step{say})
	if t.lingers {
		return
	}
	t.lingers = true
	linger := millisecond // the client gathers steps that come fast
	if t.w.plan.model != shared {
		linger = t.w.time(0, 50*millisecond)
	}
	t.after(linger, t.flush)
}

func (t *trainer) flush() {
	t.lingers = false
	if t.l == nil || !t.welcomed || t.fenced {
		return
	}
	for _, s := range t.outbox {
		t.l.send(0, s)
	}
	t.outbox = t.outbox[:0]
	for _, k := range t.asks { // after the steps before them
		if k.said != t.l {
			k.said = t.l
			t.l.send(0, k.msg)
		}
	}
}

// finish: all streams are at their end. The process leaves when all its steps are durable.
func (t *trainer) finish() {
	for _, r := range t.streams {
		if r.acked < r.stepped || t.l == nil || !t.welcomed {
			return // ACKED or WELCOME calls this again
		}
	}
	if t.saving && t.w.plan.drops { // the last checkpoint
		t.after(20*millisecond, t.work)
		return
	}
	t.flush()
	t.finished = true
	t.closes()
	t.w.tracef(t.name, "is done")
	t.kill("done")
}

// closes says BYE.
func (t *trainer) closes() {
	for _, r := range t.streams {
		t.l.send(0, shut{r.number})
	}
	t.l.send(0, bye{})
}

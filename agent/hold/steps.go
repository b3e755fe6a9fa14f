package hold

import (
	"fmt"
	"slices"

	pb "github.com/headrace/headrace/api/headrace/v1"
)

func (c *Core) onOpen(ev *Open) {
	w := c.byNumber[ev.Stream.Worker]
	switch {
	case w == nil || w.state == gone:
		c.fx.Invalid = "this process has not said HELLO"
	case c.stream(ev.Stream) != nil:
		c.fx.Invalid = fmt.Sprintf("stream %d is open already", ev.Stream.Number)
	default:
		s := &stream{id: ev.Stream, w: w, dataset: ev.Dataset, virtual: ev.Virtual, tracked: ev.Tracked, strict: ev.Strict}
		w.streams = append(w.streams, s)
		if ev.Rounds != nil {
			c.beginRounds(s, ev.Rounds)
		}
		c.tellUntracked(w)
	}
}

// deliver decides whether batches may leave for the trainer. Once it has said Go, their records
// count as in the trainer's hands.
func (c *Core) deliver(ev *Deliver) {
	s := c.stream(ev.Stream)
	switch {
	case s == nil || s.closed || !(s.w.deliverable() || s.w.state == joining):
		c.fx.Verdict = Over
		return
	case s.w.state == joining || !c.trusted() || s.w.doubts:
		c.fx.Verdict = Untrusted
		return
	}
	if s.rounds.ends() {
		c.fx.Verdict = Shortened // no round follows
		return
	}
	for i := range ev.Takes {
		l := c.byLease[ev.Takes[i].Lease]
		if l == nil || l.dead || l.s != s || ev.Takes[i].To > l.end {
			c.fx.Verdict = Shortened
			return
		}
	}
	wasIdle := s.delivered == s.stepped
	next := 0
	for _, n := range ev.Sizes {
		units, rows := [inputs]int64{}, int64(0)
		for _, k := range ev.Takes[next : next+int(n)] {
			l := c.byLease[k.Lease]
			units[l.in] += max(0, k.To-l.frontier)
			rows += k.Rows
			s.takes.push(take{l: l, from: l.frontier, to: k.To, told: true, Tally: k.Tally})
			l.frontier, l.ahead = max(l.frontier, k.To), false
			c.rideTail(l)
		}
		next += int(n)
		if !s.tracked {
			s.rate.sent(c.now, units)
		}
		s.batches.push(batch{takes: n, units: units})
		s.delivered++
		s.rounds.size(s.delivered, rows)
	}
	if s.tracked {
		s.rate.delivered(c.now, wasIdle)
	} else {
		c.stepBatches(s, s.delivered, 0)
	}
	s.rounds.delivered()
	c.fx.Verdict, c.fx.Pace = Go, s.rate.batches
	c.want(s)
}

// step handles a report that the oldest batches are in the model.
func (c *Core) step(ev *Stepped) {
	s := c.stream(ev.Stream)
	if s == nil || s.w.state == fenced {
		return // its trainer knows, or will
	}
	through := s.stepped + ev.Batches*max(ev.Run, 1)
	if ev.Through > 0 {
		through = ev.Through
	}
	if through < s.stepped || (through == s.stepped && ev.Batches > 0) {
		return // said before, on another connection
	}
	run := uint32(1) // steps of ev's that were not said before
	if ev.Run > 1 && ev.Batches > 0 {
		run = (through - s.stepped) / ev.Batches
	}
	step := ev.Step - int64(run) + 1 // the first of them
	switch {
	case ev.Run > 1 && (ev.More || run > ev.Run || run*ev.Batches != through-s.stepped):
		c.fx.Invalid = fmt.Sprintf("step: %d steps of %d batches each, after batch %d, do not end with batch %d", ev.Run, ev.Batches, s.stepped, through)
		return
	case through > s.delivered:
		c.fx.Invalid = fmt.Sprintf("step: %d batches are said to be stepped, %d were delivered", through, s.delivered)
		return
	case step < s.lastStep:
		c.fx.Invalid = fmt.Sprintf("step %d is below step %d that this stream reported before", step, s.lastStep)
		return
	// A cut of a shared model goes by what was acked, not by steps. When a trainer has restored
	// such a model, the master counts every rank's steps from the step of the saver. A process
	// that joined before that goes on with its own count.
	case c.model != "shared" && through > s.stepped && step <= s.w.lastStep:
		c.fx.Invalid = fmt.Sprintf("step %d after step %d of this worker: a reported step is closed", step, s.w.lastStep)
		return
	}
	if r := s.rounds; r.ends() && through >= r.Told {
		c.cutOff(s) // it was yielded, so its process knows that it is the last one
	}
	batches := through - s.stepped
	var done used
	for i := s.stepped - s.durable; i < through-s.durable; i++ {
		done.add(s.batches.at(int(i)).units, 1)
	}
	s.rate.consumed(c.now, done, batches, s.delivered > through)
	for ; step < ev.Step; step++ {
		c.stepBatches(s, s.stepped+ev.Batches, step)
	}
	c.stepBatches(s, through, step)
	if !ev.More {
		s.w.lastStep = max(s.w.lastStep, step)
		if s.tracked {
			c.report(s.w)
		}
	}
	c.want(s)
}

// stepBatches books acks for the batches up to through.
func (c *Core) stepBatches(s *stream, through uint32, step int64) {
	for ; s.stepped < through; s.stepped++ {
		for range s.batches.at(int(s.stepped - s.durable)).takes {
			if q := s.takes.at(s.takesStepped); !q.l.dead {
				c.ack(q, step)
			}
			s.takesStepped++
		}
	}
	s.lastStep = max(s.lastStep, step)
	c.settle(s)
}

// ack keeps a prefix to be sent. In `shared` nobody asks for an older step, so acks that wait
// together become one. In the other kinds each step keeps its own. An ack with step 0 is in every
// cut. It is not added to an ack with another step, because that step may have been closed in an
// earlier session.
func (c *Core) ack(q *take, step int64) {
	l, prefix := q.l, min(q.to, q.l.end)
	if prefix >= l.tail {
		prefix = l.end
	}
	if prefix <= l.stepped {
		return
	}
	a := ack{from: l.stepped, prefix: prefix, step: step, told: q.told && q.from == l.stepped && q.to <= l.end, Tally: q.Tally}
	l.stepped = prefix
	n := len(l.acks)
	if n <= l.said || !c.fold(&l.acks[n-1], a) {
		l.acks = append(l.acks, a)
	}
	c.markDirty(l)
}

func (c *Core) markDirty(l *lease) {
	if !l.dirty {
		l.dirty = true
		c.dirty = append(c.dirty, l)
	}
	c.ackDue = min(c.ackDue, c.now+Time(c.cfg.AckDelay))
}

// exhausted: the positions after the last record are acked with it; a lease without
// any record is acked here and now.
func (c *Core) exhausted(l *lease, tail int64) {
	l.tail = tail
	c.rideTail(l)
	c.want(l.s)
}

func (c *Core) rideTail(l *lease) {
	if l.dead || l.tail > l.end || l.frontier < l.tail {
		return
	}
	l.frontier = l.end
	if l.stepped >= l.tail && l.stepped < l.end {
		c.ack(&take{l: l, from: l.stepped, to: l.end, told: true}, 0) // the step before may be closed
	}
}

// report says the worker's step. Steps of a rank grow over all of its streams
// and come in order, so all acks up to this one were booked before.
func (c *Core) report(w *worker) {
	step := w.lastStep
	if step <= w.reported || !c.talking() || !c.whole {
		return
	}
	// It leaves with the acks that belong to it, and counts after them.
	w.reported = step
	c.ackDue = min(c.ackDue, c.now+Time(c.cfg.AckDelay))
	if !slices.Contains(c.reports, w) {
		c.reports = append(c.reports, w)
	}
}

// appendAcks moves what waits into m.
func (c *Core) appendAcks(m *pb.AgentMessage) {
	for _, l := range c.dirty {
		l.dirty = false
		for _, a := range l.acks[l.sent:] {
			m.Acks = append(m.Acks, a.proto(l))
		}
		l.sent = len(l.acks)
		l.said = l.sent
	}
	for _, w := range c.reports {
		m.Steps = append(m.Steps, &pb.StepReport{Worker: w.join.Worker, Step: w.reported})
	}
	clear(c.dirty)
	clear(c.reports)
	c.dirty, c.reports = c.dirty[:0], c.reports[:0]
	c.ackDue = Never
}

// ackResult books an answer.
func (c *Core) ackResult(r *pb.AckResult) {
	l := c.byToken[tokenOf(r.Token)]
	if l == nil {
		return
	}
	if r.Code != pb.AckResult_DURABLE {
		c.fence(l.s.w, "an ack was refused: "+r.Reason)
		if !l.dead { // its worker was gone or fenced before
			c.drop(l)
		}
		return
	}
	c.durableTo(l, r.Prefix)
}

func (c *Core) durableTo(l *lease, prefix int64) {
	if l.dead || prefix <= l.durable {
		return
	}
	l.durable = min(prefix, l.end)
	if l.durable == l.end && l.frontier < l.end && !l.s.closed { // others settled the rest: nobody waits for it
		c.fx.Ends = append(c.fx.Ends, LeaseEnd{Stream: l.s.id, Lease: l.id, End: l.frontier})
	}
	l.stepped = max(l.stepped, l.durable)
	l.frontier = max(l.frontier, l.durable)
	n := 0
	for n < len(l.acks) && l.acks[n].prefix <= l.durable {
		n++
	}
	l.acks = append(l.acks[:0], l.acks[n:]...)
	l.sent, l.said = max(0, l.sent-n), max(0, l.said-n)
	s := l.s
	c.done(l)
	c.settle(s)
}

// settle moves the stream's durable count over batches that the master has on
// disk. It never passes a batch of a lost lease, because nobody says that this one is durable.
func (c *Core) settle(s *stream) {
	n, k := 0, 0
	for s.durable+uint32(n) < s.stepped {
		b := s.batches.at(n)
		for i := range int(b.takes) {
			q := s.takes.at(k + i)
			if q.l.durable < min(q.to, q.l.end) {
				goto held
			}
		}
		k += int(b.takes)
		n++
	}
held:
	if n == 0 {
		return
	}
	s.batches.pop(n)
	s.takes.pop(k)
	s.takesStepped -= k
	s.durable += uint32(n)
	if n := len(c.fx.Acked); n > 0 && c.fx.Acked[n-1].Stream == s.id { // one message answers many acks
		c.fx.Acked[n-1].Through = s.durable
		return
	}
	c.fx.Acked = append(c.fx.Acked, Acked{Stream: s.id, Through: s.durable})
}

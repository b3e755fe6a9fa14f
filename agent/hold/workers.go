package hold

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/headrace/headrace/api/headrace/v1"
)

// onJoin takes a trainer process in. If it brings batches along, their leases are asserted, and
// only a new session can do that.
func (c *Core) onJoin(ev *Join) {
	w := &worker{join: ev.Join, ended: ev.Ended}
	if err := c.resume(w, ev.Resume); err != nil {
		c.unresume(w)
		c.fx.Invalid = err.Error()
		return
	}
	c.workers = append(c.workers, w)
	c.byNumber[ev.Join.Worker] = w
	switch {
	case c.up && c.claims(w):
		// It missed this session's Hello, and Held goes with Hello only.
		c.fx.Reconnect = "a trainer came back with leases to re-assert"
	case c.greeted:
		c.sayJoin(w)
	}
}

func (c *Core) sayJoin(w *worker) {
	w.said = true
	m := c.message()
	m.Joins = append(m.Joins, w.joinNow())
}

// joinNow is a copy: the sender reads it while the core goes on.
func (w *worker) joinNow() *pb.Join { return proto.Clone(w.join).(*pb.Join) }

// resume rebuilds streams and leases from what a trainer brought. The trainer is
// not trusted to be right: a claim that contradicts itself is refused.
func (c *Core) resume(w *worker, entries []Resume) error {
	for _, r := range entries {
		s := &stream{
			id: Stream{Worker: w.join.Worker, Number: r.Stream}, w: w, dataset: r.Dataset, virtual: r.Virtual, tracked: r.Tracked, strict: r.Strict,
			durable: r.Acked, stepped: r.Acked, delivered: r.Acked, standing: pb.Standing_WAIT,
		}
		for _, other := range w.streams {
			if other.id == s.id {
				return fmt.Errorf("stream %d is brought twice", r.Stream)
			}
		}
		w.streams = append(w.streams, s)
		for i, b := range r.Batches {
			if err := c.resumeBatch(s, r, i, b); err != nil {
				return fmt.Errorf("stream %d: batch %d: %w", r.Stream, b.Number, err)
			}
		}
		if r.Rounds != nil {
			c.beginRounds(s, r.Rounds)
			for _, b := range r.Batches {
				s.rounds.size(b.Number, int64(b.Rows))
			}
			s.rounds.sizes.Forget(r.Rounds.Told)
		}
		if s.stepped != max(r.Stepped, r.Acked) {
			return fmt.Errorf("stream %d: %d batches are said to be stepped, the list has them up to %d", r.Stream, r.Stepped, s.stepped)
		}
		w.lastStep = max(w.lastStep, s.lastStep)
		w.resumed = append(w.resumed, ResumeReply{Stream: r.Stream})
	}
	return nil
}

func (c *Core) resumeBatch(s *stream, r Resume, i int, b ResumedBatch) error {
	if b.Number != r.Acked+uint32(i)+1 {
		return fmt.Errorf("batches must follow the acked ones (%d) without a gap", r.Acked)
	}
	if b.Stepped && s.stepped+1 != b.Number {
		return fmt.Errorf("it is stepped and the one before it is not")
	}
	if b.Stepped && b.Step < s.lastStep {
		return fmt.Errorf("its step %d is below step %d of the one before", b.Step, s.lastStep)
	}
	for _, span := range b.Spans {
		if span.From < 0 || span.To <= span.From {
			return fmt.Errorf("span [%d, %d)", span.From, span.To)
		}
		if span.Rows < 0 || span.Oldest > span.Newest {
			return fmt.Errorf("span [%d, %d) of %d rows from %d to %d", span.From, span.To, span.Rows, span.Oldest, span.Newest)
		}
		l := c.byToken[span.Token]
		if l == nil {
			l = c.newLease(s, span.Token, span.From, span.To)
			l.partition, l.pass, l.segment, l.resume = span.Partition, span.Pass, span.Segment, true
		}
		if l.s != s || !l.resume || span.Dataset != s.dataset || span.From < l.frontier {
			return fmt.Errorf("its lease %v is claimed by another stream, or twice", span.Token)
		}
		l.end, l.frontier = span.To, span.To
		s.takes.push(take{l: l, from: span.From, to: span.To, told: span.Told, Tally: span.Tally})
	}
	s.delivered = b.Number
	s.batches.push(batch{takes: int32(len(b.Spans))})
	if b.Stepped {
		s.stepped, s.lastStep = b.Number, b.Step
		s.takesStepped = s.takes.len()
		for k := s.takes.len() - len(b.Spans); k < s.takes.len(); k++ {
			q := s.takes.at(k)
			c.ack(q, b.Step)
			q.l.said = len(q.l.acks) // perhaps by the agent that it comes from
		}
	}
	return nil
}

// unresume takes back what a refused resume has built.
func (c *Core) unresume(w *worker) {
	for _, s := range w.streams {
		c.rounding = slices.DeleteFunc(c.rounding, func(o *stream) bool { return o == s })
		for _, l := range slices.Clone(s.leases) {
			c.remove(l)
		}
	}
}

// joinReply answers a trainer's HELLO, or its re-assertion.
func (c *Core) joinReply(r *pb.JoinReply) {
	w := c.byNumber[r.Worker]
	if w == nil || w.state == gone {
		if w != nil && !r.Refused {
			w.answered = true // it is named again as long as its acks are owed
		}
		return
	}
	answer := Joined{
		Worker: r.Worker, Generation: r.Generation, Epoch: r.Epoch, LastStep: r.LastStep, PendingAgain: r.PendingAgain, Again: r.Again, Resume: r.Resume,
		Resumed: w.resumed, Model: c.model, Job: c.job, TTLMillis: uint32(c.ttl.Milliseconds()),
	}
	first := !w.answered
	w.answered = true
	switch {
	case r.Refused && first:
		answer.Refused, answer.Reason = true, r.Reason
		answer.Superseded = r.Refusal == pb.JoinReply_SUPERSEDED
		c.fx.Joined = append(c.fx.Joined, answer)
		w.reason = r.Reason
		c.fenceCalls(w)
		c.dropAll(w, fenced)
		return
	case r.Refused:
		c.fence(w, r.Reason)
		return
	case first:
		c.fx.Joined = append(c.fx.Joined, answer)
	}
	w.join.Generation = r.Generation
	switch w.state {
	case joining:
		w.state = joined
		w.lastStep = max(w.lastStep, r.LastStep)
	case fenced:
		if first { // one of the leases that it brought was refused
			c.fx.Fenced = append(c.fx.Fenced, WorkerReason{Worker: r.Worker, Reason: w.reason})
		}
	}
	for _, s := range w.streams {
		if w.state == joined {
			c.settle(s) // no answer of the master tells of batches without rows
		}
		c.want(s)
	}
	c.callSoon(w)
}

// fence handles a worker that is out of the group. We say nothing more about its rows.
func (c *Core) fence(w *worker, reason string) {
	if w.state == fenced || w.state == gone {
		return
	}
	w.reason = reason
	c.fenceCalls(w)
	if w.answered {
		c.fx.Fenced = append(c.fx.Fenced, WorkerReason{Worker: w.join.Worker, Reason: reason})
	}
	next := fenced
	if w.state == ending {
		next = ending
	}
	c.dropAll(w, next)
}

func (c *Core) dropAll(w *worker, next workerState) {
	w.state = next
	for _, s := range slices.Clone(w.streams) {
		for _, l := range slices.Clone(s.leases) {
			c.drop(l)
		}
	}
}

// end has the shell end the process. Gone follows.
func (c *Core) end(w *worker, reason string) {
	if w.state == ending || w.state == gone {
		return
	}
	w.state, w.reason = ending, reason
	c.fx.Kill = append(c.fx.Kill, WorkerReason{Worker: w.join.Worker, Reason: reason})
}

// onGone handles a trainer that has left, in whatever way. Its stepped rows are still acked. The
// rest goes back with Leave.
func (c *Core) onGone(ev *Gone) {
	w := c.byNumber[ev.Worker]
	if w == nil {
		return
	}
	leave := &pb.Leave{Worker: ev.Worker, Reason: ev.Reason, Ended: ev.Ended, Detail: ev.Detail}
	if w.state == gone {
		// Known to have left; now its process is known to have ended as well.
		if !ev.Ended || w.leave.GetEnded() {
			return
		}
	}
	unknown := w.state == joining && !w.said && !w.wasLetIn()
	if ev.Crash {
		if leave.Crash = w.inHand(); leave.Crash == nil {
			leave.Crash = w.hand
		}
	}
	w.state, w.leave, w.unseen = gone, leave, ev.Unseen
	w.calls = nil // nobody is there to be answered
	c.unsure = append(c.unsure, unsure{at: c.unsureAt(), leave: leave})
	for _, s := range slices.Clone(w.streams) {
		if c.model == "shared" || w.ended {
			c.closeStream(s, "")
		} else {
			c.stopStream(s)
		}
	}
	if unknown && !c.claims(w) { // no master has ever heard of it
		c.unsure = c.unsure[:len(c.unsure)-1]
		c.forget(ev.Worker)
		return
	}
	if c.talking() {
		c.message().Leaves = append(c.message().Leaves, leave)
	}
}

// giveBackAll gives back the rows that w had in hand, once the master has processed w's Leave.
// Until then, if the job's model is not `shared`, a new session asserts w's leases as if w lived.
// If it asserted less, other workers of the generation would get the rest, although w's end ends
// the generation.
func (c *Core) giveBackAll(w *worker) {
	if w == nil || w.state != gone {
		return
	}
	if w.hand == nil && !w.leave.GetEnded() {
		w.hand = w.inHand()
	}
	for _, s := range slices.Clone(w.streams) {
		c.giveBack(s, "")
	}
}

// unsureAt returns the send time of a message that leaves now. A message that cannot leave now is
// sent after the next Hello.
func (c *Core) unsureAt() Time {
	if c.talking() {
		return c.now
	}
	return Never
}

// wasLetIn says whether w came as step files and had joined through the agent before this one. The
// master keeps the leases of w until it hears of w's end, even if the files have nothing to ack.
func (w *worker) wasLetIn() bool { return w.ended && w.join.Generation != 0 }

func (c *Core) claims(w *worker) bool {
	return slices.ContainsFunc(w.streams, func(s *stream) bool { return len(s.leases) > 0 })
}

// forget drops a worker that has left once nothing of it is open.
func (c *Core) forget(number uint32) {
	w := c.byNumber[number]
	if w == nil || w.state != gone || c.claims(w) || (w.leave.Reason == pb.Leave_LOST && !w.leave.Ended && !w.unseen) {
		return // the agent may still find out that this process has ended
	}
	delete(c.byNumber, number)
	c.workers = slices.DeleteFunc(c.workers, func(o *worker) bool { return o == w })
	c.fx.Forgotten = append(c.fx.Forgotten, number)
}

func (c *Core) appendStatus(m *pb.AgentMessage) {
	for _, w := range c.workers {
		if w.status != nil {
			m.Status = append(m.Status, w.status)
			w.status = nil
		}
	}
}

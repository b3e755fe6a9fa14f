package serve

import (
	"context"
	"fmt"
	"time"

	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/wire"
)

const inboxItems = 256

// loop owns the core. All of its methods run on its goroutine.
type loop struct {
	s    *Server
	core *shardsvc.Core
	c    *committer

	cur   *buffer // being filled
	spare *buffer // nil while the committer has it

	began   time.Time
	wake    shardsvc.Time // when the core wants a Tick
	armed   shardsvc.Time // what timer is set to
	timer   *time.Timer
	blocked blocked
	given   shardsvc.Time // blocked time that Ticks told the core; its clock is behind now() by that much
	proved  shardsvc.Time // when the newest durable batch was handed over; the store was ours at that time

	reported int // index in cur of the first report of the last step
	needs    map[uint32]bool
	agents   map[string]*wire.About
}

// buffer is one batch: the core's effects, and the streams and calls that wait for it.
type buffer struct {
	seq    uint64
	fx     shardsvc.Effects
	events int // steps taken
	echoes []echo
	calls  []answered
	acts   bool // one of them acts by its answer
	handed shardsvc.Time
}

type echo struct {
	st     *stream
	sentAt int64
}

type answered struct {
	c   *call
	err error
}

func (b *buffer) reset(seq uint64) {
	b.fx.Reset()
	clear(b.echoes)
	clear(b.calls)
	b.seq, b.events, b.echoes, b.calls, b.acts = seq, 0, b.echoes[:0], b.calls[:0], false
}

func newLoop(s *Server, c *committer) *loop {
	l := &loop{
		s: s, core: s.core, c: c,
		cur: &buffer{seq: 1}, spare: &buffer{seq: 2},
		began:  time.Now(),
		wake:   shardsvc.Never,
		armed:  shardsvc.Never,
		timer:  time.NewTimer(time.Hour),
		needs:  map[uint32]bool{},
		agents: map[string]*wire.About{},
	}
	l.timer.Stop()
	return l
}

// now is the core's clock. It starts at 1 s so that 0 is never a time.
func (l *loop) now() shardsvc.Time { return shardsvc.Second + shardsvc.Time(time.Since(l.began)) }

// run returns when ctx ends or a commit fails. When ctx ends, it first makes everything
// durable that it has taken from the inbox.
func (l *loop) run(ctx context.Context) error {
	defer l.timer.Stop()
	l.step(&shardsvc.Start{})
	l.blocked.start(l.now())
	for {
		l.handOver()
		l.arm()
		var inbox <-chan item
		if l.full() {
			l.blocked.begin(l.now())
		} else {
			inbox = l.s.inbox
		}
		l.blocked.sleep(l.now())
		select {
		case it := <-inbox:
			l.blocked.woke(l.now(), l.wake)
			l.take(it)
			l.drain()
		case b := <-l.c.done:
			l.blocked.woke(l.now(), l.wake)
			if b.err != nil {
				return b.err
			}
			l.free(b.buffer)
			l.blocked.end(l.now())
		case <-l.timer.C:
			l.armed = shardsvc.Never
			l.blocked.woke(l.now(), l.wake)
			l.drain()
		case <-ctx.Done():
			return l.finish()
		}
	}
}

// full says that so much waits for the committer that the loop must stop reading.
func (l *loop) full() bool {
	return l.cur.events+len(l.cur.fx.Replies) >= l.s.cfg.MaxPending
}

// drain takes all items from the inbox. If the inbox is then empty and the core's deadline
// has passed, it gives the core a Tick.
func (l *loop) drain() {
	for !l.full() {
		select {
		case it := <-l.s.inbox:
			l.take(it)
			continue
		default:
		}
		if now := l.now(); now >= l.wake {
			blocked := l.blocked.take()
			l.given += blocked
			l.step(&shardsvc.Tick{Blocked: blocked})
		}
		return
	}
}

func (l *loop) take(it item) {
	switch {
	case it.in != nil:
		l.message(it.in)
	case it.lost != nil:
		l.s.sessions.remove(it.lost)
		l.step(&shardsvc.Lost{Session: it.lost.session})
	case it.call != nil:
		err := it.call.f(l)
		if it.call.view {
			it.call.done <- err
			return
		}
		l.cur.calls = append(l.cur.calls, answered{it.call, err})
		l.cur.acts = l.cur.acts || it.call.acts
	}
}

func (l *loop) message(in *inbound) {
	st := in.st
	if in.About != nil {
		l.agents[in.About.Name] = in.About
	}
	n := in.Size()
	l.step(&in.Event)
	l.cur.events += n
	// An agent that gets an echo trusts its leases for longer. An expired session gets none.
	if at := int64(in.Event.SentAt); at != 0 && l.core.HasSession(st.session) {
		l.echo(st, at)
	}
	for _, k := range in.Refusals {
		l.cur.fx.Replies = append(l.cur.fx.Replies, k.Reply(in.Event.Session))
	}
	in.free()
}

// echo notes the newest sent_at of a stream in this batch.
func (l *loop) echo(st *stream, sentAt int64) {
	if st.echoSeq == l.cur.seq {
		l.cur.echoes[st.echoAt].sentAt = sentAt
		return
	}
	st.echoSeq, st.echoAt = l.cur.seq, len(l.cur.echoes)
	l.cur.echoes = append(l.cur.echoes, echo{st, sentAt})
}

// step gives the core one event.
func (l *loop) step(ev shardsvc.Event) {
	l.reported = len(l.cur.fx.Reports)
	l.wake = l.core.Step(l.now(), ev, &l.cur.fx)
	l.cur.events++
	for i := l.reported; i < len(l.cur.fx.Reports); i++ {
		switch r := &l.cur.fx.Reports[i]; r.Kind {
		case shardsvc.ReportNeedSegments:
			l.needs[r.Partition] = true
			l.s.changed.fire()
		case shardsvc.ReportExpired:
			delete(l.agents, r.Agent)
		case shardsvc.ReportDatasetFailed, shardsvc.ReportDatasetDone:
			l.s.changed.fire()
		}
	}
}

// rejected returns an error if the core rejected the last step, else nil.
func (l *loop) rejected() error {
	for _, r := range l.cur.fx.Reports[l.reported:] {
		if r.Kind == shardsvc.ReportRejected {
			return fmt.Errorf("refused: %s", r.Reason)
		}
	}
	return nil
}

// handOver gives the batch to the committer if the committer is idle.
func (l *loop) handOver() {
	if l.spare == nil || l.cur.events+len(l.cur.calls) == 0 {
		return
	}
	l.core.Flush(&l.cur.fx)
	l.prove()
	next := l.spare
	next.reset(l.cur.seq + 1)
	l.spare = nil
	l.c.work <- l.cur // it has room for one
	l.cur = next
}

// trusted says for how long after a commit the store counts as ours: TTL / trusted. Agents
// trust an echo for nine tenths of the TTL. 1/25 and 9/10 together are less than 1. So if
// another master takes the store, agents stop trusting this one before the TTL has passed
// for which the other one waits.
const trusted = 25

// prove adds a write to a batch that has answers and no writes, if the last commit was too
// long ago. A master that stood still, or had nothing to store, may have lost its store to
// another master. The write then fails, and this master ends before it answers anybody.
func (l *loop) prove() {
	b := l.cur
	b.handed = l.now()
	if len(b.fx.Puts) == 0 && (len(b.fx.Replies)+len(b.echoes) > 0 || b.acts) && b.handed-l.proved > shardsvc.Time(l.s.cfg.TTL)/trusted {
		l.core.Prove(&b.fx)
	}
}

// free takes back a buffer whose batch is durable.
func (l *loop) free(b *buffer) {
	if len(b.fx.Puts) > 0 {
		l.proved = b.handed
	}
	l.spare = b
}

// arm sets the timer for the core's deadline. It does not move the timer to a later time:
// an early fire does no harm.
func (l *loop) arm() {
	if l.wake >= l.armed || l.full() {
		return // when full, the committer's answer comes first
	}
	l.armed = l.wake
	l.timer.Reset(time.Duration(max(0, l.wake-l.now())))
}

// finish makes everything durable that was taken from the inbox, and answers it.
func (l *loop) finish() error {
	for {
		l.handOver()
		if l.spare != nil {
			return nil
		}
		b := <-l.c.done
		if b.err != nil {
			return b.err
		}
		l.free(b.buffer)
	}
}

package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

const (
	arenaEnough = 1 << 20  // a Batch with so many bytes is handed out
	arenaMost   = 16 << 20 // a Batch takes no further message above so many bytes
	damageTries = 3        // how often a damaged message is fetched
)

var _ sources.Tailing = (*cursor)(nil)

// cursor reads one range, some requests ahead of its caller.
type cursor struct {
	s *Source
	p partition
	f print
	r sources.Range

	at      int64 // the next offset wanted
	flight  pulls
	replica remoting.Replica // the one to ask; without Addr: not chosen yet
	word    bool             // only the master's answer will do
	now     []byte           // the rest of an answer: whole messages from c.at on
	held    []byte           // the whole answer
	nowFrom int64            // its request was for [nowFrom, nowEnd)
	nowEnd  int64

	last  trace // of the message before at, if read is set
	read  bool
	doubt bool  // last may have been replaced
	asked bool  // remember was called
	conns int64 // of Client.Connections when last was there; 0: no answer has come yet

	met    bool      // a master has answered, so head is known
	head   int64     // the end of the queue in the newest answer
	tries  int       // fetches of a damaged message
	wrong  time.Time // since when c.at cannot be read, although it should be there; zero: it can
	failed error     // the permanent error; every Next returns it again
	onHead func(head int64)
}

// Open makes a cursor. If the range cannot be read, Next says so.
func (s *Source) Open(ctx context.Context, r sources.Range, from sources.Position, locator []byte) (sources.Cursor, error) {
	if err := s.Usable(ctx); err != nil {
		return nil, err
	}
	p, f, err := parseLocator(locator)
	if err != nil {
		return nil, err
	}
	if p.id() != r.Partition {
		return nil, fmt.Errorf("rocketmq: the locator opens %s and not %s", p.id(), r.Partition)
	}
	c := &cursor{s: s, p: p, f: f, r: r, at: max(r.Start, from.Offset)}
	c.last, c.read = s.leftAt(r.Partition, c.at)
	c.doubt = c.read
	return c, nil
}

// OnHead sets a function that gets the end of the queue from each answer of a master.
func (c *cursor) OnHead(f func(head int64)) { c.onHead = f }

// Close drops the requests that are under way.
func (c *cursor) Close() error {
	c.flight.drop()
	c.done()
	if c.read {
		c.s.leave(c.r.Partition, c.last)
	}
	return nil
}

// done drops the current answer and keeps its memory for later ones.
func (c *cursor) done() {
	c.s.spare.Keep(c.held)
	c.now, c.held = nil, nil
}

// Next hands out the records of some answers. An offset without a record for us is acked with
// the record before it.
func (c *cursor) Next(ctx context.Context, b *sources.Batch) error {
	if c.failed != nil {
		return c.failed
	}
	b.Reset()
	for {
		err := c.step(ctx, b)
		switch {
		case len(b.Recs) > 0 && (err != nil || len(b.Arena) >= arenaEnough || !c.more()):
			b.End = min(c.at, c.r.End) // an error is met again by the next call
			c.s.passed(c.r.Partition, c.last)
			return nil
		case err == nil:
		case errors.Is(err, errAgain):
			c.restart()
			if err := brokers.Pause(ctx, retryAfter); err != nil {
				return err
			}
		default:
			return c.end(ctx, err)
		}
	}
}

// end returns an error to the caller and remembers a permanent one.
func (c *cursor) end(ctx context.Context, err error) error {
	if err == io.EOF {
		c.flight.drop()
		return err
	}
	c.restart()
	if _, again := errors.AsType[*sources.Temporary](err); !again && ctx.Err() == nil {
		c.failed = brokers.NotTheEnd(err)
	}
	return brokers.NotTheEnd(err)
}

// restart drops all requests. They are sent again, perhaps to another replica.
func (c *cursor) restart() {
	c.flight.drop()
	c.done()
	c.replica, c.doubt, c.conns = remoting.Replica{}, true, 0
}

// more says whether there are messages that need no waiting.
func (c *cursor) more() bool {
	return len(c.now) > 0 || c.at < c.r.End && len(c.flight.all) > 0 && c.flight.all[0].pending.Ready()
}

// step takes the messages of one answer. It waits for an answer if there is none.
func (c *cursor) step(ctx context.Context, b *sources.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.at >= c.r.End {
		return io.EOF
	}
	if len(c.now) == 0 {
		if err := c.receive(ctx); err != nil || len(c.now) == 0 {
			return err
		}
	}
	before := c.at
	err := c.take(b)
	if c.at != before {
		c.tries, c.wrong = 0, time.Time{}
	}
	if err != nil && len(b.Recs) == 0 {
		return c.damaged(err)
	}
	return err
}

// choose picks the replica to ask: the master, or another one if the master did not answer.
func (c *cursor) choose(ctx context.Context) error {
	if c.replica.Addr != "" {
		return nil
	}
	all, err := c.s.replicas(ctx, c.p)
	if errors.Is(err, errNoTopic) {
		return c.queueGone(err)
	}
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return away(fmt.Errorf("%s: %w", c.p, errAway))
	}
	if c.replica = all[0]; !c.word {
		c.replica = c.s.silence.pick(all)
	}
	return nil
}

// atMaster says whether the master answers. Only a master knows where a queue ends.
func (c *cursor) atMaster() bool { return c.replica.ID == remoting.MasterID }

// receive waits for the answer that begins at c.at and keeps requests under way.
func (c *cursor) receive(ctx context.Context) error {
	if err := c.choose(ctx); err != nil {
		return err
	}
	if err := c.same(ctx); err != nil {
		return err
	}
	if err := c.request(ctx); err != nil {
		return c.silent(ctx, err)
	}
	first := c.flight.all[0]
	within := c.s.client.Answer()
	if first.suspended {
		within += 3 * suspendMS * time.Millisecond // the broker looks for new messages every five seconds
		if c.onHead != nil {
			c.onHead(c.head) // all below head has been read: from here on the cursor waits
		}
	}
	a, err := first.pending.Wait(ctx, within)
	if err != nil {
		return c.silent(ctx, err)
	}
	c.flight.all = c.flight.all[1:]
	c.s.silence.ends(c.replica.Addr)
	c.word = c.word && !c.atMaster()
	if c.reconnected() {
		c.flight.drop()
		return nil
	}
	got, err := remoting.PulledOf(a)
	if err != nil {
		return fmt.Errorf("%s at offset %d: %w", c.p, c.at, err)
	}
	return c.answer(ctx, first, &got)
}

// request asks for messages that exist. At the head of a live queue it asks the broker to
// answer when a message comes.
func (c *cursor) request(ctx context.Context) error {
	limit := c.r.End
	if c.s.o.live() {
		if limit = min(limit, c.head); !c.met {
			limit = min(c.r.End, c.at+c.s.window.Load())
		}
	}
	if err := c.ask(ctx, limit); err != nil || len(c.flight.all) > 0 {
		return err
	}
	return c.send(ctx, 0, suspendMS, &pull{start: c.at, end: min(c.r.End, c.at+c.s.window.Load())})
}

// silent handles a replica that cannot be reached. The next try asks another one.
func (c *cursor) silent(ctx context.Context, err error) error {
	if errors.Is(err, remoting.ErrUnreachable) && ctx.Err() == nil {
		c.s.silence.note(c.replica.Addr)
		c.s.forgetRoute(c.p.topic)
	}
	return c.s.explain(ctx, err, fmt.Sprintf("%s at offset %d", c.p, c.at))
}

// answer handles the answer to a pull.
func (c *cursor) answer(ctx context.Context, p *pull, a *remoting.Pulled) error {
	switch a.Code {
	case remoting.OK:
		c.told(a.Max)
		c.now, c.held, c.nowFrom, c.nowEnd = a.Body, a.Body, p.start, p.end
		if len(a.Body) == 0 {
			return errAgain
		}
		return nil
	case remoting.PullNotFound:
		return c.atHead(ctx, a.Max)
	case remoting.PullRetry:
		return c.removing(ctx)
	case remoting.PullMoved:
		return c.outside(ctx, a)
	case remoting.TopicUnknown, remoting.QueueUnknown:
		if !c.atMaster() { // a slave learns of topics seconds later, so its answer says nothing about the master
			c.s.silence.note(c.replica.Addr)
			return away(fmt.Errorf("%s at offset %d: slave %s does not know the queue yet, and the master does not answer", c.p, c.at, c.replica.Addr))
		}
		return c.queueGone(fmt.Errorf("the broker answers code %d: %s", a.Code, a.Remark))
	case remoting.SubscriptionWrong, remoting.SubscriptionNone:
		return errAgain
	}
	err := &remoting.Error{Addr: c.replica.Addr, Code: a.Code, Remark: a.Remark}
	return c.s.explain(ctx, err, fmt.Sprintf("%s at offset %d", c.p, c.at))
}

// told notes the head that a master reported.
func (c *cursor) told(head int64) {
	if !c.atMaster() {
		return
	}
	if c.met, c.head = true, head; c.onHead != nil {
		c.onHead(head)
	}
}

// atHead handles the answer that there is no message at c.at yet.
func (c *cursor) atHead(ctx context.Context, head int64) error {
	if !c.atMaster() {
		c.word = true // the master may have it
		return errAgain
	}
	if c.s.o.live() && head == c.at {
		c.told(head)
		c.wrong = time.Time{} // the cursor is at the head, where nothing is wrong
		c.flight.drop()
		c.remember(ctx)
		return nil
	}
	return c.beyondHead(ctx, head)
}

// take appends messages of the current answer.
func (c *cursor) take(b *sources.Batch) error {
	var last message
	at, err := c.append(b, &last)
	if at != nil {
		c.last, c.read = last.trace(at), true // only that of the last one is ever asked for
	}
	if err == nil && !c.left() {
		c.learn()
		c.done()
	}
	return err
}

// left says whether the current answer has more messages of the range.
func (c *cursor) left() bool { return len(c.now) > 0 && c.at < min(c.r.End, c.nowEnd) }

// append takes messages of the current answer as long as b has room. at is where the last of
// them begins; nil: it took none.
func (c *cursor) append(b *sources.Batch, last *message) (at []byte, err error) {
	var m message
	for c.left() && len(b.Arena) <= arenaMost {
		err := m.read(c.now)
		if err == nil {
			err = m.check(c.now, c.p)
		}
		switch {
		case err != nil:
			return at, err
		case m.queueOffset < c.at:
			return at, fmt.Errorf("%w: its offset is %d, and %d was asked for", errMessage, m.queueOffset, c.at)
		case m.queueOffset > c.at:
			return at, &gap{m.queueOffset}
		case !c.f.fits(&m):
			return at, errMadeAgain
		}
		if len(c.s.o.Tags) == 0 || m.tagged(c.now, c.s.o.Tags) {
			if err := m.appendRecord(c.now, c.s.o.MaxRecord, c.s.o.Bare, b); err != nil {
				return at, err
			}
		}
		*last, at = m, c.now
		c.now = c.now[m.size:]
		c.at++
	}
	return at, nil
}

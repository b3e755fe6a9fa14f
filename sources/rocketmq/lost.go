package rocketmq

import (
	"context"
	"errors"
	"fmt"

	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// errMadeAgain means that a message lies at a place where no planned message can lie.
var errMadeAgain = errors.New("another message has its offset")

// gap means that the broker left out the messages up to next.
type gap struct{ next int64 }

func (g *gap) Error() string { return fmt.Sprintf("the next message is %d", g.next) }

// damaged returns the error for a message that cannot be read. At first that is errAgain:
// the bytes may have been damaged on their way, so they are fetched again.
func (c *cursor) damaged(err error) error {
	at := sources.Position{Segment: c.r.Segment, Offset: c.at}
	if large, ok := errors.AsType[*tooLarge](err); ok {
		return &sources.TooLarge{Partition: c.p.id(), Position: at, Name: c.p.String(), Size: large.size, Limit: c.s.o.MaxRecord}
	}
	if g, ok := errors.AsType[*gap](err); ok {
		return c.skipped(g)
	}
	if errors.Is(err, errMadeAgain) {
		return &sources.Changed{Range: c.rest(), Name: c.p.String(),
			What: fmt.Sprintf("the message at offset %d is younger than those that were planned: the topic was deleted and made again", c.at)}
	}
	malformed := &sources.Malformed{Position: at, Name: c.p.String(), What: err.Error()}
	if errors.Is(err, errWindow) {
		malformed.What += "; skip it with a new dataset whose start_offsets are after it"
		return malformed
	}
	if errors.Is(err, errBatchQueue) {
		return malformed
	}
	if c.tries++; c.tries < damageTries {
		return errAgain
	}
	malformed.What = fmt.Sprintf("the message there, fetched %d times: %v: the broker's commit log is damaged, or something on the way from it: "+
		"let a replica become the master and resume the dataset, or skip it with a new dataset whose start_offsets are after it", c.tries, err)
	return malformed
}

// rest returns the rest of the range. In a live partition it ends at the head that was seen,
// because a lease may end ahead of head.
func (c *cursor) rest() sources.Range {
	r := c.r
	r.Start = max(c.at, r.Start)
	if c.s.o.live() {
		r.End = min(r.End, max(c.head, r.Start))
	}
	return r
}

// outside handles the answer that c.at lies below the queue's minimum or above its maximum.
func (c *cursor) outside(ctx context.Context, a *remoting.Pulled) error {
	switch {
	case !c.atMaster():
		c.word = true
		return errAgain
	case c.at < a.Min:
		return c.truncated(ctx, a.Min)
	case c.at == a.Max:
		return c.atHead(ctx, a.Max)
	case c.at > a.Max:
		return c.beyondHead(ctx, a.Max)
	}
	return errAgain
}

// removing handles the answer that there is no message at c.at, and that the next one lies
// much further. We ask for messages of all tags, so no message was filtered out: the broker
// is removing messages. The queue's minimum shows it some seconds later.
func (c *cursor) removing(ctx context.Context) error {
	if !c.atMaster() { // a slave that may not be read
		c.word = true
		return errAgain
	}
	low, _, err := c.s.endsOf(ctx, c.p)
	switch {
	case err != nil:
		return err
	case c.at < low:
		return c.truncated(ctx, low)
	case !brokers.Longer(&c.wrong, c.s.o.trimWithin):
		return errAgain
	}
	return temporary(fmt.Errorf("%s at offset %d: the broker is removing messages there, and says that the queue begins at %d", c.p, c.at, low))
}

// skipped handles an answer that left out messages.
func (c *cursor) skipped(g *gap) error {
	if !brokers.Longer(&c.wrong, c.s.o.trimWithin) {
		return errAgain // if they were removed, the minimum shows it soon, and the answer changes
	}
	lost := c.rest()
	lost.End = min(g.next, c.r.End)
	return &sources.Truncated{Lost: lost, Name: c.p.String(),
		Err: fmt.Errorf("the broker gives no message between offsets %d and %d", c.at, g.next)}
}

// truncated handles a message that the master has deleted. If a slave still has it, the
// cursor goes on there.
func (c *cursor) truncated(ctx context.Context, low int64) error {
	all, err := c.s.replicas(ctx, c.p)
	if err != nil {
		return err
	}
	for _, r := range all {
		if r.ID == remoting.MasterID {
			continue
		}
		a, err := c.s.client.Call(ctx, r.Addr, remoting.MinOffset(c.p.remote()))
		if err != nil {
			continue
		}
		if its, err := remoting.OffsetOf(a); err == nil && its <= c.at && c.readable(ctx, r) {
			c.flight.drop()
			c.replica = r
			return nil
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	lost := c.r
	lost.Start, lost.End = c.at, min(low, c.r.End)
	return &sources.Truncated{Lost: lost, Name: c.p.String(),
		Err: fmt.Errorf("the queue in RocketMQ begins at offset %d now (fileReservedTime, or a full disk)", low)}
}

// readable says whether a replica returns the message at c.at.
func (c *cursor) readable(ctx context.Context, r remoting.Replica) bool {
	a, err := c.s.client.Call(ctx, r.Addr, remoting.Pull{Queue: c.p.remote(), Group: c.s.o.group(), Offset: c.at, Most: 1}.Command())
	if err != nil {
		return false
	}
	var m message
	return m.read(a.Body) == nil && m.queueOffset == c.at
}

// beyondHead returns the error for a head below c.at. A broker that has just started may not
// know yet how far its queue reaches, so it is asked again for headWithin. Then we wait
// until it has entered all stored messages into its queues.
func (c *cursor) beyondHead(ctx context.Context, head int64) error {
	if !brokers.Longer(&c.wrong, c.s.o.headWithin) {
		return errAgain
	}
	c.s.showed.forget() // what the broker showed before it fell back does not count
	if err := c.s.dispatched(ctx, c.p); err != nil {
		return err
	}
	low, now, err := c.s.endsOf(ctx, c.p)
	if err != nil {
		return err
	}
	if now > head || low > c.at {
		return errAgain
	}
	return &sources.Diverged{Range: c.r, Name: c.p.String(), Head: head}
}

// queueGone returns the error for a queue that its running broker does not have. A broker
// that has just started is registered some seconds later, so the error comes only after
// topicWithin.
func (c *cursor) queueGone(why error) error {
	c.s.forgetRoute(c.p.topic)
	if !brokers.Longer(&c.wrong, c.s.o.topicWithin) {
		return errAgain
	}
	gone := &sources.Changed{Range: c.rest(), Name: c.p.String(),
		What: fmt.Sprintf("queue %d of topic %s is not on broker %s any more: %v", c.p.queue, c.p.topic, c.p.broker, why)}
	return gone
}

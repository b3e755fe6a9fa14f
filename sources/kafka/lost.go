package kafka

import (
	"context"
	"fmt"

	"github.com/headrace/headrace/sources"
)

// outOfRange says why the broker refuses an offset: what retention has taken, or a
// head that fell back.
func (c *cursor) outOfRange(ctx context.Context, offset int64) error {
	low, err := c.s.client.offsetOf(ctx, c.p, atLogStart, uncommitted)
	if err != nil {
		return err
	}
	if offset < low {
		return c.truncated(offset, low)
	}
	head, err := c.s.client.offsetOf(ctx, c.p, atHead, uncommitted)
	if err != nil {
		return err
	}
	if offset > head {
		return c.behindHead(head)
	}
	if epoch := c.s.epochs.at(c.r.Partition, offset); epoch != unknownEpoch { // one that it has never heard of
		end, err := c.s.client.epochEnd(ctx, c.p, epoch)
		if err != nil {
			return err
		}
		if end < offset {
			return c.parted(end)
		}
	}
	return temporary(fmt.Errorf("%s: the broker refused offset %d, which is in [%d, %d]", c.p, offset, low, head))
}

func (c *cursor) truncated(offset, low int64) error {
	lost := c.r
	lost.Start, lost.End = offset, min(low, c.r.End)
	return &sources.Truncated{Lost: lost, Name: c.p.String(),
		Err: fmt.Errorf("the log in Kafka begins at offset %d now (retention, or deleted records)", low)}
}

// behindHead: a new leader may not know yet how far it may let us read, so it is
// asked again for a while.
func (c *cursor) behindHead(head int64) error {
	if !c.waited(c.s.o.headWithin) {
		return errAgain
	}
	return &sources.Diverged{Range: c.r, Name: c.p.String(), Head: head}
}

// parted: an unclean election took back what was read before c.at, from this offset on.
func (c *cursor) parted(from int64) error {
	r := c.r
	r.End = max(r.End, c.at)
	return &sources.Diverged{Range: r, Name: c.p.String(), Head: from}
}

// topicGone: the topic's id is unknown to the leader, or its name to the
// connections. A broker that has just started may know no topic for a moment, so
// that a deleted one is believed only after a while.
func (c *cursor) topicGone(ctx context.Context) error {
	_, topics, err := c.s.client.metadata(ctx, []string{c.p.name})
	if err != nil {
		return err
	}
	rest := c.r
	rest.Start = max(c.at, c.r.Start)
	if c.s.o.live() { // a lease may end ahead of head
		rest.End = min(rest.End, max(c.head, rest.Start))
	}
	switch {
	case len(topics) == 1 && topics[0].code == codeNone && topics[0].id == c.p.topic:
		return temporary(fmt.Errorf("%s: the leader does not know the topic's id %s yet", c.p, c.p.topic))
	case len(topics) == 1 && topics[0].code == codeNone:
		return madeAgain(c.p, c.p.String(), rest, topics[0].id)
	case len(topics) == 1 && topics[0].code == codeUnknownTopic && !c.waited(topicWithin):
		return errAgain
	case len(topics) == 1 && topics[0].code == codeUnknownTopic:
		return &sources.Changed{Range: rest, Name: c.p.String(), What: "the topic was deleted"}
	}
	return temporary(fmt.Errorf("%s: nobody can say what became of the topic", c.p))
}

package kafka

import (
	"context"
	"fmt"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// outOfRange finds out why the broker refuses an offset: its record was deleted, or the
// head fell back.
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
	if epoch := c.s.epochs.at(c.r.Partition, offset); epoch != unknownEpoch { // the leader may not know it
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

// behindHead returns the error for a head below c.at. A new leader may not know yet how far
// it may let us read, so it is asked again for headWithin.
func (c *cursor) behindHead(head int64) error {
	if !brokers.Longer(&c.wrong, c.s.o.headWithin) {
		return errAgain
	}
	return &sources.Diverged{Range: c.r, Name: c.p.String(), Head: head}
}

// parted returns the error for records that were read before c.at and that an unclean
// election took back, from offset from on.
func (c *cursor) parted(from int64) error {
	r := c.r
	r.End = max(r.End, c.at)
	return &sources.Diverged{Range: r, Name: c.p.String(), Head: from}
}

// topicGone finds out why a leader does not know the topic's id, or no broker its name. A
// broker that has just started may know no topics for a moment. So a topic counts as
// deleted only if that lasts for topicWithin.
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
	case len(topics) == 1 && topics[0].code == codeUnknownTopic && !brokers.Longer(&c.wrong, topicWithin):
		return errAgain
	case len(topics) == 1 && topics[0].code == codeUnknownTopic:
		return &sources.Changed{Range: rest, Name: c.p.String(), What: "the topic was deleted"}
	}
	return temporary(fmt.Errorf("%s: Kafka does not say whether the topic still exists", c.p))
}

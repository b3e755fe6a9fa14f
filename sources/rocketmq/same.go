package rocketmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// leftMost is how many closed cursors of a queue are remembered by the last message that they
// have read.
const leftMost = 16

// leave remembers the last message that a cursor has read, for the cursor that reads on.
func (s *Source) leave(id sources.PartitionID, t trace) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := append(slices.DeleteFunc(s.left[id], func(o trace) bool { return o.offset == t.offset }), t)
	s.left[id] = all[max(0, len(all)-leftMost):]
}

// passed remembers a message that was read, so that parted finds from where on messages were
// replaced.
func (s *Source) passed(id sources.PartitionID, t trace) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.trails[id]
	at, is := slices.BinarySearchFunc(all, t.offset, func(o trace, offset int64) int { return cmp.Compare(o.offset, offset) })
	if is {
		all[at] = t
		return
	}
	s.trails[id] = thinned(slices.Insert(all, at, t))
}

// sameUpTo returns the offset from which on messages may be others: that after the last one
// that was read before an offset and is still there.
func (s *Source) sameUpTo(ctx context.Context, p partition, before int64) int64 {
	s.mu.Lock()
	all := slices.Clone(s.trails[p.id()])
	s.mu.Unlock()
	from := before
	for _, t := range slices.Backward(all) {
		if t.offset >= before {
			continue
		}
		m, b, err := s.one(ctx, p, t.offset)
		switch again, _ := errors.AsType[*sources.Temporary](err); {
		case ctx.Err() != nil, again != nil && again.Away:
			return from // as far as is known
		case err == nil && m.trace(b) == t:
			return t.offset + 1
		case err == nil:
			from = t.offset
		}
	}
	return from
}

// leftAt returns the message that an earlier cursor has read before an offset.
func (s *Source) leftAt(id sources.PartitionID, offset int64) (trace, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.left[id], func(t trace) bool { return t.offset == offset-1 }); i >= 0 {
		return s.left[id][i], true
	}
	return trace{}, false
}

// remember gets the message before c.at when the cursor begins to wait at the head without
// having read one. Another reader has read that message, perhaps a moment ago.
func (c *cursor) remember(ctx context.Context) {
	if c.read || c.asked || c.at == 0 {
		return
	}
	c.asked = true
	if m, b, err := c.s.one(ctx, c.p, c.at-1); err == nil { // otherwise only the master compares messages
		c.last, c.read = m.trace(b), true
	}
}

// same makes sure that the message before c.at is still the one that was read. It asks after
// anything that was not an answer with the next message: the broker may have been started
// again without its last messages, another one may be its master, or the topic may be another
// one. (sources.Comparer of the master looks too, once a second.)
func (c *cursor) same(ctx context.Context) error {
	if !c.doubt {
		return nil
	}
	if !c.read || c.last.offset != c.at-1 {
		c.doubt = false
		return nil
	}
	before := c.s.client.Connections(c.replica.Addr)
	cmd := remoting.Pull{Queue: c.p.remote(), Group: c.s.o.group(), Offset: c.at - 1, Most: 1}.Command()
	pending, err := c.s.client.Start(ctx, c.replica.Addr, cmd)
	if err != nil {
		return c.silent(ctx, err)
	}
	a, err := pending.Wait(ctx, c.s.client.Answer())
	if err != nil {
		return c.silent(ctx, err)
	}
	got, err := remoting.PulledOf(a)
	if err != nil {
		return fmt.Errorf("%s at offset %d: %w", c.p, c.at-1, err)
	}
	var m message
	switch {
	case got.Code == remoting.PullMoved && got.Min >= c.at: // deleted by now, as retention does
	case got.Code == remoting.PullRetry && c.atMaster() && c.at >= got.Min && brokers.Longer(&c.wrong, c.s.o.trimWithin):
		c.wrong = time.Time{} // deleted too: RocketMQ 4.x keeps the minimum of a queue that has no message left
	case got.Code != remoting.OK:
		return c.answer(ctx, &pull{start: c.at - 1, end: c.at}, &got)
	case m.read(got.Body) != nil || m.queueOffset != c.at-1: // damaged, or being removed: it cannot be compared
	case m.trace(got.Body) != c.last:
		return c.parted(ctx)
	}
	c.doubt, c.conns = false, before
	return nil
}

// reconnected says whether the connection was made again since last was there. Then the answer
// may come from a broker that was started again.
func (c *cursor) reconnected() bool {
	n := c.s.client.Connections(c.replica.Addr)
	if c.conns == 0 {
		c.conns = n
	}
	c.doubt = c.doubt || c.read && n != c.conns
	return c.doubt
}

// parted returns the error for another message at the last offset that was read.
func (c *cursor) parted(ctx context.Context) error {
	if !c.atMaster() {
		c.s.silence.note(c.replica.Addr)
		return away(fmt.Errorf("%s at offset %d: slave %s has another message there than was read, and the master does not answer", c.p, c.at-1, c.replica.Addr))
	}
	r := c.r
	r.End = max(r.End, c.at)
	from := c.s.sameUpTo(ctx, c.p, c.at-1)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &sources.Diverged{Range: r, Name: c.p.String(), Head: from}
}

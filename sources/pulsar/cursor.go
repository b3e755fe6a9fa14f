package pulsar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	client "github.com/apache/pulsar-client-go/pulsar"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

const (
	arenaMost   = 1 << 20 // bytes of one Batch, about
	recordsMost = 8192

	quietOpen  = 10 * time.Millisecond  // after so long without a first message, a live cursor asks whether it stands at the head
	quietFirst = 200 * time.Millisecond // after so long without a message, the admin API is asked why
	quietMost  = 5 * time.Second        // the wait doubles up to here; of a live cursor it stays there while nothing is odd
	askEvery   = 50 * time.Millisecond  // the live cursors of a source that wait ask no more often, all together
	realTries  = 3                      // so often a message may exist and not come, before the Reader is opened again
	opensMost  = 3                      // so often a Reader is opened for one entry
)

var _ sources.Tailing = (*cursor)(nil)

// cursor reads one range of one ledger.
type cursor struct {
	s      *Source
	p      partition
	ledger int64
	r      sources.Range
	at     int64 // the next offset wanted
	rd     *reader
	head   int64 // the highest end of an entry that was seen; -1: nothing was asked yet
	onHead func(head int64)

	quiet   time.Duration // how long to wait for a message before asking
	opening bool          // no message has come, and nobody asked whether one is there
	checked bool          // the topic was the planned one when the Reader was opened
	real    int           // times that the entry at c.at existed and did not come
	opens   int           // times that a Reader was opened for it
	failed  error         // the permanent error; every Next returns it again
	closed  bool
}

// Open makes a cursor. It connects when the first record is asked for.
func (s *Source) Open(ctx context.Context, r sources.Range, from sources.Position, locator []byte) (sources.Cursor, error) {
	if err := s.Usable(ctx); err != nil {
		return nil, err
	}
	p, ledger, err := parseLocator(locator)
	if err != nil {
		return nil, err
	}
	if p.id() != r.Partition || ledger != ledgerOf(r.Segment) {
		return nil, fmt.Errorf("pulsar: the locator opens ledger %d of %s, and not segment %d of %s", ledger, p.id(), r.Segment, r.Partition)
	}
	c := &cursor{s: s, p: p, ledger: ledger, r: r, at: max(r.Start, from.Offset), head: -1, quiet: quietFirst}
	if s.o.live() {
		c.opening, c.quiet = true, quietOpen
	}
	s.cursors.Add(1)
	return c, nil
}

func (c *cursor) name() string { return ledgerName(c.p, c.ledger) }

// OnHead sets a function that gets the highest end of an entry that was seen.
func (c *cursor) OnHead(f func(head int64)) { c.onHead = f }

// Close keeps the Reader for a cursor that goes on at this place.
func (c *cursor) Close() error {
	if !c.closed {
		c.closed = true
		c.s.cursors.Add(-1)
	}
	if c.rd != nil {
		c.rd.ledger, c.rd.offset = c.ledger, c.at
		if m := c.rd.peeked; m != nil && m.ID().LedgerID() > c.ledger { // it stands at the next ledger
			c.rd.ledger, c.rd.offset = m.ID().LedgerID(), at(m.ID().EntryID(), max(0, m.ID().BatchIdx()))
		}
		c.s.keep(c.rd)
		c.rd = nil
	}
	return nil
}

// Next hands out the messages that have come. It waits only for the first one.
func (c *cursor) Next(ctx context.Context, b *sources.Batch) error {
	b.Reset()
	if c.failed != nil {
		return c.failed
	}
	err := c.fill(ctx, b)
	if len(b.Recs) > 0 {
		b.End = min(c.at, c.r.End) // the next call meets an error after them again
		return nil
	}
	if err != nil && err != io.EOF && ctx.Err() == nil && !isTemporary(err) {
		err = brokers.NotTheEnd(err)
		c.failed = err
	}
	return err
}

func (c *cursor) fill(ctx context.Context, b *sources.Batch) error {
	for {
		if c.at >= c.r.End {
			return io.EOF
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if len(b.Recs) >= recordsMost || len(b.Arena) >= arenaMost {
			return nil
		}
		if c.rd == nil {
			if len(b.Recs) > 0 {
				return nil
			}
			if err := c.reopen(ctx); err != nil {
				return err
			}
		}
		m, err := c.peek(ctx, len(b.Recs) == 0)
		if err != nil {
			return err
		}
		if m == nil {
			if len(b.Recs) > 0 {
				return nil
			}
			if err := c.ask(ctx, b); err != nil {
				return err
			}
			continue
		}
		if err := c.take(ctx, m, b); err != nil {
			return err
		}
	}
}

// reopen opens a Reader at c.at. It first checks that the topic is still the planned one,
// because opening a Reader would create a missing topic.
func (c *cursor) reopen(ctx context.Context) error {
	if r := c.s.kept(c.p, c.ledger, c.at, c.left()); r != nil {
		c.rd = r
		return nil
	}
	if err := c.sameTopic(ctx); err != nil {
		return err
	}
	c.checked = true
	r, err := c.s.open(ctx, c.p, c.ledger, c.at, c.left())
	if err != nil {
		return err
	}
	c.rd = r
	return nil
}

// left returns how many entries of the range are not read yet.
func (c *cursor) left() int64 { return entryOf(c.r.End-1) - entryOf(c.at) + 1 }

// there returns how many entries of the range are not read and known to be there. A live
// range ends far ahead of the head, and at the head few permits will do.
func (c *cursor) there() int64 {
	if !c.s.o.live() {
		return c.left()
	}
	return min(c.left(), max(0, entryOf(c.head-1)-entryOf(c.at)+1))
}

// drop ends the Reader. The next one is opened at c.at.
func (c *cursor) drop() {
	if c.rd != nil {
		c.s.mu.Lock()
		c.s.sizes[c.p] = c.rd.sizes
		c.s.mu.Unlock()
		c.rd.close()
		c.rd = nil
	}
}

// peek returns the next message without taking it. It returns nil if none came within
// c.quiet or, without wait, if none is there now.
func (c *cursor) peek(ctx context.Context, wait bool) (client.Message, error) {
	if c.rd.peeked != nil {
		return c.rd.peeked, nil
	}
	select {
	case m, ok := <-c.rd.messages:
		return c.came(m, ok)
	default:
	}
	if !wait {
		return nil, nil
	}
	if c.at >= c.head && c.head >= 0 && c.onHead != nil {
		c.onHead(c.head) // all that was seen has been read: from here on the cursor waits
	}
	t := time.NewTimer(c.quiet)
	defer t.Stop()
	select {
	case m, ok := <-c.rd.messages:
		return c.came(m, ok)
	case <-t.C:
		c.quieter()
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// quieter doubles the wait for a message.
func (c *cursor) quieter() { c.quiet = min(2*c.quiet, max(quietMost, c.share())) }

// share is how long a cursor of a live topic waits at most before it asks the admin API
// again: the longer, the more cursors there are, so that all together ask every askEvery.
func (c *cursor) share() time.Duration {
	if !c.s.o.live() {
		return 0
	}
	return time.Duration(c.s.cursors.Load()) * askEvery
}

func (c *cursor) came(m client.Message, ok bool) (client.Message, error) {
	if !ok {
		c.drop()
		return nil, temporary(fmt.Errorf("%s: the connection's Reader has ended", c.p))
	}
	switch {
	case !c.s.o.live() || m.ID().LedgerID() != c.ledger:
		c.quiet = quietFirst
	case c.opening:
		c.quiet = max(quietFirst, c.share()/2)
	}
	c.rd.peeked, c.opening = m, false
	return m, nil
}

// take puts m into the batch if it is the next message. If a later one came, it finds out why.
func (c *cursor) take(ctx context.Context, m client.Message, b *sources.Batch) error {
	id := m.ID()
	entry, index, size := id.EntryID(), max(0, id.BatchIdx()), max(1, id.BatchSize())
	offset := at(entry, index)
	switch {
	case id.LedgerID() < c.ledger:
		c.rd.peeked = nil // after a reconnect a Reader repeats messages
		return nil
	case id.LedgerID() > c.ledger:
		return c.explain(ctx, b) // this ledger has ended, or a message is missing
	}
	c.seen(at(entry+1, 0))
	behind := offset + 1
	if index == size-1 {
		behind = at(entry+1, 0)
	}
	switch {
	case offset < c.at:
		c.rd.peeked = nil
		if entry == entryOf(c.at) && index == size-1 { // the range begins after its last message
			c.moveTo(behind)
		}
		return nil
	case entry > entryOf(c.at):
		if index == 0 && c.at == offset {
			break
		}
		return c.explain(ctx, b)
	case offset > c.at:
		return c.missing(fmt.Errorf("message %d of entry %d:%d came where message %d was next", index, c.ledger, entry, c.at-at(entry, 0)))
	}
	if m.GetEncryptionContext() != nil {
		return c.malformed("the message is encrypted, and Headrace has no keys: let its producer write it plain, or read another topic")
	}
	if err := c.put(b, record{offset: offset, behind: behind, key: m.Key(), value: m.Payload(), null: m.IsNullValue(),
		properties: m.Properties(), event: m.EventTime(), published: m.PublishTime()}); err != nil {
		return err
	}
	c.rd.peeked = nil
	c.rd.sizes.add(len(m.Payload()), index == size-1)
	c.moveTo(behind)
	if index == size-1 && !c.rd.sizes.fits(c.rd.permits, c.there()) {
		c.drop()
	}
	return nil
}

func (c *cursor) moveTo(offset int64) {
	if offset > c.at {
		c.at, c.real, c.opens = offset, 0, 0
	}
}

func (c *cursor) seen(head int64) {
	if head > c.head {
		c.head = head
		if c.onHead != nil {
			c.onHead(head)
		}
	}
}

// record is a message on its way into a Batch.
type record struct {
	offset, behind   int64
	key              string
	value            []byte
	null             bool
	properties       map[string]string
	event, published time.Time
}

func (c *cursor) put(b *sources.Batch, r record) error {
	if size := int64(len(r.key) + len(r.value)); size > c.s.o.MaxRecord {
		return &sources.TooLarge{Partition: c.r.Partition, Position: sources.Position{Segment: c.r.Segment, Offset: r.offset},
			Name: c.name(), Size: size, Limit: c.s.o.MaxRecord}
	}
	rec := sources.Record{Offset: r.offset, Next: min(r.behind, c.r.End), Tombstone: r.null}
	if t := r.event; t.UnixMilli() > 0 {
		rec.Time = t.UnixMilli()
	} else if !r.published.IsZero() {
		rec.Time = r.published.UnixMilli()
	}
	add := func(data string) [2]int32 {
		from := int32(len(b.Arena))
		b.Arena = append(b.Arena, data...)
		return [2]int32{from, int32(len(b.Arena))}
	}
	if len(r.properties) > 0 {
		for _, k := range slices.Sorted(maps.Keys(r.properties)) {
			rec.Headers = append(rec.Headers, sources.Header{Key: add(k), Value: add(r.properties[k])})
		}
	}
	rec.Key = add(r.key)
	from := int32(len(b.Arena))
	b.Arena = append(b.Arena, r.value...)
	rec.Value = [2]int32{from, int32(len(b.Arena))}
	b.Recs = append(b.Recs, rec)
	return nil
}

// malformed returns the error for a position that nobody can read.
func (c *cursor) malformed(what string) error {
	return &sources.Malformed{Partition: c.r.Partition, Position: sources.Position{Segment: c.r.Segment, Offset: c.at},
		Name: fmt.Sprintf("%s ledger %d entry %d", c.p, c.ledger, entryOf(c.at)), What: what}
}

// missing handles a message that the Reader left out. Another Reader may deliver it; after
// opensMost Readers the position counts as malformed.
func (c *cursor) missing(why error) error {
	c.drop()
	if c.opens++; c.opens < opensMost {
		return temporary(fmt.Errorf("%s: %w; reading it again", c.p, why))
	}
	return c.malformed(fmt.Sprintf("%v, in %d tries: its checksum may be wrong. Look at it with: pulsar-admin topics get-message-by-id persistent://%s -l %d -e %d",
		why, opensMost, c.p.topic, c.ledger, entryOf(c.at)))
}

var errLater = errors.New("pulsar: not there yet")

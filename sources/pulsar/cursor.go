package pulsar

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/headrace/headrace/internal/pulsarwire"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

const (
	arenaMost   = 1 << 20 // bytes of one Batch, about
	recordsMost = 8192

	inflatedLeast = 64 << 20 // see inflatedMost

	movedWithin = operationWithin        // how long another broker is looked for after one gave the topic up
	movedRest   = 100 * time.Millisecond // before each try

	quietOpen  = 10 * time.Millisecond  // after so long without a first message, a live cursor asks whether it stands at the head
	quietFirst = 200 * time.Millisecond // after so long without a message, the admin API is asked why
	quietMost  = 5 * time.Second        // the wait doubles up to here; of a live cursor it stays there while nothing is odd
	askEvery   = 50 * time.Millisecond  // all waiting live cursors of a source together ask no more often
	realTries  = 3                      // so often a message may exist and not come, before the Reader is opened again
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
	bytes   int64         // that had come over the Reader's connection when it was last asked why nothing comes
	slow    time.Time     // since when the entry at c.at may be on its way; zero: it was not looked for
	moved   time.Time     // when a broker gave the topic up
	began   time.Time     // when the Reader was taken
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
		if c.rd.has && c.rd.cur.Ledger > c.ledger { // it stands at the next ledger
			c.rd.ledger, c.rd.offset = c.rd.cur.Ledger, at(c.rd.cur.Entry, 0)
		}
		c.s.keep(c.rd)
		c.rd = nil
	}
	return nil
}

// Next hands out the messages that have come. It waits only for the first entry.
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
		if full(b) {
			return nil
		}
		if c.rd == nil {
			if len(b.Recs) > 0 {
				return nil
			}
			if err := c.reopen(ctx); err != nil {
				if isTemporary(err) && time.Since(c.moved) < movedWithin {
					if err := sleep(ctx, movedRest); err != nil {
						return err
					}
					continue
				}
				return err
			}
		}
		e, err := c.peek(ctx, len(b.Recs) == 0)
		if errors.Is(err, errMoved) {
			if len(b.Recs) > 0 {
				return nil
			}
			if err := sleep(ctx, movedRest); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if e == nil {
			if len(b.Recs) > 0 {
				return nil
			}
			if err := c.ask(ctx); err != nil {
				return err
			}
			continue
		}
		if err := c.take(ctx, e, b); err != nil {
			return err
		}
	}
}

// reopen opens a Reader at c.at. It first checks that the topic is still the planned one.
func (c *cursor) reopen(ctx context.Context) error {
	c.began = time.Now()
	if r := c.s.kept(c.p, c.ledger, c.at); r != nil {
		c.rd, c.bytes = r, r.wire.Received()
		return nil
	}
	if err := c.sameTopic(ctx); err != nil {
		return err
	}
	c.checked = true
	r, err := c.s.open(ctx, c.p, c.ledger, c.at)
	if err != nil {
		return err
	}
	c.rd, c.bytes = r, r.wire.Received()
	return nil
}

// permit lets the broker send entries ahead of us.
func (c *cursor) permit() {
	left := entryOf(c.r.End-1) - entryOf(c.at) + 1
	if c.rd.has {
		left--
	}
	if left > 0 {
		c.rd.wire.Permit(c.rd.sizes.ahead(left))
	}
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

// peek returns the entry that is next. It returns nil if none came within c.quiet or,
// without wait, if none is there now.
func (c *cursor) peek(ctx context.Context, wait bool) (*pulsarwire.Entry, error) {
	if c.rd.has {
		return &c.rd.cur, nil
	}
	if e, err := c.came(); e != nil || err != nil || !wait {
		return e, err
	}
	if c.at >= c.head && c.head >= 0 && c.onHead != nil {
		c.onHead(c.head) // all that was seen has been read: from here on the cursor waits
	}
	t := time.NewTimer(c.quiet)
	defer t.Stop()
	for {
		select {
		case <-c.rd.wire.Ready():
			if e, err := c.came(); e != nil || err != nil {
				return e, err
			}
		case <-t.C:
			c.quieter()
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// quieter doubles the wait for an entry.
func (c *cursor) quieter() { c.quiet = min(2*c.quiet, max(quietMost, c.share())) }

// share is how long a cursor of a live topic waits at most before it asks the admin API again.
// It grows with the number of cursors, so that all of them together ask once in askEvery.
func (c *cursor) share() time.Duration {
	if !c.s.o.live() {
		return 0
	}
	return time.Duration(c.s.cursors.Load()) * askEvery
}

// came returns the next entry if it has come.
func (c *cursor) came() (*pulsarwire.Entry, error) {
	e, err := c.rd.next()
	c.permit()
	if err != nil {
		if c.drop(); errors.Is(err, pulsarwire.ErrMoved) {
			c.moved = time.Now()
			return nil, errMoved
		}
		return nil, temporary(fmt.Errorf("%s: %w", c.p, err))
	}
	if e == nil {
		return nil, nil
	}
	switch {
	case !c.s.o.live() || e.Ledger != c.ledger:
		c.quiet = quietFirst
	case c.opening:
		c.quiet = max(quietFirst, c.share()/2)
	}
	c.opening = false
	return e, nil
}

// take puts the messages of e into the batch if it is the next entry. If a later one came, it
// finds out why.
func (c *cursor) take(ctx context.Context, e *pulsarwire.Entry, b *sources.Batch) error {
	switch {
	case e.Ledger < c.ledger:
		c.rd.done()
		return nil
	case e.Ledger > c.ledger:
		return c.explain(ctx) // this ledger has ended, or an entry is missing
	}
	c.seen(at(e.Entry+1, 0))
	switch {
	case e.Entry < entryOf(c.at):
		c.rd.done()
		return nil
	case e.Entry > entryOf(c.at):
		return c.explain(ctx)
	}
	if !c.rd.opened {
		if err := e.Open(c.inflatedMost()); err != nil {
			return c.unreadable(err)
		}
		c.rd.opened = true
		c.rd.sizes.add(e.Size(), e.Messages)
	}
	switch {
	case e.Encrypted:
		return c.malformed("the message is encrypted, and Headrace has no keys: let its producer write it plain, or read another topic")
	case e.Chunk.Of > 0:
		return c.chunk(ctx, e, b)
	}
	return c.messages(e, b)
}

// messages puts the messages of the entry at c.at into the batch, until the batch is full or
// the range ends.
func (c *cursor) messages(e *pulsarwire.Entry, b *sources.Batch) error {
	next := at(e.Entry+1, 0)
	for e.Read() < e.Messages {
		index := e.Read()
		offset, behind := at(e.Entry, int32(index)), at(e.Entry, int32(index+1))
		if index == e.Messages-1 {
			behind = next
		}
		if offset >= c.r.End || full(b) {
			return nil
		}
		m, err := e.Next()
		if err != nil {
			return c.unreadable(err)
		}
		if offset < c.at {
			continue
		}
		if err := c.put(b, m, offset, behind); err != nil {
			c.rd.opened = false // the next call reads this message again
			return err
		}
		c.moveTo(behind)
	}
	c.rd.done()
	c.moveTo(next) // the range may begin after its last message
	return nil
}

func full(b *sources.Batch) bool { return len(b.Recs) >= recordsMost || len(b.Arena) >= arenaMost }

// inflatedMost is how many bytes of an entry are decompressed at most. It may have many
// messages.
func (c *cursor) inflatedMost() int64 { return max(inflatedLeast, 2*c.s.o.MaxRecord) }

// unreadable returns the error for the entry at c.at, which has come and cannot be decoded.
func (c *cursor) unreadable(err error) error {
	if e, ok := errors.AsType[*pulsarwire.TooLarge](err); ok {
		return c.tooLarge(c.at, e.Size)
	}
	return c.missing(fmt.Errorf("entry %d:%d cannot be read: %w", c.ledger, entryOf(c.at), err))
}

func (c *cursor) tooLarge(offset, size int64) error {
	return &sources.TooLarge{Partition: c.r.Partition, Position: sources.Position{Segment: c.r.Segment, Offset: offset},
		Name: c.name(), Size: size, Limit: c.s.o.MaxRecord}
}

func (c *cursor) moveTo(offset int64) {
	if offset <= c.at {
		return
	}
	if entryOf(offset) > entryOf(c.at) {
		c.s.tries.passed(c.spot())
	}
	c.at, c.real, c.slow = offset, 0, time.Time{}
}

func (c *cursor) seen(head int64) {
	if head > c.head {
		c.head = head
		if c.onHead != nil {
			c.onHead(head)
		}
	}
}

// put appends a message to the batch.
func (c *cursor) put(b *sources.Batch, m *pulsarwire.Message, offset, behind int64) error {
	if size := int64(len(m.Key) + len(m.Value)); size > c.s.o.MaxRecord {
		return c.tooLarge(offset, size)
	}
	rec := sources.Record{Offset: offset, Next: min(behind, c.r.End), Tombstone: m.Null, Time: m.Published}
	if m.Event > 0 {
		rec.Time = m.Event
	}
	if len(m.Properties) > 0 {
		rec.Headers = headers(b, m.Properties)
	}
	rec.Key = add(b, m.Key)
	rec.Value = add(b, m.Value)
	b.Recs = append(b.Recs, rec)
	return nil
}

func add(b *sources.Batch, data []byte) [2]int32 {
	from := int32(len(b.Arena))
	b.Arena = append(b.Arena, data...)
	return [2]int32{from, int32(len(b.Arena))}
}

// headers are properties in the order of their keys. Of two with the same key the later one
// counts, as for Pulsar's clients.
func headers(b *sources.Batch, all []pulsarwire.Property) []sources.Header {
	slices.SortStableFunc(all, func(x, y pulsarwire.Property) int { return bytes.Compare(x.Key, y.Key) })
	h := make([]sources.Header, 0, len(all))
	for i := range all {
		if i+1 < len(all) && bytes.Equal(all[i].Key, all[i+1].Key) {
			continue
		}
		h = append(h, sources.Header{Key: add(b, all[i].Key), Value: add(b, all[i].Value)})
	}
	return h
}

// malformed returns the error for a position that nobody can read.
func (c *cursor) malformed(what string) error {
	return &sources.Malformed{Position: sources.Position{Segment: c.r.Segment, Offset: c.at},
		Name: fmt.Sprintf("%s ledger %d entry %d", c.p, c.ledger, entryOf(c.at)), What: what}
}

// spot is the entry at c.at.
func (c *cursor) spot() spot { return spot{c.p, c.ledger, entryOf(c.at)} }

// missing handles an entry that the Reader left out, or that cannot be decoded. Another
// Reader may deliver it; after opensMost times it counts as malformed.
func (c *cursor) missing(why error) error {
	times, _ := c.s.tries.failed(c.spot(), c.began)
	return c.again(why, times, times >= opensMost)
}

// silent is missing for a message that did not come because of an entry: its own, or one in
// which its first chunk was looked for. known says that the admin API knows that entry. The
// message counts as malformed only if the broker is not just slow.
func (c *cursor) silent(ctx context.Context, why error, ledger, entry int64, known bool) error {
	times, lasts := c.s.tries.failed(c.spot(), c.began)
	enough := times >= opensMost && lasts >= c.s.tries.silence
	return c.again(why, times, enough && c.answersBehind(ctx, ledger, entry, known))
}

// answersBehind says whether a broker gives an entry after this one, so that it is not just
// slow. If there is no later entry, the broker must at least know this one.
func (c *cursor) answersBehind(ctx context.Context, ledger, entry int64, known bool) bool {
	l, err := c.s.layoutOf(ctx, c.p)
	if err != nil {
		return false
	}
	behind := func(g ledgerInfo) bool {
		return g.Ledger > ledger && g.Entries > 0 || g.Ledger == ledger && g.Entries > entry+1
	}
	if !slices.ContainsFunc(l.Ledgers, behind) {
		return known
	}
	ctx, cancel := context.WithTimeout(ctx, c.s.tries.behind)
	defer cancel()
	rd, err := c.s.open(ctx, c.p, ledger, at(entry+1, 0))
	if err != nil {
		return false
	}
	defer rd.close()
	for {
		e, err := rd.next()
		if e != nil || err != nil {
			return e != nil
		}
		rd.wire.Permit(entriesFirst, 0)
		select {
		case <-rd.wire.Ready():
		case <-ctx.Done():
			return false
		}
	}
}

func (c *cursor) again(why error, times int, enough bool) error {
	c.drop()
	if !enough {
		return temporary(fmt.Errorf("%s: %w; reading it again", c.p, why))
	}
	return c.malformed(fmt.Sprintf("%v, in %d tries: its checksum may be wrong. Look at it with: pulsar-admin topics get-message-by-id persistent://%s -l %d -e %d",
		why, times, c.p.topic, c.ledger, entryOf(c.at)))
}

var (
	errLater = errors.New("pulsar: not there yet")
	errMoved = errors.New("pulsar: another broker has the topic")
)

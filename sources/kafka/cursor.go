package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/headrace/headrace/sources"
)

// errAgain: the same is asked again soon.
var errAgain = errors.New("again")

// emptyWithin is how long an answer may be empty although it tells of more.
const emptyWithin = time.Second

var _ sources.Tailing = (*cursor)(nil)

// checksumTries is how often bytes that do not match their checksum are fetched.
const checksumTries = 3

// cursor reads one range, one fetch ahead of its caller.
type cursor struct {
	s      *Source
	p      partition
	r      sources.Range
	at     int64 // the next offset wanted
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	ahead  chan answer // nil: no fetch is under way
	waits  *waiting    // that it is not of this cursor alone
	leader int32       // who answered last
	now    *answer     // being handed out
	rest   []byte      // of now's records
	lend   bool        // now's memory becomes the arena; else batches are copied out of it
	txns   aborted
	spare  []byte    // memory for the next answer
	tries  int       // of bytes that were damaged
	wrong  time.Time // since when c.at cannot be read though it should
	met    bool      // the broker has answered: where the head is has been told
	head   int64     // where it was the last time
	failed error     // said again by every Next
	onHead func(head int64)
}

type answer struct {
	offset int64 // asked for
	*fetched
	leader int32
	err    error
}

// Open connects if need be. What cannot be read is told by Next.
func (s *Source) Open(ctx context.Context, r sources.Range, from sources.Position, locator []byte) (sources.Cursor, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	p, err := parseLocator(locator)
	if err != nil {
		return nil, err
	}
	if p.id() != r.Partition {
		return nil, fmt.Errorf("kafka: the locator opens %s and not %s", p.id(), r.Partition)
	}
	if err := s.onCluster(ctx, p); err != nil {
		return nil, err
	}
	c := &cursor{s: s, p: p, r: r, at: max(r.Start, from.Offset)}
	// Its fetches end with Close; each call of Next has its own context.
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return c, nil
}

// onCluster compares the brokers' cluster with the one that was planned, once.
func (s *Source) onCluster(ctx context.Context, p partition) error {
	s.mu.Lock()
	cluster := s.cluster
	s.mu.Unlock()
	if cluster == "" {
		var err error
		if cluster, _, err = s.client.metadata(ctx, nil); err != nil {
			return err
		}
		s.mu.Lock()
		s.cluster = cluster
		s.mu.Unlock()
	}
	if cluster != p.cluster {
		return s.otherCluster(p, cluster)
	}
	return nil
}

// OnHead is called with last stable offsets.
func (c *cursor) OnHead(f func(head int64)) { c.onHead = f }

// Close ends a fetch that is under way. Memory that nobody else has is kept for
// cursors that come.
func (c *cursor) Close() error {
	c.cancel()
	c.wg.Wait()
	c.s.keep(c.spare)
	if c.now != nil && !c.lend {
		c.s.keep(c.now.buf)
	}
	if c.waits != nil {
		c.s.tails.leave(c.waits)
	}
	select {
	case a := <-c.ahead: // a fetch of its own has ended
		if a.err == nil {
			c.s.keep(a.buf)
		}
	default:
	}
	c.spare, c.now, c.rest, c.ahead = nil, nil, nil, nil
	return nil
}

// keep takes an answer's memory; what was spare before is dropped with the source.
func (s *Source) keep(memory []byte) {
	if cap(memory) == 0 {
		return
	}
	select {
	case s.spare <- memory[:0]:
	default:
	}
}

// kept gives memory for an answer, or nil.
func (s *Source) kept() []byte {
	select {
	case memory := <-s.spare:
		return memory
	default:
		return nil
	}
}

// Next hands out the records of one answer, or as much of its decompressed batches
// as is good for one arena. Offsets without a record ride with what is before them.
func (c *cursor) Next(ctx context.Context, b *sources.Batch) error {
	if c.failed != nil {
		return c.failed
	}
	memory := b.Arena
	b.Reset()
	err := c.next(ctx, b)
	if len(b.Recs) == 0 {
		b.Arena = memory[:0] // an answer without a record for us keeps its own
	}
	if err != nil && err != io.EOF {
		err = notTheEnd(err)
	}
	if cap(memory) > 0 && (cap(b.Arena) == 0 || &memory[:1][0] != &b.Arena[:1][0]) {
		c.spare = memory // b took an answer's memory, and left its own for the next
	}
	var again *sources.Temporary
	if err != nil && ctx.Err() == nil && !errors.As(err, &again) {
		c.failed = err
	}
	return err
}

func (c *cursor) next(ctx context.Context, b *sources.Batch) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if c.at >= c.r.End {
			return io.EOF
		}
		before, err := c.at, error(nil)
		if c.now == nil {
			err = c.receive(ctx)
		}
		if err == nil && c.now != nil {
			if err = c.take(b); err != nil && len(b.Recs) == 0 {
				err = c.damaged(err)
			}
		}
		if c.at != before {
			c.tries, c.wrong = 0, time.Time{}
		}
		switch {
		case len(b.Recs) > 0: // an error behind them is met again by the next call
			b.End = min(c.at, c.r.End)
			return nil
		case errors.Is(err, errAgain):
			if err := pause(ctx, retryAfter); err != nil {
				return err
			}
		case err != nil:
			return err
		}
	}
}

// receive waits for the answer that begins at c.at and asks for the one behind it.
func (c *cursor) receive(ctx context.Context) error {
	if c.ahead == nil {
		c.fetch(c.at)
	}
	if c.waits != nil && c.onHead != nil {
		c.onHead(c.head) // all below it was taken by now: from here on it waits
	}
	var a answer
	select {
	case a = <-c.ahead:
		c.ahead, c.waits = nil, nil
	case <-ctx.Done():
		return ctx.Err()
	}
	if errors.Is(a.err, errDirect) {
		c.direct(c.at)
		return nil
	}
	if errors.Is(a.err, kafkago.UnknownTopicOrPartition) {
		return c.topicGone(ctx)
	}
	if a.err != nil {
		return a.err
	}
	if a.offset != c.at { // fetched ahead, and then something was fetched again
		c.spare = a.buf
		return nil
	}
	switch a.code {
	case codeNone:
	case codeOutOfRange:
		return c.outOfRange(ctx, c.at)
	case codeUnknownTopicID, codeInconsistentTopic, codeUnknownTopic:
		return c.topicGone(ctx)
	default:
		return answered(a.code, fmt.Sprintf("%s at offset %d", c.p, c.at))
	}
	c.met, c.head, c.leader = true, a.stable, a.leader
	if c.onHead != nil {
		c.onHead(a.stable)
	}
	if a.parted {
		return c.parted(a.partedAt)
	}
	next, plain, last := overview(a.records)
	switch {
	case next > c.at:
		c.now, c.rest, c.lend, c.txns = &a, a.records, plain, newAborted(a.aborted)
		c.s.epochs.read(c.r.Partition, last)
		if next < c.r.End {
			c.fetch(next)
		}
	case c.s.o.live() && len(a.records) == 0 && (a.stable == c.at || a.stable > c.at && !c.waited(emptyWithin)):
		if a.stable == c.at {
			c.wrong = time.Time{} // here more may come
			c.spare = a.buf
			return nil
		}
		return errAgain
	case a.stable <= c.at:
		return c.behindHead(a.stable)
	default:
		return c.stuck(a)
	}
	return nil
}

// stuck: below the last stable offset there is nothing whole at c.at.
func (c *cursor) stuck(a answer) error {
	if _, err := parseHeader(a.records); len(a.records) > 0 && !errors.Is(err, errPartial) {
		return c.damaged(fmt.Errorf("it does not hold the offset: %w", errors.Join(err, errBatch)))
	}
	return temporary(fmt.Errorf("%s: no whole batch at offset %d, below the last stable offset %d", c.p, c.at, a.stable))
}

// waited: what is wrong at c.at has been so for that long.
func (c *cursor) waited(long time.Duration) bool {
	if c.wrong.IsZero() {
		c.wrong = time.Now()
	}
	return time.Since(c.wrong) > long
}

// fetch asks for offset in the background: at a head that may grow together with all
// others who wait there.
func (c *cursor) fetch(offset int64) {
	if !c.s.o.live() || !c.met || offset < c.head {
		c.direct(offset)
		return
	}
	out := make(chan answer, 1)
	c.ahead, c.waits = out, &waiting{p: c.p, offset: offset, epoch: c.s.epochs.at(c.r.Partition, offset), out: out, memory: c.spare}
	c.spare = nil
	c.s.tails.add(c.leader, c.waits)
}

// direct asks for offset by itself. Of what has no end only what is there: then
// nothing waits, and few are asked at a time.
func (c *cursor) direct(offset int64) {
	into, size, wait := c.spare, c.s.fetchSize(c.r.End-offset), int32(fetchWait)
	if c.s.o.live() {
		wait = 0
	}
	c.spare = nil
	if into == nil {
		into = c.s.kept()
	}
	out := make(chan answer, 1)
	c.ahead = out
	c.wg.Go(func() {
		if c.s.o.live() {
			select {
			case c.s.fetches <- struct{}{}:
				defer func() { <-c.s.fetches }()
			case <-c.ctx.Done():
				out <- answer{offset: offset, err: c.ctx.Err()}
				return
			}
		}
		f, leader, err := c.s.client.fetch(c.ctx, c.p, offset, c.s.epochs.at(c.r.Partition, offset), size, wait, into)
		out <- answer{offset, f, leader, err}
	})
}

// fetchSize guesses the bytes of so many offsets, so that a short range does not
// read what belongs to others.
func (s *Source) fetchSize(offsets int64) int {
	per := s.perOffset.Load()
	if per == 0 {
		per = 256
	}
	if offsets > fetchMost/per {
		return fetchMost
	}
	return int(max(fetchLeast, min(fetchMost, offsets*per*5/4)))
}

// overview gives the offset after the last whole batch of an answer, -1 if there
// is none, whether all of them are uncompressed, and the last of them with one epoch.
func overview(records []byte) (next int64, plain bool, last run) {
	next, plain = -1, true
	for {
		h, err := parseHeader(records)
		if err != nil {
			return next, plain, last
		}
		next, plain, records = h.next(), plain && h.codec() == 0, records[h.size:]
		if last.epoch != h.epoch || last.to == 0 {
			last = run{from: h.base, epoch: h.epoch}
		}
		last.to = next
	}
}

// take appends batches of the current answer, up to c.at, which moves behind them.
func (c *cursor) take(b *sources.Batch) error {
	for {
		h, err := parseHeader(c.rest)
		if errors.Is(err, errPartial) || c.at >= c.r.End {
			c.done(c.lend && len(b.Recs) > 0)
			return nil
		}
		if err != nil {
			return err
		}
		if len(b.Recs) > 0 && !c.lend && len(b.Arena) > arenaMost {
			return nil
		}
		if h.next() > c.at {
			if cap(c.now.buf)-cap(c.rest)+h.size > c.now.good {
				if err := checkSum(c.rest[:h.size]); err != nil {
					return err
				}
			}
			records := c.rest[headerSize:h.size]
			if !c.txns.skip(&h, records) {
				if err := c.append(&h, records, b); err != nil {
					return err
				}
			}
			c.at = h.next()
			c.s.measure(&h)
		}
		c.rest = c.rest[h.size:]
	}
}

// append puts the wanted records of one batch into b.
func (c *cursor) append(h *header, records []byte, b *sources.Batch) error {
	n, from := len(b.Recs), len(b.Arena)
	if c.lend {
		b.Arena = c.now.buf
		from = cap(c.now.buf) - cap(records) // records are a piece of buf
	} else {
		var err error
		if b.Arena, err = inflate(h.codec(), b.Arena, records, inflatedMost); err != nil {
			return fmt.Errorf("%w: %w", errBatch, err)
		}
		records = b.Arena[from:]
	}
	w := want{from: c.at, end: c.r.End, maxRecord: c.s.o.MaxRecord}
	err := appendRecords(h, b.Arena, from, from+len(records), w, b)
	var large *tooLarge
	switch {
	case errors.As(err, &large):
		c.at = large.offset // those before it are handed out first
	case err != nil:
		b.Recs = b.Recs[:n]
	}
	return err
}

// done with an answer; its memory is the batch's or that of the next one.
func (c *cursor) done(lent bool) {
	if !lent {
		c.spare = c.now.buf
	}
	c.now, c.rest = nil, nil
}

// measure learns from a batch how many bytes an offset takes.
func (s *Source) measure(h *header) {
	per := int64(h.size) / (int64(h.lastDelta) + 1)
	if old := s.perOffset.Load(); old != 0 {
		per = (7*old + per) / 8
	}
	s.perOffset.Store(max(1, per))
}

// damaged says what a batch that cannot be read means. Bytes that were damaged on
// their way are fetched again.
func (c *cursor) damaged(err error) error {
	at := sources.Position{Segment: c.r.Segment, Offset: c.at}
	var large *tooLarge
	if errors.As(err, &large) {
		return &sources.TooLarge{Partition: c.p.id(), Position: at, Name: c.p.String(), Size: large.size, Limit: c.s.o.MaxRecord}
	}
	c.now, c.rest = nil, nil
	if c.tries++; c.tries < checksumTries {
		return errAgain
	}
	return &sources.Malformed{Partition: c.p.id(), Position: at, Name: c.p.String(),
		What: fmt.Sprintf("the batch there, fetched %d times: %v: the log of its leader is damaged, or what lies between: have another replica lead and resume the dataset, "+
			"or go around it with a new dataset whose start_offsets are behind it", c.tries, err)}
}

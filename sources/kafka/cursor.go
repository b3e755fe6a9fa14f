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
	"github.com/headrace/headrace/sources/brokers"
)

// errAgain makes next ask for the same offset again, after retryAfter.
var errAgain = errors.New("again")

// emptyWithin is how long answers may have no records although the head is further on.
const emptyWithin = time.Second

var _ sources.Tailing = (*cursor)(nil)

// checksumTries is how often a batch is fetched whose bytes do not match its checksum.
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
	waits  *waiting    // set if the fetch is one that cursors at a head share
	leader int32       // the broker that answered last
	now    *answer     // being handed out
	rest   []byte      // the records of now that are left
	lend   bool        // the memory of now becomes the arena; else batches are decompressed into it
	txns   aborted
	spare  []byte    // memory for the next answer
	tries  int       // fetches of a damaged batch
	wrong  time.Time // since when c.at cannot be read, although it should be there; zero: it can
	met    bool      // a broker has answered, so head is known
	head   int64     // the last stable offset of the newest answer
	failed error     // the permanent error; every Next returns it again
	onHead func(head int64)
}

type answer struct {
	offset int64 // that was asked for
	*fetched
	leader int32
	err    error
}

// Open connects if that is not done yet. If the range cannot be read, Next says so.
func (s *Source) Open(ctx context.Context, r sources.Range, from sources.Position, locator []byte) (sources.Cursor, error) {
	if err := s.Usable(ctx); err != nil {
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

// onCluster returns an error if the brokers belong to another cluster than p. It asks them
// once.
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

// OnHead sets a function that gets the last stable offset of each answer.
func (c *cursor) OnHead(f func(head int64)) { c.onHead = f }

// Close ends a fetch that is under way. It keeps memory that nobody else uses for later
// cursors.
func (c *cursor) Close() error {
	c.cancel()
	c.wg.Wait()
	c.s.spare.Keep(c.spare)
	if c.now != nil && !c.lend {
		c.s.spare.Keep(c.now.buf)
	}
	if c.waits != nil {
		c.s.tails.leave(c.waits)
	}
	select {
	case a := <-c.ahead: // an unread answer
		if a.err == nil {
			c.s.spare.Keep(a.buf)
		}
	default:
	}
	c.spare, c.now, c.rest, c.ahead = nil, nil, nil, nil
	return nil
}

// Next hands out the records of one answer, or as many of its decompressed batches as fit in
// one arena. An offset without a record is acked with the record before it.
func (c *cursor) Next(ctx context.Context, b *sources.Batch) error {
	if c.failed != nil {
		return c.failed
	}
	memory := b.Arena
	b.Reset()
	err := c.next(ctx, b)
	if len(b.Recs) == 0 {
		b.Arena = memory[:0] // no record was wanted: the answer keeps its memory
	}
	if err != nil && err != io.EOF {
		err = brokers.NotTheEnd(err)
	}
	if cap(memory) > 0 && (cap(b.Arena) == 0 || &memory[:1][0] != &b.Arena[:1][0]) {
		c.spare = memory // b took the answer's memory; its own serves the next answer
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
		case len(b.Recs) > 0: // the next call meets an error after them again
			b.End = min(c.at, c.r.End)
			return nil
		case errors.Is(err, errAgain):
			if err := brokers.Pause(ctx, retryAfter); err != nil {
				return err
			}
		case err != nil:
			return err
		}
	}
}

// receive waits for the answer that begins at c.at, and asks for the one after it.
func (c *cursor) receive(ctx context.Context) error {
	if c.ahead == nil {
		c.fetch(c.at)
	}
	if c.waits != nil && c.onHead != nil {
		c.onHead(c.head) // all below head has been read: from here on the cursor waits
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
	if a.offset != c.at { // it was fetched ahead, and then an earlier offset was fetched again
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
	next, plain, last, err := overview(a.records)
	switch {
	case err != nil:
		return c.damaged(err)
	case next > c.at:
		c.now, c.rest, c.lend, c.txns = &a, a.records, plain, newAborted(a.aborted)
		c.s.epochs.read(c.r.Partition, last)
		if next < c.r.End {
			c.fetch(next)
		}
	case c.s.o.live() && len(a.records) == 0 && (a.stable == c.at || a.stable > c.at && !brokers.Longer(&c.wrong, emptyWithin)):
		if a.stable == c.at {
			c.wrong = time.Time{} // the cursor is at the head, where nothing is wrong
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

// stuck returns the error for an answer without a whole batch at c.at, although c.at is
// below the last stable offset.
func (c *cursor) stuck(a answer) error {
	if _, err := parseHeader(a.records); len(a.records) > 0 && !errors.Is(err, errPartial) {
		return c.damaged(fmt.Errorf("it does not hold the offset: %w", errors.Join(err, errBatch)))
	}
	return temporary(fmt.Errorf("%s: no whole batch at offset %d, below the last stable offset %d", c.p, c.at, a.stable))
}

// fetch asks for offset in the background. A cursor that waits at the head of a live
// partition shares its request with all others that wait at the same leader.
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

// direct asks for offset in a request of its own. In a live partition the broker answers at
// once with what is there, and at most fetchesMost such requests are under way.
func (c *cursor) direct(offset int64) {
	into, size, wait := c.spare, c.s.fetchSize(c.r.End-offset), int32(fetchWait)
	if c.s.o.live() {
		wait = 0
	}
	c.spare = nil
	if into == nil {
		into = c.s.spare.Take()
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

// fetchSize estimates the bytes of so many offsets, so that a short range does not fetch
// records of the ranges after it.
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

// overview returns the offset after the last whole batch of an answer (-1: there is none),
// whether all whole batches are uncompressed, and the run of the last batches that have one
// epoch. The checksum of a batch does not cover its base offset. So overview returns an error
// if a batch does not begin after the end of the one before it: by its wrong offset, that
// batch or the next one would pass for records that were read before, and be left out.
func overview(records []byte) (next int64, plain bool, last run, err error) {
	next, plain = -1, true
	for {
		h, err := parseHeader(records)
		if err != nil {
			return next, plain, last, nil // take returns it, after the batches before
		}
		if h.base < next {
			return -1, false, run{}, fmt.Errorf("a batch that begins at offset %d comes after offset %d: %w", h.base, next-1, errBatch)
		}
		next, plain, records = h.next(), plain && h.codec() == 0, records[h.size:]
		if last.epoch != h.epoch || last.to == 0 {
			last = run{from: h.base, epoch: h.epoch}
		}
		last.to = next
	}
}

// take appends batches of the current answer to b and moves c.at after them.
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
		from = cap(c.now.buf) - cap(records) // the place of records in buf
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
		c.at = large.offset // the records before it are handed out first
	case err != nil:
		b.Recs = b.Recs[:n]
	}
	return err
}

// done drops the current answer. lent means that a batch has its memory; else the next
// answer gets it.
func (c *cursor) done(lent bool) {
	if !lent {
		c.spare = c.now.buf
	}
	c.now, c.rest = nil, nil
}

// measure updates perOffset, the mean bytes of an offset, by one batch.
func (s *Source) measure(h *header) {
	per := int64(h.size) / (int64(h.lastDelta) + 1)
	if old := s.perOffset.Load(); old != 0 {
		per = (7*old + per) / 8
	}
	s.perOffset.Store(max(1, per))
}

// damaged returns the error for a batch that cannot be read. At first that is errAgain: the
// bytes may have been damaged on their way, so they are fetched again.
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
	return &sources.Malformed{Position: at, Name: c.p.String(),
		What: fmt.Sprintf("the batch there, fetched %d times: %v: the log of its leader is damaged, or something on the way from it: make another replica the leader and resume the dataset, "+
			"or skip it with a new dataset whose start_offsets are after it", c.tries, err)}
}

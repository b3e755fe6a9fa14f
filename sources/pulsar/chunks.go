package pulsar

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headrace/headrace/internal/pulsarwire"
	"github.com/headrace/headrace/sources"
)

// A producer may send a large message in chunks, one entry each. Entries of other messages
// may lie between them. The position of such a message is that of its last chunk, where
// Pulsar's consumers get it too. A cursor that begins between the chunks looks back for the
// first one.

const (
	partsMost  = 16       // messages of one Reader that wait for their other chunks
	partsBytes = 64 << 20 // most bytes of all such messages of a source; 2*MaxRecord, if that is more
	partWithin = 2 * operationWithin
)

// parts are the chunks that a Reader has met, of messages whose last chunk has not come. If
// the Readers of a source have too many bytes of them, some are dropped: at its last chunk,
// such a message is read again from its first one.
type parts struct {
	most int64   // bytes of a message, uncompressed
	s    *Source // counts them; nil: they are not counted
	all  []*part // the oldest first
}

type part struct {
	uuid   string
	next   int32
	stored []byte
}

// add takes a chunk that is not the last. If its connection ends, a producer sends chunks again
// that are stored already: add skips them. The first chunk starts the message again, because it
// may belong to another message of a producer that was started again. add keeps nothing of a
// message that is too large: its last chunk says the size too.
func (a *parts) add(e *pulsarwire.Entry) {
	c := e.Chunk
	p := a.take(c.UUID)
	switch {
	case max(c.Size, c.Total) > a.most:
		return
	case c.ID == 0:
		p = &part{uuid: c.UUID}
	case p == nil:
		return
	case c.ID < p.next: // it was sent again
		a.put(p)
		return
	case c.ID > p.next || int64(len(p.stored)+len(e.Stored())) > a.most:
		return
	}
	p.stored, p.next = append(p.stored, e.Stored()...), c.ID+1
	a.put(p)
}

// whole returns all stored bytes of the message that ends with chunk e, if all its other chunks
// have come.
func (a *parts) whole(e *pulsarwire.Entry) ([]byte, bool) {
	p := a.take(e.Chunk.UUID)
	if p == nil || p.next != e.Chunk.ID {
		return nil, false
	}
	return append(p.stored, e.Stored()...), true
}

// put puts a message into a. If there are too many, the oldest are dropped.
func (a *parts) put(p *part) {
	a.all = append(a.all, p)
	if a.count(p, 1); a.full() {
		a.s.clearIdle()
	}
	for len(a.all) > partsMost || len(a.all) > 0 && a.full() {
		a.take(a.all[0].uuid)
	}
}

// take takes a message out of a.
func (a *parts) take(uuid string) *part {
	for i, p := range a.all {
		if p.uuid == uuid {
			a.all = append(a.all[:i:i], a.all[i+1:]...)
			a.count(p, -1)
			return p
		}
	}
	return nil
}

func (a *parts) count(p *part, by int64) {
	if a.s != nil {
		a.s.partBytes.Add(by * int64(cap(p.stored)))
	}
}

func (a *parts) full() bool { return a.s != nil && a.s.partBytes.Load() > a.s.partRoom }

func (a *parts) clear() {
	for len(a.all) > 0 {
		a.take(a.all[0].uuid)
	}
}

// clearIdle drops the chunks that kept Readers have.
func (s *Source) clearIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.idle {
		r.parts.clear()
	}
}

// chunk reads the entry at c.at, which is a chunk.
func (c *cursor) chunk(ctx context.Context, e *pulsarwire.Entry, b *sources.Batch) error {
	behind := at(e.Entry+1, 0)
	switch size := max(e.Chunk.Size, e.Chunk.Total); {
	case e.Chunk.ID < e.Chunk.Of-1:
		c.rd.parts.add(e)
	case c.at > at(e.Entry, 0): // the range begins after it
	case size > c.s.o.MaxRecord:
		return c.tooLarge(c.at, size)
	default:
		stored, ok := c.rd.parts.whole(e)
		if !ok {
			again, err := false, error(nil)
			if stored, again, err = c.assemble(ctx, e); err != nil {
				return err
			}
			if again {
				break
			}
		}
		if err := e.Assembled(stored, c.inflatedMost()); err != nil {
			return c.unreadable(err)
		}
		m, err := e.Next()
		if err != nil {
			return c.unreadable(err)
		}
		if err := c.put(b, m, c.at, behind); err != nil {
			return err
		}
	}
	c.rd.done()
	c.moveTo(behind)
	return nil
}

// assemble reads the chunks before last again, from the first one on. again says that
// the message was complete before: then last was sent again, and holds no record.
func (c *cursor) assemble(ctx context.Context, last *pulsarwire.Entry) (stored []byte, again bool, err error) {
	ledger, first, err := c.firstChunk(ctx, last.Chunk.UUID)
	if err != nil {
		return nil, false, err
	}
	rd, err := c.s.open(ctx, c.p, ledger, at(first, 0))
	if err != nil {
		return nil, false, err
	}
	defer rd.close()
	rd.parts.clear()
	rd.parts.s = nil // this message is needed now
	slow := fmt.Errorf("the message in chunks from %d:%d to %d:%d does not come", ledger, first, c.ledger, last.Entry)
	patience := time.NewTimer(partWithin) // for the next entry
	defer patience.Stop()
	for complete := false; ; {
		e, err := rd.next()
		if err != nil {
			return nil, false, temporary(fmt.Errorf("%s: %w", c.p, err))
		}
		if e == nil {
			rd.wire.Permit(entriesFirst, 0)
			select {
			case <-rd.wire.Ready():
			case <-patience.C:
				return nil, false, temporary(fmt.Errorf("%s: %w", c.p, slow))
			case <-ctx.Done():
				return nil, false, ctx.Err()
			}
			continue
		}
		patience.Reset(partWithin)
		if err := e.Open(c.inflatedMost()); err != nil {
			return nil, false, c.unreadable(err)
		}
		switch here := e.Ledger == c.ledger && e.Entry == last.Entry; {
		case !here && (e.Ledger > c.ledger || e.Ledger == c.ledger && e.Entry > last.Entry):
			return nil, false, c.missing(slow)
		case e.Chunk.UUID != last.Chunk.UUID: // also what is no chunk
		case here && complete:
			return nil, true, nil
		case here || e.Chunk.ID == e.Chunk.Of-1:
			stored, ok := rd.parts.whole(e)
			if here && !ok {
				return nil, false, c.missing(fmt.Errorf("some chunks of the message from %d:%d to %d:%d did not come", ledger, first, c.ledger, last.Entry))
			}
			if here {
				return stored, false, nil
			}
			complete = complete || ok
		default:
			rd.parts.add(e)
		}
		rd.done()
	}
}

// lookbacks has how far firstChunk came before the admin API failed. It may ask for a hundred
// thousand entries, and an agent opens another cursor after each failure.
type lookbacks struct {
	mu  sync.Mutex
	all []lookback // the oldest first
}

type lookback struct {
	of            spot // the last chunk of the message
	ledger, entry int64
}

const lookbacksMost = 64

// take returns where a look back goes on, and forgets it.
func (a *lookbacks) take(of spot) (ledger, entry int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, one := range a.all {
		if one.of == of {
			a.all = slices.Delete(a.all, i, i+1)
			return one.ledger, one.entry
		}
	}
	return of.ledger, of.entry
}

func (a *lookbacks) keep(one lookback) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, one)
	a.all = slices.Delete(a.all, 0, max(0, len(a.all)-lookbacksMost))
}

// firstChunk looks back for the first chunk of a message. It looks as far as the topic goes:
// only a chunk whose ledger is gone is lost.
func (c *cursor) firstChunk(ctx context.Context, uuid string) (ledger, entry int64, err error) {
	l, err := c.s.layoutOf(ctx, c.p)
	if err != nil {
		return 0, 0, err
	}
	for ledger, entry = c.s.lookbacks.take(c.spot()); ; {
		for entry--; entry < 0; {
			before, there := l.before(ledger)
			if !there {
				return 0, 0, c.beganBefore(l.Ledgers[0].Ledger)
			}
			ledger, entry = before.Ledger, before.Entries-1
		}
		info, err := c.s.entry(ctx, c.p, ledger, entry)
		switch {
		case isNotFound(err):
			if l, err = c.s.layoutOf(ctx, c.p); err != nil {
				return 0, 0, err
			}
			if _, there := l.find(ledger); !there {
				return 0, 0, c.beganBefore(l.Ledgers[0].Ledger)
			}
			c.s.lookbacks.keep(lookback{c.spot(), ledger, entry + 1})
			return 0, 0, c.silent(ctx, fmt.Errorf("while the first chunk of the message that ends at entry %d:%d is looked for, the broker does not know entry %d:%d, although its ledger is there",
				c.ledger, entryOf(c.at), ledger, entry), ledger, entry, false)
		case err != nil:
			c.s.lookbacks.keep(lookback{c.spot(), ledger, entry + 1})
			return 0, 0, err
		case info.uuid == uuid && info.chunk == 0:
			return ledger, entry, nil
		}
	}
}

// before returns the ledger before a given one.
func (l *layout) before(ledger int64) (g ledgerInfo, there bool) {
	for _, one := range l.Ledgers {
		if one.Ledger < ledger {
			g, there = one, true
		}
	}
	return g, there
}

// beganBefore returns the error for the message that ends at c.at and whose first chunk is
// lost.
func (c *cursor) beganBefore(first int64) error {
	lost := c.r
	lost.Start, lost.End = c.at, min(c.r.End, at(entryOf(c.at)+1, 0))
	return &sources.Truncated{Lost: lost, Name: c.name(),
		Err: fmt.Errorf("the message in chunks that ends at entry %d has lost its first chunk: Pulsar has deleted the ledger; the first is %d now", entryOf(c.at), first)}
}

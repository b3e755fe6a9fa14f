package pulsar

import (
	"context"
	"fmt"
	"sync"

	client "github.com/apache/pulsar-client-go/pulsar"

	"github.com/headrace/headrace/internal/pulsarwire"
	"github.com/headrace/headrace/sources/brokers"
)

const idleMost = 16 // Readers that are kept for later ranges

// reader is one Reader. It reads on from the place where it was opened and never seeks. Its
// users compare the id of each entry with the expected one.
type reader struct {
	s    *Source
	p    partition
	wire *pulsarwire.Reader
	once sync.Once

	cur    pulsarwire.Entry // has come and is not read to its end, if has
	has    bool
	opened bool
	parts  parts
	sizes  sizes // of the entries that came
	// The next message that this Reader delivers, set when it is kept. 0, 0: unknown.
	ledger, offset int64
}

// open returns a Reader at an offset of a ledger: a kept one that fits, or a new one.
func (s *Source) open(ctx context.Context, p partition, ledger, offset int64) (*reader, error) {
	if r := s.kept(p, ledger, offset); r != nil {
		return r, nil
	}
	c, err := s.wireClient()
	if err != nil {
		return nil, err
	}
	w, err := c.Read(ctx, p.url(), ledger, entryOf(offset))
	if err != nil {
		return nil, explain(ctx, "Pulsar at "+s.o.Service, fmt.Errorf("opening %s at %d:%d: %w", p, ledger, entryOf(offset), err))
	}
	return &reader{s: s, p: p, wire: w, sizes: s.sizesOf(p), parts: parts{most: s.o.MaxRecord, s: s}}, nil
}

// begin runs f in the background; Close waits for it. It returns false, and does not run f,
// if the source is closed.
func (s *Source) begin(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Closed() {
		return false
	}
	s.ending.Go(f)
	return true
}

// next returns the entry that is being read, or the next one that has come. The error says
// why no more will come.
func (r *reader) next() (*pulsarwire.Entry, error) {
	if !r.has {
		e, ok, err := r.wire.Next()
		if !ok {
			return nil, err
		}
		r.cur, r.has, r.opened = e, true, false
	}
	return &r.cur, nil
}

// done drops the entry that is being read.
func (r *reader) done() {
	r.cur.Release()
	r.cur, r.has, r.opened = pulsarwire.Entry{}, false, false
}

// close ends the Reader. While the source is open it does so in the background, because the
// broker may be away.
func (r *reader) close() {
	if !r.s.begin(r.end) {
		r.end()
	}
}

func (r *reader) end() {
	r.once.Do(func() {
		r.parts.clear()
		r.wire.Close(context.Background())
	})
}

// wireClient returns the client that reads. The first call makes it.
func (s *Source) wireClient() (*pulsarwire.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Closed() {
		return nil, brokers.ErrClosed
	}
	if s.wire == nil {
		c, err := newWire(&s.o)
		if err != nil {
			return nil, explain(context.Background(), "Pulsar at "+s.o.Service, err)
		}
		s.wire = c
	}
	return s.wire, nil
}

// connection returns the official client. The first call makes it.
func (s *Source) connection() (client.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Closed() {
		return nil, brokers.ErrClosed
	}
	if s.client == nil {
		c, err := newClient(&s.o)
		if err != nil {
			return nil, explain(context.Background(), "Pulsar at "+s.o.Service, err)
		}
		s.client = c
	}
	return s.client, nil
}

// keep stores a Reader for the range that begins at its place, or ends it if the place is
// unknown. If too many are stored, it ends the oldest.
func (s *Source) keep(r *reader) {
	s.mu.Lock()
	s.sizes[r.p] = r.sizes
	var last *reader
	if s.Closed() || r.ledger == 0 && r.offset == 0 {
		last = r
	} else {
		if s.idle = append(s.idle, r); len(s.idle) > idleMost {
			last, s.idle = s.idle[0], append([]*reader(nil), s.idle[1:]...)
		}
	}
	s.mu.Unlock()
	if last != nil {
		last.close()
	}
}

// kept returns a stored Reader at a place, or nil if none fits.
func (s *Source) kept(p partition, ledger, offset int64) *reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range s.idle {
		if r.p == p && r.ledger == ledger && r.offset == offset {
			s.idle = append(append([]*reader(nil), s.idle[:i]...), s.idle[i+1:]...)
			if _, err := r.next(); err != nil { // it has ended meanwhile
				s.ending.Go(r.end)
				return nil
			}
			return r
		}
	}
	return nil
}

func (s *Source) sizesOf(p partition) sizes {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sizes[p]
}

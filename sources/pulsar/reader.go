package pulsar

import (
	"context"
	"fmt"
	"sync"

	client "github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"

	"github.com/headrace/headrace/sources/brokers"
)

const (
	pumpedMost = 128 // messages taken from a Reader that wait to be decoded
	idleMost   = 16  // Readers that are kept for later ranges
)

// reader is one official Reader. It reads on from the place where it was opened and never
// seeks: after a seek it may still deliver messages from its old place. Its users compare
// each message's id with the expected one.
type reader struct {
	s        *Source
	p        partition
	official client.Reader
	messages chan client.Message
	cancel   context.CancelFunc
	pump     sync.WaitGroup
	once     sync.Once

	peeked  client.Message // has come and is not taken yet
	permits int64          // see ahead.go
	sizes   sizes          // of the entries that came
	// The next message that this Reader delivers, set when it is kept. 0, 0: unknown.
	ledger, offset int64
}

// open returns a Reader at an offset of a ledger, for a range of so many entries: a kept one
// that fits, or a new one.
func (s *Source) open(ctx context.Context, p partition, ledger, offset, entries int64) (*reader, error) {
	if r := s.kept(p, ledger, offset, entries); r != nil {
		return r, nil
	}
	sizes := s.sizesOf(p)
	permits := sizes.permitsFor(entries)
	c, err := s.connection()
	if err != nil {
		return nil, err
	}
	type result struct {
		*reader
		err error
	}
	done := make(chan result, 1)
	// The library's call has no context: it ends by itself within operationWithin.
	if !s.begin(func() {
		official, err := c.CreateReader(client.ReaderOptions{
			Topic: p.url(), StartMessageID: client.NewMessageID(ledger, entryOf(offset), -1, -1), StartMessageIDInclusive: true,
			ReceiverQueueSize: int(permits), SubscriptionRolePrefix: "headrace",
			// Encrypted messages are delivered as they are, so that the cursor can report them.
			Decryption: &client.MessageDecryptionInfo{KeyReader: noKeys{}, ConsumerCryptoFailureAction: crypto.ConsumerCryptoFailureActionConsume},
		})
		if err != nil {
			done <- result{err: err}
			return
		}
		r := &reader{s: s, p: p, official: official, messages: make(chan client.Message, min(permits, pumpedMost)), permits: permits, sizes: sizes}
		pumping, cancel := context.WithCancel(context.Background())
		r.cancel = cancel
		r.pump.Go(func() { r.run(pumping) })
		done <- result{reader: r}
	}) {
		return nil, brokers.ErrClosed
	}
	select {
	case res := <-done:
		if res.err != nil {
			return nil, explain(ctx, "Pulsar at "+s.o.Service, fmt.Errorf("opening %s at %d:%d: %w", p, ledger, entryOf(offset), res.err))
		}
		return res.reader, nil
	case <-ctx.Done():
		end := func() {
			if res := <-done; res.reader != nil {
				res.reader.close()
			}
		}
		if !s.begin(end) {
			end()
		}
		return nil, ctx.Err()
	}
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

// run moves messages into a channel, so that a cursor can see whether there is one now.
func (r *reader) run(ctx context.Context) {
	defer close(r.messages)
	for {
		m, err := r.official.Next(ctx)
		if err != nil {
			return
		}
		select {
		case r.messages <- m:
		case <-ctx.Done():
			return
		}
	}
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
		r.cancel()
		r.pump.Wait()
		r.official.Close()
	})
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
func (s *Source) kept(p partition, ledger, offset, entries int64) *reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range s.idle {
		if r.p == p && r.ledger == ledger && r.offset == offset {
			s.idle = append(append([]*reader(nil), s.idle[:i]...), s.idle[i+1:]...)
			if !r.sizes.fits(r.permits, entries) {
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

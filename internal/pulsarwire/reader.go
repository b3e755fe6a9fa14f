package pulsarwire

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"sync"
)

// Reader gets the entries of a topic, from the one with which it began. A broker needs permits
// to send entries: each message uses one. But before it sends, it compares its permits with the
// number of entries only. Example: with 16 permits it sends up to 16 entries. If they have 100
// messages, it is 84 permits short, and sends nothing until it has got more than these. Permit
// says how many entries may come, and Reader counts messages for it.
type Reader struct {
	conn  *conn
	id    uint64
	ready chan struct{} // has a token when an entry has come, or the Reader has ended

	mu      sync.Mutex // guards what follows
	queue   []Entry
	counts  []int64 // messages of the entries in queue
	permits int64   // as the broker has them, if nothing is on its way
	err     error
	closed  bool
}

// subscription is the name under which the broker's stats show a Reader.
func subscription(id uint64) string { return fmt.Sprintf("headrace-%s-%d", rand.Text()[:10], id) }

func newReader(k *conn, id uint64) *Reader {
	return &Reader{conn: k, id: id, ready: make(chan struct{}, 1)}
}

// came queues an entry.
func (r *Reader) came(e Entry) {
	n := e.count()
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		release(e.frame)
		return
	}
	r.queue, r.counts = append(r.queue, e), append(r.counts, n)
	r.permits -= n
	r.mu.Unlock()
	r.signal()
}

func (r *Reader) fail(err error) {
	r.mu.Lock()
	if r.err == nil {
		r.err = err
	}
	r.mu.Unlock()
	r.signal()
}

func (r *Reader) signal() {
	select {
	case r.ready <- struct{}{}:
	default:
	}
}

// Ready has a token when Next may have something. Somebody who took the token calls Next
// until it has nothing.
func (r *Reader) Ready() <-chan struct{} { return r.ready }

// Received is how many bytes have come over the Reader's connection, also those of a part of an
// entry and of other Readers' entries.
func (r *Reader) Received() int64 { return r.conn.bytes.Load() }

// Next returns the next entry, if one has come. The error says why no more will come.
func (r *Reader) Next() (e Entry, ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		return e, false, r.err
	}
	e = r.queue[0]
	r.queue[0] = Entry{}
	r.queue, r.counts = r.queue[1:], r.counts[1:]
	return e, true, nil
}

// Permit lets the broker send until about so many entries have come that Next did not return
// yet. If messages is not 0, it is how many messages an entry has on average, and Permit counts
// messages: the broker may send more than was asked for. With 0 it counts entries: the broker
// sends no more than was asked for, but must be asked more often. Permit does nothing while
// half of them are there or on their way.
func (r *Reader) Permit(entries int64, messages float64) {
	r.mu.Lock()
	have, want := int64(len(r.queue)), entries
	if messages > 0 {
		have, want = 0, int64(float64(entries)*messages)
		for _, n := range r.counts {
			have += n
		}
	}
	more := min(want-have-r.permits, math.MaxInt32)
	if r.err != nil || r.closed || more <= 0 || have+max(r.permits, 0) > want/2 {
		r.mu.Unlock()
		return
	}
	r.permits += more
	r.mu.Unlock()
	r.conn.send(flowCommand(r.id, uint64(more)))
}

// Close ends the Reader. It waits until the broker has ended it too, if the connection is
// there.
func (r *Reader) Close(ctx context.Context) {
	r.mu.Lock()
	r.closed = true
	queue, ended := r.queue, r.err != nil
	r.queue, r.counts = nil, nil
	r.mu.Unlock()
	for i := range queue {
		queue[i].Release()
	}
	if r.conn.forget(r.id); ended {
		return
	}
	request := r.conn.c.ids.Add(1)
	ctx, cancel := context.WithTimeoutCause(ctx, r.conn.c.o.AnswerWithin, errNoAnswer)
	defer cancel()
	_, _ = r.conn.ask(ctx, request, closeConsumerCommand(r.id, request)) // a connection that ends ends it
}

package serve

import (
	"errors"
	"slices"
	"sync"

	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/wire"
	"google.golang.org/protobuf/encoding/protowire"
)

var errOutboxFull = errors.New("too many replies wait for this agent")

// outbox holds encoded MasterMessages for one agent. The committer gathers the replies of a
// batch and publishes them together; the sender takes the first message. Batches that are
// published while a message is being sent share the next message, as far as wire.Order
// allows.
type outbox struct {
	limit int

	batch      []outgoing // the committer's: not published yet
	batchBytes int
	batchEcho  int64
	touched    bool

	mu     sync.Mutex
	msgs   []outgoing
	bytes  int
	sentAt int64 // newest echo that was not taken yet; 0: none
	ready  chan struct{}
}

// outgoing is one message. Its bytes are the encoded fields, one after another: that is how
// Protocol Buffers encode a repeated field.
type outgoing struct {
	buf   *[]byte // from the pool messages
	order wire.Order
	cut   *cutReply // set instead of buf: a message of its own
}

// cutReplyBytes is what an answer with a cut counts toward the limit. Its real size is not
// known before it is encoded.
const cutReplyBytes = 64 << 10

func newOutbox(limit int) *outbox {
	return &outbox{limit: limit, ready: make(chan struct{}, 1)}
}

// add gathers one encoded field. Only the committer calls it.
func (o *outbox) add(kind shardsvc.ReplyKind, field []byte) {
	last := len(o.batch) - 1
	if last < 0 || !o.batch[last].takes(kind, len(field)) {
		o.batch = append(o.batch, outgoing{buf: messages.get()})
		last++
	}
	m := &o.batch[last]
	*m.buf = append(*m.buf, field...)
	m.order.Add(kind)
	o.batchBytes += len(field)
}

// addCut gathers an answer with a body. Only the committer calls it.
func (o *outbox) addCut(c *cutReply) {
	o.batch = append(o.batch, outgoing{cut: c})
	o.batchBytes += cutReplyBytes
}

// publish hands the whole batch to the sender. It returns false if the outbox is full; then
// nothing of the batch is sent.
func (o *outbox) publish() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	bytes, sentAt := o.batchBytes, o.batchEcho
	o.batchBytes, o.batchEcho, o.touched = 0, 0, false
	if o.bytes+bytes > o.limit {
		o.batch = o.batch[:0]
		return false
	}
	batch := o.batch
	if n := len(o.msgs); n > 0 && len(batch) > 0 && o.msgs[n-1].takesAll(&batch[0]) {
		batch = batch[1:]
	}
	o.msgs = append(o.msgs, batch...)
	o.bytes += bytes
	clear(o.batch)
	o.batch = o.batch[:0]
	if sentAt != 0 {
		o.sentAt = sentAt
	}
	select {
	case o.ready <- struct{}{}:
	default:
	}
	return true
}

// takesAll appends next, a message of the next batch, to m and returns true, if order and
// size allow it.
func (m *outgoing) takesAll(next *outgoing) bool {
	if m.cut != nil || next.cut != nil {
		return false
	}
	if !m.order.TakesAll(&next.order) || len(*m.buf)+len(*next.buf) > maxMessageBytes {
		return false
	}
	*m.buf = append(*m.buf, *next.buf...)
	m.order.AddAll(&next.order)
	messages.Put(next.buf)
	return true
}

// takes says whether a field may be appended.
func (m *outgoing) takes(kind shardsvc.ReplyKind, size int) bool {
	if m.cut != nil {
		return false
	}
	if len(*m.buf)+size > maxMessageBytes && kind != shardsvc.ReplyHeld { // a HelloReply must not be split
		return false
	}
	return m.order.Takes(kind)
}

// take returns the next message, or nil. gRPC gives its buffer back to messages when it has
// written it.
func (o *outbox) take() *[]byte {
	buf, cut := o.next()
	if cut != nil {
		return cut.encode() // without the lock, because it may be large
	}
	return buf
}

func (o *outbox) next() (buf *[]byte, cut *cutReply) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.msgs) > 0 {
		buf, cut = o.msgs[0].buf, o.msgs[0].cut
		copy(o.msgs, o.msgs[1:])
		o.msgs[len(o.msgs)-1] = outgoing{}
		o.msgs = o.msgs[:len(o.msgs)-1]
		if cut != nil {
			o.bytes -= cutReplyBytes
			return nil, cut
		}
		o.bytes -= len(*buf)
	} else if o.sentAt == 0 {
		return nil, nil
	} else {
		buf = messages.get()
	}
	if o.sentAt != 0 {
		*buf = protowire.AppendTag(*buf, 2, protowire.VarintType)
		*buf = protowire.AppendVarint(*buf, uint64(o.sentAt))
		o.sentAt = 0
	}
	return buf, nil
}

// messages is the pool of buffers for messages. A buffer keeps its capacity.
var messages messagePool

type messagePool struct{ pool sync.Pool }

func (p *messagePool) get() *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		*b = (*b)[:0]
		return b
	}
	b := make([]byte, 0, 4096)
	return &b
}

// Get and Put make it a mem.BufferPool. gRPC calls Put when it has written a message.
func (p *messagePool) Get(n int) *[]byte {
	b := p.get()
	*b = slices.Grow(*b, n)[:n]
	return b
}

func (p *messagePool) Put(b *[]byte) { p.pool.Put(b) }

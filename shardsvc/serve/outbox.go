package serve

import (
	"errors"
	"slices"
	"sync"

	"github.com/headrace/headrace/shardsvc"
	"google.golang.org/protobuf/encoding/protowire"
)

var errOutboxFull = errors.New("too many replies wait for this agent")

// outbox holds encoded MasterMessages for one agent. The committer adds replies
// to the last one; the sender takes the first. What comes while a message is
// being sent is gathered into the next.
type outbox struct {
	limit int

	mu     sync.Mutex
	msgs   []outgoing
	bytes  int
	sentAt int64 // newest echo that was not taken yet; 0: none
	ready  chan struct{}
}

// outgoing is one message. Its repeated fields are simply concatenated: that is
// what Protocol Buffers make of them.
type outgoing struct {
	buf               *[]byte // of messages
	grants, standings bool
}

func newOutbox(limit int) *outbox {
	return &outbox{limit: limit, ready: make(chan struct{}, 1)}
}

// add appends one encoded field; false: the outbox is full and nothing was added.
func (o *outbox) add(kind shardsvc.ReplyKind, field []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bytes+len(field) > o.limit {
		return false
	}
	last := len(o.msgs) - 1
	if last < 0 || !o.msgs[last].takes(kind, len(field)) {
		o.msgs = append(o.msgs, outgoing{buf: messages.get()})
		last++
	}
	m := &o.msgs[last]
	*m.buf = append(*m.buf, field...)
	m.grants = m.grants || kind == shardsvc.ReplyGrant
	m.standings = m.standings || kind == shardsvc.ReplyStanding
	o.bytes += len(field)
	o.wake()
	return true
}

// takes: fields of one message take effect in the order of their numbers, so a
// reply that is about a lease or a worker must not get before the grant that
// came first, nor a grant before the standing that it ends.
func (m *outgoing) takes(kind shardsvc.ReplyKind, size int) bool {
	if len(*m.buf)+size > maxMessageBytes {
		return false
	}
	switch kind {
	case shardsvc.ReplyAck, shardsvc.ReplyStanding:
		return true
	case shardsvc.ReplyGrant:
		return !m.standings
	default:
		return !m.grants
	}
}

// echo says which sent_at was processed; it rides with the next message.
func (o *outbox) echo(sentAt int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sentAt = sentAt
	o.wake()
}

func (o *outbox) wake() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// take returns the next message, or nil. It goes back to messages when it was
// written.
func (o *outbox) take() *[]byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	var buf *[]byte
	if len(o.msgs) > 0 {
		buf = o.msgs[0].buf
		o.bytes -= len(*buf)
		copy(o.msgs, o.msgs[1:])
		o.msgs[len(o.msgs)-1] = outgoing{}
		o.msgs = o.msgs[:len(o.msgs)-1]
	} else if o.sentAt == 0 {
		return nil
	} else {
		buf = messages.get()
	}
	if o.sentAt != 0 {
		*buf = protowire.AppendTag(*buf, 2, protowire.VarintType)
		*buf = protowire.AppendVarint(*buf, uint64(o.sentAt))
		o.sentAt = 0
	}
	return buf
}

// messages are buffers of written messages, with the room that they grew to.
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

// Get and Put make it a mem.BufferPool: gRPC calls Put when it wrote a message.
func (p *messagePool) Get(n int) *[]byte {
	b := p.get()
	*b = slices.Grow(*b, n)[:n]
	return b
}

func (p *messagePool) Put(b *[]byte) { p.pool.Put(b) }

package remoting

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	dialWithin  = 5 * time.Second
	writeWithin = 10 * time.Second
	readBuffer  = 64 << 10
)

// began is what a connection's times count from. With the wall clock, the connection to a
// silent broker would be kept for hours if somebody set that clock back.
var began = time.Now()

// conn is one connection. One goroutine reads it; it ends with close.
type conn struct {
	addr    string
	net     net.Conn
	writing chan struct{} // holds one token: the right to write
	opaque  atomic.Int32
	heard   atomic.Int64  // when an answer came last, in ns since began
	came    atomic.Int64  // when bytes came last, in ns since began
	inBody  atomic.Bool   // the bytes that come now are the body of an answer
	done    chan struct{} // the reader has ended

	mu      sync.Mutex // guards what follows
	waiting map[int32]*Pending
	err     error // why no more answers come
}

// Pending is a request that is under way.
type Pending struct {
	c      *conn
	opaque int32
	sent   time.Time
	memory []byte // for the answer's body
	answer chan Command
	failed chan error
}

func newConn(addr string, nc net.Conn) *conn {
	c := &conn{addr: addr, net: nc, writing: make(chan struct{}, 1), done: make(chan struct{}), waiting: map[int32]*Pending{}}
	c.writing <- struct{}{}
	go c.read()
	return c
}

// start sends requests in one write. The body of an answer goes to its request's memory if it
// fits there.
func (c *conn) start(ctx context.Context, requests []Request) ([]*Pending, error) {
	var frames []byte
	all := make([]*Pending, len(requests))
	now := time.Now()
	for i, r := range requests {
		r.Command.Opaque = c.opaque.Add(1)
		var err error
		if frames, err = r.Command.append(frames); err != nil {
			return nil, err
		}
		all[i] = &Pending{c: c, opaque: r.Command.Opaque, sent: now, memory: r.Memory, answer: make(chan Command, 1), failed: make(chan error, 1)}
	}
	c.mu.Lock()
	if err := c.err; err != nil {
		c.mu.Unlock()
		return nil, err
	}
	for _, p := range all {
		c.waiting[p.opaque] = p
	}
	c.mu.Unlock()
	if err := c.write(ctx, frames); err != nil {
		for _, p := range all {
			c.forget(p)
		}
		return nil, err
	}
	return all, nil
}

// write sends whole frames. A context that ends in the middle of one ends the
// connection: half a frame cannot be taken back.
func (c *conn) write(ctx context.Context, frames []byte) error {
	select {
	case <-c.writing:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.done:
		return c.why()
	}
	defer func() { c.writing <- struct{}{} }()
	if err := ctx.Err(); err != nil {
		return err
	}
	_ = c.net.SetWriteDeadline(time.Now().Add(writeWithin))
	stop := context.AfterFunc(ctx, func() { _ = c.net.SetWriteDeadline(time.Unix(1, 0)) })
	_, err := c.net.Write(frames)
	ended := !stop() // the function may still move the deadline, during the next request
	if err == nil && !ended {
		return nil
	}
	c.fail(unreachable(c.addr, errors.Join(err, ctx.Err())))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return c.why()
}

// Wait returns the answer, whatever its code. It fails if none has come within that time, but
// not while the body of an answer is coming, ours or one before it: over a slow link that may
// take longer. After an error the memory of the request must not be used again: a late answer
// may still go there.
func (p *Pending) Wait(ctx context.Context, within time.Duration) (Command, error) {
	select { // what is there already needs no timer
	case a := <-p.answer:
		return a, nil
	default:
	}
	timer := time.NewTimer(max(0, within-time.Since(p.sent)))
	defer timer.Stop()
	for {
		select {
		case a := <-p.answer:
			return a, nil
		case err := <-p.failed:
			return Command{}, err
		case <-ctx.Done():
			p.c.forget(p)
			return Command{}, ctx.Err()
		case <-timer.C:
		}
		inBody := p.c.inBody.Load()
		select { // it came at the last moment
		case a := <-p.answer:
			return a, nil
		default:
		}
		if silent := time.Since(began) - time.Duration(p.c.came.Load()); inBody && silent < within {
			// Not for all of the time that is left: another answer's body says little about ours.
			timer.Reset(min(within-silent, within/looksWhileBytesCome))
			continue
		}
		p.c.forget(p)
		err := unreachable(p.c.addr, fmt.Errorf("no answer within %v: %w", within, os.ErrDeadlineExceeded))
		if p.c.heard.Load() < int64(p.sent.Sub(began)) {
			p.c.fail(err) // nothing came since: a new connection may do better
		}
		return Command{}, err
	}
}

// looksWhileBytesCome is how often Wait looks, in the time within which an answer must come,
// whether the bytes that come are still those of a body.
const looksWhileBytesCome = 4

// Ready says whether Wait would return at once.
func (p *Pending) Ready() bool { return len(p.answer) > 0 || len(p.failed) > 0 }

// Abandon forgets the request. A late answer is dropped.
func (p *Pending) Abandon() { p.c.forget(p) }

func (c *conn) forget(p *Pending) {
	c.mu.Lock()
	delete(c.waiting, p.opaque)
	c.mu.Unlock()
}

// read hands answers to their requests until the connection ends.
func (c *conn) read() {
	defer close(c.done)
	r := bufio.NewReaderSize(noted{c}, readBuffer)
	for {
		cmd, n, err := readHeader(r)
		if err != nil {
			c.fail(unreachable(c.addr, err))
			return
		}
		c.inBody.Store(true)
		p := c.take(&cmd)
		if p == nil { // a late answer, or a broker's own request
			_, err = io.CopyN(io.Discard, r, int64(n))
		} else {
			cmd.Body, err = readBody(r, n, p.memory)
		}
		if err != nil {
			err = unreachable(c.addr, notEOF(err))
			if c.fail(err); p != nil {
				p.failed <- err
			}
			return
		}
		c.heard.Store(int64(time.Since(began)))
		if p != nil {
			p.answer <- cmd
		}
		c.inBody.Store(false) // not before: Wait takes the answer or sees that it comes
	}
}

// noted reads from the connection, and notes when bytes come.
type noted struct{ c *conn }

func (r noted) Read(b []byte) (int, error) {
	n, err := r.c.net.Read(b)
	if n > 0 {
		r.c.came.Store(int64(time.Since(began)))
	}
	return n, err
}

// take finds the request of an answer.
func (c *conn) take(cmd *Command) *Pending {
	if cmd.Flag&flagAnswer == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.waiting[cmd.Opaque]
	delete(c.waiting, cmd.Opaque)
	return p
}

// fail ends the connection; all who wait are told why.
func (c *conn) fail(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	for opaque, p := range c.waiting {
		p.failed <- c.err
		delete(c.waiting, opaque)
	}
	c.mu.Unlock()
	_ = c.net.Close()
}

// why is the reason that fail was given.
func (c *conn) why() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// close ends the connection and waits for its goroutine.
func (c *conn) close() {
	c.fail(errClosed)
	<-c.done
}

var errClosed = errors.New("the connections to RocketMQ are closed")

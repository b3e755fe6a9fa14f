package rocketmq

import (
	"context"
	"slices"

	"github.com/headrace/headrace/internal/remoting"
)

// By default a broker returns at most 32 messages or 256 KiB in an answer (8 messages or 64
// KiB if they must be read from its disk). So a cursor has several requests under way.
const (
	windowFirst = 32      // messages that the first requests ask for
	windowMost  = 1024    // most messages that a request asks for
	depthMost   = 8       // most requests under way
	aheadMost   = 4 << 20 // bytes that a cursor asks for ahead, about
	sparesMost  = 16      // buffers that are kept for later answers
	suspendMS   = 5_000   // how long a broker may keep a request at the head
	growAfter   = 16      // after so many full answers in a row, requests ask for more
)

// pull is one request for [start, end) of the queue.
type pull struct {
	start, end int64
	pending    *remoting.Pending
	suspended  bool
}

// pulls are the requests of one cursor, in the order of their offsets. Each begins
// where the one before it ends.
type pulls struct {
	all  []*pull
	full int // answers in a row that had all messages of their requests
}

// next returns where the next request begins. If there is none under way, that is at.
func (f *pulls) next(at int64) int64 {
	if n := len(f.all); n > 0 {
		return f.all[n-1].end
	}
	return at
}

// drop abandons all requests. Their memory is not reused.
func (f *pulls) drop() {
	for _, p := range f.all {
		p.pending.Abandon()
	}
	f.all = nil
}

// depth returns how many requests may be under way.
func (s *Source) depth() int {
	per := max(1, s.perMessage.Load()) * max(1, s.window.Load())
	return int(min(depthMost, max(2, aheadMost/per)))
}

// ask sends requests until enough are under way or limit is reached. It waits until half of
// them are answered and sends the next ones in one write: each write costs a system call here
// and a wake-up in the broker.
func (c *cursor) ask(ctx context.Context, limit int64) error {
	if len(c.flight.all) > 0 && c.flight.all[0].start > c.at { // an answer was shorter than its request
		if err := c.send(ctx, 0, 0, &pull{start: c.at, end: c.flight.all[0].start}); err != nil {
			return err
		}
	}
	depth := c.s.depth()
	if !c.met {
		depth = 1 // the head is not known yet
	}
	n := len(c.flight.all)
	if n > depth/2 {
		return nil
	}
	var more []*pull
	for at := c.flight.next(c.at); n+len(more) < depth && at < limit; {
		p := &pull{start: at, end: min(limit, at+c.s.window.Load())}
		more, at = append(more, p), p.end
	}
	return c.send(ctx, n, 0, more...)
}

// send puts requests at a place among those that are under way.
func (c *cursor) send(ctx context.Context, place, suspend int, more ...*pull) error {
	if len(more) == 0 {
		return nil
	}
	requests := make([]remoting.Request, len(more))
	for i, p := range more {
		pull := remoting.Pull{Queue: c.p.remote(), Group: c.s.o.group(), Offset: p.start, Most: int(min(p.end-p.start, windowMost)), SuspendMS: suspend}
		requests[i] = remoting.Request{Command: pull.Command(), Memory: c.s.spare.Take()}
	}
	pending, err := c.s.client.StartAll(ctx, c.replica.Addr, requests)
	if err != nil {
		return err
	}
	for i, p := range more {
		p.pending, p.suspended = pending[i], suspend > 0
	}
	c.flight.all = slices.Insert(c.flight.all, place, more...)
	return nil
}

// learn adapts the size of requests to an answer that was read.
func (c *cursor) learn() {
	asked, got := min(c.nowEnd-c.nowFrom, windowMost), c.at-c.nowFrom
	if got <= 0 {
		return
	}
	per := int64(len(c.held)) / got
	if old := c.s.perMessage.Load(); old != 0 {
		per = (7*old + per) / 8
	}
	c.s.perMessage.Store(max(1, per))
	switch w := c.s.window.Load(); {
	case got < asked && c.at < c.head: // there was more
		c.flight.full = 0
		c.s.window.Store(got)
	case got == w && w < windowMost:
		if c.flight.full++; c.flight.full >= growAfter {
			c.flight.full = 0
			c.s.window.Store(min(windowMost, 2*w))
		}
	}
}

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

// ask sends requests until enough are under way or limit is reached.
func (c *cursor) ask(ctx context.Context, limit int64) error {
	if len(c.flight.all) > 0 && c.flight.all[0].start > c.at { // an answer was shorter than its request
		if err := c.send(ctx, 0, c.at, c.flight.all[0].start, 0); err != nil {
			return err
		}
	}
	depth := c.s.depth()
	if !c.met {
		depth = 1 // the head is not known yet
	}
	for len(c.flight.all) < depth {
		start := c.flight.next(c.at)
		if start >= limit {
			return nil
		}
		if err := c.send(ctx, len(c.flight.all), start, min(limit, start+c.s.window.Load()), 0); err != nil {
			return err
		}
	}
	return nil
}

// send puts one request at a place among those that are under way.
func (c *cursor) send(ctx context.Context, place int, start, end int64, suspend int) error {
	cmd := remoting.Pull{Queue: c.p.remote(), Group: c.s.o.group(), Offset: start, Most: int(min(end-start, windowMost)), SuspendMS: suspend}.Command()
	pending, err := c.s.client.Start(ctx, c.replica.Addr, cmd, c.s.spare.Take())
	if err != nil {
		return err
	}
	c.flight.all = slices.Insert(c.flight.all, place, &pull{start, end, pending, suspend > 0})
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

package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// Segments lists the known segments and, if the queue is read further than they reach, one
// more up to its end. That end is found once and stays, whatever is produced later. A live
// queue has one segment, which is not sealed.
func (s *Source) Segments(ctx context.Context, id sources.PartitionID, after int64, most int) ([]sources.Segment, error) {
	if err := s.Usable(ctx); err != nil {
		return nil, err
	}
	p, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.segments.After(id, after, most, func() error { return s.extend(ctx, p) })
}

// extend lists one more segment if there is more to read.
func (s *Source) extend(ctx context.Context, p partition) error {
	listed, start := s.segments.Of(p.id()), s.o.Start
	if s.HasJoined(p.id()) && start.At == brokers.Latest {
		start.At = brokers.Earliest
	}
	if s.o.live() && len(listed) > 0 {
		return nil
	}
	if !s.o.live() || start.At != brokers.Earliest || len(start.Places) > 0 {
		if err := s.dispatched(ctx, p); err != nil {
			return err
		}
	}
	low, head, err := s.endsOf(ctx, p)
	if err != nil {
		return err
	}
	end := head
	if !s.o.live() {
		if end, err = s.resolve(ctx, p, s.o.End, "end", low, head); err != nil {
			return err
		}
	}
	g := sources.Segment{End: end, Sealed: !s.o.live(), Name: p.String()}
	if n := len(listed); n > 0 {
		g.ID, g.Start = listed[n-1].ID+1, listed[n-1].End
	} else if g.Start, err = s.resolve(ctx, p, start, "start", low, head); err != nil {
		return err
	}
	g.End = max(g.Start, g.End)
	f, err := s.printAt(ctx, p, g.End, low)
	if err != nil {
		return err
	}
	g.Locator = p.locator(f)
	s.segments.End(p.id(), g)
	return nil
}

// dispatched waits until the queue shows every message that the broker had stored when the
// queues were listed. A broker enters stored messages into its queues a moment later.
// Without this wait, a user who sends messages and then applies a dataset might not find
// the last of them in it. One wait serves all queues of a broker.
func (s *Source) dispatched(ctx context.Context, p partition) error {
	addr, err := s.master(ctx, p)
	if err != nil {
		return err
	}
	listing, done := s.showed.all(addr)
	if done {
		return nil
	}
	switch err = s.client.Dispatched(ctx, addr); {
	case errors.Is(err, remoting.ErrNotTold):
		s.untold.Do(func() {
			s.o.Logger.Warn("the broker does not say whether its queues show all messages yet: one that was sent in the last moment may lie after the end that is listed now",
				"broker", p.broker, "why", err)
		})
	case err != nil:
		return s.explain(ctx, err, p.String())
	}
	s.showed.add(addr, listing)
	return nil
}

// showed is the set of brokers whose queues show what was stored when the queues were last
// listed. A broker is named by its address: two clusters may have brokers of one name, and
// another machine may become a broker's master.
type showed struct {
	mu      sync.Mutex
	listing int // counts the listings
	brokers map[string]bool
}

// forget begins a new listing.
func (w *showed) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listing, w.brokers = w.listing+1, nil
}

// all gives the listing's number, and whether the broker's queues show everything.
func (w *showed) all(addr string) (listing int, done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listing, w.brokers[addr]
}

// add notes that the broker's queues show everything, unless another listing has begun.
func (w *showed) add(addr string, listing int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if listing != w.listing {
		return
	}
	if w.brokers == nil {
		w.brokers = map[string]bool{}
	}
	w.brokers[addr] = true
}

// printAt makes the fingerprint of the messages before end.
func (s *Source) printAt(ctx context.Context, p partition, end, low int64) (print, error) {
	if end <= low {
		return print{}, nil
	}
	m, _, err := s.one(ctx, p, end-1)
	if err != nil {
		return print{}, err
	}
	return print{end, m.place}, nil
}

// one reads the message at an offset that exists.
func (s *Source) one(ctx context.Context, p partition, offset int64) (message, []byte, error) {
	addr, err := s.master(ctx, p)
	if err != nil {
		return message{}, nil, err
	}
	what := fmt.Sprintf("%s at offset %d", p, offset)
	a, err := s.client.Call(ctx, addr, remoting.Pull{Queue: p.remote(), Group: s.o.group(), Offset: offset, Most: 1}.Command())
	if err != nil {
		switch remoting.CodeOf(err) {
		case remoting.PullNotFound, remoting.PullRetry, remoting.PullMoved:
			return message{}, nil, temporary(fmt.Errorf("%s: %w", what, err))
		}
		return message{}, nil, s.explain(ctx, err, what)
	}
	var m message
	if err := m.read(a.Body); err != nil {
		return m, nil, fmt.Errorf("%s: %w", what, err)
	}
	if m.queueOffset != offset {
		return m, nil, temporary(fmt.Errorf("%s: the broker gave message %d instead", what, m.queueOffset))
	}
	return m, a.Body[:m.size], nil
}

// resolve finds the offset that an end means in a queue now.
func (s *Source) resolve(ctx context.Context, p partition, e End, name string, low, head int64) (int64, error) {
	if offset, ok := e.Of(p.names()...); ok {
		return offset, inQueue(p, offset, name, low, head)
	}
	switch e.At {
	case brokers.Latest:
		return head, nil
	case brokers.Earliest:
		return low, nil
	case brokers.AtTime:
		addr, err := s.master(ctx, p)
		if err != nil {
			return 0, err
		}
		a, err := s.client.Call(ctx, addr, remoting.SearchOffset(p.remote(), e.Time.UnixMilli()))
		if err != nil {
			return 0, s.explain(ctx, err, p.String())
		}
		offset, err := remoting.OffsetOf(a)
		return min(max(offset, low), head), err
	}
	return 0, errors.New("rocketmq: no such end")
}

// inQueue returns an error if an offset that the spec names is not in the queue. Reading never
// begins at another offset instead.
func inQueue(p partition, offset int64, name string, low, head int64) error {
	switch {
	case offset > head:
		return fmt.Errorf("%s: %s is at offset %d, and the queue ends at %d now: name one that is there", p, name, offset, head)
	case offset < low:
		return &sources.Truncated{Lost: sources.Range{Partition: p.id(), Start: offset, End: low}, Name: p.String(),
			Err: fmt.Errorf("%s names an offset that RocketMQ has deleted; the queue begins at %d", name, low)}
	}
	return nil
}

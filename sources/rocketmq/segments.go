package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/sources"
)

// Segments lists what is known and, after it, one segment to where the queue is read
// to, if that is further. Its end is found once and stays, whatever is produced
// later. Of what has no end there is one segment, not sealed.
func (s *Source) Segments(ctx context.Context, id sources.PartitionID, after int64, most int) ([]sources.Segment, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	p, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	known, fixed := later(s.segments[id], after), s.fixed[id]
	s.mu.Unlock()
	if len(known) >= most {
		return known[:most], nil
	}
	if !fixed {
		if err := s.extend(ctx, p); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	some := later(s.segments[id], after)
	return some[:min(most, len(some))], nil
}

// later copies the segments with ID > after, which are numbered from 0.
func later(all []sources.Segment, after int64) []sources.Segment {
	var some []sources.Segment
	for _, g := range all {
		if g.ID > after {
			some = append(some, g)
		}
	}
	return some
}

// extend lists one more segment if there is more to read.
func (s *Source) extend(ctx context.Context, p partition) error {
	s.mu.Lock()
	listed, start := s.segments[p.id()], s.o.Start
	if s.joined[p.id()] && start.At == Latest {
		start.At = Earliest
	}
	s.mu.Unlock()
	if s.o.live() && len(listed) > 0 {
		return nil
	}
	if !s.o.live() || start.At != Earliest || len(start.Offsets) > 0 {
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fixed[p.id()] && (g.Start < g.End || s.o.live()) { // nobody else was faster
		s.segments[p.id()] = append(s.segments[p.id()], g)
	}
	s.fixed[p.id()] = true
	return nil
}

// dispatched returns when a queue shows every message whose sender had its answer by now.
// A user who writes and then applies a dataset must find all of it between its ends.
func (s *Source) dispatched(ctx context.Context, p partition) error {
	addr, err := s.master(ctx, p)
	if err != nil {
		return err
	}
	err = s.client.Dispatched(ctx, addr)
	if !errors.Is(err, remoting.ErrNotTold) {
		return s.explain(ctx, err, p.String())
	}
	s.untold.Do(func() {
		s.o.Logger.Warn("the broker does not say whether its queues show all messages yet: one that was sent in the last moment may lie after the end that is listed now",
			"broker", p.broker, "why", err)
	})
	return nil
}

// printAt looks at the last message before end.
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

// one reads the message at an offset, which is there.
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
	if offset, ok := e.of(p); ok {
		return offset, inQueue(p, offset, name, low, head)
	}
	switch e.At {
	case Latest:
		return head, nil
	case Earliest:
		return low, nil
	case AtTime:
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

func (e End) of(p partition) (int64, bool) {
	queue := strconv.Itoa(p.queue)
	for _, key := range []string{p.String(), p.broker + "/" + queue, queue} {
		if o, ok := e.Offsets[key]; ok {
			return o, true
		}
	}
	return 0, false
}

// inQueue: an offset that was asked for by number must be there. Nothing skips ahead.
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

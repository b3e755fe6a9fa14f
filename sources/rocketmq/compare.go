package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/sources"
)

// A broker may lose its last messages: its machine loses power before they are flushed, or
// a slave that lacks them becomes the master. The head falls, producers send on, and some
// moments later other messages have these offsets. The same happens to a topic that is
// deleted and made again. RocketMQ has no epoch that would tell. So Compare remembers the
// message before each head that was returned, and looks later whether it is still there.
// Example: the head was 500, and message 499 was remembered. The broker loses [450, 500) and
// gets 100 new messages. The head is 550 then, and message 499 is another one.

var _ sources.Comparer = (*Source)(nil)

const (
	fellWithin     = 15 * time.Second // a head that fell may rise again for so long; less than the master's patience
	comparedAtOnce = 64               // queues
	flightMost     = 16 << 20         // bytes that are asked for at once, about
	sizeLeast      = 64 << 10         // a message of unknown size counts as at least so many bytes
	sizeUnknown    = 4 << 20          // RocketMQ takes no larger messages by default (maxMessageSize)
	comparedBytes  = 8 << 20          // per second, of messages that are fetched only to be compared
)

// look is one look of Compare at a queue.
type look struct {
	h          *history
	low, head  int64
	addr, over string
	at         int               // the index in traces of the message that is compared; -1: none
	old, last  *remoting.Pending // for that message, and for the one before head
	there      bool              // that message is still there
}

// Compare fetches the remembered message of each queue whose head has moved, whose broker was
// connected to again or has another address, or whose head fell. If another message has its
// offset, Compare returns all offsets after the last remembered message that is still there. If
// none is, it returns those from the first remembered message that was replaced.
func (s *Source) Compare(ctx context.Context) ([]sources.Replaced, error) {
	if err := s.Usable(ctx); err != nil {
		return nil, err
	}
	s.comparing.Lock()
	defer s.comparing.Unlock()
	s.upToDate = map[string]bool{}
	began, rests := time.Now(), time.Now().Before(s.compareAgain)
	var (
		found      []sources.Replaced
		looks      []*look
		unanswered error
		bytes      int
	)
	for _, h := range s.freshHistories() {
		l, err := s.lookAt(ctx, h, rests)
		if err != nil {
			unanswered = s.unlessBlind(err, unanswered)
		} else if l != nil {
			looks = append(looks, l)
		}
	}
	away := map[string]bool{} // brokers that did not answer; they are not asked again
	for rest := looks; len(rest) > 0; {
		var some, begun []*look
		some, rest = few(rest)
		for _, l := range some {
			if away[l.addr] {
				continue
			}
			err := s.startLook(ctx, l)
			if err == nil {
				begun = append(begun, l)
			}
			away[l.addr] = errors.Is(err, remoting.ErrUnreachable)
			unanswered = s.unlessBlind(err, unanswered)
		}
		for _, l := range begun {
			r, n, err := s.endLook(ctx, l)
			away[l.addr] = away[l.addr] || errors.Is(err, remoting.ErrUnreachable)
			if bytes += n; r != nil {
				found = append(found, *r)
			}
			unanswered = s.unlessBlind(err, unanswered)
		}
	}
	bytes, unanswered = s.earlierOf(ctx, looks, rests, bytes, unanswered)
	if bytes > 0 {
		s.compareAgain = began.Add(time.Duration(bytes) * time.Second / comparedBytes)
	}
	return found, errors.Join(ctx.Err(), unanswered)
}

// unlessBlind returns err if another try may help, otherwise before. An error that will stay is
// logged once: nothing can be compared then, and readers meet the same error.
func (s *Source) unlessBlind(err, before error) error {
	if _, again := errors.AsType[*sources.Temporary](err); again {
		return err
	}
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		s.blind.Do(func() {
			s.o.Logger.Warn("messages cannot be compared with earlier ones: if the broker loses some, and others get their offsets, that stays unnoticed", "why", err)
		})
	}
	return before
}

// lookAt returns nil if nothing is to be done for a queue. rests says that only queues in
// which something may have happened are looked at.
func (s *Source) lookAt(ctx context.Context, h *history, rests bool) (*look, error) {
	s.mu.Lock()
	l := &look{h: h, low: h.low, head: h.head, at: -1}
	s.mu.Unlock()
	h.traces = slices.DeleteFunc(h.traces, func(t trace) bool { return t.offset < l.low })
	addr, err := s.master(ctx, h.p)
	if err != nil {
		return nil, err
	}
	l.addr, l.over = addr, fmt.Sprintf("%s, connection %d", addr, s.client.Connections(addr))
	for i, t := range h.traces {
		if t.offset < l.head {
			l.at = i
		}
	}
	switch last := len(h.traces) - 1; {
	case last >= 0 && (l.at < last || l.over != h.over || s.hasFallen(h)):
		return l, nil
	case rests, l.head <= l.low, last >= 0 && h.deep && l.head == h.traces[last].offset+1:
		return nil, nil
	}
	return l, nil
}

// few returns the looks that begin now: their messages take about flightMost bytes. And it
// returns the others.
func few(looks []*look) (some, rest []*look) {
	flight := 0
	for i, l := range looks {
		if flight += l.size(); i == comparedAtOnce || i > 0 && flight > flightMost {
			return looks[:i], looks[i:]
		}
	}
	return looks, nil
}

// size is about how many bytes startLook asks for.
func (l *look) size() int {
	n := l.h.likely()
	if l.at >= 0 {
		n += l.h.traces[l.at].size
	}
	return n
}

// startLook asks for the messages. After an error nothing is under way.
func (s *Source) startLook(ctx context.Context, l *look) (err error) {
	last := l.head - 1
	if l.at >= 0 {
		last = max(last, l.h.traces[l.at].offset)
		if l.old, err = s.startOne(ctx, l, l.h.traces[l.at].offset); err != nil {
			return s.explain(ctx, err, l.h.p.String())
		}
	}
	if fallen := l.at < len(l.h.traces)-1; !fallen && l.head > l.low && (l.at < 0 || last > l.h.traces[l.at].offset) {
		if l.last, err = s.startOne(ctx, l, last); err != nil && l.old != nil {
			l.old.Abandon()
		}
	}
	return s.explain(ctx, err, l.h.p.String())
}

// endLook compares. It returns what was replaced, and how many bytes were fetched.
func (s *Source) endLook(ctx context.Context, l *look) (r *sources.Replaced, bytes int, err error) {
	var old, last *trace
	if l.old != nil {
		old, bytes, err = s.traceOf(ctx, l, l.old, l.h.traces[l.at].offset)
		switch {
		case errors.Is(err, errRemoved): // and with it all before it
			l.h.traces, l.at = l.h.traces[l.at+1:], -1
		case err != nil || old == nil:
			if l.last != nil {
				l.last.Abandon()
			}
			return nil, bytes, err
		}
	}
	if l.last != nil {
		var n int
		if last, n, err = s.traceOf(ctx, l, l.last, l.head-1); err != nil && !errors.Is(err, errRemoved) {
			return nil, bytes, err
		}
		bytes += n
	}
	switch {
	case old != nil && *old != l.h.traces[l.at]:
		r, err = s.parted(ctx, l)
		return r, bytes, err
	case l.at < len(l.h.traces)-1:
		r, err = s.fallen(ctx, l)
		return r, bytes, err
	}
	l.h.over, l.there = l.over, true
	traces := l.h.traces
	if last != nil && (len(traces) == 0 || last.offset > traces[len(traces)-1].offset) {
		traces = thinned(append(traces, *last))
	}
	s.keep(l.h, traces)
	return nil, bytes, nil
}

// parted returns all offsets after the last remembered message that is still there. If none is,
// it returns those from the first remembered message that is known to be replaced. It names no
// more, because that could stop a dataset that has lost nothing.
func (s *Source) parted(ctx context.Context, l *look) (*sources.Replaced, error) {
	from, stay := l.h.traces[l.at].offset, 0
	for i := l.at - 1; i >= 0; i-- {
		t := l.h.traces[i]
		pending, err := s.startOne(ctx, l, t.offset)
		if err != nil {
			return nil, s.explain(ctx, err, l.h.p.String())
		}
		now, _, err := s.traceOf(ctx, l, pending, t.offset)
		if err != nil && !errors.Is(err, errRemoved) {
			return nil, err
		}
		if now != nil && *now == t {
			from, stay = t.offset+1, i+1
			break
		}
		if now != nil {
			from = t.offset
		}
	}
	return s.takenBack(l, from, stay), nil
}

// fallen returns the messages that are gone because the head stays below an earlier one. A
// broker that has just started may not know yet how far its queue reaches.
func (s *Source) fallen(ctx context.Context, l *look) (*sources.Replaced, error) {
	s.mu.Lock()
	since, lowest := l.h.fell, l.h.lowest
	s.mu.Unlock()
	if since.IsZero() || time.Since(since) < s.o.fellWithin {
		return nil, nil
	}
	if shows, err := s.shows(ctx, l.addr); err != nil || !shows {
		return nil, s.explain(ctx, err, l.h.p.String())
	}
	low, head, err := s.endsOf(ctx, l.h.p)
	if err != nil {
		return nil, err
	}
	if head > l.head {
		s.reaches(l.h.p, low, head)
		return nil, nil // it still rises
	}
	from := lowest
	if l.at >= 0 {
		from = max(from, l.h.traces[l.at].offset+1)
	}
	return s.takenBack(l, min(from, l.head), l.at+1), nil
}

// shows waits until the queues of a broker show every message. One Compare waits once for each
// broker, and no longer than for an answer, because it reports nothing else meanwhile. If the
// broker needs longer, the next Compare waits again.
func (s *Source) shows(ctx context.Context, addr string) (bool, error) {
	if shows, asked := s.upToDate[addr]; asked {
		return shows, nil
	}
	within, cancel := context.WithTimeout(ctx, s.client.Answer())
	defer cancel()
	err := s.client.Dispatched(within, addr)
	if err != nil && ctx.Err() == nil && within.Err() != nil {
		s.upToDate[addr] = false
		return false, nil
	}
	if errors.Is(err, remoting.ErrNotTold) {
		err = nil
	}
	s.upToDate[addr] = err == nil
	return err == nil, err
}

// takenBack forgets the messages that are not there any more.
func (s *Source) takenBack(l *look, from int64, stay int) *sources.Replaced {
	r := &sources.Replaced{Partition: l.h.p.id(), From: from, Before: l.h.traces[len(l.h.traces)-1].offset + 1}
	s.keep(l.h, l.h.traces[:stay])
	s.o.Logger.Warn("the broker has taken messages back; others have or get their offsets", "queue", l.h.p.String(), "from", r.From, "before", r.Before, "broker", l.addr)
	return r
}

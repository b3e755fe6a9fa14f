package rocketmq

import (
	"context"
	"errors"
	"slices"

	"github.com/headrace/headrace/internal/remoting"
)

// When a queue is looked at for the first time, only the message before its head is
// remembered. If the broker then loses some messages, nobody would know how many. So messages
// further back are remembered too, at distances that double. Example: message 999 is
// remembered, then 998, 997, 995, 991, 983 and so on. If the broker loses [990, 1000) and 983 is
// still there, [984, 1000) is named.

const (
	earlierMost   = 16 // of a queue, asked for at once; the farthest is 32,768 messages back
	earlierAtOnce = 64 // queues in one Compare
)

// earlierOf calls earlier for some queues that were looked at, until enough bytes were fetched in
// one Compare. The others follow with the next ones.
func (s *Source) earlierOf(ctx context.Context, looks []*look, rests bool, bytes int, unanswered error) (int, error) {
	if rests {
		return bytes, unanswered
	}
	queues := 0
	for _, l := range looks {
		if l.h.deep || !l.there || len(l.h.traces) == 0 {
			continue
		}
		if queues++; queues > earlierAtOnce || bytes >= comparedBytes {
			break
		}
		n, err := s.earlier(ctx, l)
		bytes, unanswered = bytes+n, s.unlessBlind(err, unanswered)
	}
	return bytes, unanswered
}

// earlier remembers messages before the first remembered one. It returns how many bytes were
// fetched.
func (s *Source) earlier(ctx context.Context, l *look) (bytes int, err error) {
	var offsets []int64
	first := l.h.traces[0].offset
	for k := range earlierMost {
		if offset := first - 1<<k; offset >= l.low {
			offsets = append(offsets, offset)
		}
	}
	var found []trace
	for some := range slices.Chunk(offsets, max(1, flightMost/l.h.likely())) {
		its, n, err := s.tracesOf(ctx, l, some)
		if bytes += n; err != nil {
			return bytes, err
		}
		found = append(found, its...)
	}
	slices.Reverse(found)
	l.h.deep, l.h.traces = true, thinned(append(found, l.h.traces...))
	return bytes, nil
}

// tracesOf fetches messages at some offsets, all at once, and leaves out what is not there.
func (s *Source) tracesOf(ctx context.Context, l *look, offsets []int64) (found []trace, bytes int, err error) {
	type asked struct {
		offset  int64
		pending *remoting.Pending
	}
	var all []asked
	for _, offset := range offsets {
		pending, failed := s.startOne(ctx, l, offset)
		if err = s.explain(ctx, failed, l.h.p.String()); err != nil {
			break
		}
		all = append(all, asked{offset, pending})
	}
	for _, one := range all {
		if err != nil {
			one.pending.Abandon()
			continue
		}
		var t *trace
		var n int
		if t, n, err = s.traceOf(ctx, l, one.pending, one.offset); t != nil {
			found = append(found, *t)
		}
		if bytes += n; errors.Is(err, errRemoved) {
			err = nil
		}
	}
	return found, bytes, err
}

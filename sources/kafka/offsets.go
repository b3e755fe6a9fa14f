package kafka

import (
	"context"
	"fmt"

	"github.com/segmentio/kafka-go/protocol"
)

// ListOffsets takes a time in ms, or one of these.
const (
	atLogStart = -2
	atHead     = -1
)

// Isolation levels. The head of committed is the last stable offset.
const (
	uncommitted = 0
	committed   = 1
)

// offsetOf asks the leader for the offset of the first record of a time (ms) or later, or
// for one end of the log. -1: there is no such record.
func (c *client) offsetOf(ctx context.Context, p partition, at int64, isolation int8) (int64, error) {
	all, err := c.offsetsOf(ctx, leaderOf(p.name, p.number), []partition{p}, []int64{at}, isolation)
	if err != nil {
		return 0, err
	}
	return all[0].offset, all[0].err
}

type offsetAnswer struct {
	offset int64
	epoch  int32 // of the leader, if the head was asked for
	err    error
}

// offsetsOf asks one broker, the leader of all parts, in one request. at has the time for
// each of them. Answers are in the order of parts.
func (c *client) offsetsOf(ctx context.Context, to route, parts []partition, at []int64, isolation int8) ([]offsetAnswer, error) {
	w := request(protocol.ListOffsets)
	w.i32(-1) // no replica
	w.i8(isolation)
	w.length(len(parts))
	for i, p := range parts {
		w.text(p.name)
		w.length(1)
		w.i32(p.number)
		w.i32(-1) // leader's epoch
		w.i64(at[i])
		w.tags()
		w.tags()
	}
	w.tags()
	r, err := c.ask(ctx, protocol.ListOffsets, to, w, smallAnswer, nil)
	if err != nil {
		return nil, err
	}
	type key struct {
		topic  string
		number int32
	}
	got := map[key]offsetAnswer{}
	r.i32() // throttle
	for n := r.length(3); n > 0 && r.err == nil; n-- {
		topic := r.text()
		for k := r.length(27); k > 0 && r.err == nil; k-- {
			number, code := r.i32(), r.i16()
			r.i64() // time
			offset := r.i64()
			epoch := r.i32()
			r.tags()
			got[key{topic, number}] = offsetAnswer{offset, epoch, answered(code, fmt.Sprintf("%s/%d", topic, number))}
		}
		r.tags()
	}
	if r.err != nil {
		return nil, fmt.Errorf("ListOffsets: %w", r.err)
	}
	all := make([]offsetAnswer, len(parts))
	for i, p := range parts {
		a, ok := got[key{p.name, p.number}]
		if !ok {
			a.err = temporary(fmt.Errorf("%s: the broker did not answer for it", p))
		}
		all[i] = a
	}
	return all, nil
}

package kafka

import (
	"context"
	"fmt"

	"github.com/segmentio/kafka-go/protocol"
)

const (
	fetchWait  = 250              // ms that a broker may wait for more to come
	overhead   = 1 << 20          // of an answer beside its records: aborted transactions
	fetchLimit = 1<<30 + overhead // of one answer: a batch comes whole, however large
)

// fetched is one answer of one partition. records lie in buf.
type fetched struct {
	code     int16
	stable   int64 // last stable offset
	logStart int64
	aborted  []abortedTxn
	records  []byte
	from     int // where records begin in buf
	buf      []byte
}

type abortedTxn struct{ producer, first int64 }

// fetch reads batches from the one on that holds offset. size limits the answer,
// but a first batch comes whole.
func (c *client) fetch(ctx context.Context, p partition, offset int64, size int, into []byte) (*fetched, error) {
	w := request(protocol.Fetch)
	w.i32(-1) // no replica
	w.i32(fetchWait)
	w.i32(1) // byte at least
	w.i32(int32(size))
	w.i8(committed)
	w.i32(0)  // no session
	w.i32(-1) // and none wanted
	w.length(1)
	w.id(p.topic)
	w.length(1)
	w.i32(p.number)
	w.i32(-1) // leader's epoch
	w.i64(offset)
	w.i32(-1) // last fetched epoch
	w.i64(-1) // a follower's log start
	w.i32(int32(size))
	w.tags()
	w.tags()
	w.length(0) // forgotten
	w.text("")  // rack
	w.tags()
	r, err := c.ask(ctx, protocol.Fetch, leaderOf(p.name, p.number), w, fetchLimit, into)
	if err != nil {
		return nil, err
	}
	f, err := parseFetch(r, p)
	if err != nil {
		return nil, fmt.Errorf("%s at offset %d: Fetch: %w", p, offset, err)
	}
	return f, nil
}

func parseFetch(r *reader, p partition) (*fetched, error) {
	r.i32() // throttle
	f := &fetched{buf: r.b}
	if f.code = r.i16(); f.code != codeNone {
		return f, r.err
	}
	r.i32() // session
	if n := r.length(18); n != 1 {
		return nil, fmt.Errorf("%d topics: %w", n, errAnswer)
	}
	topic := r.id()
	if n := r.length(36); n != 1 {
		return nil, fmt.Errorf("%d partitions: %w", n, errAnswer)
	}
	number := r.i32()
	if r.err == nil && (topic != p.topic || number != p.number) {
		return nil, fmt.Errorf("topic %s partition %d was not asked for: %w", topic, number, errAnswer)
	}
	f.code = r.i16()
	r.i64() // high watermark
	f.stable = r.i64()
	f.logStart = r.i64()
	for n := r.length(17); n > 0 && r.err == nil; n-- {
		f.aborted = append(f.aborted, abortedTxn{producer: r.i64(), first: r.i64()})
		r.tags()
	}
	r.i32() // preferred replica
	if n := r.length(1); n > 0 {
		f.from = r.at
		f.records = r.take(n)
	}
	return f, r.err
}

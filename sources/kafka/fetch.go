package kafka

import (
	"context"
	"fmt"

	"github.com/segmentio/kafka-go/protocol"
)

const (
	fetchWait  = 250              // ms that a broker may wait for more records
	tailWait   = 500              // the same at the head of a live partition
	overhead   = 1 << 20          // bytes of an answer beside its records: aborted transactions
	fetchLimit = 1<<30 + overhead // bytes of one answer; a batch always comes whole
)

// fetched is the answer for one partition. records lie in buf.
type fetched struct {
	code     int16
	stable   int64 // last stable offset
	parted   bool  // from partedAt on, the leader does not have the records that were read before
	partedAt int64
	aborted  []abortedTxn
	records  []byte
	good     int // batches before this place in buf match their checksums; 0: not checked
	buf      []byte
}

type abortedTxn struct{ producer, first int64 }

// fetch asks the leader for batches, from the one that holds offset on. size limits the
// answer, but the first batch always comes whole. epoch is the epoch of the record before
// offset, or unknownEpoch. leader is the broker that was asked.
func (c *client) fetch(ctx context.Context, p partition, offset int64, epoch int32, size int, wait int32, into []byte) (f *fetched, leader int32, err error) {
	w := fetchRequest(wait, size)
	w.length(1)
	w.id(p.topic)
	w.length(1)
	w.fetchPartition(p.number, offset, epoch, size)
	w.tags()
	w.fetchEnd()
	to := func(cluster protocol.Cluster) (protocol.Broker, error) {
		b, err := leaderOf(p.name, p.number)(cluster)
		leader = b.ID
		return b, err
	}
	var s sums
	r, err := c.exchange(ctx, &exchange{key: protocol.Fetch, route: to, request: w.b, answer: into, limit: fetchLimit, came: s.came})
	if err != nil {
		return nil, leader, err
	}
	if f, err = parseFetch(r, p); err != nil {
		return nil, leader, fmt.Errorf("%s at offset %d: Fetch: %w", p, offset, err)
	}
	f.good = s.good
	return f, leader, nil
}

// fetchRequest begins a Fetch. The caller adds topics, and then calls fetchEnd.
func fetchRequest(wait int32, size int) *writer {
	w := request(protocol.Fetch)
	w.i32(-1) // no replica
	w.i32(wait)
	w.i32(1) // byte at least
	w.i32(int32(size))
	w.i8(committed)
	w.i32(0)  // no session
	w.i32(-1) // and none wanted
	return w
}

func (w *writer) fetchPartition(number int32, offset int64, epoch int32, size int) {
	w.i32(number)
	w.i32(-1) // leader's epoch
	w.i64(offset)
	w.i32(epoch)
	w.i64(-1) // a follower's log start
	w.i32(int32(size))
	w.tags()
}

func (w *writer) fetchEnd() {
	w.length(0) // forgotten
	w.text("")  // rack
	w.tags()
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
	number := r.fetchedPartition(f)
	r.fetchedTags(f)
	if r.err == nil && (topic != p.topic || number != p.number) {
		return nil, fmt.Errorf("topic %s partition %d was not asked for: %w", topic, number, errAnswer)
	}
	return f, r.err
}

// fetchedPartition reads one partition of an answer up to its tags.
func (r *reader) fetchedPartition(f *fetched) (number int32) {
	number = r.fetchedHead(f)
	if n := r.length(1); n > 0 {
		f.records = r.take(n)
	}
	return number
}

// fetchedHead reads the fields before the records.
func (r *reader) fetchedHead(f *fetched) (number int32) {
	number = r.i32()
	f.code = r.i16()
	r.i64() // high watermark
	f.stable = r.i64()
	r.i64() // log start
	for n := r.length(17); n > 0 && r.err == nil; n-- {
		f.aborted = append(f.aborted, abortedTxn{producer: r.i64(), first: r.i64()})
		r.tags()
	}
	r.i32() // preferred replica
	return number
}

// fetchedTags reads the tags after the records. One of them is the offset from which on the
// leader does not have what was read before.
func (r *reader) fetchedTags(f *fetched) {
	const diverging = 0
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		tag, size := r.uvarint(), r.uvarint()
		next := r.at + int(min(size, uint64(len(r.b))))
		if tag == diverging {
			r.i32() // the leader's epoch there
			f.parted, f.partedAt = true, max(0, r.i64())
		}
		if r.at > next {
			r.err = fmt.Errorf("%w: a tag of %d bytes", errShort, size)
		}
		r.take(next - r.at)
	}
}

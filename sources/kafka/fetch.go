package kafka

import (
	"context"
	"fmt"

	"github.com/segmentio/kafka-go/protocol"
)

const (
	fetchWait  = 250              // ms that a broker may wait for more to come
	tailWait   = 500              // the same at the head of what has no end
	overhead   = 1 << 20          // of an answer beside its records: aborted transactions
	fetchLimit = 1<<30 + overhead // of one answer: a batch comes whole, however large
)

// fetched is one answer of one partition. records lie in buf.
type fetched struct {
	code     int16
	stable   int64 // last stable offset
	logStart int64
	parted   bool // what was fetched before is not the leader's from partedAt on
	partedAt int64
	aborted  []abortedTxn
	records  []byte
	from     int // where records begin in buf
	good     int // up to where in buf batches match their checksums; 0: nobody looked
	buf      []byte
}

type abortedTxn struct{ producer, first int64 }

// fetch reads batches from the one on that holds offset. size limits the answer,
// but a first batch comes whole. epoch is that of the record before offset, if it is known.
// leader is who was asked.
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

// fetchRequest begins a Fetch; topics follow, then fetchEnd.
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

// fetchedPartition reads one partition of an answer, but for its tags.
func (r *reader) fetchedPartition(f *fetched) (number int32) {
	number = r.fetchedHead(f)
	if n := r.length(1); n > 0 {
		f.from = r.at
		f.records = r.take(n)
	}
	return number
}

// fetchedHead reads what stands before the records.
func (r *reader) fetchedHead(f *fetched) (number int32) {
	number = r.i32()
	f.code = r.i16()
	r.i64() // high watermark
	f.stable = r.i64()
	f.logStart = r.i64()
	for n := r.length(17); n > 0 && r.err == nil; n-- {
		f.aborted = append(f.aborted, abortedTxn{producer: r.i64(), first: r.i64()})
		r.tags()
	}
	r.i32() // preferred replica
	return number
}

// fetchedTags reads what may stand behind the records: the place where what was fetched
// before parts from the leader's log.
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

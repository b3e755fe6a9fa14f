package kafka

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/segmentio/kafka-go/protocol"

	"github.com/headrace/headrace/sources"
)

// A record batch carries the epoch of the leader that wrote it. Two replicas have the same
// records up to an offset if they have the same epochs up to it. So a leader can say from
// which offset on a reader has read records that the leader does not have (KIP-320). That
// happens after an unclean election: the new leader lacks the last records, and soon other
// records get their offsets. Example: a reader has read [0, 120) of epoch 4, the new leader
// has epoch 4 only up to 100: records [100, 120) were replaced.

const (
	unknownEpoch = -1
	runsMost     = 16 // remembered of each partition
	leadersMost  = 16 // replaced leaders of each partition that were not asked about
	// failuresMost: if a broker does not answer, each of its partitions costs answerWithin.
	failuresMost = 3
)

// run is a range of offsets that were read and have the epoch of one leader.
type run struct {
	from, to int64
	epoch    int32
}

// epochs remembers the epochs of the offsets that were read, and the heads of leaders.
type epochs struct {
	mu    sync.Mutex // guards what follows
	runs  map[sources.PartitionID][]run
	heads map[sources.PartitionID]reached
	// before has leaders that were replaced, the oldest first. Compare has not asked the new
	// leader yet up to which offset it has their records. Each one is asked about: the new
	// leader may have all records of an older one, and lack some of a newer one.
	before map[partition][]reached
}

// reached is the head of a partition while its leader had an epoch.
type reached struct {
	epoch int32
	head  int64
}

func newEpochs() *epochs {
	return &epochs{runs: map[sources.PartitionID][]run{}, heads: map[sources.PartitionID]reached{}, before: map[partition][]reached{}}
}

// read notes that a run was read.
func (e *epochs) read(id sources.PartitionID, r run) {
	if r.epoch < 0 || r.from >= r.to {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	runs := slices.DeleteFunc(e.runs[id], func(o run) bool {
		touches := o.epoch == r.epoch && o.from <= r.to && r.from <= o.to
		if touches {
			r.from, r.to = min(r.from, o.from), max(r.to, o.to)
		}
		return touches
	})
	if len(runs) == runsMost { // the lowest one is of least use
		low := 0
		for i := range runs {
			if runs[i].to < runs[low].to {
				low = i
			}
		}
		runs = slices.Delete(runs, low, low+1)
	}
	e.runs[id] = append(runs, r)
}

// at returns the epoch of the record that was read just before an offset, or unknownEpoch.
// After an election that took records back there may be two; it returns the older one,
// because other readers may have read those records.
func (e *epochs) at(id sources.PartitionID, offset int64) int32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	epoch := int32(unknownEpoch)
	for _, r := range e.runs[id] {
		if r.from < offset && offset <= r.to && (epoch == unknownEpoch || r.epoch < epoch) {
			epoch = r.epoch
		}
	}
	return epoch
}

// headIs notes the head that the leader of a partition reported.
func (e *epochs) headIs(p partition, now reached) {
	if now.epoch < 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	id := p.id()
	old, met := e.heads[id]
	switch {
	case met && now.epoch < old.epoch: // from a broker that does not know yet that it is not the leader any more
		return
	case met && now.epoch == old.epoch:
		now.head = max(now.head, old.head)
	case met:
		all := e.before[p]
		if len(all) == leadersMost {
			all = slices.Delete(all, 0, 1)
		}
		e.before[p] = append(all, old)
	}
	e.heads[id] = now
}

// Compare asks each new leader up to which offset it has the records of the leaders before.
// It returns the ranges that it does not have. It asks each new leader once.
func (s *Source) Compare(ctx context.Context) ([]sources.Replaced, error) {
	return s.epochs.compare(ctx, s.client.epochEnd)
}

// compare asks about all partitions with replaced leaders. If some cannot be asked now, it goes
// on with the others, and returns the first error.
func (e *epochs) compare(ctx context.Context, end func(context.Context, partition, int32) (int64, error)) ([]sources.Replaced, error) {
	e.mu.Lock()
	open := make(map[partition][]reached, len(e.before))
	for p, leaders := range e.before {
		open[p] = slices.Clone(leaders)
	}
	e.mu.Unlock()
	var all []sources.Replaced
	var first error
	failures := 0
	for p, leaders := range open {
		from, before := int64(math.MaxInt64), int64(-1) // the lowest replaced offset, and the highest head
		var err error
		for _, old := range leaders {
			var at int64
			if at, err = end(ctx, p, old.epoch); err != nil {
				break
			}
			if at < old.head {
				from, before = min(from, at), max(before, old.head)
			}
		}
		if err != nil { // all its leaders are asked about again
			if first == nil {
				first = err
			}
			if failures++; failures == failuresMost || ctx.Err() != nil {
				break
			}
			continue
		}
		e.asked(p, leaders[len(leaders)-1].epoch)
		if before >= 0 {
			all = append(all, sources.Replaced{Partition: p.id(), From: from, Before: before})
		}
	}
	return all, first
}

// asked forgets the replaced leaders up to an epoch.
func (e *epochs) asked(p partition, epoch int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.before[p] = slices.DeleteFunc(e.before[p], func(r reached) bool { return r.epoch <= epoch })
	if len(e.before[p]) == 0 {
		delete(e.before, p)
	}
}

// epochEnd returns the offset up to which the leader's log has records of this epoch and
// older ones. That is its head if it knows no later epoch. 0 means that the leader does not
// know this epoch, so it may have none of the records that were read with it.
func (c *client) epochEnd(ctx context.Context, p partition, epoch int32) (int64, error) {
	w := request(protocol.OffsetForLeaderEpoch)
	w.i32(-1) // no replica
	w.length(1)
	w.text(p.name)
	w.length(1)
	w.i32(p.number)
	w.i32(-1) // the leader's own epoch
	w.i32(epoch)
	w.tags()
	w.tags()
	w.tags()
	r, err := c.ask(ctx, protocol.OffsetForLeaderEpoch, leaderOf(p.name, p.number), w, smallAnswer, nil)
	if err != nil {
		return 0, err
	}
	code, number, end := parseEpochEnd(r)
	switch {
	case r.err != nil:
		return 0, fmt.Errorf("%s: OffsetForLeaderEpoch: %w", p, r.err)
	case number != p.number:
		return 0, fmt.Errorf("%s: OffsetForLeaderEpoch: partition %d was not asked for: %w", p, number, errAnswer)
	}
	return max(0, end), answered(code, p.String())
}

func parseEpochEnd(r *reader) (code int16, number int32, end int64) {
	r.i32() // throttle
	if n := r.length(3); n != 1 && r.err == nil {
		r.err = fmt.Errorf("%d topics: %w", n, errAnswer)
	}
	_ = r.text()
	if n := r.length(19); n != 1 && r.err == nil {
		r.err = fmt.Errorf("%d partitions: %w", n, errAnswer)
	}
	code, number = r.i16(), r.i32()
	r.i32() // the epoch that was found
	return code, number, r.i64()
}

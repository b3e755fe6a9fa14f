package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/segmentio/kafka-go/protocol"

	"github.com/headrace/headrace/sources"
)

// A record batch carries the epoch of the leader that wrote it. Two replicas agree up to an
// offset if they know the same epochs up to it, so a leader can say where what a reader
// has read parts from its own log (KIP-320). It matters after an unclean election: the new
// leader lacks records, and soon others have their offsets.

const (
	unknownEpoch = -1
	runsMost     = 16 // remembered of each partition
)

// run is offsets that were read and have one leader's epoch.
type run struct {
	from, to int64
	epoch    int32
}

// epochs remembers which leader wrote what was read, and how far the leaders reached.
type epochs struct {
	mu    sync.Mutex // guards what follows
	runs  map[sources.PartitionID][]run
	heads map[sources.PartitionID]reached
	// before: leaders that were followed by another one, and nobody has asked yet where
	// their records end now. Of several the first one ends first.
	before map[partition]reached
}

// reached is how far a partition went when its leader had an epoch.
type reached struct {
	epoch int32
	head  int64
}

func newEpochs() *epochs {
	return &epochs{runs: map[sources.PartitionID][]run{}, heads: map[sources.PartitionID]reached{}, before: map[partition]reached{}}
}

// read: the offsets [from, to) were read, and all have this epoch.
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

// at is the epoch of what was read just before an offset, or unknownEpoch. Of two, as
// after an election that took records back, it is the older one: that is what others
// may have read.
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

// headIs: a partition's leader told where it ends.
func (e *epochs) headIs(p partition, now reached) {
	if now.epoch < 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	id := p.id()
	old, met := e.heads[id]
	switch {
	case met && now.epoch < old.epoch: // a broker that does not know yet that it leads no more
		return
	case met && now.epoch == old.epoch:
		now.head = max(now.head, old.head)
	case met:
		if _, asked := e.before[p]; !asked {
			e.before[p] = old
		}
	}
	e.heads[id] = now
}

// Compare asks about partitions that got another leader since a head was told: up to which
// offset this one has the records of the leader before. It asks once for each new leader.
func (s *Source) Compare(ctx context.Context) ([]sources.Replaced, error) {
	s.epochs.mu.Lock()
	open := maps.Clone(s.epochs.before)
	s.epochs.mu.Unlock()
	var all []sources.Replaced
	for p, old := range open {
		end, err := s.client.epochEnd(ctx, p, old.epoch)
		if err != nil {
			return all, err
		}
		s.epochs.mu.Lock()
		delete(s.epochs.before, p)
		s.epochs.mu.Unlock()
		if end < old.head {
			all = append(all, sources.Replaced{Partition: p.id(), From: end, Before: old.head})
		}
	}
	return all, nil
}

// epochEnd is the offset up to which the leader's log has records of this epoch and of
// those before it; all that it has, if it knows of no later one. 0: it has never heard of
// this epoch, so nothing that was read under it need be there.
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

package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// Whole reads the topics of a bit_exact dataset as one sequence. It has one partition, whose
// segments are Kafka's partitions, in the order of the spec's topics and by number. Virtual
// ranks share its blocks, so the records of a block must never change. Therefore ends are
// last stable offsets, below which no transaction is open, and a topic that Kafka compacts
// is refused. Offsets without a record make a block shorter, for every reader alike.
//
// It commits nothing, because its settled records are not a prefix of each Kafka partition.
type Whole struct {
	s *Source

	mu     sync.Mutex
	all    []sources.Segment // the known segments, then those that were listed
	listed bool
}

var (
	_ sources.Source = (*Whole)(nil)
	_ sources.Namer  = (*Whole)(nil)
	_ sources.Keeper = (*Whole)(nil)
)

// newWhole makes a source. It does not connect yet.
func newWhole(o Options) (*Whole, error) {
	if o.live() {
		return nil, fmt.Errorf("dataset %s: bit_exact needs topics with an end; remove bit_exact, or set kafka.end to latest or a time", o.Dataset)
	}
	known := slices.Clone(o.Known)
	s, err := Open(o)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(known, func(a, b sources.Segment) int { return int(a.ID - b.ID) })
	return &Whole{s: s, all: known}, nil
}

// Close ends the connections. Cursors fail from now on.
func (w *Whole) Close() error { return w.s.Close() }

// Partitions returns the one partition. Its identity has the ids of the topics: with a topic
// that was deleted and made again, it is another partition.
func (w *Whole) Partitions(ctx context.Context) ([]sources.PartitionID, error) {
	parts, err := w.partitions(ctx)
	if err != nil {
		return nil, err
	}
	if err := w.neverCompacted(ctx); err != nil {
		return nil, err
	}
	var topics []string
	for _, p := range parts {
		if id := p.topic.String(); !slices.Contains(topics, id) {
			topics = append(topics, id)
		}
	}
	return []sources.PartitionID{sources.PartitionID(fmt.Sprintf("kafka:%s/%s", parts[0].cluster, strings.Join(topics, "+")))}, nil
}

// PartitionName returns the names of the topics.
func (w *Whole) PartitionName(sources.PartitionID) string { return strings.Join(w.s.o.Topics, "+") }

// partitions returns Kafka's partitions, in order. A topic has at least one.
func (w *Whole) partitions(ctx context.Context) ([]partition, error) {
	ids, err := w.s.Partitions(ctx)
	if err != nil {
		return nil, err
	}
	parts := make([]partition, len(ids))
	for i, id := range ids {
		if parts[i], err = w.s.find(ctx, id); err != nil {
			return nil, err
		}
	}
	if len(parts) == 0 {
		return nil, temporary(fmt.Errorf("topics %v have no partition yet", w.s.o.Topics))
	}
	return parts, nil
}

// neverCompacted refuses compacted topics. Compaction deletes single records, so the same
// offsets would make other batches when they are read again.
func (w *Whole) neverCompacted(ctx context.Context) error {
	policies, err := w.s.policies(ctx)
	if err != nil {
		return err
	}
	for _, t := range w.s.o.Topics {
		switch q := policies[t]; {
		case q.compacts:
			return fmt.Errorf("dataset %s: topic %s is compacted (cleanup.policy): records vanish from it, so that the same offsets may hold other "+
				"batches when they are read again: remove bit_exact, or copy the topic to one with cleanup.policy=delete", w.s.o.Dataset, t)
		case q.untold:
			return fmt.Errorf("dataset %s: whether topic %s is compacted must be known for bit_exact: allow this user DESCRIBE_CONFIGS on it (%s)",
				w.s.o.Dataset, t, q.blind)
		}
	}
	return nil
}

// Bounds returns the bounds of the one partition: from the beginning of its first segment to
// the head of its last one.
func (w *Whole) Bounds(ctx context.Context, ids []sources.PartitionID) ([]sources.Bounds, error) {
	parts, err := w.s.Partitions(ctx)
	if err != nil {
		return nil, err
	}
	each, err := w.s.Bounds(ctx, parts)
	if err != nil {
		return nil, err
	}
	var bad []error
	for _, b := range each {
		bad = append(bad, b.Err)
	}
	all := make([]sources.Bounds, len(ids))
	for i, id := range ids {
		all[i] = sources.Bounds{Partition: id, Bounded: true, Err: errors.Join(bad...)}
		if n := len(each); n > 0 {
			all[i].Low.Offset = each[0].Low.Offset
			all[i].Head = sources.Position{Segment: int64(n - 1), Offset: each[n-1].Head.Offset}
		}
	}
	return all, nil
}

// Segments lists one segment for each partition of Kafka that has anything to read. Numbers
// and ends are found once and stay, whatever is produced later.
func (w *Whole) Segments(ctx context.Context, _ sources.PartitionID, after int64, most int) ([]sources.Segment, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.listed {
		if err := w.list(ctx); err != nil {
			return nil, err
		}
		w.listed = true
	}
	some := brokers.Later(w.all, after)
	return some[:min(most, len(some))], nil
}

func (w *Whole) list(ctx context.Context) error {
	parts, err := w.partitions(ctx)
	if err != nil {
		return err
	}
	all := slices.Clone(w.all)
	known := map[sources.PartitionID]bool{}
	for _, g := range all {
		p, err := parseLocator(g.Locator)
		if err != nil {
			return err
		}
		known[p.id()] = true
	}
	for _, p := range parts {
		if known[p.id()] {
			continue
		}
		segs, err := w.s.Segments(ctx, p.id(), -1, 1)
		if err != nil {
			return err
		}
		for _, g := range segs {
			g.ID = 0
			if n := len(all); n > 0 {
				g.ID = all[n-1].ID + 1
			}
			all = append(all, g)
		}
	}
	w.all = all
	return nil
}

// Keeps answers for Kafka's partitions: the segment of a mark says which one it is.
func (w *Whole) Keeps(ctx context.Context, marks []sources.Mark, ahead time.Duration) ([]sources.Kept, error) {
	inner := slices.Clone(marks)
	w.mu.Lock()
	for i := range inner {
		m := &inner[i]
		at := slices.IndexFunc(w.all, func(g sources.Segment) bool { return g.ID == m.Position.Segment })
		if at < 0 {
			continue // the inner source returns an error for it
		}
		if p, err := parseLocator(w.all[at].Locator); err == nil {
			m.Partition = p.id()
		}
	}
	w.mu.Unlock()
	return w.s.Keeps(ctx, inner, ahead)
}

// Open reads a range of the Kafka partition that the locator names. Errors of the cursor name
// that partition and its offsets.
func (w *Whole) Open(ctx context.Context, r sources.Range, from sources.Position, locator []byte) (sources.Cursor, error) {
	p, err := parseLocator(locator)
	if err != nil {
		return nil, err
	}
	r.Partition = p.id()
	return w.s.Open(ctx, r, from, locator)
}

package serve

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/sources"
)

// The master's landing calls the methods of this file.

// ErrRefused means that a transaction can never land as it is.
var ErrRefused = errors.New("refused")

// Transaction is a set of pushed chunks that become visible together.
type Transaction struct {
	ID       string
	Chunks   map[sources.PartitionID][]sources.Segment // by partition, in their order; Land numbers them
	Records  int64
	Remember time.Duration // how long a repeated commit is recognised
	Staged   time.Time     // its chunks were staged then or later
}

// Land makes a transaction visible and returns when that is durable. If the transaction was
// visible before, already is true and records is its count then. Errors: ErrUnknown if the
// dataset or a partition is not known (yet), ErrRefused.
func (s *Server) Land(ctx context.Context, dataset uint32, t Transaction) (already bool, records int64, err error) {
	err = s.change(ctx, func(l *loop) error {
		if _, ok := l.core.Dataset(dataset); !ok {
			return fmt.Errorf("dataset %d: %w", dataset, ErrUnknown)
		}
		was, known := l.core.Landed(dataset, t.ID)
		if known {
			already, records = true, was.Records
			return nil
		}
		now := time.Now()
		ev := &shardsvc.Land{Dataset: dataset, Transaction: t.ID, Records: t.Records,
			When: now.UnixMilli(), Forget: now.Add(-t.Remember).UnixMilli(), Staged: t.Staged.UnixMilli()}
		found := 0
		for _, p := range l.core.Partitions(dataset) { // in order: no map is iterated
			if chunks, ok := t.Chunks[sources.PartitionID(p.Identity)]; ok {
				for i := range chunks {
					chunks[i].ID = p.LastSegment + 1 + int64(i)
				}
				ev.Parts = append(ev.Parts, shardsvc.LandPart{Partition: p.Number, Segments: chunks})
				found++
			}
		}
		if found < len(t.Chunks) {
			return fmt.Errorf("a partition of transaction %q: %w", t.ID, ErrUnknown)
		}
		l.step(ev)
		if err := l.rejected(); err != nil {
			return fmt.Errorf("%w: %w", ErrRefused, err)
		}
		for _, p := range ev.Parts {
			l.needs[p.Partition] = false
		}
		already, records = false, t.Records
		return nil
	})
	return already, records, err
}

// Landed says whether a transaction is visible and durable.
func (s *Server) Landed(ctx context.Context, dataset uint32, transaction string) (records int64, landed bool, err error) {
	err = s.change(ctx, func(l *loop) error { // answered after the batch that it may be in
		v, ok := l.core.Landed(dataset, transaction)
		records, landed = v.Records, ok
		return nil
	})
	return records, landed, err
}

// Knows says at once whether a transaction is visible, or becomes visible with a batch that
// is not durable yet.
func (s *Server) Knows(ctx context.Context, dataset uint32, transaction string) (known bool, err error) {
	err = s.view(ctx, func(l *loop) { _, known = l.core.Landed(dataset, transaction) })
	return known, err
}

// Remembered is a transaction that is visible.
type Remembered struct {
	ID      string
	Records int64
	When    int64 // ms since 1970
}

// Landings are the visible transactions of a dataset that are remembered, the oldest first.
func (s *Server) Landings(ctx context.Context, dataset uint32) (all []Remembered, err error) {
	err = s.change(ctx, func(l *loop) error { // answered after the batch that some may be in
		for _, v := range l.core.Landings(dataset) {
			all = append(all, Remembered{v.ID, v.Records, v.When})
		}
		return nil
	})
	return all, err
}

// Recall gives a dataset the chunks and transactions that were visible before the master lost
// its state. The chunks have their numbers; those up to the last known one of a partition are
// skipped. It returns when that is durable.
func (s *Server) Recall(ctx context.Context, dataset uint32, chunks map[sources.PartitionID][]sources.Segment, all []Remembered) error {
	return s.change(ctx, func(l *loop) error {
		for _, p := range l.core.Partitions(dataset) {
			some := chunks[sources.PartitionID(p.Identity)]
			if len(some) == 0 {
				continue
			}
			l.step(&shardsvc.AddSegments{Partition: p.Number, Segments: some})
			if err := l.rejected(); err != nil {
				return err
			}
			l.needs[p.Number] = false
		}
		for _, t := range all {
			l.step(&shardsvc.Land{Dataset: dataset, Transaction: t.ID, Records: t.Records, When: t.When, Forget: all[0].When})
			if err := l.rejected(); err != nil {
				return err
			}
		}
		s.changed.fire()
		return nil
	})
}

// Trim says that the chunks of all segments of a partition before a given one are deleted.
// Segments that nothing names any more leave the table. Trim returns when that is durable.
func (s *Server) Trim(ctx context.Context, partition uint32, before int64) error {
	return s.change(ctx, func(l *loop) error {
		l.step(&shardsvc.Trim{Partition: partition, Before: before})
		return l.rejected()
	})
}

// Fold says that a source can do without all segments of a partition before a given one,
// except for the needed ones. Segments that nothing names leave the table. Fold returns
// when that is durable.
func (s *Server) Fold(ctx context.Context, partition uint32, before int64, needed []int64) error {
	return s.change(ctx, func(l *loop) error {
		l.step(&shardsvc.Trim{Partition: partition, Before: before, Needed: needed})
		return l.rejected()
	})
}

// EndLanding says that no transaction follows. All partitions become complete.
func (s *Server) EndLanding(ctx context.Context, dataset uint32) error {
	return s.change(ctx, func(l *loop) error {
		d, ok := l.core.Dataset(dataset)
		if !ok || len(l.core.Partitions(dataset)) == 0 {
			return fmt.Errorf("dataset %d: %w", dataset, ErrUnknown)
		}
		for _, p := range l.core.Partitions(dataset) {
			l.step(&shardsvc.AddSegments{Partition: p.Number, Complete: true})
			if err := l.rejected(); err != nil {
				return err
			}
		}
		if !d.PartitionsKnown {
			l.step(&shardsvc.PartitionsListed{Dataset: dataset})
		}
		s.changed.fire()
		return nil
	})
}

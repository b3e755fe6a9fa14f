package serve

import (
	"context"
	"fmt"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/sources"
)

// The master's discovery calls the methods of this file. Each is safe for concurrent use.
// Each waits until it has its answer, ctx ends, or the server stops; then the error is
// ErrStopped.

// Dataset is one dataset as discovery sees it.
type Dataset struct {
	ID              uint32
	Name            string
	Spec            *dataset.Spec
	State           State
	Reason          string // of paused or failed
	PartitionsKnown bool   // PartitionsListed was called: no more partitions follow
	Partitions      []Partition
}

// State is the state of a dataset.
type State = shardsvc.DatasetState

const (
	Failed = shardsvc.DatasetFailed
	Done   = shardsvc.DatasetDone
)

// Partition says how far one partition is listed.
type Partition struct {
	Number      uint32
	Identity    sources.PartitionID
	Label       string              // its name for people
	Source      sources.PartitionID // the source's identity; differs from Identity only for virtual ranks
	Complete    bool                // no segment will follow
	LastSegment int64               // the newest one that was added; listing goes on after it. -1: none
	Segments    int                 // listed and not settled yet
	Ahead       int64               // units listed and not planned yet
	// NeedsSegments says that the planner is close to the end of the listed segments: without
	// more of them there will be no leases. Segments may be added earlier at any time.
	NeedsSegments bool
	Growing       bool  // the last segment is unsealed: heads move its end
	Head          int64 // where the last segment ends, as far as is known
}

// Changed returns a channel that is closed at the next change that discovery may
// care about: a dataset was applied, deleted, resumed or failed, or a partition
// needs segments. Take the channel first, then read Datasets, then wait.
func (s *Server) Changed() <-chan struct{} { return s.changed.wait() }

// Datasets lists all datasets in order of their number.
func (s *Server) Datasets(ctx context.Context) ([]Dataset, error) {
	var (
		out   []Dataset
		infos []shardsvc.DatasetInfo
	)
	err := s.view(ctx, func(l *loop) {
		infos = l.core.Datasets()
		out = make([]Dataset, len(infos))
		for i, d := range infos {
			out[i] = Dataset{ID: d.ID, Name: d.Name, State: d.State, Reason: d.Reason, PartitionsKnown: d.PartitionsKnown}
			for _, p := range l.core.Partitions(d.ID) {
				out[i].Partitions = append(out[i].Partitions, Partition{
					Number: p.Number, Identity: sources.PartitionID(p.Identity), Label: p.Label, Source: sources.PartitionID(p.Source), Complete: p.Complete,
					LastSegment: p.LastSegment, Segments: p.Segments, Ahead: p.Ahead, NeedsSegments: l.needs[p.Number],
					Growing: p.Growing, Head: p.Head,
				})
			}
		}
	})
	if err != nil {
		return nil, err
	}
	for i, d := range infos {
		stored, err := decodeStored(d.Spec)
		if err != nil {
			return nil, fmt.Errorf("dataset %s: %w", d.Name, err)
		}
		out[i].Spec = stored.spec
	}
	return out, nil
}

// Segments lists at most max (0: all) known segments of a partition with ID > after, with
// their locators. Fewer than max means that there are no more. An adapter that numbers
// segments itself gets them back when it is opened again.
func (s *Server) Segments(ctx context.Context, partition uint32, after int64, max int) ([]sources.Segment, error) {
	var out []sources.Segment
	if err := s.view(ctx, func(l *loop) { out = l.core.Segments(partition, after, max) }); err != nil {
		return nil, err
	}
	return out, nil
}

// AddPartitions adds partitions to a dataset and returns their numbers, in the same order.
// A partition that is known already keeps its number. All is durable when it returns.
// estimated means that the source has no counts. AddSegments adds their segments.
func (s *Server) AddPartitions(ctx context.Context, dataset uint32, parts []NewPartition, estimated bool) ([]uint32, error) {
	var numbers []uint32
	err := s.change(ctx, func(l *loop) error {
		d, ok := l.core.Dataset(dataset)
		if !ok {
			return fmt.Errorf("dataset %d: %w", dataset, ErrUnknown)
		}
		parts, err := partitionsOf(&d, parts)
		if err != nil {
			return err
		}
		numbers = make([]uint32, len(parts))
		known := map[string]uint32{}
		for _, p := range l.core.Partitions(dataset) {
			known[p.Identity] = p.Number
		}
		for i := range parts {
			id := string(parts[i].ID)
			no, ok := known[id]
			if !ok {
				no = l.core.NextPartition()
				l.step(&shardsvc.AddPartition{Dataset: dataset, Number: no, Identity: id, Name: parts[i].Name, Estimated: estimated})
				known[id] = no
			}
			numbers[i] = no
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return numbers, nil
}

// partitionsOf returns the core's partitions for those of the source. They are the same,
// but for a bit_exact dataset: it has one partition for each virtual rank.
func partitionsOf(d *shardsvc.DatasetInfo, parts []NewPartition) ([]NewPartition, error) {
	stored, err := decodeStored(d.Spec)
	if err != nil {
		return nil, fmt.Errorf("dataset %s: %w", d.Name, err)
	}
	x := stored.spec.BitExact
	if x == nil {
		return parts, nil
	}
	if len(parts) != 1 {
		return nil, fmt.Errorf("dataset %s is bit_exact and its source has %d partitions: it deals out the blocks of one", d.Name, len(parts))
	}
	all := make([]NewPartition, x.VirtualRanks)
	for v := range all {
		all[v].ID = sources.PartitionID(cut.VirtualIdentity(string(parts[0].ID), v, x.VirtualRanks))
	}
	return all, nil
}

// NewPartition is a partition that the source has listed.
type NewPartition struct {
	ID       sources.PartitionID
	Name     string            // its name for people; empty: its identity
	Segments []sources.Segment // its first ones; only Join uses them
}

// Join adds partitions together with their first segments, all in one commit. So a live
// partition is never known without the place where it begins. It skips partitions that are
// known already.
func (s *Server) Join(ctx context.Context, dataset uint32, parts []NewPartition) error {
	return s.change(ctx, func(l *loop) error {
		if _, ok := l.core.Dataset(dataset); !ok {
			return fmt.Errorf("dataset %d: %w", dataset, ErrUnknown)
		}
		known := map[string]bool{}
		for _, p := range l.core.Partitions(dataset) {
			known[p.Identity] = true
		}
		for _, p := range parts {
			if known[string(p.ID)] {
				continue
			}
			known[string(p.ID)] = true
			no := l.core.NextPartition()
			l.step(&shardsvc.AddPartition{Dataset: dataset, Number: no, Identity: string(p.ID), Name: p.Name})
			l.step(&shardsvc.AddSegments{Partition: no, Segments: p.Segments})
			if err := l.rejected(); err != nil {
				return err
			}
		}
		return nil
	})
}

// PartitionsListed says that a dataset gets no more partitions. Before that, no worker is
// told that the data has ended.
func (s *Server) PartitionsListed(ctx context.Context, dataset uint32) error {
	return s.change(ctx, func(l *loop) error {
		if _, ok := l.core.Dataset(dataset); !ok {
			return fmt.Errorf("dataset %d: %w", dataset, ErrUnknown)
		}
		l.step(&shardsvc.PartitionsListed{Dataset: dataset})
		return nil
	})
}

// AddSegments appends segments to a partition in order of ID, after segment after (-1: from
// the first), and skips known ones. complete means that no segment will ever follow. All is
// durable when it returns. All virtual ranks of a bit_exact dataset get the segments in the
// same commit, because they share the blocks of one input.
//
// If after is not the last known segment any more, it returns ErrUnknown. That happens when a
// restored checkpoint brought its own numbered segments; the listing must then begin again
// after the last segment that is known now.
func (s *Server) AddSegments(ctx context.Context, partition uint32, after int64, segments []sources.Segment, complete bool) error {
	return s.change(ctx, func(l *loop) error {
		if !l.core.HasPartition(partition) {
			return fmt.Errorf("partition %d: %w", partition, ErrUnknown)
		}
		last := l.core.LastSegment(partition)
		if last != after {
			return fmt.Errorf("partition %d: segment %d as the last one: %w", partition, after, ErrUnknown)
		}
		for _, no := range l.core.OfSource(partition) {
			if l.core.LastSegment(no) != last {
				continue // another virtual rank that is not as far: it has its own call
			}
			l.needs[no] = false
			l.step(&shardsvc.AddSegments{Partition: no, Segments: segments, Complete: complete})
			if err := l.rejected(); err != nil {
				return err
			}
		}
		return nil
	})
}

// Head is a new end of an unsealed segment.
type Head = shardsvc.Head

// Heads reports the ends of unsealed segments. Heads are not durable; they are read again
// after a restart. A head below what was planned stops the dataset.
func (s *Server) Heads(ctx context.Context, heads []Head) error {
	return s.change(ctx, func(l *loop) error {
		l.step(&shardsvc.Heads{Heads: heads})
		return l.rejected()
	})
}

// Truncated says that a source has deleted [start, end) of a segment. reason says why, and
// how the source knows. The part that is neither leased nor settled becomes excluded with
// on_loss: continue; otherwise it stops the dataset.
func (s *Server) Truncated(ctx context.Context, partition uint32, segment, start, end int64, reason string) error {
	return s.change(ctx, func(l *loop) error {
		if !l.core.HasPartition(partition) {
			return fmt.Errorf("partition %d: %w", partition, ErrUnknown)
		}
		l.step(&shardsvc.Truncated{Partition: partition, Segment: segment, Start: start, End: end, Reason: reason, When: time.Now().UnixMilli()})
		return l.rejected()
	})
}

// Aged says that the records of a partition before a place are older than its dataset wants.
// Those that are neither leased nor settled become excluded. Without it a dataset with
// catch_up.drop_older_than grants nothing.
func (s *Server) Aged(ctx context.Context, all []Old) error {
	return s.change(ctx, func(l *loop) error {
		for i := range all {
			o := &all[i]
			if !l.core.HasPartition(o.Partition) {
				return fmt.Errorf("partition %d: %w", o.Partition, ErrUnknown)
			}
			l.step(&shardsvc.Aged{Partition: o.Partition, Segment: o.Before.Segment, Offset: o.Before.Offset, Reason: o.Reason, When: time.Now().UnixMilli()})
		}
		return l.rejected()
	})
}

// Old says which records of a partition are too old.
type Old struct {
	Partition uint32
	Before    sources.Position
	Reason    string
}

// Fail stops a dataset: nothing more of it is granted. The reason names the
// place and what to do; people see it in status, workers in their error.
func (s *Server) Fail(ctx context.Context, dataset uint32, reason string) error {
	return s.change(ctx, func(l *loop) error {
		if _, ok := l.core.Dataset(dataset); !ok {
			return fmt.Errorf("dataset %d: %w", dataset, ErrUnknown)
		}
		l.step(&shardsvc.FailDataset{ID: dataset, Reason: reason})
		return l.rejected()
	})
}

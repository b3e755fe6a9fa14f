package serve

import (
	"context"
	"fmt"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/sources"
)

// This file is what master's discovery calls. Every method is safe for
// concurrent use and waits at most until ctx ends or the server stops (then the
// error is ErrStopped).

// Dataset is one dataset as discovery sees it.
type Dataset struct {
	ID              uint32
	Name            string
	Spec            *dataset.Spec
	State           string // listing | running | paused | failed | done
	Reason          string // of paused or failed
	PartitionsKnown bool   // PartitionsListed was said: no more partitions follow
	Partitions      []Partition
}

// Partition says how far one partition is listed.
type Partition struct {
	Number      uint32
	Identity    sources.PartitionID
	Complete    bool  // no segment will follow
	LastSegment int64 // newest one that was added; -1: none. List on from here.
	Segments    int   // listed and not settled yet
	Ahead       int64 // units listed and not planned yet
	// NeedsSegments: the planner is close to the end of what is listed. Listing
	// ahead of it is welcome any time; this says that leases will run dry.
	NeedsSegments bool
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
					Number: p.Number, Identity: sources.PartitionID(p.Identity), Complete: p.Complete,
					LastSegment: p.LastSegment, Segments: p.Segments, Ahead: p.Ahead, NeedsSegments: l.needs[p.Number],
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

// Segments lists at most max (0: all) known segments of a partition with ID >
// after, with their locators: what an adapter that numbers segments itself is given back
// when it is opened again. Fewer than max means: no more.
func (s *Server) Segments(ctx context.Context, partition uint32, after int64, max int) ([]sources.Segment, error) {
	var out []sources.Segment
	err := s.view(ctx, func(l *loop) { out = l.core.Segments(partition, after, max) })
	return out, err
}

// AddPartitions makes partitions of a dataset known and returns their durable
// numbers, in the same order; one that is known already keeps its number.
// Durable when it returns. estimated: the source has no counts.
func (s *Server) AddPartitions(ctx context.Context, dataset uint32, ids []sources.PartitionID, estimated bool) ([]uint32, error) {
	numbers := make([]uint32, len(ids))
	err := s.change(ctx, func(l *loop) error {
		if _, ok := l.core.Dataset(dataset); !ok {
			return fmt.Errorf("dataset %d: %w", dataset, ErrUnknown)
		}
		known := map[string]uint32{}
		for _, p := range l.core.Partitions(dataset) {
			known[p.Identity] = p.Number
		}
		for i, id := range ids {
			no, ok := known[string(id)]
			if !ok {
				no = l.core.NextPartition()
				l.step(&shardsvc.AddPartition{Dataset: dataset, Number: no, Identity: string(id), Estimated: estimated})
				known[string(id)] = no
			}
			numbers[i] = no
		}
		return nil
	})
	return numbers, err
}

// PartitionsListed says that a dataset gets no more partitions. Without it no
// worker is ever told that the data ended.
func (s *Server) PartitionsListed(ctx context.Context, dataset uint32) error {
	return s.change(ctx, func(l *loop) error {
		if _, ok := l.core.Dataset(dataset); !ok {
			return fmt.Errorf("dataset %d: %w", dataset, ErrUnknown)
		}
		l.step(&shardsvc.PartitionsListed{Dataset: dataset})
		return nil
	})
}

// AddSegments appends segments to a partition in order of ID; known ones are
// skipped. complete: no segment will ever follow. Durable when it returns.
func (s *Server) AddSegments(ctx context.Context, partition uint32, segments []sources.Segment, complete bool) error {
	return s.change(ctx, func(l *loop) error {
		if !l.core.HasPartition(partition) {
			return fmt.Errorf("partition %d: %w", partition, ErrUnknown)
		}
		l.needs[partition] = false
		l.step(&shardsvc.AddSegments{Partition: partition, Segments: segments, Complete: complete})
		return l.rejected()
	})
}

// Heads reports new ends of unsealed segments. Heads are recomputed, not
// durable.
func (s *Server) Heads(ctx context.Context, heads []shardsvc.Head) error {
	return s.change(ctx, func(l *loop) error {
		l.step(&shardsvc.Heads{Heads: heads})
		return l.rejected()
	})
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

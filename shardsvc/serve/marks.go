package serve

import (
	"context"
	"fmt"

	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/sources"
)

// Moved returns a channel that is closed when marks may have moved. Take the
// channel first, then read the marks, then wait.
func (s *Server) Moved() <-chan struct{} { return s.moved.wait() }

// CommitMarks returns for each partition of a dataset the position that a broker may be
// told as our progress: all records below it are in the newest bound checkpoint. If no cut
// can be bound, or a shared job never bound one, all records below it are acked. Later
// passes read the same records again, so a broker is told only of the first pass. A
// shuffled partition settles out of order, so it has a mark only when all of it is
// settled. A partition without segments has no mark. RetainMarks, not CommitMarks, says
// what the source must keep. It returns when all that the marks follow from is durable.
func (s *Server) CommitMarks(ctx context.Context, dataset uint32) ([]sources.Mark, error) {
	var marks []sources.Mark
	known := false
	err := s.ownView(ctx, func(l *loop) error { // answered after the batch that its acks may be in
		if _, known = l.core.Dataset(dataset); !known {
			return nil
		}
		lasts := map[shardsvc.PartitionNo]int64{}
		for _, p := range l.core.Partitions(dataset) {
			lasts[p.Number] = p.LastSegment
		}
		for _, m := range l.core.BoundMarks(dataset) {
			at := sources.Position{Segment: m.Segment, Offset: m.Offset}
			switch {
			case m.Pass > 0, m.Units == 0:
				segs := l.core.Segments(m.Partition, lasts[m.Partition]-1, 1)
				if len(segs) == 0 {
					continue
				}
				at = sources.Position{Segment: segs[0].ID, Offset: segs[0].End}
			case m.Shuffled:
				continue
			}
			marks = append(marks, sources.Mark{Partition: sources.PartitionID(m.Identity), Position: at})
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case !known:
		return nil, fmt.Errorf("dataset %d: %w", dataset, ErrUnknown)
	}
	return marks, nil
}

// RetainMarks returns for each partition of the source the position from which on the
// source must keep its records (see Needed). Nothing below it is read again, whichever kept
// checkpoint the job goes back to. It returns when all that the marks follow from is
// durable: brokers and the landing delete data by them, and after a crash the acks that
// moved a mark would be lost while the data were gone.
func (s *Server) RetainMarks(ctx context.Context, dataset uint32) ([]sources.Mark, error) {
	var marks []sources.Mark
	known := false
	err := s.ownView(ctx, func(l *loop) error { // answered after the batch that its acks may be in
		if _, known = l.core.Dataset(dataset); !known {
			return nil
		}
		needed := map[shardsvc.PartitionNo]sources.Position{}
		for _, n := range l.core.Needed(dataset) {
			needed[n.Partition] = sources.Position{Segment: n.Segment, Offset: n.Offset}
		}
		at := map[sources.PartitionID]int{} // several virtual ranks share a partition; the lowest position counts
		for _, p := range l.core.Partitions(dataset) {
			pos, needs := needed[p.Number]
			if !needs {
				if segs := l.core.Segments(p.Number, p.LastSegment-1, 1); len(segs) > 0 {
					pos = sources.Position{Segment: segs[0].ID, Offset: segs[0].End}
				} else {
					continue
				}
			}
			id := sources.PartitionID(p.Source)
			i, seen := at[id]
			if !seen {
				at[id] = len(marks)
				marks = append(marks, sources.Mark{Partition: id, Position: pos})
			} else if pos.Compare(marks[i].Position) < 0 {
				marks[i].Position = pos
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case !known:
		return nil, fmt.Errorf("dataset %d: %w", dataset, ErrUnknown)
	}
	return marks, nil
}

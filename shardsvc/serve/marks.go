package serve

import (
	"context"
	"fmt"

	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/sources"
)

// LowMarks tells for each partition of a dataset below which position its first
// pass is settled: what a broker may be told as our progress. A shuffled partition
// has one only when it is settled. Partitions without segments have none.
func (s *Server) LowMarks(ctx context.Context, dataset uint32) ([]sources.Mark, error) {
	var marks []sources.Mark
	known := false
	err := s.view(ctx, func(l *loop) {
		d, ok := l.core.Dataset(dataset)
		if known = ok; !ok {
			return
		}
		left := map[shardsvc.PartitionNo]int64{} // units to the end, of those that are not settled
		for _, p := range l.core.State(l.now(), dataset, 0, d.Partitions) {
			if p.Pass == 0 {
				left[p.Number] = p.Distances.Acked
			}
		}
		for _, p := range l.core.Partitions(dataset) {
			segs := l.core.Segments(p.Number, p.LastSegment-1, 1)
			if len(segs) == 0 || d.Options.Shuffle && left[p.Number] > 0 {
				continue
			}
			g := segs[0]
			if at := g.End - left[p.Number]; at >= g.Start {
				marks = append(marks, sources.Mark{Partition: sources.PartitionID(p.Identity),
					Position: sources.Position{Segment: g.ID, Offset: at}})
			}
		}
	})
	if err == nil && !known {
		err = fmt.Errorf("dataset %d: %w", dataset, ErrUnknown)
	}
	return marks, err
}

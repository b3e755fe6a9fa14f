package landing

import (
	"context"
	"sort"
	"time"

	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/sources"
)

// Keeps says which chunk of a partition is the first that still exists. It forecasts nothing,
// because the master deletes chunks in their order and never one that is needed. Its answer
// shows which records would be missing if a job went back to the start or to a dropped
// checkpoint. It asks for a few chunks of each partition only.
func (s *Source) Keeps(ctx context.Context, marks []sources.Mark, _ time.Duration) ([]sources.Kept, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	lows := map[sources.PartitionID]sources.Position{}
	all := make([]sources.Kept, len(marks))
	for i, m := range marks {
		all[i] = sources.Kept{ByAge: sources.Never, Room: sources.Never, Retained: true, Retention: s.o.Retain, Err: s.mine(ctx, m.Partition)}
		if all[i].Err != nil {
			continue
		}
		known := s.known(m.Partition, -1)
		low, seen := lows[m.Partition]
		if !seen {
			var err error
			if low, err = s.low(ctx, known); err != nil {
				return nil, err
			}
			lows[m.Partition] = low
		}
		all[i].Low, all[i].Head = low, low
		if n := len(known); n > 0 {
			all[i].Head = sources.Position{Segment: known[n-1].ID, Offset: known[n-1].End}
		}
	}
	return all, nil
}

// low returns where the first chunk that still exists begins. If none does, it returns where
// the last one ended.
func (s *Source) low(ctx context.Context, known []sources.Segment) (low sources.Position, err error) {
	there := func(i int) bool {
		if err != nil {
			return false
		}
		l, _, e := chunk.ParseLocator(string(known[i].Locator))
		is := false
		if e == nil {
			is, e = s.o.Chunks.Has(ctx, l.Key)
		}
		err = e
		return is
	}
	switch n := len(known); {
	case n == 0:
		return low, nil
	case there(0): // usually nothing was deleted
		return sources.Position{Segment: known[0].ID, Offset: known[0].Start}, nil
	default:
		if i := 1 + sort.Search(n-1, func(i int) bool { return there(i + 1) }); i < n {
			return sources.Position{Segment: known[i].ID, Offset: known[i].Start}, err
		}
		return sources.Position{Segment: known[n-1].ID, Offset: known[n-1].End}, err
	}
}

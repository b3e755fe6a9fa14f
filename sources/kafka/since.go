package kafka

import (
	"context"
	"time"

	"github.com/headrace/headrace/sources"
)

var _ sources.Dater = (*Source)(nil)

// Since asks the leaders for the first offset whose record has that time or a later one. With
// times that producers set, records after it may be older; none before it is newer.
func (s *Source) Since(ctx context.Context, ids []sources.PartitionID, t time.Time) ([]sources.Position, error) {
	bounds, err := s.Bounds(ctx, ids) // first, so that a record that comes meanwhile is not skipped
	if err != nil {
		return nil, err
	}
	parts := make([]partition, len(ids))
	for i, id := range ids {
		if bounds[i].Err != nil {
			return nil, bounds[i].Err
		}
		if parts[i], err = s.find(ctx, id); err != nil {
			return nil, err
		}
	}
	offsets, err := s.offsets(ctx, parts, t.UnixMilli())
	if err != nil {
		return nil, err
	}
	all := make([]sources.Position, len(ids))
	for i, a := range offsets {
		if a.err != nil {
			return nil, a.err
		}
		if all[i] = bounds[i].Head; a.offset >= 0 { // else no record is that new
			all[i].Offset = min(a.offset, all[i].Offset)
		}
	}
	return all, nil
}

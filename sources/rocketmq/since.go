package rocketmq

import (
	"context"
	"time"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

var _ sources.Dater = (*Source)(nil)

// Since goes by the time at which the broker stored a message.
func (s *Source) Since(ctx context.Context, ids []sources.PartitionID, t time.Time) ([]sources.Position, error) {
	bounds, err := s.Bounds(ctx, ids) // first, so that a message that comes meanwhile is not skipped
	if err != nil {
		return nil, err
	}
	all := make([]sources.Position, len(ids))
	for i, b := range bounds {
		if b.Err != nil {
			return nil, b.Err
		}
		p, err := s.find(ctx, ids[i])
		if err != nil {
			return nil, err
		}
		all[i] = b.Head
		if all[i].Offset, err = s.resolve(ctx, p, End{At: brokers.AtTime, Time: t}, "", b.Low.Offset, b.Head.Offset); err != nil {
			return nil, err
		}
	}
	return all, nil
}

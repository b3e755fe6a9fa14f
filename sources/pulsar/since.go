package pulsar

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

var _ sources.Dater = (*Source)(nil)

// Since goes by the time at which a message was published.
func (s *Source) Since(ctx context.Context, ids []sources.PartitionID, t time.Time) ([]sources.Position, error) {
	if err := s.Usable(ctx); err != nil {
		return nil, err
	}
	all := make([]sources.Position, len(ids))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(askAtOnce)
	for i, id := range ids {
		g.Go(func() error {
			p, err := s.find(ctx, id)
			if err != nil {
				return err
			}
			l, err := s.layoutOf(ctx, p) // first, so that a message that comes meanwhile is not skipped
			if err != nil {
				return err
			}
			at, err := s.resolve(ctx, p, End{At: brokers.AtTime, Time: t}, "", &l)
			if head := l.head(); err == nil && at.Compare(head) > 0 {
				at = head
			}
			all[i] = s.listedAt(p, at)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return all, nil
}

// listedAt returns a position with the number of the listed segment that holds it: a ledger
// may be listed in several pieces.
func (s *Source) listedAt(p partition, at sources.Position) sources.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.listed[p.id()] {
		if ledgerOf(g.ID) == ledgerOf(at.Segment) && g.Start <= at.Offset {
			at.Segment = g.ID
		}
	}
	return at
}

package landing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/sources"
)

// mostListed bounds the answers of Visible.
const mostListed = 1000

// Visible lists chunks of a partition that are visible and stored: at most `most`, after segment
// `after`. An empty list says that there are no more.
func (s *Service) Visible(ctx context.Context, name string, partition int, after int64, most int) (stream string, all []sources.Segment, err error) {
	p, err := s.ready(ctx, name)
	if err != nil {
		return "", nil, err
	}
	if partition < 0 || partition >= p.Landing.Partitions {
		return "", nil, fmt.Errorf("%w: dataset %s has no partition %d", ErrInvalid, name, partition)
	}
	id := sources.PartitionID(chunk.PartitionID(p.stream, partition))
	var numbers []uint32 // a private job has one for each rank, with a part of the chunks
	for _, q := range p.Partitions() {
		if q.Source == id {
			numbers = append(numbers, q.Number)
		}
	}
	for len(all) < most {
		some, err := s.listed(ctx, numbers, after, most)
		if err != nil || len(some) == 0 {
			return p.stream, all, err
		}
		after = some[len(some)-1].ID
		for _, g := range some {
			stored, err := s.whole(ctx, &g, len(all) > 0)
			if err != nil {
				return "", nil, err
			}
			if stored && len(all) < most {
				all = append(all, g)
			}
		}
	}
	return p.stream, all, nil
}

// listed returns at most `most` segments of some partitions: those that follow segment `after`,
// in order, each once.
func (s *Service) listed(ctx context.Context, partitions []uint32, after int64, most int) (all []sources.Segment, err error) {
	for _, n := range partitions {
		some, err := s.srv.Segments(ctx, n, after, most)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	slices.SortStableFunc(all, func(a, b sources.Segment) int { return cmp.Compare(a.ID, b.ID) })
	all = slices.CompactFunc(all, func(a, b sources.Segment) bool { return a.ID == b.ID })
	return all[:min(most, len(all))], nil
}

// whole makes g the segment of a whole chunk, and says whether the chunk is stored. Chunks are
// deleted in their order. So if an earlier chunk was found (afterOne), this one is stored too,
// unless its segment is trimmed.
func (s *Service) whole(ctx context.Context, g *sources.Segment, afterOne bool) (bool, error) {
	l, _, err := chunk.ParseLocator(string(g.Locator))
	if err != nil {
		return false, nil // it is trimmed: its locator is gone
	}
	g.Start, g.End = 0, int64(l.Records)
	if afterOne {
		return true, nil
	}
	_, err = s.store.Stat(ctx, l.Key)
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	return true, nil
}

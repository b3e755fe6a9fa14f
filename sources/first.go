package sources

import (
	"context"
	"sync"
)

// firstAtOnce is how many partitions FirstSegments asks about at once. A broker answers
// each in about a round trip, and a topic may have hundreds.
const firstAtOnce = 16

// FirstSegments lists the first segments of several partitions, at most max of each. The
// first error ends it.
func FirstSegments(ctx context.Context, src Source, parts []PartitionID, max int) ([][]Segment, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	all := make([][]Segment, len(parts))
	var asks sync.WaitGroup
	room := make(chan struct{}, firstAtOnce)
	for i, p := range parts {
		if room <- struct{}{}; ctx.Err() != nil {
			break
		}
		asks.Go(func() {
			defer func() { <-room }()
			var err error
			if all[i], err = src.Segments(ctx, p, -1, max); err != nil {
				fail(err)
			}
		})
	}
	asks.Wait()
	return all, context.Cause(ctx)
}

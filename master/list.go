package master

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/wallclock"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// listing lists one input: first its partitions, then their segments, a window ahead of the
// plan. Each batch of segments is durable before the next one is asked for.
type listing struct {
	cfg    Config
	srv    ledger
	log    *slog.Logger
	tell   *sync.RWMutex // commits.telling
	clock  wallclock.Clock
	id     uint32
	input  int           // of the dataset: inputsOf
	alone  bool          // the dataset has no other input
	spec   *dataset.Spec // of the input
	cancel context.CancelFunc
	news   chan *serve.Dataset // newest state; an older one is dropped
	last   map[uint32]int64    // newest segment of each partition, as the open source knows it
}

// errMoved means that a restored checkpoint brought its own numbered segments. The source
// must be opened again with them.
var errMoved = fmt.Errorf("a restored checkpoint has replaced the listing: %w", serve.ErrUnknown)

// wake hands over the newest state. Only discovery's goroutine calls it.
func (l *listing) wake(ds *serve.Dataset) {
	select {
	case <-l.news:
	default:
	}
	l.news <- ds
}

// run ends when all is listed, when ctx ends, or after it failed the dataset.
func (l *listing) run(ctx context.Context) {
	defer l.srv.SourceAnswered(l.id) // it is not asked any more
	err := l.list(ctx)
	switch {
	case err == nil, ctx.Err() != nil, errors.Is(err, serve.ErrStopped), errors.Is(err, serve.ErrUnknown):
		return
	}
	l.log.Error("listing failed; the dataset is stopped", "error", err)
	if err := l.srv.Fail(ctx, l.id, err.Error()); err != nil && ctx.Err() == nil {
		l.log.Error("the failed listing could not be recorded; it is tried again", "error", err)
		pause(ctx, time.Second)
	}
}

func (l *listing) list(ctx context.Context) error {
	ds, err := l.newest(ctx)
	if err != nil {
		return err
	}
	src, err := l.open(ctx, ds)
	if err != nil {
		return err
	}
	defer func() {
		if err := src.Close(); err != nil {
			l.log.Warn("closing the source", "error", err)
		}
	}()
	if l.spec.Live() {
		return l.follow(ctx, src)
	}
	bounded, err := l.partitions(ctx, src, ds)
	if err != nil {
		return err
	}
	l.log.Debug("listing", "partitions", len(bounded))
	for {
		all, err := l.segments(ctx, src, bounded)
		if all || err != nil {
			return err
		}
		if _, err := l.newest(ctx); err != nil { // something changed
			return err
		}
	}
}

func (l *listing) newest(ctx context.Context) (*serve.Dataset, error) {
	select {
	case ds := <-l.news:
		return ds, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *listing) open(ctx context.Context, ds *serve.Dataset) (sources.Source, error) {
	var known []sources.Segment
	l.last = map[uint32]int64{}
	for _, p := range ds.Partitions {
		segs, err := l.srv.Segments(ctx, p.Number, -1, 0)
		if err != nil {
			return nil, err
		}
		l.last[p.Number] = -1
		if n := len(segs); n > 0 {
			l.last[p.Number] = segs[n-1].ID
		}
		if ds.Spec.BitExact == nil {
			known = append(known, segs...)
		} else if len(segs) > len(known) { // the virtual ranks of a partition have the same segments
			known = segs
		}
	}
	return again(ctx, l, func() (sources.Source, error) { return l.cfg.OpenSource(ctx, l.spec, known) })
}

// partitions adds the source's partitions to the shard service and returns which of them
// are bounded.
func (l *listing) partitions(ctx context.Context, src sources.Source, ds *serve.Dataset) (map[sources.PartitionID]bool, error) {
	ids, err := again(ctx, l, func() ([]sources.PartitionID, error) { return src.Partitions(ctx) })
	if err != nil {
		return nil, err
	}
	if _, err := again(ctx, l, func() (struct{}, error) { return struct{}{}, l.begin(ctx, src, ids) }); err != nil {
		return nil, err
	}
	bounds, err := again(ctx, l, func() ([]sources.Bounds, error) {
		all, err := src.Bounds(ctx, ids)
		for _, b := range all {
			if b.Err != nil && err == nil { // of this partition only, perhaps for now only
				err = fmt.Errorf("partition %s: %w", sources.NameOf(src, b.Partition), b.Err)
			}
		}
		return all, err
	})
	if err != nil {
		return nil, err
	}
	bounded, all, estimated := map[sources.PartitionID]bool{}, true, false
	for _, b := range bounds {
		bounded[b.Partition] = b.Bounded
		all = all && b.Bounded
		// Until a bounded source is listed, its size is an estimate.
		estimated = estimated || b.Estimated && !b.Bounded
	}
	numbers, err := l.srv.AddPartitions(ctx, l.id, newPartitions(src, ids), estimated)
	if err != nil {
		return nil, err
	}
	for _, no := range numbers {
		if _, known := l.last[no]; !known {
			l.last[no] = -1
		}
	}
	if all && !ds.PartitionsKnown && l.alone { // else the other input brings more
		return bounded, l.srv.PartitionsListed(ctx, l.id)
	}
	return bounded, nil
}

func newPartitions(src sources.Source, ids []sources.PartitionID) []serve.NewPartition {
	parts := make([]serve.NewPartition, len(ids))
	for i, id := range ids {
		parts[i].ID = id
		if n, ok := src.(sources.Namer); ok {
			parts[i].Name = n.PartitionName(id)
		}
	}
	return parts
}

// segments lists each partition up to its window. all says that nothing is left to list.
func (l *listing) segments(ctx context.Context, src sources.Source, bounded map[sources.PartitionID]bool) (all bool, err error) {
	for progress := true; progress; {
		ds, err := l.state(ctx)
		if err != nil || ds == nil {
			return ds == nil, err
		}
		all, progress = ds.PartitionsKnown, false
		listed := map[sources.PartitionID]bool{}
		for i := range ds.Partitions {
			p := &ds.Partitions[i]
			if p.Complete || listed[p.Source] {
				continue
			}
			listed[p.Source] = true // the virtual ranks of a partition are listed once for all
			all = false
			if last, known := l.last[p.Number]; !known || last != p.LastSegment {
				return false, errMoved
			}
			if !l.wanted(p) {
				continue
			}
			more, err := l.some(ctx, src, ds.Partitions, p, bounded[p.Source])
			if err != nil {
				return false, err
			}
			progress = progress || more
		}
	}
	return all, nil
}

// state reads the dataset again, because segments may have been added since wake got its
// state. It returns nil if the dataset was deleted.
func (l *listing) state(ctx context.Context) (*serve.Dataset, error) {
	all, err := l.srv.Datasets(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].ID == l.id {
			if in := inputsOf(&all[i]); l.input < len(in) {
				return &in[l.input].Dataset, nil
			}
		}
	}
	return nil, nil
}

// wanted says whether to list more of a partition. Shuffle and virtual ranks permute all
// blocks, so they need all segments. Otherwise a window ahead of the plan is enough. While
// the core plans, it says when it needs more (NeedsSegments). It says nothing if there is
// nothing to plan: agents may have told a new master of leases up to the end of what is
// listed. Then Ahead is 0.
func (l *listing) wanted(p *serve.Partition) bool {
	if l.spec.Shuffle != nil || l.spec.BitExact != nil || p.NeedsSegments || p.Ahead == 0 {
		return true
	}
	return p.Segments < l.cfg.AheadSegments && p.Ahead < aheadLeases*int64(l.spec.Lease.Max)
}

// segmentsAtOnce is how many segments to list next: one first, then about as many as there are. Each
// may be long work, as in a compressed file, and reading begins when the first one is added.
func segmentsAtOnce(lastSegment int64) int { return int(min(max(lastSegment+1, 1), listAtOnce)) }

func (l *listing) some(ctx context.Context, src sources.Source, all []serve.Partition, p *serve.Partition, bounded bool) (more bool, err error) {
	most := listAtOnce
	if l.spec.Kind().Paths { // a topic has one segment, and its end is found and stored with it
		most = segmentsAtOnce(p.LastSegment)
	}
	segs, err := again(ctx, l, func() ([]sources.Segment, error) { return src.Segments(ctx, p.Source, p.LastSegment, most) })
	if err != nil {
		return false, err
	}
	last := bounded && len(segs) < most
	if len(segs) == 0 && !last {
		return false, nil
	}
	if err := l.srv.AddSegments(ctx, p.Number, p.LastSegment, segs, last); err != nil {
		return false, err
	}
	if n := len(segs); n > 0 {
		for i := range all {
			if q := &all[i]; q.Source == p.Source && q.LastSegment == p.LastSegment {
				l.last[q.Number] = segs[n-1].ID
			}
		}
	}
	l.log.Debug("listed", "partition", sources.NameOf(src, p.Source), "segments", len(segs), "complete", last)
	return true, nil
}

// again tries until the error is not a *sources.Temporary.
func again[T any](ctx context.Context, l *listing, do func() (T, error)) (T, error) {
	for {
		var v T
		err := ask(l.srv, l.id, func() (err error) { v, err = do(); return err })
		var temporary *sources.Temporary
		if !errors.As(err, &temporary) {
			return v, err
		}
		l.log.Warn("the source does not answer; trying again", "error", err, "in", temporary.Backoff)
		if !pause(ctx, max(temporary.Backoff, 100*time.Millisecond)) {
			return v, ctx.Err()
		}
	}
}

// restMost bounds the rest that restAfter gives a source.
const restMost = 30 * time.Second

// restAfter returns how long to wait before a source is asked again: every, or four times as
// long as its last answers took. With hundreds of partitions an answer keeps a broker busy for
// seconds, and so we take at most a fifth of its time.
func restAfter(every, took time.Duration) time.Duration {
	return max(every, min(4*took, restMost))
}

// pause waits for d. It returns false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
		return true
	case <-ctx.Done():
		return false
	}
}

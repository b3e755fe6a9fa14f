package files

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"

	"github.com/headrace/headrace/sources"
)

// Source is the files of one dataset: one partition, one segment a file, or several (see the
// documentation of the package). Its only goroutines read objects ahead (ahead.go). They end
// with Close.
type Source struct {
	partition sources.PartitionID
	spec      Spec
	framing   Framing
	blocks    blocks
	log       *slog.Logger
	root      *os.Root // nil: the files lie in a bucket
	bucket    *bucket
	verified  verified
	trimmer   trimmer // of the folder of restart points
	idle      idle
	tables    tables

	// turn is held by the caller that lists; list is its state.
	turn chan struct{}
	list lister
	came func(modified, touched int64) int64 // cameLast; tests set it
	// deleting is used only with the turn, too.
	deleting deleting

	pointsMu sync.Mutex
	points   map[pointsKey]*pointsOf

	mu       sync.Mutex // guards what follows
	segments []sources.Segment
	complete bool
}

var _ sources.Source = (*Source)(nil)

// Open opens the root, which must be allowed, and reads nothing else: what the
// spec names is looked for by the first call of Segments or Bounds.
func Open(o Options) (*Source, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Source{
		partition: sources.PartitionID("files:" + o.Dataset),
		spec:      *o.Spec,
		framing:   o.Framing,
		blocks:    defaultBlocks,
		trimmer:   trimmer{cache: o.Cache, limit: cacheLimit},
		log:       o.Logger.With("dataset", o.Dataset),
		turn:      make(chan struct{}, 1),
		came:      cameLast,
	}
	if len(s.spec.Paths) == 0 {
		s.spec.Paths = []string{"."}
	}
	if err := s.resume(o.Known); err != nil {
		return nil, err
	}
	if s.spec.live() {
		s.grow()
	}
	s.deleting = newDeleting(&s.spec, o.Cache, string(s.partition), len(o.Known) == 0)
	var err error
	if s.spec.remote() {
		s.bucket, err = openBucket(&o)
	} else {
		s.root, err = openRoot(o.AllowedRoots, s.spec.Root)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.partition, err)
	}
	s.trimmer.trim()
	return s, nil
}

// Partitions is one, whatever the files.
func (s *Source) Partitions(ctx context.Context) ([]sources.PartitionID, error) {
	return []sources.PartitionID{s.partition}, ctx.Err()
}

// Bounds: files are bounded, except folders that grow. Head is how far listing has come, and an
// estimate until listing is complete. The first call looks for the files of the spec, and fails
// if one does not exist.
func (s *Source) Bounds(ctx context.Context, parts []sources.PartitionID) ([]sources.Bounds, error) {
	all := make([]sources.Bounds, len(parts))
	for i, p := range parts {
		all[i] = sources.Bounds{Partition: p, Bounded: !s.spec.live()}
		if p != s.partition {
			all[i].Err = s.notMine(p)
			continue
		}
		if all[i].Err = s.find(ctx); all[i].Err != nil {
			continue
		}
		s.mu.Lock()
		all[i].Estimated = !s.complete
		if n := len(s.segments); n > 0 {
			first, last := s.segments[0], s.segments[n-1]
			all[i].Low = sources.Position{Segment: first.ID, Offset: first.Start}
			all[i].Head = sources.Position{Segment: last.ID, Offset: last.End}
		}
		s.mu.Unlock()
	}
	return all, nil
}

func (s *Source) notMine(p sources.PartitionID) error {
	return fmt.Errorf("%s is not a partition of this dataset, which has only %s", p, s.partition)
}

// Segments lists the files in the order of their paths; of a folder that grows, only those that
// are complete. A file without a record has no segment. The time it takes grows with most: a
// file's ends are read, with verify: full all of it, and a file that is indexed or compressed
// is read through (about 64 MiB a segment).
func (s *Source) Segments(ctx context.Context, p sources.PartitionID, after int64, most int) ([]sources.Segment, error) {
	if p != s.partition {
		return nil, s.notMine(p)
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.spec.live() {
		return s.listGrowing(ctx, after, most)
	}
	for {
		if n, complete := s.count(after); complete || n >= most {
			return s.listed(after, min(n, most)), nil
		}
		if err := s.listMore(ctx); err != nil {
			return nil, err
		}
	}
}

// find looks for the files of the spec, once.
func (s *Source) find(ctx context.Context) error {
	if s.spec.live() {
		return ctx.Err() // there may be none yet
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	default:
		// Another caller lists just now: it either has found them, or returns the error.
		return ctx.Err()
	}
	return s.findFiles(ctx)
}

// count is how many segments with ID > after are listed, and whether no more
// will be.
func (s *Source) count(after int64) (int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.segments) - s.search(after), s.complete
}

// listed copies the first n segments with ID > after.
func (s *Source) listed(after int64, n int) []sources.Segment {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.search(after)
	return slices.Clone(s.segments[from : from+max(n, 0)])
}

// Close closes the root and the file that was being listed. Open cursors stay usable.
func (s *Source) Close() error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	s.list.current.close()
	s.idle.close()
	s.tables.close()
	if s.bucket != nil {
		return s.bucket.close()
	}
	return s.root.Close()
}

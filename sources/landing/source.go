package landing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
)

// Options of a Source.
type Options struct {
	Dataset    string
	Partitions int
	MaxRecord  int64 // bytes of a value; 0: no limit but the chunk's
	Retain     time.Duration
	Known      []sources.Segment
	Chunks     dataset.Chunks
}

// Source is the pushed records of one dataset. It has no goroutines.
type Source struct {
	o Options

	mu     sync.Mutex // guards what follows
	stream string     // "" until it was asked for
	closed bool
	kept   []kept // the chunks that were read last, the newest first
}

type kept struct {
	key   string
	chunk *chunk.Opened
}

// keptBytes bounds the memory of kept chunks. They are kept because several leases may read one
// chunk.
const keptBytes = 32 << 20

var (
	_ sources.Source   = (*Source)(nil)
	_ sources.Namer    = (*Source)(nil)
	_ sources.Retainer = (*Source)(nil)
	_ sources.Keeper   = (*Source)(nil)

	errClosed = errors.New("landing: the source is closed")
	errNone   = errors.New("landing: pushed records lie at the master, and this command does not ask it: look at them with `headrace dataset peek`")
)

// Open sends no request yet.
func Open(o Options) *Source { return &Source{o: o} }

// Close drops the kept chunks. Cursors fail from now on.
func (s *Source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.kept = true, nil
	return nil
}

func (s *Source) usable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errClosed
	case s.o.Chunks == nil:
		return errNone
	}
	return nil
}

// Partitions are as many as the spec says.
func (s *Source) Partitions(ctx context.Context) ([]sources.PartitionID, error) {
	stream, err := s.streamID(ctx)
	if err != nil {
		return nil, err
	}
	ids := make([]sources.PartitionID, s.o.Partitions)
	for i := range ids {
		ids[i] = sources.PartitionID(chunk.PartitionID(stream, i))
	}
	return ids, nil
}

func (s *Source) streamID(ctx context.Context) (string, error) {
	if err := s.usable(ctx); err != nil {
		return "", err
	}
	s.mu.Lock()
	stream := s.stream
	s.mu.Unlock()
	if stream != "" {
		return stream, nil
	}
	stream, err := s.o.Chunks.Stream(ctx, s.o.Dataset)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream = stream
	return stream, nil
}

// PartitionName is the dataset's name with the partition's number.
func (s *Source) PartitionName(p sources.PartitionID) string {
	for i := range s.o.Partitions {
		s.mu.Lock()
		id := chunk.PartitionID(s.stream, i)
		s.mu.Unlock()
		if string(p) == id {
			return fmt.Sprintf("%s/%d", s.o.Dataset, i)
		}
	}
	return string(p)
}

func (s *Source) mine(ctx context.Context, p sources.PartitionID) error {
	ids, err := s.Partitions(ctx)
	if err == nil && !slices.Contains(ids, p) {
		err = fmt.Errorf("dataset %s has no partition %s: it was deleted and applied again, or its landing folder was removed", s.o.Dataset, p)
	}
	return err
}

// Bounds are those of the segments that were known when the source was opened.
func (s *Source) Bounds(ctx context.Context, parts []sources.PartitionID) ([]sources.Bounds, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	all := make([]sources.Bounds, len(parts))
	for i, p := range parts {
		b := sources.Bounds{Partition: p, Err: s.mine(ctx, p)}
		for j, g := range s.known(p, -1) {
			if j == 0 {
				b.Low = sources.Position{Segment: g.ID, Offset: g.Start}
			}
			b.Head = sources.Position{Segment: g.ID, Offset: g.End}
		}
		all[i] = b
	}
	return all, nil
}

// Segments are those that were known when the source was opened. Only the master adds segments.
func (s *Source) Segments(ctx context.Context, p sources.PartitionID, after int64, most int) ([]sources.Segment, error) {
	if err := s.mine(ctx, p); err != nil {
		return nil, err
	}
	some := s.known(p, after)
	return some[:min(most, len(some))], nil
}

func (s *Source) known(p sources.PartitionID, after int64) []sources.Segment {
	var some []sources.Segment
	for _, g := range s.o.Known {
		if _, k, err := chunk.ParseLocator(string(g.Locator)); err == nil && k.PartitionID() == string(p) && g.ID > after {
			some = append(some, g)
		}
	}
	slices.SortFunc(some, func(a, b sources.Segment) int { return int(a.ID - b.ID) })
	return some
}

// Open reads the chunk of the locator.
func (s *Source) Open(ctx context.Context, r sources.Range, from sources.Position, locator []byte) (sources.Cursor, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if len(locator) == 0 { // trimmed by the master
		return nil, &sources.Truncated{Lost: r, Name: fmt.Sprintf("%s segment %d", s.PartitionName(r.Partition), r.Segment), Err: dataset.ErrNoChunk}
	}
	l, key, err := chunk.ParseLocator(string(locator))
	if err != nil {
		return nil, fmt.Errorf("dataset %s segment %d: %w", s.o.Dataset, r.Segment, err)
	}
	if key.PartitionID() != string(r.Partition) {
		return nil, fmt.Errorf("dataset %s: chunk %s is not of partition %s", s.o.Dataset, l.Key, r.Partition)
	}
	if r.Start < 0 || r.End > int64(l.Records) || from.Segment != r.Segment || from.Offset < r.Start {
		return nil, fmt.Errorf("dataset %s: chunk %s has records [0, %d), and [%d, %d) from %d was asked for", s.o.Dataset, l.Key, l.Records, r.Start, r.End, from.Offset)
	}
	c := &cursor{src: s, r: r, key: key, at: from.Offset}
	if from.Offset < r.End {
		if c.chunk, err = s.chunk(ctx, r, l); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// chunk gets and checks a chunk, or finds it among those that were read last.
func (s *Source) chunk(ctx context.Context, r sources.Range, l chunk.Locator) (*chunk.Opened, error) {
	s.mu.Lock()
	for i, k := range s.kept {
		if k.key == l.Key {
			copy(s.kept[1:i+1], s.kept[:i])
			s.kept[0] = k
			s.mu.Unlock()
			return k.chunk, nil
		}
	}
	s.mu.Unlock()
	b, err := s.o.Chunks.Get(ctx, l.Key)
	switch {
	case errors.Is(err, dataset.ErrNoChunk):
		return nil, &sources.Truncated{Lost: r, Name: l.Key, Err: err}
	case err != nil:
		return nil, err
	}
	if err := l.Fits(b); err != nil {
		return nil, &sources.Changed{Range: r, Name: l.Key, What: err.Error()}
	}
	o, err := chunk.Open(b)
	if err != nil {
		return nil, &sources.Changed{Range: r, Name: l.Key, What: err.Error()}
	}
	s.keep(l.Key, o)
	return o, nil
}

func (s *Source) keep(key string, o *chunk.Opened) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.kept = slices.Insert(s.kept, 0, kept{key, o})
	size := 0
	for i, k := range s.kept {
		if size += k.chunk.Size(); size > keptBytes && i > 0 {
			clear(s.kept[i:])
			s.kept = s.kept[:i]
			return
		}
	}
}

// Begin needs nothing: the master deletes no chunk that is needed.
func (s *Source) Begin(context.Context, []sources.PartitionID) error { return nil }

// Retain needs nothing: the master itself deletes, by the same marks.
func (s *Source) Retain(context.Context, []sources.Mark) error { return nil }

// Release deletes what was pushed.
func (s *Source) Release(ctx context.Context) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	return s.o.Chunks.Release(ctx, s.o.Dataset)
}

package sourcetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/headrace/headrace/sources"
)

// Got is one record as it was read, on its own memory.
type Got struct {
	Position sources.Position
	Next     int64
	Key      []byte
	Value    []byte
	Time     int64
}

func (g Got) same(o Got) bool {
	return g.Position == o.Position && g.Time == o.Time && bytes.Equal(g.Key, o.Key) && bytes.Equal(g.Value, o.Value)
}

// patience only ends a hang: it is more than anything takes on a busy machine.
const patience = 5 * time.Minute

// Read reads all of a range from a position on, or as much as comes before an error. As an agent does,
// it tries again after a temporary error: on a busy machine, a broker's answer may come too late.
func Read(ctx context.Context, src sources.Source, r sources.Range, from sources.Position, locator []byte) (all []Got, err error) {
	err = again(ctx, func() error { all, err = readOnce(ctx, src, r, from, locator); return err })
	return all, err
}

// again does something until it ends without a temporary error.
func again(ctx context.Context, do func() error) error {
	for deadline := time.Now().Add(patience); ; {
		err := do()
		if _, temporary := errors.AsType[*sources.Temporary](err); !temporary || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func readOnce(ctx context.Context, src sources.Source, r sources.Range, from sources.Position, locator []byte) ([]Got, error) {
	c, err := src.Open(ctx, r, from, locator)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var all []Got
	var b sources.Batch
	for {
		err := c.Next(ctx, &b)
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = appendBatch(all, r.Segment, &b)
	}
}

func appendBatch(all []Got, segment int64, b *sources.Batch) []Got {
	for i := range b.Len() {
		rec := b.Rec(i)
		all = append(all, Got{
			Position: sources.Position{Segment: segment, Offset: rec.Offset},
			Next:     rec.Next, Time: rec.Time,
			Key:   bytes.Clone(b.Arena[rec.Key[0]:rec.Key[1]]),
			Value: bytes.Clone(b.Arena[rec.Value[0]:rec.Value[1]]),
		})
	}
	return all
}

// piece is a segment and its partition.
type piece struct {
	part sources.PartitionID
	seg  sources.Segment
}

func (p piece) whole() sources.Range {
	return sources.Range{Partition: p.part, Segment: p.seg.ID, Start: p.seg.Start, End: p.seg.End}
}

func (p piece) cut(start, end int64) sources.Range {
	r := p.whole()
	r.Start, r.End = start, end
	return r
}

func start(r sources.Range) sources.Position {
	return sources.Position{Segment: r.Segment, Offset: r.Start}
}

// Segments lists all that a partition has now. It tries again as a master does.
func Segments(t testing.TB, src sources.Source, p sources.PartitionID, max int) []sources.Segment {
	t.Helper()
	var all []sources.Segment
	for after := int64(-1); ; {
		some, err := segmentsAfter(t.Context(), src, p, after, max)
		if err != nil {
			t.Fatalf("segments of %s: %v", p, err)
		}
		if len(some) > max {
			t.Fatalf("%d segments where at most %d were asked for", len(some), max)
		}
		all = append(all, some...)
		if len(some) < max {
			return all
		}
		after = some[len(some)-1].ID
	}
}

func segmentsAfter(ctx context.Context, src sources.Source, p sources.PartitionID, after int64, max int) (some []sources.Segment, err error) {
	err = again(ctx, func() error { some, err = src.Segments(ctx, p, after, max); return err })
	return some, err
}

func partitionsOf(ctx context.Context, src sources.Source) (parts []sources.PartitionID, err error) {
	err = again(ctx, func() error { parts, err = src.Partitions(ctx); return err })
	return parts, err
}

// boundsOf asks until each partition has bounds, or an error that does not pass.
func boundsOf(ctx context.Context, src sources.Source, parts []sources.PartitionID) (all []sources.Bounds, err error) {
	err = again(ctx, func() error {
		if all, err = src.Bounds(ctx, parts); err != nil {
			return err
		}
		for _, b := range all {
			if _, temporary := errors.AsType[*sources.Temporary](b.Err); temporary {
				return b.Err
			}
		}
		return nil
	})
	return all, err
}

// pieces lists every segment of every partition.
func (s *suite) pieces(src sources.Source) []piece {
	s.Helper()
	parts, err := partitionsOf(s.Context(), src)
	if err != nil {
		s.Fatalf("partitions: %v", err)
	}
	var all []piece
	for _, p := range parts {
		for _, g := range Segments(s, src, p, 16) {
			all = append(all, piece{p, g})
		}
	}
	return all
}

func (s *suite) read(src sources.Source, p piece, r sources.Range, from sources.Position) []Got {
	s.Helper()
	got, err := Read(s.Context(), src, r, from, p.seg.Locator)
	if err != nil {
		s.Fatalf("reading [%d, %d) of %s from %d: %v", r.Start, r.End, p.seg.Name, from.Offset, err)
	}
	return got
}

func (s *suite) readWhole(src sources.Source, p piece) []Got {
	s.Helper()
	return s.read(src, p, p.whole(), start(p.whole()))
}

// equal compares two readings. If next is set, it also compares Next, but only if the source is
// Contiguous: in other sources Next may depend on how the records came in batches.
func (s *suite) equal(got, want []Got, next bool, what string) {
	s.Helper()
	for i := range min(len(got), len(want)) {
		if !got[i].same(want[i]) || next && s.h.Contiguous && got[i].Next != want[i].Next {
			s.Fatalf("%s: record %d is %+v (next %d, %q), and was %+v (next %d, %q)", what, i,
				got[i].Position, got[i].Next, clip(string(got[i].Value)), want[i].Position, want[i].Next, clip(string(want[i].Value)))
		}
	}
	if len(got) != len(want) {
		s.Fatalf("%s: %d records, want %d", what, len(got), len(want))
	}
}

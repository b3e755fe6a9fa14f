package feed

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/sources"
)

// brokenOnce is a source of two records whose connection ends between them.
type brokenOnce struct {
	sources.Source
	opened int
}

func (s *brokenOnce) Open(_ context.Context, _ sources.Range, from sources.Position, _ []byte) (sources.Cursor, error) {
	s.opened++
	return &brokenCursor{at: from.Offset, whole: s.opened > 1}, nil
}

type brokenCursor struct {
	at    int64
	whole bool
}

func (c *brokenCursor) Next(_ context.Context, b *sources.Batch) error {
	switch {
	case c.at == 1 && !c.whole:
		return &sources.Temporary{Err: fmt.Errorf("read tcp: %w", io.EOF), Backoff: time.Millisecond}
	case c.at == 2:
		return io.EOF
	}
	b.Reset()
	b.Recs = append(b.Recs, sources.Record{Offset: c.at, Next: c.at + 1})
	c.at++
	b.End = c.at
	return nil
}

func (c *brokenCursor) Close() error { return nil }

// Guarantee 7: a connection that ends is never the end of a range, although its
// error wraps io.EOF.
func TestAConnectionThatEndsIsNotTheEndOfTheRange(t *testing.T) {
	l := &lease{grant: &pb.Grant{LeaseEnd: 2, Pieces: []*pb.Piece{{End: 2}}}}
	r := startReading(t.Context(), &brokenOnce{}, l, 0, 2)
	defer r.stop()
	records := 0
	for c := range r.out {
		if c.batch != nil {
			records += len(c.batch.Recs)
			r.free <- c.batch
		}
	}
	if records != 2 || !r.complete {
		t.Fatalf("read %d records of 2, complete: %v", records, r.complete)
	}
}

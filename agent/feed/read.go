package feed

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/headrace/headrace/sources"

	pb "github.com/headrace/headrace/api/headrace/v1"
)

// retryFor is how long a source may be out of order before its lease is given up.
const retryFor = 30 * time.Second

// chunk is some records of a piece, or why there are no more of it: io.EOF at
// its end.
type chunk struct {
	piece  int
	batch  *sources.Batch
	header []byte // of the file, if the source has one
	err    error
}

// reading reads one lease ahead of the decoder, a few batches at a time.
type reading struct {
	l      *lease
	out    chan chunk
	free   chan *sources.Batch
	cancel context.CancelFunc
	wg     sync.WaitGroup

	complete bool // every piece was read to its end; set before out is closed
}

// startReading reads l from order position from.
func startReading(ctx context.Context, src sources.Source, l *lease, from, end int64) *reading {
	ctx, cancel := context.WithCancel(ctx)
	r := &reading{l: l, out: make(chan chunk, 1), free: make(chan *sources.Batch, 3), cancel: cancel}
	for range cap(r.free) {
		r.free <- &sources.Batch{}
	}
	r.wg.Go(func() {
		defer close(r.out)
		for i := l.pieceAt(from); i < len(l.grant.Pieces); i++ {
			if !r.piece(ctx, src, i, from, end) {
				return
			}
		}
		r.complete = ctx.Err() == nil
	})
	return r
}

func (r *reading) stop() {
	r.cancel()
	r.wg.Wait()
}

// piece reads one piece to its end; false: no more is wanted, or possible.
func (r *reading) piece(ctx context.Context, src sources.Source, i int, from, end int64) bool {
	rng, pos, any := r.l.span(i, from, end)
	if !any {
		return true
	}
	p := r.l.grant.Pieces[i]
	err := r.attempt(ctx, src, i, p, rng, &pos)
	var broken time.Time
	for {
		temporary, ok := errors.AsType[*sources.Temporary](err)
		if !ok {
			break
		}
		if broken.IsZero() {
			broken = time.Now()
		}
		if time.Since(broken) > retryFor {
			break
		}
		wait := time.NewTimer(max(10*time.Millisecond, temporary.Backoff))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return false
		}
		before := pos
		if err = r.attempt(ctx, src, i, p, rng, &pos); pos != before {
			broken = time.Time{} // it went on: another trouble has its own time
		}
	}
	if ctx.Err() != nil {
		return false
	}
	if err == nil {
		err = io.EOF
	}
	select {
	case r.out <- chunk{piece: i, err: err}:
	case <-ctx.Done():
		return false
	}
	return err == io.EOF
}

// attempt opens the piece at pos and reads on; pos moves with what was read.
func (r *reading) attempt(ctx context.Context, src sources.Source, i int, p *pb.Piece, rng sources.Range, pos *sources.Position) error {
	cur, err := src.Open(ctx, rng, *pos, p.Locator)
	if err != nil {
		return err
	}
	defer cur.Close()
	var header []byte
	if h, ok := cur.(sources.Headed); ok {
		header = h.Header()
	}
	for {
		var b *sources.Batch
		select {
		case b = <-r.free:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := cur.Next(ctx, b); err != nil {
			r.free <- b
			if err == io.EOF { // itself: a broken connection may wrap one
				return nil
			}
			return err
		}
		pos.Offset = max(b.End, b.Recs[len(b.Recs)-1].Next)
		select {
		case r.out <- chunk{piece: i, batch: b, header: header}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

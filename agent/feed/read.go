package feed

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headrace/headrace/agent/hold"
	"github.com/headrace/headrace/sources"

	pb "github.com/headrace/headrace/api/headrace/v1"
)

// retryFor is how long a source may fail before its lease is given back.
const retryFor = 30 * time.Second

// chunk is some records of a piece, or why there are no more of it: io.EOF at
// its end.
type chunk struct {
	piece  int
	batch  *sources.Batch
	header []byte // of the file, if the source has one
	err    error
}

// batchesAhead is how many batches are read ahead, including the one that is decoded.
const batchesAhead = 3

// reading reads one lease ahead of the decoder, a few batches at a time.
type reading struct {
	l      *lease
	from   int64 // order position
	end    int64 // the lease's when it began
	ds     *Dataset
	desk   Desk // told where input that grows ends by now
	came   chan<- struct{}
	out    chan chunk
	free   chan *sources.Batch
	cancel context.CancelFunc
	wg     sync.WaitGroup

	atEnd    atomic.Bool // the source has given everything; chunks may still wait in out
	complete bool        // every piece was read to its end; set before out is closed
}

// startReading reads l from order position from. came is signalled with each chunk and at
// the end. The reading takes over the memory of spare; stop gives memory back.
func startReading(ctx context.Context, ds *Dataset, desk Desk, l *lease, from, end int64, came chan<- struct{}, spare *spareBatches) *reading {
	ctx, cancel := context.WithCancel(ctx)
	r := &reading{l: l, from: from, end: end, ds: ds, desk: desk, came: came, out: make(chan chunk, 1), free: make(chan *sources.Batch, batchesAhead), cancel: cancel}
	for range batchesAhead {
		r.free <- spare.get()
	}
	r.wg.Go(func() {
		defer r.poke()
		defer close(r.out)
		for i := l.pieceAt(from); i < len(l.grant.Pieces); i++ {
			if !r.piece(ctx, i, from, end) {
				return
			}
		}
		r.complete = ctx.Err() == nil
	})
	return r
}

func (r *reading) poke() {
	select {
	case r.came <- struct{}{}:
	default:
	}
}

// stop ends the reading. held is the batch that the decoder has, or nil.
func (r *reading) stop(held *sources.Batch, spare *spareBatches) {
	r.cancel()
	r.wg.Wait()
	spare.put(held)
	for ch := range r.out {
		spare.put(ch.batch)
	}
	for len(r.free) > 0 {
		spare.put(<-r.free)
	}
}

// spareBatches are batches of readings that ended, as many as the readings of bounded input
// need. Each is some MiB of memory, too much to allocate for every lease.
type spareBatches struct {
	list []*sources.Batch
	most int
}

func (s *spareBatches) put(b *sources.Batch) {
	if b != nil && len(s.list) < s.most {
		s.list = append(s.list, b)
	}
}

func (s *spareBatches) get() *sources.Batch {
	n := len(s.list)
	if n == 0 {
		return &sources.Batch{}
	}
	b := s.list[n-1]
	s.list = s.list[:n-1]
	return b
}

// piece reads one piece to its end. It returns false if reading must stop.
func (r *reading) piece(ctx context.Context, i int, from, end int64) bool {
	rng, pos, any := r.l.span(i, from, end)
	if !any {
		return true
	}
	p := r.l.grant.Pieces[i]
	err := r.attempt(ctx, i, p, rng, &pos)
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
		if err = r.attempt(ctx, i, p, rng, &pos); pos != before {
			broken = time.Time{} // some records came: the next failure gets the full time
		}
	}
	if ctx.Err() != nil {
		return false
	}
	if err == nil {
		err = io.EOF
		r.atEnd.Store(i == len(r.l.grant.Pieces)-1 || p.OrderStart+p.End-p.Start >= end)
	}
	select {
	case r.out <- chunk{piece: i, err: err}:
		r.poke()
	case <-ctx.Done():
		return false
	}
	return err == io.EOF
}

// attempt opens the piece at pos and reads on; pos moves with what was read.
func (r *reading) attempt(ctx context.Context, i int, p *pb.Piece, rng sources.Range, pos *sources.Position) error {
	cur, err := r.ds.source(r.l).Open(ctx, rng, *pos, p.Locator)
	if err != nil {
		return err
	}
	defer cur.Close()
	var header []byte
	if h, ok := cur.(sources.Headed); ok {
		header = h.Header()
	}
	r.watch(cur, p, pos)
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
		pos.Offset = max(b.End, b.Rec(b.Len()-1).Next)
		select {
		case r.out <- chunk{piece: i, batch: b, header: header}:
			r.poke()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watch tells the Desk of each new head, and when the reader begins to wait there.
func (r *reading) watch(cur sources.Cursor, p *pb.Piece, pos *sources.Position) {
	t, ok := cur.(sources.Tailing)
	if !ok || !r.ds.Spec.Live() {
		return
	}
	last := hold.HeadSeen{Lease: r.l.id, Head: -1}
	t.OnHead(func(head int64) {
		now := hold.HeadSeen{Lease: r.l.id, Head: p.OrderStart + head - p.Start, Waits: head <= pos.Offset}
		if now != last {
			last = now
			r.desk.Do(&now)
		}
	})
}

package feed

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/headrace/headrace/agent/hold"
	"github.com/headrace/headrace/internal/frame"
)

// sender takes sealed frames to the Desk and, once it says Go, to the socket.
type sender struct {
	st    *stream
	conn  *net.UnixConn
	sizes []int32
	takes []hold.Take
	spans []frame.Span
	names names
	head  [frame.HeaderSize]byte
	place [frame.HeaderSize + frame.FrameAtSize]byte
	gone  []uint32
	split time.Time // since when a frame waits for more credit
}

// send runs until ctx ends or the connection breaks.
func (st *stream) send(ctx context.Context, c *net.UnixConn) error {
	s := &sender{st: st, conn: c, names: newNames()}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if err := s.tellRound(); err != nil {
			return err
		}
		w, again, end := s.next()
		switch {
		case end:
			return s.end(ctx)
		case w == nil:
			timer.Reset(until(again))
			select {
			case <-st.wakeSend:
			case <-timer.C:
			case <-ctx.Done():
				return nil
			}
			continue
		}
		if err := s.deliver(w); err != nil {
			return err
		}
	}
}

// next takes a frame that the credit allows off the queue. again is when to look once
// more if nothing happens until then.
func (s *sender) next() (w *work, again time.Time, end bool) {
	st := s.st
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.recut || st.blocked || st.beyond() {
		return nil, time.Time{}, false
	}
	if len(st.queue) == 0 {
		return nil, time.Time{}, st.ended && st.credited1
	}
	w = st.queue[0]
	n, credit := w.batches(), st.mayReceive()
	if credit == 0 {
		s.split = time.Time{}
		return nil, time.Time{}, false
	}
	if credit < n {
		// More credit is likely on its way; a trainer with a small window gets
		// the part that it has room for.
		if now := time.Now(); s.split.IsZero() {
			s.split = now
			return nil, now.Add(st.t.srv.cfg.Linger), false
		} else if due := s.split.Add(st.t.srv.cfg.Linger); now.Before(due) {
			return nil, due, false
		}
	}
	if again, ok := st.t.alone.mayLeave(st, w.single); !ok {
		return nil, again, false
	}
	if credit < n {
		rest := st.split(w, credit)
		before := w.bytes
		w.bytes, rest.bytes = int64(w.b.Size()), int64(rest.b.Size())
		st.account(w.bytes + rest.bytes - before)
		st.queue[0] = rest
		st.queued -= w.batches()
	} else {
		copy(st.queue, st.queue[1:])
		st.queue[len(st.queue)-1] = nil
		st.queue = st.queue[:len(st.queue)-1]
		st.queued -= n
	}
	s.split = time.Time{}
	st.sending = true
	return w, time.Time{}, false
}

// deliver asks the Desk and writes the frame. A frame that may not leave is cut
// again, or waits for the session.
func (s *sender) deliver(w *work) error {
	st := s.st
	s.sizes, s.takes = w.takes(s.sizes, s.takes)
	a := st.t.srv.cfg.Desk.Do(&hold.Deliver{Stream: st.id, Sizes: s.sizes, Takes: s.takes})
	batches := uint32(len(s.sizes))
	st.mu.Lock()
	st.sending = false
	var first uint32
	switch a.Verdict {
	case hold.Go:
		first = st.delivered + 1
		st.delivered += batches
		st.credit -= batches
		st.pace = a.Pace
		s.sent(w)
		st.t.alone.left(st, batches, w.single)
	case hold.Untrusted:
		st.blocked = true
		st.recut = true
		st.t.alone.stays(st, w.single)
	default:
		st.recut = true
		st.t.alone.stays(st, w.single)
	}
	st.mu.Unlock()
	poke(st.wakeCut)
	defer func() {
		st.account(-w.bytes)
		st.discard(w)
	}()
	switch a.Verdict {
	case hold.Go:
	case hold.Over:
		return fmt.Errorf("the stream is over")
	default:
		return nil
	}
	payload, err := w.b.Finish(frame.Head{RowsPerBatch: w.rows, FirstBatch: first, Last: w.last, Names: s.names.of(w), Times: w.times}, s.spans)
	if err != nil {
		return err
	}
	return s.write(w, payload, batches)
}

// sent makes the spans and moves the leases' delivered positions. The caller
// holds stream.mu.
func (s *sender) sent(w *work) {
	s.spans = s.spans[:0]
	for i := range w.runs {
		r := &w.runs[i]
		r.l.sent = max(r.l.sent, r.to)
		g := r.l.grant
		s.spans = append(s.spans, frame.Span{
			Rows: uint32(r.rows), Partition: g.Partition, Pass: g.Pass, Dataset: g.Dataset,
			Segment: g.Pieces[r.piece].Segment, Start: r.start, End: r.to - r.shift(), LeaseFrom: r.from, LeaseTo: r.to,
			Epoch: r.l.token.Epoch, Term: r.l.token.Term, Sequence: r.l.token.Sequence, EventTime: r.times.Newest,
		})
	}
}

// end says that every record of the dataset is settled, and waits for the
// trainer to close.
func (s *sender) end(ctx context.Context) error {
	frame.Header{Type: frame.TypeEnd, Stream: s.st.id.Number}.Put(&s.head)
	if _, err := s.conn.Write(s.head[:]); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

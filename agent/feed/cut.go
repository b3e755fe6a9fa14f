package feed

import (
	"context"
	"io"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/decode"
	"github.com/headrace/headrace/sources"
)

// cutter decodes leases, in order, into frames of whole batches. One goroutine of a
// stream runs it, and only that goroutine uses its fields.
type cutter struct {
	st    *stream
	w     *work         // in the making, or nil
	rds   []*reading    // the leases read now: one, or several of different partitions
	turn  int           // which of them is asked first
	came  chan struct{} // signalled when one of them has a chunk
	rd    *reading      // the one that chunk comes from
	ahead *reading      // of the lease that is read next, or nil; not in rds
	spare spareBatches
	chunk chunk
	at    int // next record of the chunk
	now   []*lease
	round uint64         // counts how often now was chosen
	place map[passOf]int // index in now
	live  bool           // the dataset has no end
	most  int            // leases that are read at a time
	dec   *decode.Decoder
	decOf bool // dec decodes the backfill
	timer *time.Timer

	full    time.Time // when the frame's first full batch was complete
	partial time.Time // when the first row of its unfinished batch was decoded
	left    time.Time // when a frame was sealed last; at first, when the stream began
	asked   bool      // Hungry was said since the last lease
	over    bool      // a fault has ended the stream
	said    ahead     // of a stream with rounds
}

// decoderOf names a decoder: each input has its own, and each header line.
type decoderOf struct {
	backfill bool
	header   string
}

// errorsOf names a column of one decoder: each decoder counts its own errors.
type errorsOf struct {
	decoder *decode.Decoder
	column  string
}

func newCutter(st *stream) *cutter {
	most, spare := st.ds.atOnce(), batchesAhead
	if most < math.MaxInt {
		spare *= most
	}
	if st.decs == nil {
		st.decs, st.errs = map[decoderOf]*decode.Decoder{}, map[errorsOf]uint64{}
	}
	return &cutter{st: st, left: time.Now(), live: st.ds.Spec.Live(), most: most, spare: spareBatches{most: spare}, came: make(chan struct{}, 1), timer: time.NewTimer(time.Hour), place: map[passOf]int{}}
}

// cut runs until ctx ends.
func (st *stream) cut(ctx context.Context) {
	c := newCutter(st)
	defer c.timer.Stop()
	defer c.reset()
	for ctx.Err() == nil {
		if st.rounds != nil {
			c.closeRound()
			c.tellAhead(false)
		}
		switch more := c.next(); {
		case !more:
			c.wait(ctx, time.Time{})
		case len(c.now) == 0:
			c.idle(ctx)
		default:
			c.read(ctx)
		}
	}
}

// next chooses the leases to read now; none when all are read. It takes leases of at most
// c.most partitions, and of live input in all partitions. In each it takes the first lease by
// position. The reason: a reader may wait at the head for long, and a range that another worker
// gave back lies before it although it was granted later. For example, lease [200, 300) waits
// at head 250 when [100, 150) is granted again: [100, 150) is read now. more is false while the
// queue has no room, or while nothing may be read.
func (c *cutter) next() (more bool) {
	st := c.st
	c.now = c.now[:0]
	if !c.startOver() {
		return false
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.leases = slices.DeleteFunc(st.leases, func(l *lease) bool { return l.dry && l.sent >= l.cut && l.rd == nil })
	if !st.credited1 || c.over || st.failed || st.closed || st.beyond() || !c.room() {
		return false
	}
	clear(c.place)
	first := st.ds.inOrder() && slices.ContainsFunc(st.leases, func(l *lease) bool { return !l.dry && l.grant.Backfill })
	for _, l := range st.leases {
		if l.dry || first && !l.grant.Backfill {
			continue
		}
		if i, there := c.place[l.passOf()]; there {
			if l.before(c.now[i]) {
				c.now[i] = l
			}
		} else if len(c.now) < c.most {
			c.place[l.passOf()] = len(c.now)
			c.now = append(c.now, l)
		}
		if c.most == 1 {
			break
		}
	}
	c.chosen()
	return true
}

// chosen marks the leases of now.
func (c *cutter) chosen() {
	c.round++
	for _, l := range c.now {
		l.round = c.round
	}
}

// room reports whether more may wait in the queue. The queue is bounded in bytes, and in
// time at the trainer's own pace.
func (c *cutter) room() bool {
	st, cfg := c.st, &c.st.t.srv.cfg
	if len(st.queue) == 0 {
		return true
	}
	if st.buffered.Load() >= min(streamBytes, cfg.BufferBytes/max(1, st.t.srv.streams.Load())) {
		return false
	}
	return len(st.queue) < 2 || float64(st.queued) < st.pace*cfg.Prefetch.Seconds()
}

// startOver drops everything that was cut and not delivered, if a steal asks for it. The
// leases are then read again from where delivery stands: with a lease [100, 200),
// delivered to 140 and cut to 180, reading starts again at 140. Steals are rare, so the
// cost of reading again is small. It returns false while the sender may be delivering
// the rows in question; the caller tries again after that.
func (c *cutter) startOver() bool {
	st := c.st
	st.mu.Lock()
	if !st.recut || st.sending {
		defer st.mu.Unlock()
		return !st.recut
	}
	st.recut = false
	st.drain()
	for _, l := range st.leases {
		l.read, l.cut, l.dry = l.sent, l.sent, false
	}
	st.mu.Unlock()
	c.reset()
	poke(st.wakeSend)
	return true
}

// reset forgets the frame in the making and stops reading.
func (c *cutter) reset() {
	if c.w != nil {
		c.st.discard(c.w)
		c.w = nil
	}
	c.full, c.partial = time.Time{}, time.Time{}
	c.stopReading()
	c.stopAhead()
}

// idle is called when all leases are read. It asks for more, and sends batches that have
// waited long enough.
func (c *cutter) idle(ctx context.Context) {
	c.stopReading()
	if !c.asked {
		c.asked = true
		c.st.t.srv.cfg.Desk.Do(&hold.Hungry{Stream: c.st.id})
	}
	c.st.mu.Lock()
	drained := c.st.state == pb.Standing_DRAINED || c.st.state == pb.Standing_END
	more := slices.ContainsFunc(c.st.leases, func(l *lease) bool { return !l.dry })
	c.st.mu.Unlock()
	if more {
		return
	}
	if c.st.rounds != nil {
		c.tellAhead(true)
	} else if drained && c.w != nil && c.w.b.Rows() > 0 {
		c.w.last = true
		c.seal(c.w.b.Rows())
		return
	} else {
		c.endTransaction()
	}
	c.overdue()
	c.wait(ctx, c.deadline())
}

// read appends some records of one of the leases to read now.
func (c *cutter) read(ctx context.Context) {
	c.asked = false
	c.open(ctx)
	if c.chunk.batch == nil && !c.take(ctx) {
		return
	}
	l := c.rd.l
	switch {
	case c.chunk.batch != nil:
		c.append(l)
	case c.chunk.err == io.EOF: // itself: a broken connection may wrap one
		c.pieceEnd(l, c.chunk.piece)
		c.chunk = chunk{}
	default:
		if alone, ok := sources.StandsAlone(c.chunk.err); ok && c.st.ds.Spec.Skips() {
			c.leaveOutAlone(l, alone, c.chunk.err.Error())
			return
		}
		c.fail(l, l.read, c.chunk.piece, c.chunk.err)
	}
}

// append decodes up to the end of the batch in the making, or of the chunk.
func (c *cutter) append(l *lease) {
	if !c.bind(l) {
		return
	}
	if c.w != nil && l.singly() && c.w.b.Rows() > 0 {
		c.seal(c.w.b.Rows())
	}
	if c.w == nil {
		c.w = c.st.fresh()
	}
	b, batch := c.w.b, c.chunk.batch
	c.st.mu.Lock()
	end := l.end
	c.st.mu.Unlock()
	stop := batch.Len()
	if rng, _, any := l.span(c.chunk.piece, l.read, end); !any {
		stop = c.at
	} else if batch.Rec(stop-1).Offset >= rng.End { // the tail was stolen
		stop = sort.Search(batch.Len(), func(i int) bool { return batch.Rec(i).Offset >= rng.End })
	}
	if c.at >= stop {
		c.skipChunk(l)
		return
	}
	if l.convicted() {
		c.leaveOut(l, "", "crash", crashReason)
		return
	}
	rows := b.Rows()
	room := c.st.rows - rows%c.st.rows
	if l.singly() {
		room = 1
	}
	whole := *batch
	batch.Cut(stop)
	n, err := c.dec.Append(b, batch, c.at, rows+room)
	*batch = whole
	if n > 0 {
		c.book(l, rows, n, end)
	}
	c.at += n
	if err != nil {
		c.badRecord(l, err)
		return
	}
	if added := b.Rows() - rows; added > 0 && rows%c.st.rows == 0 {
		c.partial = time.Now()
	}
	switch {
	case b.Rows() > rows && l.singly():
		c.w.single = true
		c.seal(b.Rows())
	case b.Rows() > rows && b.Rows()%c.st.rows == 0:
		c.batchFull()
	}
	if c.at >= batch.Len() {
		c.recycle()
	}
}

// bind chooses the decoder for the file's header, and tells it the file's path.
func (c *cutter) bind(l *lease) bool {
	if !c.bindHeader(l) {
		return false
	}
	if err := c.dec.In(l.grant.Pieces[c.chunk.piece].Name); err != nil {
		c.fail(l, l.read, c.chunk.piece, err)
		return false
	}
	return true
}

func (c *cutter) bindHeader(l *lease) bool {
	of := l.grant.Backfill && c.st.old != nil
	if c.dec != nil && c.decOf == of && c.chunk.header == nil {
		return true
	}
	key := decoderOf{of, string(c.chunk.header)}
	if d := c.st.decs[key]; d != nil {
		c.dec, c.decOf = d, of
		return true
	}
	d := c.st.dec
	if of {
		d = c.st.old
	}
	if c.chunk.header != nil {
		var err error
		if d, err = d.Bind(c.chunk.header); err != nil {
			c.fail(l, l.read, c.chunk.piece, err)
			return false
		}
	}
	c.st.decs[key], c.dec, c.decOf = d, d, of
	return true
}

// book records which lease the rows from `rows` on belong to, and up to which position
// the n records reach.
func (c *cutter) book(l *lease, rows, n int, end int64) {
	b, piece, batch := c.w.b, c.chunk.piece, c.chunk.batch
	next := batch.Rec(c.at + n - 1).Next
	if c.at+n == batch.Len() {
		next = max(next, batch.End)
	}
	to := l.after(piece, next, end)
	var last *run
	if k := len(c.w.runs); k > 0 {
		last = &c.w.runs[k-1]
	}
	if added := b.Rows() - rows; added > 0 {
		if last == nil || last.l != l || last.piece != piece {
			c.w.runs = append(c.w.runs, run{l: l, piece: piece, start: b.Offsets[rows], from: l.cut})
			last = &c.w.runs[len(c.w.runs)-1]
		}
		last.rows += added
	}
	c.st.mu.Lock()
	l.read = to
	if last != nil && last.l == l {
		last.to, l.cut = to, to
	}
	c.st.recut = c.st.recut || l.cut > l.end
	c.st.mu.Unlock()
}

func (c *cutter) recycle() {
	c.rd.free <- c.chunk.batch
	c.chunk, c.at = chunk{}, 0
}

// skipChunk drops the chunk: its records, and all after them, were stolen.
func (c *cutter) skipChunk(l *lease) {
	c.drop(c.rd)
	c.leaseEnd(l)
}

// pieceEnd handles the end of a piece: no record begins in the rest of it.
func (c *cutter) pieceEnd(l *lease, piece int) {
	c.st.mu.Lock()
	defer c.st.mu.Unlock()
	p := l.grant.Pieces[piece]
	l.read = max(l.read, l.after(piece, p.End, l.end))
}

// leaseEnd handles the end of a lease: no record begins in the rest of it. Those
// positions are acked with the last row if it is still here. The core is told in any
// case.
func (c *cutter) leaseEnd(l *lease) {
	c.st.mu.Lock()
	if c.st.recut { // it ends elsewhere now; read again
		c.st.mu.Unlock()
		return
	}
	l.dry = true
	tail := l.cut
	l.read = l.end
	if c.w != nil && len(c.w.runs) > 0 {
		if last := &c.w.runs[len(c.w.runs)-1]; last.l == l {
			last.to, l.cut = l.end, l.end
		}
	}
	c.st.mu.Unlock()
	c.st.t.srv.cfg.Desk.Do(&hold.Exhausted{Lease: l.id, Tail: tail})
	c.tellErrors()
}

// wait returns when something has changed or the deadline has passed.
func (c *cutter) wait(ctx context.Context, deadline time.Time) {
	c.timer.Reset(until(deadline))
	select {
	case <-c.st.wakeCut:
	case <-c.timer.C:
		c.overdue()
	case <-ctx.Done():
	}
}

func until(t time.Time) time.Duration {
	if t.IsZero() {
		return time.Hour
	}
	return max(0, time.Until(t))
}

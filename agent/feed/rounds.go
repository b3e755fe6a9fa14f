package feed

import (
	"fmt"
	"time"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/shardsvc/rounds"
)

// A stream with rounds cuts and delivers like any other. Three things differ: a batch ends
// early only when the master asks for it, and then perhaps without a row; the Desk hears
// which rows are decoded here; and the trainer hears through which round it may yield.

// inRounds takes what OPEN says of rounds.
func (st *stream) inRounds(o *frame.Open) *frame.Error {
	r := o.Rounds
	switch {
	case r == nil:
		return nil
	case r.Series == 0 || r.MaxWaitMS < 0:
		return invalid(fmt.Sprintf("rounds of series %d with max_wait_ms %d", r.Series, r.MaxWaitMS), "series count from 1")
	case r.Tail != frame.TailShort && r.Tail != frame.TailDrop:
		return invalid(fmt.Sprintf("rounds with tail %q", r.Tail), `leave it out, or say "drop"`)
	case r.Tail == frame.TailDrop && st.ds.Spec.Order == "strict":
		return invalid(fmt.Sprintf(`tail="drop" of dataset %s, which has order: strict`, st.ds.Name), "one rank at a time reads a partition, so a rank may get no row while others wait for its batch: leave order: strict out, or use tail=\"short\"")
	case r.Tail == frame.TailDrop && st.ds.Spec.Isolates():
		return invalid(fmt.Sprintf(`tail="drop" of dataset %s, which has on_crash: isolate`, st.ds.Name), "records that may crash their trainer come in batches of one, and tail=\"drop\" has full batches only: leave one of them out, or use tail=\"pad\"")
	case st.ds.Spec.BitExact != nil && st.virtual == 0:
		return invalid(fmt.Sprintf("rounds of dataset %s, which is bit_exact, and no virtual rank", st.ds.Name), "open it with steps()")
	case st.ds.Spec.BitExact != nil && (r.MaxWaitMS > 0 || r.Tail == frame.TailDrop):
		return invalid(fmt.Sprintf("rounds of dataset %s, which is bit_exact, with max_wait or tail", st.ds.Name), "its batches never depend on time, and all its records are in them: leave both out")
	case !st.track:
		return invalid("rounds without steps", "leave track=False out")
	case o.MaxWaitMS != nil:
		return invalid("max_wait_ms beside that of rounds", "")
	}
	st.rounds = &hold.Rounds{Series: r.Series, MaxWait: time.Duration(r.MaxWaitMS) * time.Millisecond, Endless: st.ds.Spec.Live(), Drop: r.Tail == frame.TailDrop}
	return nil
}

// decision is what the master has decided of a stream's rounds.
type decision struct {
	said
	rows rounds.Rows[uint64] // of all ranks
}

// said is the part of a decision that each connection is told once.
type said struct {
	through uint32
	last    bool
	over    string
}

// decided takes what the master has decided. It is called under the Desk's lock.
func (st *stream) decided(r hold.Round) {
	st.mu.Lock()
	st.round.said = said{r.Through, r.Last, r.Over}
	st.round.rows.Upto(r.Through, r.Rows)
	st.round.rows.Trim()
	st.closing = r.Close
	st.recut = st.recut || st.beyond()
	st.mu.Unlock()
	poke(st.wakeSend)
	poke(st.wakeCut)
}

// beyond says whether undelivered rows lie beyond the last round, and so are never delivered.
// The caller holds stream.mu.
func (st *stream) beyond() bool {
	return st.rounds != nil && st.rounds.Drop && !st.rounds.Endless && st.round.last
}

// mayReceive says how many more batches may leave for the process. For an input without an end
// whose rounds are all full, a process gets no batch beyond the round after the last one that all
// ranks have. The reason: rows that a process has cannot go to a rank that lacks rows. For
// example, all ranks have round 2, and the rows of two batches lie here. One batch leaves. The
// rows of the other one may have to become another rank's batch of round 3. The caller holds
// stream.mu.
func (st *stream) mayReceive() int {
	credit := int(st.credit)
	if st.rounds != nil && st.rounds.Drop && st.rounds.Endless {
		return max(0, min(credit, int(st.round.through)+1-int(st.delivered)))
	}
	return credit
}

// arrived takes READY.
func (st *stream) arrived(number uint32) Answer {
	st.mu.Lock()
	// A process that hears which round is the last one reports once more what it has. It then
	// leaves out batches of later rounds.
	last := st.beyond() && st.roundSaid.last && number == st.roundSaid.through
	st.mu.Unlock()
	return st.t.srv.cfg.Desk.Do(&hold.Arrived{Stream: st.id, Through: number, Last: last})
}

// tellRound tells the trainer what it was not told on this connection.
func (s *sender) tellRound() error {
	st := s.st
	st.mu.Lock()
	now := st.round.said
	news := st.rounds != nil && now != st.roundSaid && st.credited1
	var runs [][2]uint64
	if news {
		runs = frame.RunsOf(st.round.rows.From(st.roundSaid.through))
		st.roundSaid = now
	}
	st.mu.Unlock()
	if !news { // the trainer reads only after its first credit: it is told then
		return nil
	}
	return frame.WriteControl(s.conn, frame.TypeRound, st.id.Number, 0, frame.Round{Through: now.through, Last: now.last, Over: now.over, Rows: runs})
}

// ahead is what the Desk was told of rows that are not delivered.
type ahead struct {
	told      bool
	delivered uint32     // batches, at that time
	newest    hold.Lease // that the reader had, at that time
	rows, dry bool
	full      bool // the rows fill a batch
}

// tellAhead tells the Desk which rows lie here, if that has changed. It has after each
// delivery. dry says that all leases are read.
func (c *cutter) tellAhead(dry bool) {
	st := c.st
	st.mu.Lock()
	if st.sending || st.recut || st.closed {
		st.mu.Unlock()
		return // not known yet: rows may be added or dropped. The cutter is woken then
	}
	now := ahead{told: true, delivered: st.delivered, newest: st.newest, rows: len(st.queue) > 0 || c.w != nil && c.w.b.Rows() > 0}
	now.full = len(st.queue) > 0 || c.w != nil && c.w.b.Rows() >= st.rows
	// Leases that were read stay read. Only a lease that came since can be unread.
	now.dry = dry || c.said.dry && c.idles()
	st.mu.Unlock()
	if now != c.said {
		c.said = now
		st.t.srv.cfg.Desk.Do(&hold.Ahead{Stream: st.id, Rows: now.rows, Full: now.full, Dry: now.dry, Newest: now.newest})
	}
}

// idles says whether all leases are read. The caller holds stream.mu.
func (c *cutter) idles() bool {
	for _, l := range c.st.leases {
		if !l.dry {
			return false
		}
	}
	return true
}

// mayEnd says whether the stream may end its unfinished batch now, as the master has asked. A
// virtual rank's batch is short only if it ends with the rank's last record. When the master
// asked, all records of the rank were here, but some may have been given back since. The caller
// holds stream.mu.
func (c *cutter) mayEnd() bool {
	st := c.st
	drained := st.state == pb.Standing_DRAINED || st.state == pb.Standing_END
	return st.virtual == 0 || drained && c.idles()
}

// closeRound ends the batch in the making where it is, if the master has asked for that.
func (c *cutter) closeRound() {
	st := c.st
	st.mu.Lock()
	next := st.delivered + uint32(st.queued) + 1
	if c.w != nil {
		next += uint32(c.w.b.Rows() / st.rows)
	}
	skip := next > st.closing || st.sending || st.recut || st.closed || !st.credited1 || !c.mayEnd()
	st.mu.Unlock()
	if skip {
		return
	}
	partial := 0
	if c.w != nil && c.w.b.Rows() > 0 {
		partial = c.w.b.Rows() % st.rows
		c.seal(c.w.b.Rows())
	}
	if partial == 0 {
		if c.w == nil {
			c.w = st.fresh()
		}
		c.seal(0)
	}
}

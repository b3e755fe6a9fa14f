package hold

import (
	"slices"
	"time"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc/rounds"
)

// Rounds of a synchronous group (docs/ROUNDS.md). A stream with rounds reports to the master
// how far its trainer's process is, and is told how far all ranks may yield. A decision stays
// true: a new session, a new master and a new agent only repeat it.

// Rounds is what an Open, or a Resume, says of a stream with rounds.
type Rounds struct {
	Series   uint32 // the trainer's number of this run of rounds, the same on every rank
	MaxWait  time.Duration
	Endless  bool   // the dataset has no end
	Drop     bool   // no round is short; if the dataset has an end, records that fill no round are dropped
	Told     uint32 // Resume: what the process was told
	ToldLast bool
	ToldRows []uint64 // Resume: of all ranks, of the newest rounds up to Told
}

// Arrived: the trainer's process has received the batches up to Through.
type Arrived struct {
	Stream  Stream
	Through uint32
	// Last: it was told which round is the last one, and has no batch of a later round any more.
	Last bool
}

// Ahead says what the stream's reader has since the last Deliver. Rows: rows that were
// not delivered. Dry: it has read all that its leases cover.
type Ahead struct {
	Stream    Stream
	Rows, Dry bool
	Full      bool  // the rows fill a batch
	Newest    Lease // the last lease that the reader was given
}

func (*Arrived) event() {}
func (*Ahead) event()   {}

// Round tells a stream how far it may yield, and which batch its reader ends where it is.
type Round struct {
	Stream  Stream
	Through uint32
	Last    bool
	Over    string
	Close   uint32
	Rows    []uint64 // of all ranks, in each of the rounds up to Through that are news
}

// rounding is the state of a stream with rounds.
type rounding struct {
	Rounds
	received  uint32
	sizes     rounds.Rows[uint32] // rows of each delivered batch whose round is not told yet
	sums      rounds.Rows[uint64] // rows of all ranks in each round that is told
	full      bool                // a batch that waits is full
	rows, dry bool                // what its reader has said since the last Deliver
	lease     Lease               // the newest that its reader was given
	newest    uint64              // sequence of its leases' tokens, in this session
	closed    bool
	cut       bool // Drop: records beyond the last round were given back
	done      bool // and the last round is stepped
	said      report
	again     bool // nothing was said in this session
}

// report is the agent's report about a stream to the master.
type report struct {
	through       uint32
	more, drained bool
	newest        uint64
	closed, done  bool
}

func (c *Core) beginRounds(s *stream, r *Rounds) {
	s.rounds = &rounding{Rounds: *r, received: s.delivered, again: true}
	s.rounds.sums.Upto(r.Told, r.ToldRows)
	s.over, s.rounds.cut = s.over || s.rounds.ends(), s.rounds.ends() // its process has brought nothing of a later round
	c.rounding = append(c.rounding, s)
}

func (c *Core) arrived(ev *Arrived) {
	s := c.stream(ev.Stream)
	if s == nil || s.rounds == nil {
		return
	}
	if ev.Through > s.delivered {
		c.fx.Invalid = "the process reports batches as received that were not delivered"
		return
	}
	s.rounds.received = max(s.rounds.received, ev.Through)
	if ev.Last {
		c.cutOff(s)
	}
}

func (c *Core) ahead(ev *Ahead) {
	if s := c.stream(ev.Stream); s != nil && s.rounds != nil {
		s.rounds.full = ev.Full
		s.rounds.rows, s.rounds.dry = ev.Rows, ev.Dry && ev.Newest == s.rounds.lease
	}
}

// delivered notes a delivery: what else the reader has is not known until it says so.
func (r *rounding) delivered() {
	if r != nil {
		r.rows, r.dry = false, false
	}
}

// size notes that batch number `number` is delivered, with so many rows.
func (r *rounding) size(number uint32, rows int64) {
	if r != nil {
		r.sizes.Upto(number, []uint32{uint32(rows)})
	}
}

// granted notes a new lease. Its reader has not said anything yet.
func (r *rounding) granted(l *lease) {
	if r.named(l.token); r != nil {
		r.lease, r.dry = l.id, false
	}
}

// named notes the token of a lease.
func (r *rounding) named(t Token) {
	if r != nil {
		r.newest = max(r.newest, t.Sequence)
	}
}

// report is the present state of s, as the master is told it.
func (s *stream) report() report {
	r := s.rounds
	r.done = r.done || r.cut && s.stepped >= r.Told
	now := report{through: r.received, closed: r.closed, done: r.done}
	if r.closed {
		return now
	}
	now.more = r.rows || s.delivered > r.received
	// With Drop, a rank that gets another full batch is not at its end.
	full := r.Drop && (r.full || s.delivered > r.received)
	if now.drained = r.dry && !full && !s.gaveUp && (s.over || s.standing == pb.Standing_DRAINED); now.drained {
		now.newest = r.newest
	}
	return now
}

// roundsAgain has all rounds reported again: a new session knows nothing of them.
func (c *Core) roundsAgain() {
	for _, s := range c.rounding {
		s.rounds.again, s.rounds.newest = true, 0
	}
}

// lastWord says whether a process has left after its last round, and a new master must still
// hear that from us. When all ranks have reported that, the master drops the records that fill no
// round.
func (c *Core) lastWord(s *stream) bool {
	return s.w.state == gone && s.rounds.cut && s.rounds.done && c.leaving(s.w)
}

// sayRounds tells the master what has changed about rounds, after the messages about leases.
func (c *Core) sayRounds() {
	c.rounding = slices.DeleteFunc(c.rounding, func(s *stream) bool {
		return s.w.state == fenced || s.w.state == gone && !c.lastWord(s)
	})
	for _, s := range c.rounding {
		now, r := s.report(), s.rounds
		if s.w.state != joined && s.w.state != gone || now == r.said && !r.again {
			continue
		}
		m := c.message()
		say := &pb.RoundReport{
			Worker: s.id.Worker, Dataset: s.dataset, Series: r.Series, Through: now.through, More: now.more, Drained: now.drained, Newest: now.newest,
			Closed: now.closed, Again: r.again, Told: r.Told, ToldLast: r.ToldLast, Endless: r.Endless, MaxWaitMs: uint32(r.MaxWait.Milliseconds()),
			Rows: r.news(now.through), Drop: r.Drop, Done: now.done, Virtual: s.virtual,
		}
		if r.again {
			say.ToldRows = slices.Clone(r.sums.From(0))
		}
		m.Rounds = append(m.Rounds, say)
		r.said, r.again = now, false
	}
}

// news returns the rows of the batches up to `through` that the master was not told in this
// session and whose rounds are not decided yet.
func (r *rounding) news(through uint32) []uint32 {
	after := r.Told
	if !r.again {
		after = max(after, r.said.through)
	}
	all := r.sizes.From(after)
	return slices.Clone(all[:len(all)-min(len(all), int(r.sizes.End()-min(r.sizes.End(), through)))])
}

// round takes what the master has decided.
func (c *Core) round(d *pb.RoundDecision) {
	for _, s := range c.rounding {
		if r := s.rounds; s.id.Worker == d.Worker && s.dataset == d.Dataset && s.virtual == d.Virtual && r.Series == d.Series && !r.closed {
			if r.ToldLast || d.Through < r.Told {
				return // said before
			}
			r.Told, r.ToldLast = d.Through, d.Last
			s.over = s.over || r.ends()
			r.sums.Upto(d.Through, d.Rows)
			r.sums.Trim()
			r.sizes.Forget(d.Through)
			c.fx.Rounds = append(c.fx.Rounds, Round{Stream: s.id, Through: d.Through, Last: d.Last, Over: d.Over, Close: d.Close, Rows: d.Rows})
			return
		}
	}
}

// ends says whether the last round is known, and rows of this stream may lie beyond it.
func (r *rounding) ends() bool { return r != nil && r.Drop && !r.Endless && r.ToldLast }

// cutOff gives back the records beyond the last round. It is called when the process has said
// that it keeps none of them, or when the last round is stepped: a process hears which round is
// the last one before it yields that round, and yields nothing after it. Example: lease
// [100, 200) is delivered to 160, and the last round ends at 140: [140, 200) is given back.
func (c *Core) cutOff(s *stream) {
	r := s.rounds
	if !r.ends() || r.cut {
		return
	}
	r.cut = true
	for s.delivered > max(r.Told, s.stepped) {
		s.takes.drop(int(s.batches.drop(1)[0].takes))
		s.delivered--
	}
	r.received = min(r.received, s.delivered)
	for _, l := range slices.Clone(s.leases) {
		at := l.stepped
		for i := range s.takes.len() {
			if k := s.takes.at(i); k.l == l {
				at = max(at, k.to)
			}
		}
		if at >= l.tail {
			at = l.end
		}
		if l.frontier = at; at == l.end {
			continue
		}
		if c.talking() {
			m := c.message()
			m.Releases = append(m.Releases, &pb.Release{Token: l.token.proto(), Prefix: at, Reason: "beyond the last round"})
		}
		c.shrink(l, at)
	}
}

package rounds

// Never is a wake that does not come.
const Never = int64(1<<63 - 1)

// Report is what a rank says of its rounds. A newer one replaces the one before.
type Report struct {
	Through uint32 // its process has received its rows of every round up to this one
	More    bool   // a row of a later round lies decoded at its agent
	Drained bool   // it has read all that it was leased, and nothing is left to lease
	Newest  uint64 // with Drained: the newest lease that its agent knew of then
	// Rows of its batches of the rounds up to Through. Those that it has said before are left out.
	Rows []uint32
	// Done: it has stepped the last round, and what it had beyond it is given back.
	Done bool
}

// View is what the master itself knows when it decides.
type View interface {
	// Pending says whether there are rows that no rank has been leased, and that this one may get.
	Pending(rank int) bool
	// Newest is the newest lease that a rank still has; 0: it has none. A rank that says
	// that it is drained may not have heard of it yet.
	Newest(rank int) uint64
	// Moving says whether rows are on their way from one rank to another.
	Moving() bool
	// Settled says whether all rows are settled for good: none is in a process that has not
	// stepped it, and the ranks of this group go back to nothing any more.
	Settled() bool
}

// Options of a series. Times are in ns.
type Options struct {
	World   int   // ranks
	Endless bool  // the input has no end: no round is the last one
	MaxWait int64 // how long rows may wait for a full round; 0: for ever
	Settle  int64 // how long drained ranks wait for rows that are stolen for them
	Spread  int64 // how long before MaxWait rows begin to be spread, at most half of it
	Drop    bool  // no round is closed short: what is left at the end is in none
}

// Decision is what all ranks are told.
type Decision struct {
	Through uint32 // every rank yields the rounds up to this one
	Last    bool   // and this was the last one
	// Close: a rank that is not ready for this round ends it with the rows that it has,
	// perhaps none. It is 0, or Through+1 or more.
	Close uint32
	// Over says why no later round goes, although it is not the end of the data.
	Over string
}

// Series is one run of rounds of a group, numbered from 1.
type Series struct {
	opt  Options
	rank []member
	said Decision
	rows Rows[uint64] // of all ranks, of the rounds that went

	low     uint32 // the round through which all ranks are ready; the times below are about it
	beyond  since  // rows wait for a full round
	held    since  // a full round waits until it is known whether it is the last one
	drained since  // no rank that is not ready gets more rows
	short   bool   // the next round will be closed short
	anew    bool   // the rows may be spread once more for the same round
	spreads int    // with Drop: how often rows were spread since all ranks have round low
}

type member struct {
	Report
	known bool
	rows  Rows[uint32] // of the rounds that have not gone
}

// since is when something began to be true.
type since struct {
	on bool
	at int64
}

func (s *since) is(on bool, now int64) {
	if on && !s.on {
		s.at = now
	}
	s.on = on
}

// due says whether it has been true for so long. If not yet, it lowers wake to the time
// when it will have been.
func (s *since) due(after, now int64, wake *int64) bool {
	if !s.on {
		return false
	}
	if at := s.at + after; now < at {
		*wake = min(*wake, at)
		return false
	}
	return true
}

// New begins a series. No rank has said anything of it yet.
func New(o Options) *Series { return &Series{opt: o, rank: make([]member, o.World)} }

// Report takes what a rank says. Ranks count from 0; another one is ignored.
func (s *Series) Report(rank int, r Report) {
	if rank < 0 || rank >= len(s.rank) {
		return
	}
	m := &s.rank[rank]
	m.rows.Upto(r.Through, r.Rows)
	r.Through, r.Rows = max(r.Through, m.Through), nil // what its process has, it keeps
	r.Done = r.Done || m.Done
	m.Report, m.known = r, true
}

// Heard takes what a rank was told by a master before this one: it stays true. rows are
// those of all ranks, in each of the newest rounds up to through.
func (s *Series) Heard(through uint32, last bool, rows []uint64) {
	s.rows.Upto(through, rows)
	s.said.Through = max(s.said.Through, through)
	if last && !s.said.Last {
		s.said = Decision{Through: through, Last: true}
	}
}

// Reported says whether the rank has reported.
func (s *Series) Reported(rank int) bool {
	return rank >= 0 && rank < len(s.rank) && s.rank[rank].known
}

// End lets no later round go. A series that has had its last round stays at that.
func (s *Series) End(why string) {
	if !s.said.Last && s.said.Over == "" {
		s.said.Over, s.said.Close = why, 0
	}
}

// Ended says whether no later round goes.
func (s *Series) Ended() bool { return s.said.Last || s.said.Over != "" }

// Rows returns the rows of all ranks in each round after `after`, up to the last one that
// went. It returns fewer if a rank has not reported its rows; an older agent does not.
func (s *Series) Rows(after uint32) []uint64 { return s.rows.From(after) }

// gone adds up the rows of the rounds that have gone. An agent may say any number: only
// rounds whose rows were said are looked at.
func (s *Series) gone() {
	last := s.said.Through
	from, known := s.rows.end, last
	for i := range s.rank {
		from, known = max(from, s.rank[i].rows.before()), min(known, s.rank[i].rows.end)
	}
	if known < last {
		from = last
	}
	s.rows.Upto(min(from, last), nil)
	for round := from; round < last; round++ {
		sum := uint64(0)
		for i := range s.rank {
			n, _ := s.rank[i].rows.Of(round + 1)
			sum += uint64(n)
		}
		s.rows.Upto(round+1, []uint64{sum})
	}
	s.rows.Trim()
	for i := range s.rank {
		s.rank[i].rows.Forget(last)
	}
}

// Missing are the ranks that have not reported, or that are not ready for the round after
// the last one that went.
func (s *Series) Missing() (ranks []int) {
	for i := range s.rank {
		if !s.rank[i].known || s.rank[i].Through <= s.said.Through {
			ranks = append(ranks, i)
		}
	}
	return ranks
}

// Short says whether the next round is about to be closed without all its rows. The rows
// can then be spread over the ranks. The last Decide found this.
func (s *Series) Short() bool { return s.short }

// Anew says whether rows may be spread again that were spread for this round before. Only a
// series with Drop does that.
func (s *Series) Anew() bool { return s.anew }

// Drops says whether the series is over and leaves rows that are in no round.
func (s *Series) Drops() bool { return s.opt.Drop && !s.opt.Endless && s.said.Last }

// Done says whether a rank has stepped the last round and given back what it had beyond it.
func (s *Series) Done(rank int) bool { return s.rank[rank].Done }

// Decide says where the series stands, and when to ask again although nobody has
// reported. Through never falls, and Last and Over stay.
func (s *Series) Decide(now int64, v View) (d Decision, wake int64) {
	wake, s.short, s.anew = Never, false, false
	if s.Ended() {
		return s.said, wake
	}
	f, all := s.facts(v)
	if !all {
		s.said.Close = 0
		s.said.Last = s.none(v)
		return s.said, wake
	}
	if f.low != s.low {
		s.low, s.beyond, s.held, s.drained, s.spreads = f.low, since{}, since{}, since{}, 0
	}
	s.beyond.is(f.beyond, now)
	if s.opt.Drop {
		s.decideFull(f, now, v, &wake)
		return s.said, wake
	}
	known := s.opt.Endless || f.beyond || f.drained // whether round low is the last one
	s.drained.is(f.beyond && f.lowDrained, now)
	s.held.is(!known && f.low > s.said.Through, now)
	switch {
	case known:
		s.said.Through = f.low
		s.said.Last = !s.opt.Endless && !f.beyond && f.drained
	case s.opt.MaxWait > 0 && s.held.due(s.opt.MaxWait, now, &wake):
		s.said.Through = f.low
	default: // low may be the last round; the one before it is not, because low has rows
		s.said.Through = max(s.said.Through, f.low-min(f.low, 1))
	}
	s.gone()
	s.said.Close = 0
	s.short = s.drained.on || s.opt.MaxWait > 0 && s.beyond.due(s.opt.MaxWait-min(s.opt.Spread, s.opt.MaxWait/2), now, &wake)
	if s.drained.due(s.opt.Settle, now, &wake) || s.opt.MaxWait > 0 && s.beyond.due(s.opt.MaxWait, now, &wake) {
		s.said.Close = f.low + 1
	}
	return s.said, wake
}

// none says whether there will be no round at all, although not all ranks have reported:
// those that have reported had no round, and all rows are settled. It does not wait for a
// rank that never comes.
func (s *Series) none(v View) bool {
	if s.opt.Endless || s.said.Through > 0 {
		return false
	}
	known := false
	for i := range s.rank {
		m := &s.rank[i]
		if m.Through > 0 {
			return false
		}
		known = known || m.known
	}
	return known && v.Settled()
}

// mostSpreads is how often rows are spread before a rank that gets none ends the series.
const mostSpreads = 3

// decideFull decides for a series whose rounds are all full. Rounds before low are known
// not to be the last one, because every rank is ready for a later one. Round low is the
// last one if some rank that is ready exactly through low gets no more rows. Before that is
// decided, the rows of the other ranks are spread a few times.
func (s *Series) decideFull(f facts, now int64, v View, wake *int64) {
	s.said.Close = 0
	if s.opt.MaxWait > 0 && s.beyond.due(s.opt.MaxWait, now, wake) {
		// It is spread again later, so that grants are not held back for ever.
		s.short, s.anew, s.beyond.at = true, true, now+4*s.opt.Spread
		*wake = min(*wake, s.beyond.at+s.opt.MaxWait)
	}
	if s.opt.Endless {
		s.said.Through = f.low
		s.gone()
		return
	}
	began := !s.drained.on
	s.drained.is(f.lowDrained, now)
	switch {
	case !s.drained.on:
	case f.drained && !f.beyond:
		s.said.Last = true
	case s.spreads < mostSpreads:
		if began || s.drained.due(s.opt.Settle, now, wake) {
			s.spreads++
			s.short, s.anew, s.drained.at = true, true, now
			*wake = min(*wake, now+s.opt.Settle)
		}
	default:
		s.said.Last = s.drained.due(s.opt.Settle, now, wake) && !v.Moving()
	}
	if s.said.Last {
		s.said.Through = f.low
	} else {
		s.said.Through = max(s.said.Through, f.low-min(f.low, 1))
	}
	s.gone()
}

// facts are what the reports say together.
type facts struct {
	low        uint32 // every rank is ready through it
	beyond     bool   // a rank has rows of a later round
	drained    bool   // no rank gets more rows
	lowDrained bool   // no rank that is ready through low, and no further, gets more rows
}

func (s *Series) facts(v View) (f facts, all bool) {
	drained := func(i int) bool { return s.rank[i].Drained && !v.Pending(i) && v.Newest(i) <= s.rank[i].Newest }
	f = facts{low: ^uint32(0), drained: true, lowDrained: true}
	high := uint32(0)
	for i := range s.rank {
		m := &s.rank[i]
		if !m.known {
			return f, false
		}
		f.low, high = min(f.low, m.Through), max(high, m.Through)
		f.beyond = f.beyond || m.More
		f.drained = f.drained && drained(i)
	}
	f.beyond = f.beyond || high > f.low
	for i := range s.rank {
		if m := &s.rank[i]; m.Through == f.low && !drained(i) {
			f.lowDrained = false
		}
	}
	return f, len(s.rank) > 0
}

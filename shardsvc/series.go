package shardsvc

import (
	"fmt"
	"slices"

	"github.com/headrace/headrace/shardsvc/rounds"
)

const (
	// roundSettle is how long the ranks that have no rows left wait for rows that are
	// stolen for them.
	roundSettle = 100 * Millisecond
	// roundSpread is how long before max_wait has passed the rows of a round that will be
	// short begin to be spread over the ranks.
	roundSpread = 200 * Millisecond
	// roundLook is how often a series is looked at while no rank reports.
	roundLook = 250 * Millisecond
	// maxSeries bounds the series of one generation, because a program may open streams in
	// a loop.
	maxSeries = 1024
)

// series is one run of rounds of the generation. Nothing of it is stored: the ranks report
// again to a new master. Its members are the ranks. For a bit_exact dataset they are the
// virtual ranks instead: each has its own stream and its own records. A virtual rank's batch
// is short only when its records end, so such a series closes no round by the clock.
type series struct {
	*rounds.Series
	gr         *group
	ds         DatasetID
	no         uint32
	generation uint32
	virtual    bool              // its members are virtual ranks
	reader     []uint32          // of each member: the rank that reads its stream, or nobody yet
	told       []rounds.Decision // of each member: what it was told last
	heardOn    []Session         // of each member: the session of its newest report
	due        bool
	spread     uint32 // the last round whose rows were spread
	drop       bool   // what is left at its end is dropped
	dropped    bool   // and was
}

// nobody reads a virtual rank before its stream is heard of.
const nobody = ^uint32(0)

// virtualOf is the virtual rank of a member, from 1; 0: the member is a rank.
func (s *series) virtualOf(no int) uint32 {
	if s.virtual {
		return uint32(no) + 1
	}
	return 0
}

// Pending implements rounds.View.
func (s *series) Pending(no int) bool { return !s.gr.ledger.allOut(s.ds, s.virtualOf(no)) }

// Moving implements rounds.View.
func (s *series) Moving() bool { return s.gr.ledger.asking(s.ds) }

// Settled implements rounds.View.
func (s *series) Settled() bool { return s.gr.ledger.noneLeft(s.ds) && s.gr.above.decided() }

// Newest implements rounds.View.
func (s *series) Newest(no int) uint64 {
	if w := s.member(no); w != nil {
		return s.gr.ledger.newestLease(&w.holder, s.ds, s.virtualOf(no))
	}
	return 0
}

// member is the process of the generation that reads for a member; nil: it is not there.
func (s *series) member(no int) *worker {
	r := s.gr.byRank[s.reader[no]]
	if r == nil || r.generation != s.generation {
		return nil
	}
	return r.worker()
}

// roundReport takes what a rank says of its rounds.
func (gr *group) roundReport(a *agent, k *RoundReport) {
	w := a.byNumber[k.Worker]
	if w == nil || w.rank.worker() != w {
		return
	}
	refuse := func(why string) {
		gr.tell(w, Reply{Kind: ReplyRound, Dataset: k.Dataset, Request: uint64(k.Series), Round: &RoundAnswer{Decision: rounds.Decision{Over: why}, Virtual: k.Virtual}})
	}
	if reason := gr.noRounds(k); reason != "" {
		refuse(reason)
		return
	}
	s, no := gr.seriesOf(k), int(w.rank.no)
	if s == nil || !s.virtual && no >= len(s.told) {
		refuse(fmt.Sprintf("rank %d has more than %d streams with rounds in one start of the group", no, maxSeries))
		return
	}
	if s.virtual {
		no = int(k.Virtual) - 1
		s.reader[no] = w.rank.no
	}
	if s.drop != k.Drop {
		s.End(fmt.Sprintf("rank %d reads rounds with tail=%q, and another rank does not", w.rank.no, tails[k.Drop]))
	}
	s.due, s.heardOn[no] = true, w.session()
	if k.Again {
		s.told[no] = rounds.Decision{Through: k.Told, Last: k.ToldLast}
	}
	s.Heard(k.Told, k.ToldLast, k.ToldRows)
	s.Report(no, rounds.Report{Through: k.Through, More: k.More, Drained: k.Drained, Newest: k.Newest, Rows: k.Rows, Done: k.Done})
	if k.Closed {
		s.End(fmt.Sprintf("rank %d closed its stream before the end of the data", w.rank.no))
	}
}

// lastRounds takes the round reports of a process that leaves in the same message, if it
// has stepped the last round. A new master hears both at once, and nobody repeats such a
// report later.
func (gr *group) lastRounds(a *agent, m *Message, worker uint32) {
	for i := range m.Rounds {
		if k := &m.Rounds[i]; k.Worker == worker && k.Done {
			gr.roundReport(a, k)
		}
	}
}

// noRounds says why the job has no rounds, or why that stream takes part in none.
func (gr *group) noRounds(k *RoundReport) string {
	virtual := gr.ledger.virtualRanks(k.Dataset)
	switch {
	case virtual == 0 && k.Virtual > 0:
		return "the dataset is not bit_exact: it has no virtual ranks"
	case virtual > 0 && (k.Virtual == 0 || k.Virtual > virtual):
		return fmt.Sprintf("the dataset is bit_exact: a stream reads one of its %d virtual ranks, and says which", virtual)
	case virtual > 0 && (k.Drop || k.Endless):
		return "the dataset is bit_exact: all its records are in its rounds, and they end"
	case !gr.model.inStep:
		return fmt.Sprintf("rounds are for ranks that train one model together, and this job's model is %q: start the master with --model replicated", gr.cfg.Model)
	case gr.genEnded:
		return fmt.Sprintf("generation %d has ended: start the whole group again", gr.generation)
	}
	return ""
}

func (gr *group) seriesOf(k *RoundReport) *series {
	if len(gr.series) > 0 && gr.series[0].generation != gr.generation {
		clear(gr.series)
		gr.series = gr.series[:0]
	}
	i := slices.IndexFunc(gr.series, func(s *series) bool { return s.ds == k.Dataset && s.no == k.Series })
	if i >= 0 {
		return gr.series[i]
	}
	if len(gr.series) == maxSeries {
		return nil
	}
	o := rounds.Options{World: int(max(gr.worldSize, 1)), Endless: k.Endless, MaxWait: int64(k.MaxWait), Settle: int64(roundSettle), Spread: int64(roundSpread), Drop: k.Drop}
	virtual := k.Virtual > 0
	if virtual {
		o = rounds.Options{World: int(gr.ledger.virtualRanks(k.Dataset))}
	}
	s := &series{gr: gr, ds: k.Dataset, no: k.Series, generation: gr.generation, drop: k.Drop, virtual: virtual, reader: make([]uint32, o.World),
		told: make([]rounds.Decision, o.World), heardOn: make([]Session, o.World), Series: rounds.New(o)}
	for no := range s.reader {
		if s.reader[no] = uint32(no); virtual {
			s.reader[no] = nobody
		}
	}
	gr.series = append(gr.series, s)
	return s
}

// roundsDue looks at all series again. Of two timers only the earlier one counts.
func (gr *group) roundsDue(at Time) {
	if at != gr.roundsAt {
		return
	}
	gr.roundsAt = 0
	for _, s := range gr.series {
		s.due = true
	}
	gr.ledger.cutsDue() // one may have waited for what is dropped
}

// checkRounds decides what has changed. It runs once at the end of a Step.
func (gr *group) checkRounds() {
	wake := Never
	for _, s := range gr.series {
		if !s.due || s.generation != gr.generation || gr.genEnded || gr.recovering {
			continue
		}
		s.due = false
		s.leavers()
		d, at := s.Decide(int64(gr.now), s)
		s.spreadRows(d.Through + 1)
		for no := range s.told {
			// An agent that has a new session says first what its process was told.
			if w := s.member(no); w != nil && w.session() != 0 && s.heardOn[no] == w.session() && s.told[no] != d && s.Reported(no) {
				gr.ledger.moves(&w.holder) // it may have waited for this
				rows := slices.Clone(s.Rows(s.told[no].Through))
				s.told[no] = d
				gr.tell(w, Reply{Kind: ReplyRound, Dataset: s.ds, Request: uint64(s.no), Round: &RoundAnswer{d, s.virtualOf(no), rows}})
			}
		}
		if !d.Last && d.Over == "" {
			wake = min(wake, Time(at), gr.now+roundLook)
		}
	}
	if wake = max(wake, gr.now+1); wake < Never {
		gr.lookAt(wake)
	}
}

// tails are the values of `tail` as a program writes them.
var tails = map[bool]string{true: "drop", false: "short"}

// dropRests settles what lies beyond the last full round of each series with tail="drop",
// once every rank has stepped that round. It runs before a cut of that step can be frozen.
func (gr *group) dropRests() {
	if gr.genEnded || gr.recovering {
		return
	}
	for _, s := range gr.series {
		if n, known := gr.ledger.leasesOf(s.ds); !known || n > 0 || !s.dropsDue() {
			continue // acks are on their way
		}
		step := gr.ledger.lastStepIn(s.ds, gr.topStep)
		if !s.allDone(step) {
			continue
		}
		s.dropped = true
		gr.ledger.cutsDue()
		if units := gr.ledger.dropRest(s.ds, step); units > 0 {
			gr.ledger.report(Report{Kind: ReportRoundsDropped, Dataset: s.ds, Units: units, Step: step})
		}
	}
}

// dropsDue says whether the series has had its last round, and what lies beyond it is not
// dropped yet, as far as this master knows.
func (s *series) dropsDue() bool {
	return s.Drops() && !s.dropped && s.generation == s.gr.generation
}

// allDone says whether every rank has stepped the last round, at that step. At least one rank
// must have said so to this master. A rank may have said so to an earlier master only, and have
// left since: then its last step counts.
func (s *series) allDone(step int64) (any bool) {
	for no := range s.told {
		if s.Done(no) {
			any = true
			continue
		}
		r := s.gr.byRank[uint32(no)]
		if r == nil || r.generation != s.generation || r.process == present || r.lastStep() < step {
			return false
		}
	}
	return any
}

// dropsUnknown says whether this master may not know yet which rows must be dropped,
// because a rank has not reported how far it is. since is when this term knew all
// processes; 0: it did from its start. A rank that has closed its stream never reports to a
// new master and a new agent, so it is waited for one TTL at most.
//
// Nor is it known while all ranks have stepped the last round and acks of it are on their
// way: a cut that is frozen now would lack the rows that are dropped at its step.
func (gr *group) dropsUnknown(since Time) bool {
	for _, s := range gr.series {
		if !s.dropsDue() {
			continue
		}
		if n, _ := gr.ledger.leasesOf(s.ds); n > 0 && s.allDone(gr.ledger.lastStepIn(s.ds, gr.topStep)) {
			return true // the last ack asks again: dropRests
		}
		for no := range s.told {
			waits := gr.recovering || since > 0 && gr.now < since+gr.cfg.SessionTTL && s.member(no) != nil && !s.Reported(no)
			if waits {
				gr.lookAt(gr.now + roundLook)
				return true
			}
		}
	}
	return false
}

// lookAt has all series looked at again at a time, or before it.
func (gr *group) lookAt(at Time) {
	if gr.roundsAt == 0 || at < gr.roundsAt {
		gr.roundsAt = at
		gr.timers.push(timer{at: at, kind: timerRounds})
	}
}

// spreadRows begins to spread the rows of a round that will be closed short, once.
func (s *series) spreadRows(round uint32) {
	if s.virtual || !s.Short() || s.spread >= round && !s.Anew() {
		return
	}
	s.spread = round
	var ranks []*holder
	for no := range s.told {
		if w := s.member(no); w != nil {
			ranks = append(ranks, &w.holder)
		}
	}
	s.gr.ledger.level(s.ds, ranks, s.gr.now+roundSpread)
}

// inRounds says whether the ranks read a dataset in rounds that are not over.
func (gr *group) inRounds(id DatasetID) bool {
	return slices.ContainsFunc(gr.series, func(s *series) bool { return s.ds == id && s.generation == gr.generation && !s.Ended() })
}

// leavers ends a series that a rank has left before its end.
func (s *series) leavers() {
	for no := range max(s.gr.worldSize, 1) {
		if r := s.gr.byRank[no]; r != nil && r.generation == s.generation && r.process != present {
			s.End(fmt.Sprintf("rank %d has left before the end of the data", no))
		}
	}
}

// awaitsRound says whether w has its batch of the next round and another rank has not. Then
// w can make no progress.
func (gr *group) awaitsRound(w *worker) bool {
	return slices.ContainsFunc(gr.series, func(s *series) bool {
		missing := s.Missing()
		if s.Ended() || len(missing) == 0 {
			return false
		}
		reads := false
		for no := range s.told {
			if s.member(no) != w {
				continue
			}
			if !s.Reported(no) || slices.Contains(missing, no) {
				return false
			}
			reads = true
		}
		return reads
	})
}

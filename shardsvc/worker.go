package shardsvc

import (
	"fmt"
	"slices"
)

// worker is one trainer process.
type worker struct {
	holder
	agent       *agent
	rank        *rank
	incarnation uint64
	pid         int32
	deadline    Time   // detached: when it is given up
	leftTo      uint64 // detached by a Leave: the incarnation of its agent, which may yet see it end
	unconfirmed bool   // its agent came again and did not name it yet
	why         string // ending: the reason
	stalled     bool   // ending, as it made no step

	outlived int  // number of failures in this term after which it has stepped or joined
	failed   bool // it has ended, or its agent has lost it
	follows  bool // it failed after another one

	waitSeconds, stepSeconds float64
	rows                     uint64
}

// rank is what is known of a rank, whichever process has it.
type rank struct {
	*account
	index       int    // in order of arrival
	incarnation uint64 // of its newest process
	made        made   // when that process was made; unknown before it has joined in this term
	generation  uint32
	process     presence
	older       int  // processes of older incarnations that this term has heard of
	unheard     bool // there may be more of them, which this term has not heard of
}

// agentName is the name of the agent that speaks for w, or did last.
func (w *worker) agentName() string { return w.agent.name }

// presence says whether the process of a rank's newest incarnation may run.
type presence uint8

const (
	absent  presence = iota // there is none, or it has left and may come again
	present                 // it may run
	givenUp                 // its rows belong to others, and it may not come back
)

// others says whether processes of older incarnations may run.
func (r *rank) others() bool { return r.older > 0 || r.unheard }

// away says whether its process may run and has not joined in this term yet.
func (r *rank) away() bool { return r.process == present && r.worker() == nil }

// worker is the process of the newest incarnation; nil: there is none.
func (r *rank) worker() *worker {
	w, _ := r.newestProcess().(*worker)
	return w
}

// value is what is stored of it, without what the checkpoints know of it.
func (r *rank) value() rankValue {
	return rankValue{incarnation: r.incarnation, generation: r.generation, step: r.lastStep(), attached: r.process == present, fenced: r.process == givenUp,
		others: r.others(), ended: r.toldEnd()}
}

// joinedIn is the last generation that it has joined.
func (r *rank) joinedIn() uint32 { return r.generation }

// newestIncarnation is its newest process, dead or alive.
func (r *rank) newestIncarnation() uint64 { return r.incarnation }

// knownOr is rank no, also if nobody ever joined as it. Then it is not one of everyRank.
func (gr *group) knownOr(no uint32) *rank {
	if r := gr.byRank[no]; r != nil {
		return r
	}
	return &rank{account: &account{no: no}, index: -1}
}

func (gr *group) rankOf(no uint32) *rank {
	r := gr.byRank[no]
	if r == nil {
		r = &rank{account: gr.ledger.account(no), index: len(gr.ranks)}
		gr.byRank[no] = r
		gr.ranks = append(gr.ranks, r)
	}
	return r
}

// maxWorld bounds the ranks of a group, because memory is taken for each of them.
const maxWorld = 1 << 16

// joins takes the joins of a message.
func (gr *group) joins(a *agent, m *Message) {
	for i := range m.Joins {
		j := &m.Joins[i]
		gr.join(a, j, a.clock.made(j.MadeAt, m.SentAt))
	}
}

// join attaches a trainer process: a new one, or one that comes again.
func (gr *group) join(a *agent, j *Join, at made) {
	if w := a.byNumber[j.Worker]; w != nil {
		if w.incarnation != j.Incarnation || w.rank.no != j.Rank {
			reason := "that worker number belongs to another process"
			gr.tellOf(a, j.Worker, Reply{Kind: ReplyJoin, Refused: true, Reason: reason, Generation: gr.generation, Epoch: gr.epoch})
			gr.ledger.rejected("agent %q: worker %d: %s", a.name, j.Worker, reason)
			return
		}
		gr.rejoin(a, w, j, at)
		return
	}
	if j.Rank >= maxWorld || j.WorldSize > maxWorld {
		gr.refuseJoin(a, j, fmt.Sprintf("rank %d of a group of %d: a group has at most %d ranks", j.Rank, j.WorldSize, maxWorld))
		return
	}
	r := gr.rankOf(j.Rank)
	if w := gr.process(r, j.Incarnation); w != nil {
		if w.session() != 0 {
			gr.refuseJoin(a, j, fmt.Sprintf("this process is attached to agent %q", w.agent.name))
			return
		}
		gr.rejoin(a, w, j, at)
		return
	}
	if r.process == givenUp && r.incarnation == j.Incarnation {
		gr.refuseJoin(a, j, "this process was given up: its rows belong to others")
		return
	}
	newcomes := r.incarnation != j.Incarnation
	said := *j
	said.Resume = gr.ledger.resumeOf(j)
	j = &said
	if newcomes && j.Generation != 0 && gr.recovering && a.known && r.others() && gr.cfg.Model == Shared {
		gr.joinOlder(a, r, j)
		return
	}
	if newcomes && j.Generation != 0 {
		gr.refuseJoin(a, j, fmt.Sprintf("this process was a member of generation %d, and another one has its rank now", j.Generation))
		return
	}
	if newcomes && gr.waits(newcomer{a, a.session, *j, at}) {
		return
	}
	if newcomes && at.before(r.made) {
		gr.refuseOlder(a, j, fmt.Sprintf("a newer process of rank %d has joined since this one was started", r.no))
		return
	}
	again, ok := gr.kind.enter(a, r, j, newcomes, at)
	if !ok {
		return
	}
	w := gr.newWorker(a, r, j)
	first := newcomes || r.generation != gr.generation
	r.incarnation, r.made, r.generation, r.process = j.Incarnation, at, gr.generation, present
	gr.ledger.succeed(&w.holder)
	gr.ledger.dirtyRank(r.account)
	again.add(gr.kind.entered(w, j, first))
	gr.rejoined = append(gr.rejoined, w)
	gr.joinReply(a, j, r, again)
	gr.above.joined(w, newcomes)
}

func (gr *group) newWorker(a *agent, r *rank, j *Join) *worker {
	w := &worker{agent: a, rank: r, incarnation: j.Incarnation, pid: j.Pid, holder: newHolder(&a.speaker, r.account, j.Worker)}
	if j.Generation == 0 { // else it was there before this term
		w.outlived = gr.failures.count
	}
	gr.ledger.admit(&w.holder, w)
	gr.workers = append(gr.workers, w)
	a.workers = append(a.workers, w)
	a.byNumber[j.Worker] = w
	return w
}

// joinOlder takes in a process of an older term whose rank another process has taken
// since, at a master that knew neither. The older process is ended. But its steps are in
// the model, and its agent may hold its acks.
func (gr *group) joinOlder(a *agent, r *rank, j *Join) {
	w := gr.newWorker(a, r, j)
	r.older++
	gr.rejoined = append(gr.rejoined, w)
	gr.joinReply(a, j, r, comesAgain{})
	gr.above.joined(w, false)
	gr.endWorker(w, fmt.Sprintf("another process came for rank %d", r.no))
}

// process finds a process of a rank that is not gone.
func (gr *group) process(r *rank, incarnation uint64) *worker {
	if r.worker() != nil && r.worker().incarnation == incarnation {
		return r.worker()
	}
	if r.older > 0 {
		for _, w := range gr.workers {
			if w.rank == r && w.incarnation == incarnation {
				return w
			}
		}
	}
	return nil
}

// hasProcess says whether a process of that incarnation may run.
func (gr *group) hasProcess(incarnation uint64) bool {
	return slices.ContainsFunc(gr.workers, func(w *worker) bool { return w.incarnation == incarnation })
}

// rejoin is for a known process that comes again, with the same agent or another one.
func (gr *group) rejoin(a *agent, w *worker, j *Join, at made) {
	if r := w.rank; r.incarnation == j.Incarnation && at.at != 0 && (r.made.at == 0 || at.here < r.made.here) {
		r.made = at
	}
	if w.agent != a {
		w.agent.workers = slices.DeleteFunc(w.agent.workers, func(x *worker) bool { return x == w })
		a.workers = append(a.workers, w)
	}
	if w.agent.byNumber[w.calledBy()] == w { // its old number may be another's by now
		delete(w.agent.byNumber, w.calledBy())
	}
	if w.agent, w.unconfirmed, w.pid = a, false, j.Pid; w.isDetached() {
		w.leftTo = 0
	}
	a.byNumber[j.Worker] = w
	gr.ledger.attach(&w.holder, &a.speaker, j.Worker, w.why != "")
	gr.rejoined = append(gr.rejoined, w)
	gr.joinReply(a, j, w.rank, comesAgain{})
	gr.above.joined(w, false)
	if w.isEnding() {
		gr.tell(w, Reply{Kind: ReplyEnd, Reason: w.why})
	}
}

func (gr *group) joinReply(a *agent, j *Join, r *rank, again comesAgain) {
	gr.tellOf(a, j.Worker, Reply{Kind: ReplyJoin, Generation: gr.generation, Epoch: gr.epoch, Step: r.lastStep(), Units: again.units, Again: again.reply(), Resume: j.Resume})
}

func (gr *group) refuseJoin(a *agent, j *Join, reason string) { gr.turnAway(a, j, JoinRefused, reason) }

// refuseOlder turns a process away because a process that was made later has its place.
func (gr *group) refuseOlder(a *agent, j *Join, reason string) {
	gr.turnAway(a, j, JoinSuperseded, reason)
}

func (gr *group) turnAway(a *agent, j *Join, why JoinRefusal, reason string) {
	gr.tellOf(a, j.Worker, Reply{Kind: ReplyJoin, Refused: true, Join: why, Reason: reason, Generation: gr.generation, Epoch: gr.epoch})
	gr.tellOf(a, j.Worker, Reply{Kind: ReplyFence, Reason: reason})
	gr.ledger.report(Report{Kind: ReportFenced, Rank: j.Rank, Agent: a.name, Reason: reason})
}

// tell sends a reply to w.
func (gr *group) tell(w *worker, r Reply) { gr.ledger.replyTo(&w.holder, r) }

// tellOf sends an agent a reply about the process that it calls by a number.
func (gr *group) tellOf(a *agent, number uint32, r Reply) {
	r.To, r.Worker = a.session, number
	gr.reply(r)
}

// heardOf says whether x is known to run: its agent is there, has not said that x is gone, and
// was heard after the given time. If w has the same agent, the time does not matter: an agent
// hears of the end of a trainer before it hears of the next one.
func (gr *group) heardOf(x, w *worker, since Time) bool {
	return x.session() != 0 && x.isRunning() && !x.unconfirmed && (x.agent == w.agent || x.agent.lastHeard > since)
}

// caller is the process that a calls by a number, or why its calls do not count any more.
func (gr *group) caller(a *agent, number uint32) (w *worker, why string) {
	switch w = a.byNumber[number]; {
	case w == nil || w.rank.worker() != w:
		return nil, "this process is not of the group any more"
	case w.isEnding():
		return nil, "this process is being ended: " + w.why
	}
	return w, ""
}

// fence tells w's trainer that it is out of the group.
func (gr *group) fence(w *worker, reason string) {
	gr.tell(w, Reply{Kind: ReplyFence, Reason: reason})
	gr.ledger.report(Report{Kind: ReportFenced, Rank: w.rank.no, Agent: w.agent.name, Reason: reason})
}

// endWorker has w's process ended. Its rows stay its own until it is known to be gone.
func (gr *group) endWorker(w *worker, reason string) {
	gr.ledger.end(&w.holder)
	if w.why == "" {
		w.why = reason
	}
	gr.tell(w, Reply{Kind: ReplyEnd, Reason: reason})
	gr.above.ending(w, reason)
}

// detach says that no agent speaks for w. At deadline w is given up.
func (gr *group) detach(w *worker, deadline Time) {
	if w.isDetached() {
		return
	}
	gr.ledger.detach(&w.holder)
	if w.agent.byNumber[w.calledBy()] == w {
		delete(w.agent.byNumber, w.calledBy())
	}
	w.deadline = deadline
	gr.timers.push(timer{at: deadline, kind: timerDetached, of: w})
}

func (gr *group) detachedDue(w *worker) {
	if !w.isDetached() {
		return
	}
	if gr.now < w.deadline {
		gr.timers.push(timer{at: w.deadline, kind: timerDetached, of: w})
		return
	}
	gr.workerLost(w, ReclaimedExpired)
}

func (gr *group) leave(a *agent, k *Leave) {
	gr.waiting = slices.DeleteFunc(gr.waiting, func(n newcomer) bool { return n.agent == a && n.join.Worker == k.Worker })
	w := a.byNumber[k.Worker]
	if w == nil {
		gr.leftEnds(a, k)
		return
	}
	switch {
	case k.Reason == LeaveClosed:
		gr.drop(w, left, untouched, ReclaimedLeft)
	case k.Ended || gr.model.inStep:
		gr.workerEnded(w, k)
	default:
		gr.fails(w)
		gr.detach(w, gr.now+gr.cfg.SessionTTL)
		w.leftTo = a.incarnation
	}
}

// workerEnded handles the end of w's process. If it crashed and is no follower
// (followers.go), the records that it had in hand are suspect.
func (gr *group) workerEnded(w *worker, k *Leave) {
	follows := gr.fails(w)
	gr.workerLost(w, ReclaimedEnded)
	if k.Crash != nil && !follows {
		gr.ledger.suspect(k.Crash)
	}
}

// leftEnds handles the end of a process whose worker has left before. It may have crashed:
// its socket was closed some time before its end was seen.
func (gr *group) leftEnds(a *agent, k *Leave) {
	for _, w := range a.workers {
		if k.Ended && w.calledBy() == k.Worker && w.isDetached() && w.leftTo == a.incarnation {
			gr.workerEnded(w, k)
			return
		}
	}
}

// workerLost says that w's process is gone or given up.
func (gr *group) workerLost(w *worker, reason Reclaimed) {
	gr.fails(w)
	newest := w.rank.worker() == w
	if reason == ReclaimedExpired {
		gr.ledger.report(Report{Kind: ReportGivenUp, Rank: w.rank.no, Incarnation: w.incarnation, Agent: w.agent.name, Reason: "no agent has spoken for it for too long"})
	}
	gr.fenceRank(w)
	gr.drop(w, fenced, lost, reason)
	if newest {
		gr.lostRank(w.rank, reason.String())
	}
}

func (gr *group) lostRank(r *rank, reason string) {
	gr.kind.lost(r, fmt.Sprintf("rank %d is lost (%s)", r.no, reason))
}

func (gr *group) fenceRank(w *worker) {
	if w.rank.worker() == w {
		w.rank.process = givenUp
	}
}

// drop takes w out. The rest of its leases becomes pending, and its requests are closed.
func (gr *group) drop(w *worker, as holderState, how back, reason Reclaimed) {
	a, r := w.agent, w.rank
	newest := r.worker() == w
	gr.ledger.dismiss(&w.holder, as, how, reason)
	if a.byNumber[w.calledBy()] == w {
		delete(a.byNumber, w.calledBy())
	}
	a.workers = slices.DeleteFunc(a.workers, func(x *worker) bool { return x == w })
	gr.workers = slices.DeleteFunc(gr.workers, func(x *worker) bool { return x == w })
	switch {
	case newest && r.process == present:
		r.process = absent
	case !newest && r.older > 0:
		r.older--
	}
	gr.ledger.dirtyRank(r.account)
	gr.above.dropped(w)
	gr.checkRecovery()
}

func (gr *group) status(a *agent, s *WorkerStatus) {
	w := a.byNumber[s.Worker]
	if w == nil {
		return
	}
	gr.ledger.setTaking(&w.holder, !s.Paused)
	w.waitSeconds, w.stepSeconds, w.rows = s.WaitSeconds, s.StepSeconds, s.RowsYielded
}

// accountOf is the account of r; nil: of no rank.
func accountOf(r *rank) *account {
	if r == nil {
		return nil
	}
	return r.account
}

package shardsvc

import (
	"fmt"
	"slices"

	"github.com/headrace/headrace/shardsvc/line"
)

type workerState uint8

const (
	running  workerState = iota
	ending               // its agent was told to end it; it gets nothing more
	detached             // its process may run, but no agent speaks for it
)

// worker is one trainer process.
type worker struct {
	agent       *agent
	number      uint32
	rank        *rank
	incarnation uint64
	pid         int32
	state       workerState
	deadline    Time   // detached: when it is given up
	leftTo      uint64 // detached by a Leave: the incarnation of its agent, which may yet see it end
	unconfirmed bool   // its agent came again and did not name it yet
	fenced      bool   // late acks of closed leases are refused
	gone        bool
	why         string // ending: the reason
	stalled     bool   // ending, as it made no step
	held        uint64 // cut of the hold that is on, if it has said that it yields nothing
	barred      bool   // it came during the hold, and gets nothing before it ends

	leases     *lease // newest first, through wnext
	leaseCount int
	waiting    int      // open requests
	parked     []parked // of them, those that wait until it restored
	asking     *waitingRestore
	doubtedAt  Time // since when asking waits for what is known of others; 0: it does not
	rates      []rateOf

	since   Time // last progress, or when it began to hold leases
	stepped bool
	stallAt Time
	units   uint64

	paused                   bool
	waitSeconds, stepSeconds float64
	rows                     uint64
}

type rateOf struct {
	ds   DatasetID
	rate int64 // units/s
}

func (w *worker) rate(ds DatasetID) int64 {
	for i := range w.rates {
		if w.rates[i].ds == ds {
			return w.rates[i].rate
		}
	}
	return 0
}

// session to reach w by; 0: none.
func (w *worker) session() Session {
	if w.state == detached || w.gone {
		return 0
	}
	return w.agent.session
}

// rank is what is known of a rank over all its processes.
type rank struct {
	no          uint32
	incarnation uint64 // newest
	generation  uint32
	step        int64 // last reported
	attached    bool
	fenced      bool
	others      bool
	older       int     // processes of older incarnations in this term
	unheard     bool    // there may be more of them that this term has not heard yet
	worker      *worker // of the newest incarnation
	recent      line.Queue[recentPiece]
	dirty       bool

	ended, must, called, lost bool // see rankValue
	choice                    uint64
	base                      *keptCut // private: what it restored or bound last
}

func (c *Core) rankOf(no uint32) *rank {
	r := c.byRank[no]
	if r == nil {
		r = &rank{no: no}
		c.byRank[no] = r
		c.ranks = append(c.ranks, r)
	}
	return r
}

// join attaches a trainer process: a new one, or one that comes again.
func (c *Core) join(a *agent, j *Join) {
	if w := a.byNumber[j.Worker]; w != nil {
		if w.incarnation != j.Incarnation || w.rank.no != j.Rank {
			reason := "that worker number belongs to another process"
			c.reply(Reply{To: a.session, Kind: ReplyJoin, Worker: j.Worker, Refused: true, Reason: reason, Generation: c.generation, Epoch: c.epoch})
			c.rejected("agent %q: worker %d: %s", a.name, j.Worker, reason)
			return
		}
		c.rejoin(a, w, j)
		return
	}
	r := c.rankOf(j.Rank)
	if w := c.process(r, j.Incarnation); w != nil {
		if w.session() != 0 {
			c.refuseJoin(a, j, fmt.Sprintf("this process is attached to agent %q", w.agent.name))
			return
		}
		c.rejoin(a, w, j)
		return
	}
	if r.fenced && r.incarnation == j.Incarnation {
		c.refuseJoin(a, j, "this process was given up: its rows belong to others")
		return
	}
	var again comesAgain
	newcomer := r.incarnation != j.Incarnation
	said := *j
	said.Resume = c.resumeOf(j)
	j = &said
	if newcomer && j.Generation != 0 && c.cfg.Model == Shared && c.recovering && a.known && r.others {
		c.joinOlder(a, r, j)
		return
	}
	if newcomer && j.Generation != 0 {
		c.refuseJoin(a, j, fmt.Sprintf("this process was a member of generation %d, and another one has its rank now", j.Generation))
		return
	}
	if newcomer && !c.mayResume(a, j) {
		return
	}
	switch c.cfg.Model {
	case Private:
		again = c.replacePrivate(r, j, newcomer)
	case Replicated:
		ok := false
		if again, ok = c.enterGeneration(a, r, j, newcomer); !ok {
			return
		}
	default:
		c.replaceShared(r, newcomer)
		again = c.resumeShared(r, j, newcomer)
	}
	w := &worker{agent: a, number: j.Worker, rank: r, incarnation: j.Incarnation, pid: j.Pid, since: c.now}
	c.workers = append(c.workers, w)
	a.workers = append(a.workers, w)
	a.byNumber[j.Worker] = w
	if newcomer || r.generation != c.generation {
		r.step, r.fenced, r.ended = c.restored, false, false
		if c.cfg.Model == Replicated {
			r.called = j.Resume == ResumeStart && (c.phase == restoreOpen || c.phase == restoreWaits)
		}
	}
	r.worker, r.incarnation, r.generation, r.attached = w, j.Incarnation, c.generation, true
	c.dirtyRank(r)
	if c.folds && r.must && j.Resume == ResumeStart {
		w.asking = &waitingRestore{restore: RestoreCall{Mode: RestoreStart}}
	}
	if r.called && c.phase == restoreOpen {
		again.add(c.choose(r, &target{}))
	}
	c.checkRestored()
	c.rejoined = append(c.rejoined, w)
	c.joinReply(a, j, r, again)
	c.holdJoined(w, newcomer)
	if !c.recovering {
		c.restoreWaiting(w)
	}
}

// joinOlder takes in a process of an older term whose rank another one has taken
// since, with a master that knew neither: it is ended, but what it has stepped is
// in the model, and its agent may hold the acks.
func (c *Core) joinOlder(a *agent, r *rank, j *Join) {
	w := &worker{agent: a, number: j.Worker, rank: r, incarnation: j.Incarnation, pid: j.Pid, since: c.now}
	c.workers = append(c.workers, w)
	a.workers = append(a.workers, w)
	a.byNumber[j.Worker] = w
	r.older++
	c.rejoined = append(c.rejoined, w)
	c.joinReply(a, j, r, comesAgain{})
	c.holdJoined(w, false)
	c.endWorker(w, fmt.Sprintf("another process came for rank %d", r.no))
}

// process finds a process of a rank that did not end.
func (c *Core) process(r *rank, incarnation uint64) *worker {
	if r.worker != nil && r.worker.incarnation == incarnation {
		return r.worker
	}
	if r.older > 0 {
		for _, w := range c.workers {
			if w.rank == r && w.incarnation == incarnation {
				return w
			}
		}
	}
	return nil
}

// rejoin: the same process, with the same or another agent.
func (c *Core) rejoin(a *agent, w *worker, j *Join) {
	if w.agent != a {
		w.agent.workers = slices.DeleteFunc(w.agent.workers, func(x *worker) bool { return x == w })
		a.workers = append(a.workers, w)
	}
	if w.agent.byNumber[w.number] == w { // its old number may be another's by now
		delete(w.agent.byNumber, w.number)
	}
	w.agent, w.number, w.unconfirmed, w.pid = a, j.Worker, false, j.Pid
	a.byNumber[j.Worker] = w
	if w.state == detached {
		w.state, w.since, w.leftTo = running, c.now, 0
		if w.why != "" {
			w.state = ending
		}
	}
	if w.leases != nil && w.stallAt == 0 {
		c.watchStall(w)
	}
	c.rejoined = append(c.rejoined, w)
	c.joinReply(a, j, w.rank, comesAgain{})
	c.holdJoined(w, false)
	if w.state == ending {
		c.reply(Reply{To: a.session, Kind: ReplyEnd, Worker: w.number, Reason: w.why})
	}
}

func (c *Core) joinReply(a *agent, j *Join, r *rank, again comesAgain) {
	c.reply(Reply{To: a.session, Kind: ReplyJoin, Worker: j.Worker, Generation: c.generation, Epoch: c.epoch, Step: r.step, Units: again.units, Again: again.reply(), Resume: j.Resume})
}

func (c *Core) refuseJoin(a *agent, j *Join, reason string) {
	c.reply(Reply{To: a.session, Kind: ReplyJoin, Worker: j.Worker, Refused: true, Reason: reason, Generation: c.generation, Epoch: c.epoch})
	c.reply(Reply{To: a.session, Kind: ReplyFence, Worker: j.Worker, Reason: reason})
	c.report(Report{Kind: ReportFenced, Rank: j.Rank, Agent: a.name, Reason: reason})
}

// fence tells w's trainer that it is out of the group.
func (c *Core) fence(w *worker, reason string) {
	w.fenced = true
	c.reply(Reply{To: w.session(), Kind: ReplyFence, Worker: w.number, Reason: reason})
	c.report(Report{Kind: ReportFenced, Rank: w.rank.no, Agent: w.agent.name, Reason: reason})
}

// endWorker has w's process ended; its rows stay until it is known to be gone.
func (c *Core) endWorker(w *worker, reason string) {
	c.dropRequests(w)
	if w.why == "" {
		w.why = reason
	}
	if w.state == running {
		w.state = ending
	}
	c.reply(Reply{To: w.session(), Kind: ReplyEnd, Worker: w.number, Reason: reason})
	if c.yields != nil && c.yields.w == w {
		c.endHold(CutFenced, reason)
	}
}

// detach: no agent speaks for w any more; it is given up at deadline.
func (c *Core) detach(w *worker, deadline Time) {
	if w.state == detached {
		return
	}
	c.dropRequests(w)
	if w.agent.byNumber[w.number] == w {
		delete(w.agent.byNumber, w.number)
	}
	w.state, w.deadline = detached, deadline
	c.timers.push(timer{at: deadline, kind: timerDetached, w: w})
}

func (c *Core) detachedDue(w *worker) {
	if w.gone || w.state != detached {
		return
	}
	if c.now < w.deadline {
		c.timers.push(timer{at: w.deadline, kind: timerDetached, w: w})
		return
	}
	c.workerLost(w, "expired")
}

func (c *Core) leave(a *agent, k *Leave) {
	w := a.byNumber[k.Worker]
	if w == nil {
		c.leftEnds(a, k)
		return
	}
	switch {
	case k.Reason == LeaveClosed:
		c.drop(w, untouched, "left")
	case k.Ended || c.cfg.Model == Replicated:
		c.workerLost(w, "ended")
	default:
		c.detach(w, c.now+c.cfg.SessionTTL)
		w.leftTo = a.incarnation
	}
}

// leftEnds: the process of a worker that left before is now known to be gone.
func (c *Core) leftEnds(a *agent, k *Leave) {
	for _, w := range a.workers {
		if k.Ended && w.number == k.Worker && w.state == detached && w.leftTo == a.incarnation {
			c.workerLost(w, "ended")
			return
		}
	}
}

// workerLost: w's process is gone or given up. For a replicated group that is
// the end of the generation.
func (c *Core) workerLost(w *worker, reason string) {
	newest := w.rank.worker == w
	c.fenceRank(w)
	c.drop(w, lost, reason)
	if c.cfg.Model == Private && newest {
		c.rankGone(w.rank)
	}
	if c.cfg.Model == Replicated {
		c.endGeneration(fmt.Sprintf("rank %d is lost (%s)", w.rank.no, reason))
	}
}

func (c *Core) fenceRank(w *worker) {
	if w.rank.worker == w {
		w.rank.fenced = true
	}
	w.fenced = true
}

// drop takes w out: its leases' rest is pending, its requests are closed.
func (c *Core) drop(w *worker, how back, reason string) {
	for w.leases != nil {
		c.reclaim(w.leases, how, reason)
	}
	c.dropRequests(w)
	c.dropRates(w)
	w.gone = true
	a, r := w.agent, w.rank
	if a.byNumber[w.number] == w {
		delete(a.byNumber, w.number)
	}
	a.workers = slices.DeleteFunc(a.workers, func(x *worker) bool { return x == w })
	c.workers = slices.DeleteFunc(c.workers, func(x *worker) bool { return x == w })
	if r.worker == w {
		r.worker, r.attached = nil, false
	} else if r.older > 0 {
		r.older--
		r.others = r.older > 0 || r.unheard
	}
	c.dirtyRank(r)
	c.holdDropped(w)
	c.checkRecovery()
}

func (c *Core) status(a *agent, s *WorkerStatus) {
	w := a.byNumber[s.Worker]
	if w == nil {
		return
	}
	if w.paused && !s.Paused {
		w.since = c.now
	}
	w.paused, w.waitSeconds, w.stepSeconds, w.rows = s.Paused, s.WaitSeconds, s.StepSeconds, s.RowsYielded
}

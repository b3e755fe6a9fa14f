package shardsvc

import (
	"slices"

	"github.com/headrace/headrace/shardsvc/line"
)

// holder is a process that may hold leases. The group makes it, changes its state and
// takes it out. Its leases and requests belong to the ledger.
type holder struct {
	of      any // the process, as the group knows it; the ledger hands it back
	speaker *speaker
	account *account
	number  uint32
	state   holderState
	still   bool // it was told to yield nothing, so no progress is expected

	leases     *lease // newest first, through wnext
	leaseCount int
	waiting    int      // open requests
	parked     []parked // of them, those that wait until it may be given rows
	rates      []rateOf

	since   Time // last progress, or when it began to hold leases
	stepped bool
	stallAt Time
	// unwanted is when it was last seen to stand still while nobody waited for its rows.
	unwanted Time
	units    uint64
	paused   bool // its trainer takes no batches
}

// holderState is where a holder is in its life. It moves down this list. Only a detached
// one may move up, when its process is heard of again (attach).
type holderState uint8

const (
	running  holderState = iota
	ending               // its agent was told to end it; it gets nothing more
	detached             // its process may run, but no agent speaks for it
	left                 // it is gone, and late acks of its closed leases are answered
	fenced               // it is gone or out of the group: late acks are refused
)

func (w *holder) isRunning() bool { return w.state == running }

func (w *holder) isEnding() bool { return w.state == ending }

func (w *holder) isDetached() bool { return w.state == detached }

// gone says whether w has been taken out.
func (w *holder) gone() bool { return w.state >= left }

type rateOf struct {
	ds   DatasetID
	in   input
	rate int64 // units/s
}

func (w *holder) rate(ds DatasetID, in input) int64 {
	for i := range w.rates {
		if w.rates[i].ds == ds && w.rates[i].in == in {
			return w.rates[i].rate
		}
	}
	return 0
}

// process returns the process, as the group gave it to admit.
func (w *holder) process() any { return w.of }

// calledBy is the number by which its agent calls w.
func (w *holder) calledBy() uint32 { return w.number }

// session is the session over which w can be reached; 0: none.
func (w *holder) session() Session {
	if w.state >= detached {
		return 0
	}
	return w.speaker.session
}

// replyTo sends a reply to w.
func (lg *ledger) replyTo(w *holder, r Reply) {
	r.To, r.Worker = w.session(), w.number
	lg.reply(r)
}

// mayAsk says whether w can be asked to give back a part of its leases.
func (w *holder) mayAsk() bool { return w.session() != 0 && w.state == running }

// busy says whether w holds records that are there and are not settled. A process that
// only waits at heads is neither slow nor stalled, however long it waits.
func (w *holder) busy() bool {
	for l := w.leases; l != nil; l = l.wnext {
		if l.prefix < l.reach() {
			return true
		}
	}
	return false
}

// holds says whether w has leases.
func (w *holder) holds() bool { return w.leases != nil }

// hasAcked says whether w has settled anything.
func (w *holder) hasAcked() bool { return w.units > 0 }

// account is what the ledger knows of a rank, whichever process has it.
type account struct {
	no     uint32
	step   int64   // last reported
	ended  bool    // was told END, and has asked for nothing since
	newest *holder // its newest process; nil: it is gone
	recent line.Queue[recentPiece]
	dirty  bool
}

// newestProcess is its newest process, as the group knows it; nil: it is gone.
func (a *account) newestProcess() any {
	if a.newest == nil {
		return nil
	}
	return a.newest.of
}

// lastStep is the last one that it has reported.
func (a *account) lastStep() int64 { return a.step }

// toldEnd says whether it was told END, and has asked for nothing since.
func (a *account) toldEnd() bool { return a.ended }

// hasReported says whether it has reported a step, or was told END and reports none any more.
func (a *account) hasReported(step int64) bool { return a.ended || a.step >= step }

// account of rank no.
func (lg *ledger) account(no uint32) *account {
	a := lg.accounts[no]
	if a == nil {
		a = &account{no: no}
		lg.accounts[no] = a
	}
	return a
}

// newHolder makes a process that may hold leases once it is admitted. s speaks for it under a
// number.
func newHolder(s *speaker, a *account, number uint32) holder {
	return holder{speaker: s, account: a, number: number}
}

// admit lets a process hold leases. of is the group's name for it.
func (lg *ledger) admit(w *holder, of any) {
	w.of, w.since = of, lg.now
	lg.holders = append(lg.holders, w)
}

// succeed makes w the newest process of its rank.
func (lg *ledger) succeed(w *holder) { w.account.newest = w }

// attach has s speak for w under a number. A detached process goes on; ends says that it
// must still be ended.
func (lg *ledger) attach(w *holder, s *speaker, number uint32, ends bool) {
	w.speaker, w.number = s, number
	if w.state == detached {
		if w.state, w.since = running, lg.now; ends {
			w.state = ending
		}
	}
	if w.leases != nil && w.stallAt == 0 {
		lg.watchStall(w)
	}
}

// end gives w no further lease. It keeps what it holds until its process is known to be
// gone.
func (lg *ledger) end(w *holder) {
	lg.dropRequests(w)
	if w.state == running {
		w.state = ending
	}
}

// detach says that no agent speaks for w.
func (lg *ledger) detach(w *holder) {
	lg.dropRequests(w)
	w.state = detached
}

// dismiss takes w out, as left or fenced. The unsettled rest of its leases becomes
// pending, and its requests are closed.
func (lg *ledger) dismiss(w *holder, as holderState, how back, reason Reclaimed) {
	for w.leases != nil {
		lg.reclaim(w.leases, how, reason)
	}
	lg.dropRequests(w)
	lg.dropRates(w)
	w.state = as
	lg.holders = slices.DeleteFunc(lg.holders, func(x *holder) bool { return x == w })
	if w.account.newest == w {
		w.account.newest = nil
	}
}

// moves says that w could make no progress until now. So the time that it may hold leases
// without progress begins now.
func (lg *ledger) moves(w *holder) { w.since = lg.now }

// setTaking notes whether w's trainer takes batches.
func (lg *ledger) setTaking(w *holder, takes bool) {
	if w.paused && takes {
		lg.moves(w)
	}
	w.paused = !takes
}

// setStill notes whether w was told to yield nothing. Then nobody expects progress from it.
func (lg *ledger) setStill(w *holder, still bool) { w.still = still }

// reported says that all acks of the rank up to and including step have arrived.
func (lg *ledger) reported(a *account, step int64) {
	a.step = step
	lg.dirtyRank(a)
	if !lg.folds {
		lg.stepsDue = true
		lg.foldOld(a)
	}
}

// goOn has the rank go on from step. It forgets that the rank was told END. If the rank goes
// back, its pieces of higher steps are not recent any more: most are gone, and those that stay
// are in its last cut and fold with it.
func (lg *ledger) goOn(a *account, step int64) {
	if step < a.step {
		a.recent.Keep(func(q *recentPiece) bool { return q.step <= step })
	}
	a.step, a.ended = step, false
	lg.dirtyRank(a)
}

// closeStep keeps a rank that was told END from acking at steps up to step.
func (lg *ledger) closeStep(a *account, step int64) {
	if a.ended && a.step < step {
		a.step = step
		lg.dirtyRank(a)
	}
}

// cutsDue says that a cut may be complete.
func (lg *ledger) cutsDue() { lg.stepsDue = true }

// takeStepsDue says whether a cut may have become complete since it was asked last.
func (lg *ledger) takeStepsDue() (due bool) {
	due, lg.stepsDue = lg.stepsDue, false
	return due
}

// setEnded notes whether the rank was told END and has asked for nothing since.
func (lg *ledger) setEnded(a *account, ended bool) {
	if a.ended == ended {
		return
	}
	if a.ended = ended; ended {
		lg.stepsDue = true
	}
	lg.dirtyRank(a)
}

package shardsvc

import (
	"slices"

	"github.com/headrace/headrace/shardsvc/line"
)

// speaker is an agent as the ledger knows it: it speaks for the holders of its
// processes.
type speaker struct {
	name    string
	session Session // 0: lost
}

// holder is a process that may hold leases. The group makes it, says how it stands,
// and takes it out; what it holds and waits for is the ledger's.
type holder struct {
	of      any // the process, as the group knows it; the ledger hands it back
	speaker *speaker
	account *account
	number  uint32
	state   holderState
	fenced  bool // late acks of closed leases are refused
	gone    bool
	still   bool // it was told to yield nothing, so no progress is expected

	leases     *lease // newest first, through wnext
	leaseCount int
	waiting    int      // open requests
	parked     []parked // of them, those that wait until it may be given rows
	rates      []rateOf

	since   Time // last progress, or when it began to hold leases
	stepped bool
	stallAt Time
	units   uint64
	paused  bool // its trainer takes no batches
}

type holderState uint8

const (
	running  holderState = iota
	ending               // its agent was told to end it; it gets nothing more
	detached             // its process may run, but no agent speaks for it
)

type rateOf struct {
	ds   DatasetID
	rate int64 // units/s
}

func (w *holder) rate(ds DatasetID) int64 {
	for i := range w.rates {
		if w.rates[i].ds == ds {
			return w.rates[i].rate
		}
	}
	return 0
}

// session to reach w by; 0: none.
func (w *holder) session() Session {
	if w.state == detached || w.gone {
		return 0
	}
	return w.speaker.session
}

// mayAsk: w can be asked for a part of what it holds.
func (w *holder) mayAsk() bool { return w.session() != 0 && w.state == running }

// busy: it holds records that are there and not settled. Who waits at heads only
// is neither slow nor stalled, however long.
func (w *holder) busy() bool {
	for l := w.leases; l != nil; l = l.wnext {
		if l.prefix < l.reach() {
			return true
		}
	}
	return false
}

// account is what the ledger knows of a rank over all its processes.
type account struct {
	no     uint32
	step   int64   // last reported
	ended  bool    // was told END, and has asked for nothing since
	newest *holder // its newest process; nil: it is gone
	recent line.Queue[recentPiece]
	dirty  bool
}

// account of rank no.
func (lg *ledger) account(no uint32) *account {
	a := lg.accounts[no]
	if a == nil {
		a = &account{no: no}
		lg.accounts[no] = a
	}
	return a
}

// admit lets a process hold leases. It is the newest one of its rank if its account
// says so.
func (lg *ledger) admit(w *holder) { lg.holders = append(lg.holders, w) }

// dismiss takes w out: its leases' rest is pending, its requests are closed.
func (lg *ledger) dismiss(w *holder, how back, reason string) {
	for w.leases != nil {
		lg.reclaim(w.leases, how, reason)
	}
	lg.dropRequests(w)
	lg.dropRates(w)
	w.gone = true
	lg.holders = slices.DeleteFunc(lg.holders, func(x *holder) bool { return x == w })
	if w.account.newest == w {
		w.account.newest = nil
	}
}

// setEnded: whether the rank was told END, and has asked for nothing since.
func (lg *ledger) setEnded(a *account, ended bool) {
	if a.ended == ended {
		return
	}
	if a.ended = ended; ended {
		lg.stepsDue = true
	}
	lg.dirtyRank(a)
}

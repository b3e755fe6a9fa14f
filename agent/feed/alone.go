package feed

import (
	"sync"
	"time"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/frame"
)

// A record that may crash its trainer comes in a batch of its own. The batch leaves once the
// trainer has stepped everything else, so the record alone is in the trainer's hand. The next
// batch waits until this one is stepped.

// alone counts what a trainer has in hand, over its streams.
type alone struct {
	mu        sync.Mutex
	unstepped uint32    // batches that were delivered and are not stepped
	single    bool      // one of them is a record by itself
	since     time.Time // since when the trainer works on the oldest of them
	forced    bool      // one of them left although others were in hand
	waiting   map[*stream]time.Time

	// Frames that may leave, and for which the Desk has not answered yet. They
	// count as in hand, so that two streams do not let one record each go at the same moment.
	onWay, singlesOnWay int
}

// mayLeave says whether a frame of st may leave now, or when to look again. left or stays
// has to follow if it may.
func (a *alone) mayLeave(st *stream, single bool) (again time.Time, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !st.track {
		return time.Time{}, true
	}
	if a.unstepped == 0 && a.onWay == 0 || !single && !a.single && a.singlesOnWay == 0 {
		delete(a.waiting, st)
		a.goes(single, 1)
		return time.Time{}, true
	}
	since, waits := a.waiting[st]
	if !waits {
		if a.waiting == nil {
			a.waiting = map[*stream]time.Time{}
		}
		since = time.Now()
		a.waiting[st] = since
	}
	if a.unstepped > 0 && a.since.After(since) {
		since = a.since // the oldest batch in hand came later, so the wait begins with it
	}
	if again = since.Add(st.t.srv.patience.now()); time.Now().After(again) {
		delete(a.waiting, st)
		a.forced = true
		a.goes(single, 1)
		return time.Time{}, true
	}
	return again, false
}

func (a *alone) goes(single bool, n int) {
	a.onWay += n
	if single {
		a.singlesOnWay += n
	}
}

// stays notes that the frame of st that might leave is cut again instead.
func (a *alone) stays(st *stream, single bool) {
	if !st.track {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.goes(single, -1)
	for s := range a.waiting {
		poke(s.wakeSend)
	}
}

// left notes that batches of st that might leave were delivered.
func (a *alone) left(st *stream, batches uint32, single bool) {
	if !st.track {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.goes(single, -1)
	a.has(st, batches, single)
}

// resumed notes that the trainer has batches of st from before.
func (a *alone) resumed(st *stream, batches uint32) {
	if !st.track {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.has(st, batches, false)
}

func (a *alone) has(st *stream, batches uint32, single bool) {
	if st.away {
		return
	}
	st.inHand += batches
	if a.unstepped == 0 {
		a.since = time.Now()
	}
	a.unstepped += batches
	a.single = a.single || single
}

// steppedTo notes a STEP.
func (a *alone) steppedTo(st *stream, v *frame.Step) {
	a.mu.Lock()
	defer a.mu.Unlock()
	through := v.Through
	if through == 0 {
		through = st.stepped + v.Batches*max(v.Run, 1)
	}
	if through <= st.stepped {
		return
	}
	batches := through - st.stepped
	a.unstepped -= min(a.unstepped, batches)
	st.inHand -= min(st.inHand, batches)
	st.stepped = through
	if a.forced && a.single {
		if v.Batches > 1 || v.More { // in one step
			st.t.srv.patience.tookSeveral()
		} else if batches == 1 && a.unstepped > 0 {
			st.t.srv.patience.needed(time.Since(a.since), false)
		}
	}
	a.since = time.Now()
	if a.unstepped == 0 {
		a.nothingInHand()
	}
}

// closed notes that st is gone: nothing of it will be stepped.
func (a *alone) closed(st *stream) {
	if !st.track {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, st)
	st.away = true
	if a.unstepped -= min(a.unstepped, st.inHand); a.unstepped == 0 {
		a.nothingInHand()
	}
}

func (a *alone) nothingInHand() {
	a.single, a.forced = false, false
	for s := range a.waiting {
		poke(s.wakeSend)
	}
}

// crashed notes that the trainer was ended by what it had in hand. If that was more than one
// record, the next trainer is given more time with each.
func (a *alone) crashed(p *patience) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.forced && a.single && a.unstepped > 0 {
		p.needed(time.Since(a.since), true)
	}
}

// singly says whether the records of the lease come one by one.
func (l *lease) singly() bool { return l.grant.Suspicion == pb.Grant_SINGLY }

// convicted says whether the master has decided that the records of the lease are bad.
func (l *lease) convicted() bool { return l.grant.Suspicion == pb.Grant_EXCLUDE }

const crashReason = "its trainer died twice while it alone was in the batch"

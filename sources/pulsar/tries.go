package pulsar

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	opensMost = 3   // so often an entry is read before it counts as damaged
	triesMost = 256 // entries that are counted

	// If nothing comes after an entry, the broker may only be slow. Then the entry is tried
	// for at least so long. After that a Reader must get a later entry within behindWithin.
	silentFor    = 30 * time.Second
	behindWithin = 5 * time.Second

	// A try that begins later than this after the one before is the first one again.
	tryAgainWithin = 10 * time.Second
)

// tries counts how often entries could not be read. The source has them, because an agent
// closes the cursor after each error that may pass.
type tries struct {
	silence time.Duration
	behind  time.Duration
	count   atomic.Int32 // of all: most cursors need not lock

	mu  sync.Mutex
	all []tried // the oldest first
}

type spot struct {
	p             partition
	ledger, entry int64
}

type tried struct {
	spot
	times int
	since time.Time // the first of them failed
	last  time.Time // the last of them failed
}

// failed counts an entry that could not be read, in a try that began at a time. It returns how
// many tries in a row have failed, and for how long. Two failures that lie hours apart are two
// bad moments of a broker, not one bad entry.
func (a *tries) failed(at spot, began time.Time) (times int, lasts time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for i := range a.all {
		one := &a.all[i]
		if one.spot != at {
			continue
		}
		if began.Sub(one.last) > tryAgainWithin {
			one.times, one.since = 0, now
		}
		one.times, one.last = one.times+1, now
		return one.times, now.Sub(one.since)
	}
	if len(a.all) == triesMost {
		a.all = append([]tried(nil), a.all[triesMost/2:]...)
	}
	a.all = append(a.all, tried{at, 1, now, now})
	a.count.Store(int32(len(a.all)))
	return 1, 0
}

// passed forgets an entry that was read.
func (a *tries) passed(at spot) {
	if a.count.Load() == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.all {
		if a.all[i].spot == at {
			a.all = append(a.all[:i:i], a.all[i+1:]...)
			break
		}
	}
	a.count.Store(int32(len(a.all)))
}

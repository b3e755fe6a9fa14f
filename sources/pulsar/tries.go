package pulsar

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	opensMost = 3   // so often an entry is read
	triesMost = 256 // entries that are counted

	// If nothing comes after an entry, the broker may only be slow. Then the entry is tried
	// for at least so long.
	silentFor = 30 * time.Second
)

// tries counts how often entries could not be read. The source has them, because an agent
// closes the cursor after each error that may pass.
type tries struct {
	silence time.Duration
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
	since time.Time
}

// failed counts an entry that could not be read. It returns how often that was so, and for
// how long.
func (a *tries) failed(at spot) (times int, lasts time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.all {
		if one := &a.all[i]; one.spot == at {
			one.times++
			return one.times, time.Since(one.since)
		}
	}
	if len(a.all) == triesMost {
		a.all = append([]tried(nil), a.all[triesMost/2:]...)
	}
	a.all = append(a.all, tried{at, 1, time.Now()})
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

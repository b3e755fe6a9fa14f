package rocketmq

import (
	"sync"
	"time"

	"github.com/headrace/headrace/internal/remoting"
)

// silentFor is how long another replica is asked in place of one that did not answer. Then
// one cursor asks it again.
const silentFor = 30 * time.Second

// silence has the replicas that did not answer. It belongs to the Source and not to a cursor:
// after an error the agent opens another cursor, which must not wait for the same replica
// again. The name servers still list a replica for two minutes after it hangs.
type silence struct {
	mu    sync.Mutex
	until map[string]time.Time // by address: until then another replica is asked
}

// note notes that a replica did not answer.
func (w *silence) note(addr string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.until == nil {
		w.until = map[string]time.Time{}
	}
	w.until[addr] = time.Now().Add(silentFor)
}

// ends notes that a replica answers.
func (w *silence) ends(addr string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.until, addr)
}

// pick returns the first replica that answers, as far as is known. If none does, it returns
// the one that was asked longest ago.
func (w *silence) pick(all []remoting.Replica) remoting.Replica {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, oldest := time.Now(), 0
	for i, r := range all {
		until, silent := w.until[r.Addr]
		if !silent {
			return r
		}
		if now.After(until) {
			w.until[r.Addr] = now.Add(silentFor) // the others wait for this one's answer
			return r
		}
		if until.Before(w.until[all[oldest].Addr]) {
			oldest = i
		}
	}
	w.until[all[oldest].Addr] = now.Add(silentFor)
	return all[oldest]
}

package feed

import (
	"sync"
	"time"
)

// patience is how long a record that comes alone waits for the step of what a trainer has in
// hand. A program may take several batches before it steps them, so nobody can wait for
// ever. But a step may also take long. Then the next record must not come to it: two in hand,
// and neither would ever be alone. So the wait grows with what the trainers of this agent
// were seen to need. Example: a step takes 3 s. The next record leaves after 1 s; the step of
// the first one alone comes after 3 s; from now on 12 s are waited.
type patience struct {
	mu      sync.Mutex
	wait    time.Duration // 0: aloneWait
	several bool          // a trainer stepped several batches at once that had waited for each other
}

const (
	// aloneWait is how long is waited at first.
	aloneWait = time.Second
	// longestAlone bounds what is learned.
	longestAlone = 10 * time.Minute
	longestGuess = time.Minute
	// aloneTimes is how much longer is waited than was needed.
	aloneTimes = 4
)

func (p *patience) now() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.several {
		return aloneWait
	}
	return max(p.wait, aloneWait)
}

// needed notes that a trainer has worked for so long on one batch, and that another one left for
// it meanwhile. Perhaps it only waited for that one, and then no patience is enough. So a time
// below twice the wait counts only if the trainer crashed, and raises the wait to longestGuess at most.
func (p *patience) needed(d time.Duration, crashed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait := max(p.wait, aloneWait)
	if d >= 2*wait {
		p.wait = min(aloneTimes*d, longestAlone)
	} else if crashed {
		p.wait = max(wait, min(aloneTimes*d, longestGuess))
	}
}

// tookSeveral notes that waiting for the steps of a trainer is of no use.
func (p *patience) tookSeveral() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.several = true
}

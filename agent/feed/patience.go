package feed

import (
	"sync"
	"time"
)

// patience is how long a record that comes alone waits until the trainer has stepped what it
// has in hand. It cannot wait for ever, because a program may take several batches before it
// steps them. But a step may also take long. If the next record left during a long step, the
// trainer would have two in hand, and neither would ever be alone. So the wait grows with the
// time that the trainers of this agent need. Example: a step takes 3 s. The next record leaves
// after 1 s. The step of the first record comes after 3 s. From then on records wait for 12 s.
type patience struct {
	mu      sync.Mutex
	wait    time.Duration // 0: aloneWait
	several bool          // a trainer stepped several batches at once that had waited for each other
}

const (
	// aloneWait is the wait at first.
	aloneWait = time.Second
	// longestAlone bounds the wait that is learned.
	longestAlone = 10 * time.Minute
	longestGuess = time.Minute
	// aloneTimes times the time that a step needed is the wait from then on.
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

// needed notes that a trainer took d for one batch, and that another batch left for it before the
// end of d. Perhaps the trainer took so long only because it waited for that other batch; then no
// wait is long enough. So a d below twice the wait counts only if the trainer crashed, and then
// raises the wait to longestGuess at most.
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

// tookSeveral notes that a trainer takes several batches for a step: a longer wait is of no use.
func (p *patience) tookSeveral() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.several = true
}

package shardsvc

import (
	"fmt"
	"slices"
	"strings"
)

// Who dies with a whole job counts as training until its agent says otherwise, or is
// given up. A restore of a shared model, which others must not train, waits until
// they are gone, or one of them is heard of again.

// doubtfulFor bounds the wait: an agent that was heard last when the call came is
// given up after a TTL, and a process that it had let go of just then after another.
func (c *Core) doubtfulFor() Time { return 2 * c.cfg.SessionTTL }

// doubtful: nobody is known to train the model beside w, and somebody may.
func (c *Core) doubtful(w *worker) bool {
	since := w.doubtedAt
	w.doubtedAt = 0
	if c.cfg.Model != Shared || since != 0 && c.now >= since+c.doubtfulFor() {
		return false
	}
	at := since
	if since == 0 {
		at = max(c.now, 1)
	}
	var silent []string
	for _, x := range c.workers {
		if x == w || !c.trains(x) {
			continue
		}
		if x.spokenFor() && (x.agent == w.agent || x.agent.lastHeard > at) {
			return false
		}
		silent = append(silent, fmt.Sprintf("rank %d (agent %q)", x.rank.no, x.agent.name))
	}
	if len(silent) == 0 {
		return false
	}
	w.doubtedAt, c.doubting = at, true
	if since == 0 {
		c.timers.push(timer{at: at + c.doubtfulFor(), kind: timerDoubt})
		slices.Sort(silent)
		if n := len(silent); n > maxNamed {
			silent = append(silent[:maxNamed], fmt.Sprintf("%d more", n-maxNamed))
		}
		c.report(Report{Kind: ReportRestoreWaits, Rank: w.rank.no, Agent: w.agent.name, Reason: "whether they still train the model is not known yet: " + strings.Join(silent, ", ")})
	}
	return true
}

// spokenFor: x's agent is there, and has not said that x is gone. An agent hears of
// the end of a trainer before it hears of the next one.
func (x *worker) spokenFor() bool {
	return x.session() != 0 && x.state == running && !x.unconfirmed
}

// checkDoubts runs at the end of a Step: somebody may be gone, or was heard of.
func (c *Core) checkDoubts() {
	if !c.doubting {
		return
	}
	c.doubting = false
	for i := 0; i < len(c.workers); i++ {
		if w := c.workers[i]; w.doubtedAt != 0 && w.session() != 0 { // else it says the call again, or is gone
			c.restoreWaiting(w)
		}
	}
}

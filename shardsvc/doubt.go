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
func (ck *checkpoints) doubtfulFor() Time { return 2 * ck.cfg.SessionTTL }

// doubtful: nobody is known to train the model beside w, and somebody may.
func (ck *checkpoints) doubtful(w *worker) bool {
	since := ck.at(w).doubtedAt
	ck.at(w).doubtedAt = 0
	if ck.kind.byStep() || since != 0 && ck.now >= since+ck.doubtfulFor() {
		return false
	}
	at := since
	if since == 0 {
		at = max(ck.now, 1)
	}
	var silent []string
	for _, x := range ck.group.workers {
		if x == w || !ck.trains(x) {
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
	ck.at(w).doubtedAt, ck.doubting = at, true
	if since == 0 {
		ck.timers.push(timer{at: at + ck.doubtfulFor(), kind: timerDoubt})
		slices.Sort(silent)
		if n := len(silent); n > maxNamed {
			silent = append(silent[:maxNamed], fmt.Sprintf("%d more", n-maxNamed))
		}
		ck.ledger.report(Report{Kind: ReportRestoreWaits, Rank: w.rank.no, Agent: w.agent.name, Reason: "whether they still train the model is not known yet: " + strings.Join(silent, ", ")})
	}
	return true
}

// spokenFor: x's agent is there, and has not said that x is gone. An agent hears of
// the end of a trainer before it hears of the next one.
func (x *worker) spokenFor() bool {
	return x.session() != 0 && x.state == running && !x.unconfirmed
}

// checkDoubts runs at the end of a Step: somebody may be gone, or was heard of.
func (ck *checkpoints) checkDoubts() {
	if !ck.doubting {
		return
	}
	ck.doubting = false
	for i := 0; i < len(ck.group.workers); i++ {
		if w := ck.group.workers[i]; ck.at(w).doubtedAt != 0 && w.session() != 0 { // else it says the call again, or is gone
			ck.restoreWaiting(w)
		}
	}
}

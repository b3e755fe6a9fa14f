package shardsvc

import (
	"slices"
)

// settleDeadline is how long the shell may look for a manifest.
const settleDeadline = 30 * Second

// rankGone: the process of a private rank is gone or given up. Each of its frozen
// cuts is settled first, bound or voided; then what it had acked above the newest
// cut that it may go back to is pending again.
func (c *Core) rankGone(r *rank) (again comesAgain) {
	r.lost = true
	c.dirtyRank(r)
	for _, k := range c.cuts {
		if k.rank == int64(r.no) && k.state == CutFrozen && !k.settling {
			k.settling = true
			c.reportCut(ReportSettleCut, k, "")
			c.timers.push(timer{at: c.now + settleDeadline, kind: timerSettle, cut: k.id})
		}
	}
	return c.rankSettled(r)
}

func (c *Core) rankSettled(r *rank) (again comesAgain) {
	if c.settling(r) {
		return again
	}
	if r.lost {
		r.lost = false
		c.dirtyRank(r)
		above := int64(-1) // of the acks since its base
		if k := c.newest(r, func(k *keptCut) bool {
			return k.state == CutBound || k.state == CutCarried
		}); k != nil && (r.base == nil || c.after(k, r.base)) {
			above = k.step
		}
		if again = c.takeBack(r, above); again.units > 0 {
			c.report(Report{Kind: ReportPendingAgain, Rank: r.no, Units: again.units, Records: again.Tally, Reason: "the process of a private rank is gone"})
		}
	}
	if w := r.worker; w != nil {
		c.restoreWaiting(w)
	}
	return again
}

func (c *Core) restoreWaiting(w *worker) {
	if k := w.asking; k != nil {
		w.asking = nil
		c.restore(w, k.call, &k.restore)
		if k.call == 0 && w.rank.must && w.asking == nil { // others train the model: it joins them
			w.rank.must = false
			c.dirtyRank(w.rank)
			c.unpark()
		}
	}
}

func (c *Core) settling(r *rank) bool {
	return slices.ContainsFunc(c.cuts, func(k *keptCut) bool { return k.settling && k.rank == int64(r.no) })
}

// settleCut is what the shell found, or that it found nothing in time.
func (c *Core) settleCut(id uint64, found bool, reason string) {
	k := c.kept(id)
	if k == nil || !k.settling {
		return
	}
	if k.settling = false; found {
		c.bound(k, "")
	} else {
		c.void(k, reason)
	}
	c.rankSettled(c.rankOf(uint32(k.rank)))
}

package shardsvc

import "slices"

// settleDeadline is how long the shell may look for a manifest.
const settleDeadline = 30 * Second

// rankGone: the process of a private rank is gone or given up. Each of its frozen
// cuts is settled first, bound or voided; then what it had acked above the newest
// cut that it may go back to is pending again.
func (ck *checkpoints) rankGone(r *rank) (again comesAgain) {
	ck.past(r).lost = true
	ck.ledger.dirtyRank(r.account)
	for _, k := range ck.cuts {
		if k.rank == int64(r.no) && k.state == CutFrozen && !k.settling {
			k.settling = true
			ck.reportCut(ReportSettleCut, k, "")
			ck.timers.push(timer{at: ck.now + settleDeadline, kind: timerSettle, cut: k.id})
		}
	}
	return ck.rankSettled(r)
}

func (ck *checkpoints) rankSettled(r *rank) (again comesAgain) {
	if ck.settling(r) {
		return again
	}
	if ck.past(r).lost {
		ck.past(r).lost = false
		ck.ledger.dirtyRank(r.account)
		above := int64(-1) // of the acks since its base
		if k := ck.newest(r, func(k *keptCut) bool {
			return k.state == CutBound || k.state == CutCarried
		}); k != nil && (ck.past(r).base == nil || ck.after(k, ck.past(r).base)) {
			above = k.step
		}
		if again = ck.ledger.takeBack(r.account, above); again.units > 0 {
			ck.ledger.report(Report{Kind: ReportPendingAgain, Rank: r.no, Units: again.units, Records: again.Tally, Reason: "the process of a private rank is gone"})
		}
	}
	if w := r.worker(); w != nil {
		ck.restoreWaiting(w)
	}
	return again
}

func (ck *checkpoints) restoreWaiting(w *worker) {
	if k := ck.at(w).asking; k != nil {
		ck.at(w).asking = nil
		ck.restore(w, k.call, &k.restore)
		if k.call == 0 && ck.past(w.rank).must && ck.at(w).asking == nil { // others train the model: it joins them
			ck.past(w.rank).must = false
			ck.ledger.dirtyRank(w.rank.account)
			ck.ledger.unpark()
		}
	}
}

func (ck *checkpoints) settling(r *rank) bool {
	return slices.ContainsFunc(ck.cuts, func(k *keptCut) bool { return k.settling && k.rank == int64(r.no) })
}

// settleCut is what the shell found, or that it found nothing in time.
func (ck *checkpoints) settleCut(id uint64, found bool, reason string) {
	k := ck.kept(id)
	if k == nil || !k.settling {
		return
	}
	if k.settling = false; found {
		ck.bound(k, "")
	} else {
		ck.void(k, reason)
	}
	ck.rankSettled(ck.group.rankOf(uint32(k.rank)))
}

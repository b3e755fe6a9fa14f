package shardsvc

import "slices"

// resolveDeadline is how long the shell may look for the manifest of a frozen cut.
const resolveDeadline = 30 * Second

// rankGone says that the process of a private rank is gone or given up. First each frozen
// cut of the rank is resolved: it becomes bound or voided. Then everything that the rank
// acked above its newest cut is pending again. Example: acked up to step 130, newest cut
// at step 120: the records of steps 121 to 130 come again.
func (ck *checkpoints) rankGone(r *rank) (again comesAgain) {
	ck.past(r).lost = true
	ck.ledger.dirtyRank(r.account)
	for _, k := range ck.cuts {
		if k.rank == int64(r.no) && k.state == CutFrozen && !k.resolving {
			k.resolving = true
			ck.reportCut(ReportResolveCut, k, "")
			ck.timers.push(timer{at: ck.now + resolveDeadline, kind: timerResolve, cut: k.id})
		}
	}
	return ck.rankResolved(r)
}

// rankResolved ends what rankGone began, once none of the rank's cuts is being resolved.
func (ck *checkpoints) rankResolved(r *rank) (again comesAgain) {
	if ck.resolving(r) {
		return again
	}
	if ck.past(r).lost {
		ck.past(r).lost = false
		ck.ledger.dirtyRank(r.account)
		above := int64(-1) // -1: all acks since its base come back
		if k := ck.newest(r, func(k *keptCut) bool {
			return k.state == CutBound || k.state == CutCarried || k.state.inMemory()
		}); k != nil && (ck.past(r).base == nil || ck.after(k, ck.past(r).base)) {
			above = k.step
		}
		if again = ck.ledger.takeBack(r.account, above); again.units > 0 {
			ck.ledger.report(Report{Kind: ReportPendingAgain, Rank: r.no, Units: again.units, Records: again.Tally, Reason: "the process of a private rank is gone"})
		}
	}
	return again
}

func (ck *checkpoints) resolving(r *rank) bool {
	return slices.ContainsFunc(ck.cuts, func(k *keptCut) bool { return k.resolving && k.rank == int64(r.no) })
}

// resolveCut takes the shell's answer: whether it found a valid manifest in time.
func (ck *checkpoints) resolveCut(id uint64, found bool, reason string) {
	k := ck.kept(id)
	if k == nil || !k.resolving {
		return
	}
	if k.resolving = false; found {
		ck.bound(k, "")
	} else {
		ck.void(k, reason)
	}
	ck.rankResolved(ck.group.rankOf(uint32(k.rank)))
}

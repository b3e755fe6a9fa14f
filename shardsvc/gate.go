package shardsvc

import (
	"fmt"
	"slices"
)

// A process that must restore, or wait until others have restored, is given no rows before
// that. Its requests are parked, and it is told why.

// standingOf says whether w is kept from all rows now.
func (ck *checkpoints) standingOf(h *holder) standing {
	if !ck.gates() && ck.pause == nil {
		return standing{}
	}
	w := h.process().(*worker)
	switch {
	case ck.gated(w):
		return standing{mustRestore, ck.gate(w)}
	case ck.pause != nil && ck.at(w).barred:
		return standing{joinedInPause, ck.pauseReason()}
	}
	return standing{}
}

// gated says whether w is given rows only after a restore.
func (ck *checkpoints) gated(w *worker) bool {
	return ck.phase == restoreOpen || ck.phase == restoreWaits || !ck.model.inStep && ck.past(w.rank).way == mustGoBack
}

// gates says whether anybody can be gated. It is asked for each grant.
func (ck *checkpoints) gates() bool {
	return ck.phase == restoreOpen || ck.phase == restoreWaits || ck.must
}

// gate says what a gated worker waits for.
func (ck *checkpoints) gate(w *worker) string {
	switch {
	case ck.phase == restoreWaits && ck.past(w.rank).way == wentBack:
		return fmt.Sprintf("it waits until all %d ranks have joined and restored. Ranks that are started by hand restart together: end those that still run, then start all", ck.group.world())
	case ck.phase == restoreWaits:
		return "the other ranks restore: call restore or load_state_dict too, or say resume=start"
	case ck.starts(w):
		return "whether others still train the model is not known yet: it begins when they are given up, or joins them when they are heard of"
	}
	return "the job has acks or checkpoints: call restore or load_state_dict, or say resume=start"
}

// hasPast says whether any record is in a model.
func (ck *checkpoints) hasPast() bool { return ck.hasBound() || ck.ledger.anyAcked() }

// keeps says whether a cut is kept that the group, or rank r, may go back to.
func (ck *checkpoints) keeps(r *rank) bool {
	return slices.ContainsFunc(ck.cuts, func(k *keptCut) bool {
		return k.state.kept() && k.isOf(r)
	})
}

package shardsvc

import (
	"fmt"
	"slices"

	"github.com/headrace/headrace/shardsvc/cut"
)

// Who must restore, or wait for others to, gets nothing before: its requests are
// parked, and told so.

// gated: w gets nothing now.
func (ck *checkpoints) gated(w *worker) bool {
	return ck.phase == restoreOpen || ck.phase == restoreWaits || ck.kind.gated(w)
}

// mayGet says whether w may be given rows now, and if not what its requests are told.
func (ck *checkpoints) mayGet(h *holder) (ok bool, state State, reason string) {
	w := h.of.(*worker)
	switch {
	case ck.gated(w):
		return false, Restoring, ck.gate(w)
	case ck.pause != nil && ck.at(w).barred:
		return false, Wait, ck.pauseReason()
	}
	return true, 0, ""
}

// gate says what a gated worker waits for.
func (ck *checkpoints) gate(w *worker) string {
	switch {
	case ck.phase == restoreWaits && ck.past(w.rank).called:
		return fmt.Sprintf("it waits until all %d ranks have restored", ck.group.worldSize)
	case ck.phase == restoreWaits:
		return "the other ranks restore: call restore or load_state_dict too, or say resume=start"
	case ck.at(w).asking != nil && ck.at(w).asking.restore.Mode == RestoreStart:
		return "whether others still train the model is not known yet: it begins when they are given up, or joins them when they are heard of"
	}
	return "the job has acks or checkpoints: call restore or load_state_dict, or say resume=start"
}

// hasPast: something is in a model.
func (ck *checkpoints) hasPast() bool { return ck.hasBound() || ck.ledger.anyAcked() }

// keeps: a cut is kept that the group, or rank r, may go back to.
func (ck *checkpoints) keeps(r *rank) bool {
	return slices.ContainsFunc(ck.cuts, func(k *keptCut) bool {
		return k.state.kept() && (k.rank == cut.Group || k.rank == int64(r.no))
	})
}

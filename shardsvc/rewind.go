package shardsvc

import (
	"fmt"

	"github.com/headrace/headrace/shardsvc/cut"
)

// voidAfter voids every cut of the group, or of rank r, that is newer than k; nil: than
// the start. It also voids the unbound cuts of earlier generations of the group.
func (ck *checkpoints) voidAfter(r *rank, k *keptCut, foreign bool) {
	reason := "the model went back to the start"
	if k != nil {
		reason = fmt.Sprintf("the model went back to step %d (cut %016x)", k.step, k.id)
	}
	for _, x := range ck.cuts {
		switch {
		case x == k || !x.isOf(r):
		case k == nil || ck.after(x, k), foreign && (x.epoch > k.epoch || x.epoch == k.epoch && x.step > k.step):
			ck.void(x, reason)
		case foreign && ck.overlaps(x, ck.linesOf(k)): // from now on others may get the records that only x has
			ck.void(x, reason)
		case x.rank == cut.Group && x.state == CutFrozen && x.generation < ck.generation:
			ck.void(x, "its generation has ended and nobody bound it")
		}
	}
}

// overlaps says whether x must be voided when the job goes back to a foreign cut that lies
// at want. x is older by epoch and step, but it has records that are neither in the foreign
// cut nor excluded, and those are given out again. Epochs and steps order all cuts of a
// group that trains in step.
func (ck *checkpoints) overlaps(x *keptCut, want *lines) bool {
	if ck.model.inStep || !x.state.kept() {
		return false
	}
	return ck.ledger.hasMoreThan(ck.linesOf(x), want)
}

// rewind goes back without a trainer. All processes that have the model must start again.
func (ck *checkpoints) rewind(e *Rewind) {
	ranks, t, reason := ck.rewindTarget(e.Cut, e.Path)
	if reason != "" {
		ck.ledger.rejected("rewind: %s", reason)
		return
	}
	ck.comeAfter(e.After)
	why := "somebody went back to the start"
	if e.Cut != nil {
		why = fmt.Sprintf("somebody went back to step %d (cut %v)", e.Cut.Step, e.Cut.ID)
	}
	again := ck.kind.rewound(ranks, &t, why)
	ck.ledger.report(Report{Kind: ReportRewound, Cut: t.id(), Step: t.step(), Path: t.path, Units: again.units, Records: again.Tally, Reason: why})
	ck.ledger.kickAll()
}

// rewindTarget is what a person goes back to, and the ranks whose model that is.
func (ck *checkpoints) rewindTarget(body *cut.Cut, path string) (ranks []*rank, t target, reason string) {
	if reason = ck.noCuts(); reason != "" {
		return nil, t, reason
	}
	if ck.recovering {
		return nil, t, "a new master waits for its agents: try again in a few seconds"
	}
	if n := len(ck.group.processes()); n > 0 && !ck.model.byStep {
		return nil, t, fmt.Sprintf("%d trainers run, and the model outlives them: end them first", n)
	}
	if body == nil {
		return ck.group.everyRank(), t, ""
	}
	var r *rank
	if body.Rank != cut.Group {
		if !ck.owns(int64(body.Rank)) {
			return nil, t, fmt.Sprintf("the checkpoint is that of %s, and the job's model is %s", kindOf(int64(body.Rank)), ck.cfg.Model)
		}
		r = ck.group.knownOr(uint32(body.Rank))
		ranks = append(ranks, r)
	}
	t, code, why := ck.pick(r, &RestoreCall{Mode: RestoreExact, Cut: body, Path: path})
	if code != CutOK {
		return nil, t, why.Error()
	}
	return ranks, t, ""
}

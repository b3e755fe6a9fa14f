package shardsvc

import (
	"fmt"

	"github.com/headrace/headrace/shardsvc/cut"
)

// kind holds what each model kind decides by code of its own: what happens when a process
// joins or is lost, when a cut is complete or bound, and when somebody goes back to a cut.
// The facts in which the kinds differ are in model.
type kind interface {
	groupKind
	// complete says whether every rank that must report has reported the step of q.
	complete(q *ask) bool
	// missing names the ranks that have not reported it.
	missing(q *ask) string
	// bound says that k is bound, so that acks which were kept apart for it may fold.
	bound(k *keptCut)
	// answered answers a restore that is decided already, or that comes too late; done says
	// that it did. moved says that the restore comes too late because a step was reported
	// since the generation, or the process, began; such a restore is not answered here.
	answered(w *worker, call uint64, k *RestoreCall) (done, moved bool)
	// chosen goes back to a cut; nil: to the start. fresh says that no record was in a
	// model.
	chosen(r *rank, t *target, k *keptCut, fresh bool) (again comesAgain)
	// rewound goes back without a trainer.
	rewound(ranks []*rank, t *target, why string) (again comesAgain)
}

func newKind(ck *checkpoints) kind {
	switch ck.cfg.Model {
	case Private:
		return private{ck}
	case Replicated:
		return replicated{ck}
	default:
		return shared{ck}
	}
}

// ownerOf says to whom the cuts belong that r asks for: cut.Group, or the number of a rank.
func (ck *checkpoints) ownerOf(r *rank) int64 {
	if ck.model.perRank {
		return int64(r.no)
	}
	return cut.Group
}

// mayResume turns away a newcomer that says resume=acked: the model that had the acked
// records ended with an earlier process.
func (ck *checkpoints) mayResume(a *agent, j *Join, newcomer bool) bool {
	if !newcomer || j.Resume != ResumeAcked || ck.noCuts() != "" {
		return true
	}
	ck.group.refuseJoin(a, j, fmt.Sprintf("resume=acked: the model of a %s job ends with its processes, so the records that they acked are in no model. Say bound, or start", ck.cfg.Model))
	return false
}

// begin sets the step of a rank that is new in the generation to the step that the group
// went back to.
func (ck *checkpoints) begin(w *worker, first bool) {
	if first {
		ck.ledger.goOn(w.account, ck.restored)
	}
	ck.checkRestored()
}

// goBackAll makes a cut the settled records of the whole job.
func (ck *checkpoints) goBackAll(t *target, k *keptCut) (again comesAgain) {
	if ck.pause != nil {
		ck.endPause(CutRefused, "somebody went back to a checkpoint")
	}
	again = ck.ledger.goBack(ck.linesOf(k))
	ck.voidAfter(nil, k, t.foreign != nil)
	return again
}

// restoredTo says that the ranks which went back go on from the step of t.
func (ck *checkpoints) restoredTo(t *target, back func(*rank) bool) {
	ck.choice, ck.restored = t.id(), t.step()
	ck.group.setTopStep(ck.restored)
	for _, x := range ck.group.everyRank() {
		if back(x) {
			ck.ledger.goOn(x.account, ck.restored)
		}
	}
	ck.jobDirty = true
}

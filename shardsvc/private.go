package shardsvc

import (
	"fmt"

	"github.com/headrace/headrace/shardsvc/cut"
)

// private: each rank has its own model, steps and checkpoints. When the process of a rank
// is gone, the records that it acked above its newest cut come again.
type private struct{ *checkpoints }

// enter drops an older process of the rank, and its model with it. The new process goes
// back to a cut of the rank, or begins with nothing.
func (ck private) enter(a *agent, r *rank, j *Join, newcomer bool, _ made) (again comesAgain, ok bool) {
	if !ck.mayResume(a, j, newcomer) {
		return again, false
	}
	if !newcomer {
		return again, true
	}
	ck.group.setWorldSize(max(j.WorldSize, 1))
	had := ck.hasPast()
	if old := r.worker(); old != nil {
		ck.group.fence(old, fmt.Sprintf("another process came for rank %d", r.no))
		ck.group.drop(old, fenced, lost, ReclaimedFenced)
	}
	again = ck.rankGone(r)
	past := ck.past(r)
	past.way, past.choice = noWay, 0
	ck.ledger.goOn(r.account, 0)
	switch {
	case j.Resume == ResumeStart || j.Resume == ResumeDefault && !ck.keeps(r):
		again.add(ck.choose(r, &target{}))
		if j.Resume == ResumeStart {
			past.way = wentBack
		}
	case ck.keeps(r) || had:
		ck.mustGoBack(past)
	}
	return again, true
}

func (ck private) entered(w *worker, _ *Join, first bool) (again comesAgain) {
	ck.begin(w, first)
	return again
}

func (ck private) lost(r *rank, _ string) { ck.rankGone(r) }

func (ck private) complete(q *ask) bool { return q.w.rank.hasReported(q.cut.Step) }

func (ck private) missing(q *ask) string {
	return fmt.Sprintf("rank %d has reported step %d, not %d", q.w.rank.no, q.w.rank.lastStep(), q.cut.Step)
}

// bound makes k the cut that the rank's model began with. Acks that are not in k are kept
// for the rank's next cut.
func (ck private) bound(k *keptCut) {
	r := ck.group.rankOf(uint32(k.rank))
	if base := ck.past(r).base; base != nil && ck.after(base, k) {
		return
	}
	ck.setBase(r, k)
	ck.ledger.foldCut(ck.linesOf(k), k.rank, k.generation, k.step)
}

// witness is a cut of another rank that a rank offers because it has none of its own; nil:
// it offers none. An empty master must grant nobody the records of that cut before the rank
// that it belongs to has come.
func (ck *checkpoints) witness(r *rank, k *RestoreCall) *cut.Cut {
	if !ck.model.perRank || k.Mode != RestoreNewest || k.Cut == nil || k.Cut.Rank == cut.Rank(r.no) || k.Cut.Rank == cut.Group {
		return nil
	}
	return k.Cut
}

func (ck private) answered(w *worker, call uint64, _ *RestoreCall) (done, moved bool) {
	r := w.rank
	if way := ck.past(r).way; way != wentBack {
		return false, way != mustGoBack && r.lastStep() > 0
	}
	ck.answerChoice(w, call, comesAgain{})
	return true, false
}

func (ck private) chosen(r *rank, t *target, k *keptCut, _ bool) (again comesAgain) {
	again = ck.ledger.goBackRank(r.account, ck.ownLines(r), ck.linesOf(k))
	ck.setBase(r, k)
	ck.voidAfter(r, k, t.foreign != nil)
	past := ck.past(r)
	past.lost, past.choice = false, t.id()
	ck.ledger.goOn(r.account, t.step())
	if t.foreign != nil && ck.phase == restoreFree && !ck.anyTrained(r) {
		ck.awaitRanks()
	}
	ck.jobDirty = true
	return again
}

func (ck private) rewound(ranks []*rank, t *target, why string) (again comesAgain) {
	for _, r := range ranks {
		r = ck.group.rankOf(r.no)
		if w := r.worker(); w != nil {
			ck.group.fence(w, why)
			ck.group.fenceRank(w)
			ck.group.drop(w, fenced, untouched, ReclaimedRewound)
		}
		again.add(ck.choose(r, t))
		ck.past(r).way = noWay
	}
	return again
}

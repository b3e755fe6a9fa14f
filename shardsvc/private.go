package shardsvc

import (
	"fmt"

	"github.com/headrace/headrace/shardsvc/cut"
)

// private: each rank has its own model, steps and checkpoints. When the process of a rank
// is gone, the records that it acked above its newest cut come again.
type private struct{ anyKind }

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
		ck.group.drop(old, fenced, lost, "fenced")
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
		past.way = mustGoBack
	}
	return again, true
}

func (ck private) lost(w *worker, newest bool, _ string) {
	if newest {
		ck.rankGone(w.rank)
	}
}

func (ck private) unheard(gone []*rank) {
	for _, r := range gone {
		ck.rankGone(r)
	}
}

func (ck private) complete(q *ask) bool { return q.w.rank.reported(q.cut.Step) }

func (ck private) missing(q *ask) string {
	return fmt.Sprintf("rank %d has reported step %d, not %d", q.w.rank.no, q.w.rank.step, q.cut.Step)
}

func (ck private) owner(r *rank) int64 { return int64(r.no) }

func (ck private) owns(owner int64) bool { return owner != cut.Group }

// bound: from now on the rank's model began with k. Acks that are not in k are kept for
// the rank's next cut.
func (ck private) bound(k *keptCut) {
	r := ck.group.rankOf(uint32(k.rank))
	if base := ck.past(r).base; base != nil && ck.after(base, k) {
		return
	}
	ck.setBase(r, k)
	ck.ledger.foldCut(ck.linesOf(k), ck.inCut(k))
}

// witness: an empty master must grant nobody the records of another rank's cut before that
// rank has come.
func (ck private) witness(r *rank, k *RestoreCall) *cut.Cut {
	if k.Mode != RestoreNewest || k.Cut == nil || k.Cut.Rank == cut.Rank(r.no) || k.Cut.Rank == cut.Group {
		return nil
	}
	return k.Cut
}

func (ck private) free(r *rank, body *cut.Cut, all []fitted) error {
	if r == nil || body.Rank != cut.Rank(r.no) {
		return fmt.Errorf("the checkpoint (cut %v) is that of rank %d", body.ID, body.Rank)
	}
	return ck.ledger.taken(r.account, ck.ownLines(r), all)
}

func (ck private) choice(r *rank) (uint64, int64) { return ck.past(r).choice, 0 }

func (ck private) foreign(k *keptCut, r *rank) bool {
	return k.rank != int64(r.no) || k.incarnation != r.incarnation
}

func (ck private) sameLife(k, x *keptCut) bool {
	return k.rank == x.rank && k.generation == x.generation && k.incarnation == x.incarnation
}

func (ck private) moved(r *rank) bool { return ck.past(r).way != mustGoBack && r.step > 0 }

func (ck private) answered(w *worker, call uint64, _ *RestoreCall) bool {
	if ck.past(w.rank).way != wentBack {
		return false
	}
	ck.answerChoice(w, call, comesAgain{})
	return true
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
			ck.group.drop(w, fenced, untouched, "rewound")
		}
		again.add(ck.choose(r, t))
		ck.past(r).way = noWay
	}
	return again
}

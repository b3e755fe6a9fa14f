package shardsvc

import (
	"slices"
)

// shared: the model outlives its workers, for example in a parameter server or in shared
// memory. If a process is replaced, it is ended, and its acked records stay in the model.
type shared struct{ *checkpoints }

// enter has an older process of the rank ended. Its rows wait until it is known to be
// gone. The first process of a group may start from the beginning.
func (ck shared) enter(_ *agent, r *rank, j *Join, newcomer bool, _ made) (again comesAgain, ok bool) {
	if !newcomer {
		return again, true
	}
	ck.group.replace(r)
	past := ck.past(r)
	past.way = noWay
	must := false
	switch {
	case ck.noCuts() != "":
	case ck.recovering && len(ck.group.processes()) == 0: // other processes may come back
		must = j.Resume == ResumeStart || j.Resume == ResumeBound
	case slices.ContainsFunc(ck.group.processes(), ck.trains): // they train the model, or are dead and the master does not know it yet
		must = j.Resume == ResumeStart
	case len(ck.group.processes()) > 0:
	case j.Resume == ResumeStart:
		again = ck.choose(r, &target{})
	case j.Resume == ResumeBound:
		must = ck.hasPast()
	}
	if must {
		ck.mustGoBack(past)
	}
	return again, true
}

func (ck shared) entered(w *worker, j *Join, first bool) (again comesAgain) {
	if ck.past(w.rank).way == mustGoBack && j.Resume == ResumeStart {
		ck.starters = append(ck.starters, starter{w: w})
	}
	ck.begin(w, first)
	return again
}

// complete: a cut holds everything that was acked when the saver asked, so it waits for
// nobody.
func (ck shared) complete(*ask) bool { return true }

func (ck shared) missing(*ask) string { return "" }

func (ck shared) bound(*keptCut) { ck.remark() }

func (ck shared) lost(*rank, string) {}

// answered: while others train the model, nobody loads an older one into it.
func (ck shared) answered(w *worker, call uint64, k *RestoreCall) (done, moved bool) {
	r := w.rank
	if !ck.othersTrain(w) {
		return false, r.lastStep() > ck.restored
	}
	loaded := k.Cut != nil && uint64(k.Cut.ID) == ck.choice && k.Mode == RestoreExact && !ck.ackedSince(uint64(k.Cut.ID))
	if !loaded && k.Mode != RestoreNewest {
		ck.answer(w, call, CutAnswer{Code: CutRefused, Why: RefusedOthers}, 0, "others train the model: stop them first")
		return true, false
	}
	ck.past(r).way = wentBack
	ck.ledger.dirtyRank(r.account)
	if loaded {
		ck.answerChoice(w, call, comesAgain{})
	} else {
		ck.answer(w, call, CutAnswer{}, r.lastStep(), "the model outlives its workers, and others train it: nothing is restored")
	}
	ck.ledger.unpark()
	return true, false
}

func (ck shared) chosen(_ *rank, t *target, k *keptCut, fresh bool) (again comesAgain) {
	again = ck.goBackAll(t, k)
	if ck.remark(); !fresh {
		ck.newEpoch(0)
	}
	ck.phase = restoreFree
	ck.restoredTo(t, func(*rank) bool { return true })
	return again
}

func (ck shared) rewound(_ []*rank, t *target, _ string) (again comesAgain) {
	return ck.choose(nil, t)
}

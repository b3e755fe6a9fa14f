package shardsvc

import (
	"fmt"
	"slices"
)

// shared: the model outlives its workers, for example in a parameter server or in shared
// memory. If a process is replaced, it is ended, and its acked records stay in the model.
type shared struct{ anyKind }

func (ck shared) takesOlder() bool { return ck.noCuts() == "" }

// keepsRows: a batch that w has not stepped may be in the model already.
func (ck shared) keepsRows(w *worker) string {
	return fmt.Sprintf("rows that rank %d has in hand may be in the shared model already, so they go to others only when its process has ended. "+
		"End process %d on the node of agent %q, or let it call stream.close()", w.rank.no, w.pid, w.agent.name)
}

// enter has an older process of the rank ended. Its rows wait until it is known to be
// gone. The first process of a group may begin anew.
func (ck shared) enter(_ *agent, r *rank, j *Join, newcomer bool, _ made) (again comesAgain, ok bool) {
	if !newcomer {
		return again, true
	}
	if r.process == present {
		ck.group.replace(r)
	}
	past := ck.past(r)
	past.way = noWay
	must := false
	switch {
	case ck.noCuts() != "":
	case ck.recovering && len(ck.group.workers) == 0: // others may come back
		must = j.Resume == ResumeStart || j.Resume == ResumeBound
	case slices.ContainsFunc(ck.group.workers, ck.trains): // or did, and are dead
		must = j.Resume == ResumeStart
	case len(ck.group.workers) > 0:
	case j.Resume == ResumeStart:
		again = ck.choose(r, &target{})
	case j.Resume == ResumeBound:
		must = ck.hasPast()
	}
	if must {
		past.way = mustGoBack
	}
	return again, true
}

func (ck shared) entered(w *worker, j *Join, first bool) (again comesAgain) {
	if ck.past(w.rank).way == mustGoBack && j.Resume == ResumeStart {
		ck.starters = append(ck.starters, starter{w: w})
	}
	return ck.anyKind.entered(w, j, first)
}

func (ck shared) joined(w *worker, newcomer bool) {
	ck.anyKind.joined(w, newcomer)
	ck.checkStarters()
}

// complete: a cut holds everything that was acked when the saver asked, so it waits for
// nobody.
func (ck shared) complete(*ask) bool { return true }

func (ck shared) missing(*ask) string { return "" }

func (ck shared) byStep() bool { return false }

func (ck shared) badAsk(w *worker, k *CutAsk) string {
	if k.Exact {
		return ck.notPaused(w, k.Cut)
	}
	return ""
}

func (ck shared) bound(*keptCut) { ck.remark() }

func (ck shared) unbound() { ck.remark() }

func (ck shared) busy() string {
	if n := len(ck.group.workers); n > 0 {
		return fmt.Sprintf("%d trainers run, and the model outlives them: end them first", n)
	}
	return ""
}

func (ck shared) sameLife(_, _ *keptCut) bool { return false }

func (ck shared) moved(r *rank) bool { return r.step > ck.restored }

func (ck shared) undecided(w *worker, waited Time) string {
	silent := ck.doubt(w, waited)
	if silent == "" {
		return ""
	}
	if waited == 0 {
		ck.reportDoubt(w, silent)
	}
	return fmt.Sprintf("it is not known yet whether others still train this shared model: %s. A process that died with the job counts as one of them until it is given up, after %d s at most (twice the session's TTL)",
		silent, (ck.doubtfulFor()+Second-1)/Second)
}

// answered: while others train the model, nobody loads an older one into it.
func (ck shared) answered(w *worker, call uint64, k *RestoreCall) bool {
	if !ck.othersTrain(w) {
		return false
	}
	r := w.rank
	loaded := k.Cut != nil && uint64(k.Cut.ID) == ck.checkpoints.choice && k.Mode == RestoreExact && !ck.ackedSince(uint64(k.Cut.ID))
	if !loaded && k.Mode != RestoreNewest {
		ck.answer(w.session(), w.number, call, CutAnswer{Code: CutRefused, Why: RefusedOthers}, 0, "others train the model: stop them first")
		return true
	}
	ck.past(r).way = wentBack
	ck.ledger.dirtyRank(r.account)
	if loaded {
		ck.answerChoice(w, call, comesAgain{})
	} else {
		ck.answer(w.session(), w.number, call, CutAnswer{}, r.step, "the model outlives its workers, and others train it: nothing is restored")
	}
	ck.ledger.unpark()
	return true
}

func (ck shared) chosen(_ *rank, t *target, k *keptCut, fresh bool) (again comesAgain) {
	again = ck.goBackAll(t, k)
	if ck.remark(); !fresh {
		ck.epoch++
	}
	ck.phase = restoreFree
	ck.restoredTo(t, func(*rank) bool { return true })
	return again
}

func (ck shared) rewound(_ []*rank, t *target, _ string) (again comesAgain) {
	return ck.choose(nil, t)
}

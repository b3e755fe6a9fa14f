package shardsvc

import (
	"fmt"

	"github.com/headrace/headrace/shardsvc/cut"
)

// kind is the job's model kind. Where the model lives decides what it means that a process
// joins or is lost, that a cut is taken, and that one goes back to a cut.
type kind interface {
	groupKind
	// gated says whether w must restore before it is given rows.
	gated(w *worker) bool
	// complete says whether every rank that must report has reported the step of q.
	complete(q *ask) bool
	// missing names the ranks that have not reported it.
	missing(q *ask) string
	// owner says to whom the cuts belong that r asks for: cut.Group, or the number of a
	// rank.
	owner(r *rank) int64
	// owns says whether the job has cuts of that owner.
	owns(owner int64) bool
	// byStep says whether a cut holds what was acked up to a step. If not, it holds what
	// was acked when it was asked for, and it is exact only while all yields are paused.
	byStep() bool
	// badAsk says why an ask can never be answered; empty: it can.
	badAsk(w *worker, k *CutAsk) string
	// sameStep is the cut of the running generation that an ask shares; nil: there is none.
	sameStep(k *CutAsk) *keptCut
	// bound says that k is bound, so that acks which were kept apart for it may fold.
	bound(k *keptCut)
	// unbound says that a bound cut was dropped, or that all cuts are loaded.
	unbound()
	// foreign says whether another process than r's, or another group, asked for the cut.
	foreign(k *keptCut, r *rank) bool
	// oldestStep is the oldest step for which r can still ask for a cut.
	oldestStep(r *rank) int64
	// sameLife says whether of two cuts the one with the higher step is the newer one.
	sameLife(k, x *keptCut) bool
	// moved says whether a step was reported since the generation, or the process, began.
	moved(r *rank) bool
	// undecided says why it is too early to decide a restore that w has waited for so long;
	// empty: it is not.
	undecided(w *worker, waited Time) string
	// unreadable says who cannot read a cut's checkpoint from memory; empty: all can. wait says
	// that some have not told yet.
	unreadable(cut uint64) (why string, wait bool)
	// answered answers a restore that is decided already, or that comes too late, and says
	// so.
	answered(w *worker, call uint64, k *RestoreCall) bool
	// witness is a cut of another rank that a rank offers because it has none of its own;
	// nil: it offers none.
	witness(r *rank, k *RestoreCall) *cut.Cut
	// free says why the model of r cannot go back to a foreign cut: others have records of it.
	free(r *rank, body *cut.Cut, all []fitted) error
	// overlaps says whether x must be voided when one goes back to a foreign cut that lies
	// at want. x is older by epoch and step, but it has records that are not in the
	// foreign cut, and those are given out again.
	overlaps(x *keptCut, want *lines) bool
	// choice is the cut that r was answered, and its step; 0: the start.
	choice(r *rank) (id uint64, step int64)
	// busy says why nobody can go back without a trainer now; empty: it is possible.
	busy() string
	// chosen goes back to a cut; nil: to the start. fresh says that no record was in a
	// model.
	chosen(r *rank, t *target, k *keptCut, fresh bool) (again comesAgain)
	// rewound goes back without a trainer.
	rewound(ranks []*rank, t *target, why string) (again comesAgain)
	// overdue says that some ranks have not restored in time.
	overdue(reason string)
}

func newKind(ck *checkpoints) kind {
	switch any := (anyKind{ck}); ck.cfg.Model {
	case Private:
		return private{any}
	case Replicated:
		return replicated{any}
	default:
		return shared{any}
	}
}

// anyKind is what the kinds have in common.
type anyKind struct{ *checkpoints }

func (ck anyKind) takesOlder() bool { return false }

func (ck anyKind) leaveIsEnd() bool { return false }

func (ck anyKind) keepsRows(*worker) string { return "" }

// mayResume turns a newcomer away that says resume=acked. The model of the acked records
// went with an earlier process.
func (ck anyKind) mayResume(a *agent, j *Join, newcomer bool) bool {
	if !newcomer || j.Resume != ResumeAcked || ck.noCuts() != "" {
		return true
	}
	ck.group.refuseJoin(a, j, fmt.Sprintf("resume=acked: the model of a %s job goes with its processes, so what they acked is in none. Say bound, or start", ck.cfg.Model))
	return false
}

func (ck anyKind) entered(w *worker, j *Join, first bool) (again comesAgain) {
	again = ck.begin(w, first)
	ck.checkRestored()
	return again
}

// begin sets the step of a rank that is new in the generation to the step that the group
// went back to.
func (ck anyKind) begin(w *worker, first bool) (again comesAgain) {
	if first {
		ck.ledger.goOn(w.account, ck.restored)
	}
	return again
}

func (ck anyKind) joined(w *worker, newcomer bool) { ck.joinedInPause(w, newcomer) }

func (ck anyKind) counts(w *worker) bool {
	return ck.past(w.rank).way == wentBack || !ck.checkpoints.gated(w)
}

func (ck anyKind) ending(w *worker, reason string) {
	if ck.pause != nil && ck.pause.w == w {
		ck.endPause(CutFenced, reason)
	}
}

func (ck anyKind) dropped(w *worker) { ck.droppedInPause(w) }

func (ck anyKind) lost(*worker, bool, string) {}

func (ck anyKind) unheard([]*rank) {}

func (ck anyKind) recovered() {
	ck.pauseDue, ck.askDue, ck.recoveredAt = true, true, ck.now
}

func (ck anyKind) decided() bool { return ck.phase == restoreDone || ck.noCuts() != "" }

func (ck anyKind) generationEnded(reason string) { ck.dropAsks(nil, reason) }

func (ck anyKind) gated(w *worker) bool {
	return ck.past(w.rank).way == mustGoBack
}

func (ck anyKind) owner(*rank) int64 { return cut.Group }

func (ck anyKind) owns(owner int64) bool { return owner == cut.Group }

func (ck anyKind) byStep() bool { return true }

// badAsk refuses steps whose acks are folded: below the newest bound cut, and below the
// kept history.
func (ck anyKind) badAsk(w *worker, k *CutAsk) string {
	if ck.genEnded {
		return fmt.Sprintf("this start of the group (generation %d) has ended: start the whole group again", ck.generation)
	}
	if b := ck.newestBound(w.rank); b != nil && k.Step < b.step {
		return fmt.Sprintf("step %d cannot be saved any more, because a checkpoint of a later step is complete (step %d, cut %016x): save step %[2]d or a later one", k.Step, b.step, b.id)
	}
	if low := ck.kind.oldestStep(w.rank); k.Step < low && !ck.pinned(w.rank.no, k.Step, k.Step+1) {
		return fmt.Sprintf("step %d cannot be saved any more: the records of single steps are known for the last %d steps only, and the oldest of these is %d. Save step %[3]d or a later one", k.Step, ck.cfg.History, low)
	}
	return ""
}

func (ck anyKind) sameStep(*CutAsk) *keptCut { return nil }

func (ck anyKind) unbound() {}

func (ck anyKind) witness(*rank, *RestoreCall) *cut.Cut { return nil }

func (ck anyKind) free(*rank, *cut.Cut, []fitted) error { return nil }

func (ck anyKind) overlaps(x *keptCut, want *lines) bool { return ck.hasMore(x, want) }

func (ck anyKind) undecided(*worker, Time) string { return "" }

func (ck anyKind) unreadable(uint64) (why string, wait bool) { return "", false }

func (ck anyKind) choice(*rank) (uint64, int64) { return ck.checkpoints.choice, ck.restored }

func (ck anyKind) busy() string { return "" }

func (ck anyKind) foreign(*keptCut, *rank) bool { return false }

func (ck anyKind) oldestStep(r *rank) int64 { return r.step - ck.cfg.History }

// goBackAll makes a cut the settled records of the whole job.
func (ck anyKind) goBackAll(t *target, k *keptCut) (again comesAgain) {
	if ck.pause != nil {
		ck.endPause(CutRefused, "somebody went back to a checkpoint")
	}
	again = ck.ledger.goBack(ck.linesOf(k))
	ck.voidAfter(nil, k, t.foreign != nil)
	return again
}

// restoredTo says that the ranks which went back go on from the step of t.
func (ck anyKind) restoredTo(t *target, back func(*rank) bool) {
	ck.checkpoints.choice, ck.restored = t.id(), t.step()
	ck.group.setTopStep(ck.restored)
	for _, x := range ck.group.ranks {
		if back(x) {
			ck.ledger.goOn(x.account, ck.restored)
		}
	}
	ck.jobDirty = true
}

func (ck anyKind) overdue(string) {
	ck.phase = restoreDone
	ck.jobDirty = true
	ck.ledger.unpark()
}

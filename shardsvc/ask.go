package shardsvc

import (
	"fmt"
	"slices"
)

const (
	askDeadline = 60 * Second
	maxAsks     = 16 // of one worker at a time
)

// ask is a CutAsk that waits until its cut is complete. Meanwhile the acks of its step do
// not fold. Asks are not stored, because their askers repeat them.
type ask struct {
	w       *worker
	call    uint64
	cut     CutAsk
	at      Time
	missing uint32 // no rank below it was missing when last looked at
}

// cutCall answers one call of a trainer.
func (ck *checkpoints) cutCall(a *agent, k *CutCall) {
	w, why := ck.group.caller(a, k.Worker)
	switch {
	case why != "":
		if k.ID != 0 {
			ck.group.tellOf(a, k.Worker, Reply{Kind: ReplyCut, Request: k.ID, Reason: why, Epoch: ck.epoch, Cut: &CutAnswer{Code: CutFenced}})
		}
	case k.Ask != nil:
		ck.askCut(w, k.ID, k.Ask)
	case k.Bind != nil:
		code, reason := ck.bind(w.rank, k.Bind.Cut, k.Bind.Path)
		ck.answer(w, k.ID, CutAnswer{Code: code, Cut: k.Bind.Cut}, 0, reason)
	case k.Drop != nil:
		code, reason := ck.dropOf(w.rank, k.Drop.Cut, k.Drop.Reason)
		ck.answer(w, k.ID, CutAnswer{Code: code, Cut: k.Drop.Cut}, 0, reason)
	case k.Restore != nil:
		ck.restore(w, k.ID, k.Restore)
	case k.Pause != nil:
		ck.pauseYields(w, k.ID, k.Pause)
	}
}

// answer replies to a call. Call 0 was answered before.
func (ck *checkpoints) answer(w *worker, call uint64, what CutAnswer, step int64, reason string) {
	if call == 0 {
		return
	}
	ck.group.tell(w, Reply{Kind: ReplyCut, Request: call, Reason: reason, Step: step, Epoch: ck.epoch, Cut: &what})
}

// askCut freezes a cut, or waits until it can.
func (ck *checkpoints) askCut(w *worker, call uint64, k *CutAsk) {
	refuse := func(reason string) {
		ck.answer(w, call, CutAnswer{Code: CutRefused, Cut: k.Cut}, k.Step, reason)
	}
	if reason := ck.noCuts(); reason != "" {
		refuse(reason)
		return
	}
	ck.comeAfter(k.After)
	if old := ck.kept(k.Cut); old != nil {
		ck.askedAgain(w, call, k, old)
		return
	}
	if s := ck.sameStep(k); s != nil {
		ck.answerCut(w, call, s)
		return
	}
	if reason := ck.badAsk(w, k); reason != "" {
		refuse(reason)
		return
	}
	q := &ask{w: w, call: call, cut: *k, at: ck.now + askDeadline}
	if k.Deadline > 0 {
		q.at = ck.now + min(k.Deadline, 24*3600*Second)
	}
	mine, again := 0, -1
	for i, x := range ck.asks {
		if x.w == w {
			mine++
			if x.cut.Cut == k.Cut {
				again = i
			}
		}
	}
	if again >= 0 { // it was sent again: the first one's deadline stays
		ck.asks[again].call = call
		return
	}
	if mine == maxAsks {
		refuse(fmt.Sprintf("%d saves of this rank wait already", mine))
		return
	}
	ck.asks = append(ck.asks, q)
	ck.timers.push(timer{at: q.at, kind: timerAsk})
	ck.askDue = true
}

// noCuts says why no cut can be asked in this job.
func (ck *checkpoints) noCuts() string {
	if ck.cfg.Model == "" {
		return "the job declares no model kind, so nobody knows which records are in a model: start the master with --model replicated, private or shared"
	}
	return ""
}

// badAsk says why an ask can never be answered.
func (ck *checkpoints) badAsk(w *worker, k *CutAsk) string {
	switch {
	case k.Cut == 0:
		return "a cut needs an id that is not 0"
	case k.Carried != (k.Path == ""):
		return "a cut either has a path or is carried by a framework"
	case k.Memory && (k.Carried || !ck.model.byStep):
		return "only the ranks of a replicated or private model keep checkpoints in memory"
	case k.Step < 0:
		return fmt.Sprintf("step %d is negative", k.Step)
	case ck.gated(w):
		return "restore first: " + ck.gate(w)
	case ck.model.byStep:
		return ck.tooLate(w, k)
	case k.Exact:
		return ck.notPaused(w, k.Cut)
	}
	return ""
}

// tooLate refuses steps whose acks are folded: below the newest bound cut, and below the
// kept history.
func (ck *checkpoints) tooLate(w *worker, k *CutAsk) string {
	if ck.genEnded {
		return fmt.Sprintf("this start of the group (generation %d) has ended: start the whole group again", ck.generation)
	}
	if b := ck.newestBound(w.rank); b != nil && k.Step < b.step {
		return fmt.Sprintf("step %d cannot be saved any more, because a checkpoint of a later step is complete (step %d, cut %016x): save step %[2]d or a later one", k.Step, b.step, b.id)
	}
	low := w.rank.lastStep() - ck.cfg.History
	if ck.model.inStep {
		low = ck.group.highestStep() - ck.cfg.History
	}
	if k.Step < low && !ck.pinned(w.rank.no, k.Step, k.Step+1) {
		return fmt.Sprintf("step %d cannot be saved any more: the records of single steps are known for the last %d steps only, and the oldest of these is %d. Save step %[3]d or a later one", k.Step, ck.cfg.History, low)
	}
	return ""
}

// sameStep is the cut of the running generation that an ask shares; nil: there is none. If
// all ranks count the same steps, one cut serves all of them.
func (ck *checkpoints) sameStep(k *CutAsk) *keptCut {
	if !ck.model.inStep || ck.genEnded {
		return nil
	}
	for _, s := range ck.cuts {
		if s.generation == ck.generation && s.step == k.Step && (s.state == CutCarried) == k.Carried && s.state.kept() {
			return s
		}
	}
	return nil
}

// inRounds implements aboveLedger.
func (ck *checkpoints) inRounds(id DatasetID) bool { return ck.group.inRounds(id) }

// pinned says whether somebody waits for a cut of the rank at a step in [low, high), or
// one is kept there that may yet be bound.
func (ck *checkpoints) pinned(rank uint32, low, high int64) bool {
	for _, k := range ck.cuts {
		if (k.state == CutFrozen || k.state == CutCarried || k.state.inMemory()) && low <= k.step && k.step < high && includes(k.rank, rank) {
			return true
		}
	}
	for _, q := range ck.asks {
		if low <= q.cut.Step && q.cut.Step < high && includes(ck.ownerOf(q.w.rank), rank) {
			return true
		}
	}
	return false
}

// askedAgain answers an ask for a cut that is frozen.
func (ck *checkpoints) askedAgain(w *worker, call uint64, k *CutAsk, old *keptCut) {
	switch {
	case old.state == CutVoided || old.state == cutUnbound:
		ck.answer(w, call, CutAnswer{Code: CutRefused, Cut: k.Cut}, old.step, "the checkpoint with this cut was voided or dropped: save again")
	case !old.isOf(w.rank) || ck.model.byStep && old.step != k.Step:
		ck.answer(w, call, CutAnswer{Code: CutRefused, Cut: k.Cut}, old.step, "the cut's id is that of another checkpoint: save again")
	default:
		ck.answerCut(w, call, old)
	}
}

func (ck *checkpoints) answerCut(w *worker, call uint64, k *keptCut) {
	ck.answer(w, call, CutAnswer{Code: CutOK, Cut: k.id, Path: k.path, Body: ck.whole(k)}, k.step, "")
}

// checkAsks freezes what is complete. It runs once at the end of a Step.
func (ck *checkpoints) checkAsks() {
	due := ck.ledger.takeStepsDue() || ck.askDue
	ck.askDue = false
	if !due || len(ck.asks) == 0 {
		return
	}
	ck.asks = slices.DeleteFunc(ck.asks, func(q *ask) bool {
		if q.w.gone() {
			return true
		}
		if !ck.kind.complete(q) {
			return false
		}
		if !ck.model.byStep && q.cut.Exact { // a drop may have come in between
			if reason := ck.notPaused(q.w, q.cut.Cut); reason != "" {
				ck.answer(q.w, q.call, CutAnswer{Code: CutRefused, Cut: q.cut.Cut}, q.cut.Step, reason)
				return true
			}
		}
		ck.freeze(q)
		return true
	})
}

// askTimeout answers the asks whose deadline has passed.
func (ck *checkpoints) askTimeout() {
	ck.asks = slices.DeleteFunc(ck.asks, func(q *ask) bool {
		if ck.now < q.at {
			return false
		}
		ck.answer(q.w, q.call, CutAnswer{Code: CutTimeout, Cut: q.cut.Cut}, q.cut.Step, ck.kind.missing(q))
		return true
	})
}

// dropAsks answers the asks of a group or process that has ended.
func (ck *checkpoints) dropAsks(w *worker, reason string) {
	ck.asks = slices.DeleteFunc(ck.asks, func(q *ask) bool {
		if w != nil && q.w != w {
			return false
		}
		ck.answer(q.w, q.call, CutAnswer{Code: CutFenced, Cut: q.cut.Cut}, q.cut.Step, reason)
		return true
	})
}

package shardsvc

import (
	"fmt"
	"strings"
)

// A cut of a shared model is exact when nothing changes the model between the cut's
// last ack and the capture of the state. So the saver pauses the yields of all
// trainers: each finishes what it has, steps it, says so, and waits. A pause is not
// stored. See docs/CUTS.md, "Pausing yields".

const (
	pauseDeadline    = 60 * Second
	pauseDeadlineMax = 600 * Second
)

// yieldPause is the pause that is on. A worker whose workerPast.paused is its cut
// has said that it yields nothing.
type yieldPause struct {
	cut      uint64
	w        *worker // the saver
	call     uint64  // the saver's call, until it is answered; then 0
	at       Time    // deadline
	complete bool    // every living worker has said so, and none has acked since
}

// endedPause is the pause that ended last, and why. An ask that comes too late is
// told the reason.
type endedPause struct {
	cut uint64
	why string
}

// pauseYields begins a pause. A repeated call for the pause that is on only
// replaces the call to answer.
func (ck *checkpoints) pauseYields(w *worker, call uint64, k *CutPause) {
	if h := ck.pause; h != nil && h.cut == k.Cut && h.w == w {
		h.call = call
		if h.complete {
			ck.answerPause(CutOK, "")
		}
		return
	}
	if reason := ck.badPause(w, k); reason != "" {
		ck.answer(w, call, CutAnswer{Code: CutRefused, Cut: k.Cut}, 0, reason)
		return
	}
	h := &yieldPause{cut: k.Cut, w: w, call: call, at: ck.now + pauseDeadline}
	if k.Deadline > 0 {
		h.at = ck.now + min(k.Deadline, pauseDeadlineMax)
	}
	ck.pause, ck.pauseDue = h, true
	ck.timers.push(timer{at: h.at, kind: timerPause})
	for _, x := range ck.group.processes() {
		ck.tellPause(x, true, ck.pauseReason())
	}
}

// badPause says why no pause can begin.
func (ck *checkpoints) badPause(w *worker, k *CutPause) string {
	if reason := ck.noCuts(); reason != "" {
		return reason
	}
	switch h := ck.pause; {
	case ck.model.byStep:
		return fmt.Sprintf("the model is %s: its checkpoints are exact, so no pause is needed", ck.cfg.Model)
	case k.Cut == 0:
		return "a pause needs the id of the cut to come"
	case ck.kept(k.Cut) != nil:
		return fmt.Sprintf("the checkpoint with cut %016x exists already", k.Cut)
	case ck.gated(w):
		return "restore first: " + ck.gate(w)
	case h != nil:
		return fmt.Sprintf("rank %d is saving and has paused the yields already: try again when that save is complete", h.w.rank.no)
	}
	return ""
}

func (ck *checkpoints) pauseReason() string { return fmt.Sprintf("rank %d saves", ck.pause.w.rank.no) }

func (ck *checkpoints) tellPause(w *worker, on bool, reason string) {
	ck.group.tell(w, Reply{Kind: ReplyPause, Refused: !on, Reason: reason, Cut: &CutAnswer{Cut: ck.pause.cut}})
}

// answerPause answers the saver, once.
func (ck *checkpoints) answerPause(code CutCode, reason string) {
	h := ck.pause
	ck.answer(h.w, h.call, CutAnswer{Code: code, Cut: h.cut}, 0, reason)
	h.call = 0
}

// yieldsPaused: a worker yields nothing, and all that it yielded is acked.
func (ck *checkpoints) yieldsPaused(a *agent, k *YieldsPaused) {
	h, w := ck.pause, a.process(k.Worker)
	if h == nil || w == nil || h.cut != k.Cut {
		return // for a pause that has ended
	}
	if k.Untracked != 0 {
		ck.endPause(CutRefused, fmt.Sprintf("rank %d reads %s without steps (track=False): it cannot be known when its records are in the model", w.rank.no, ck.ledger.called(k.Untracked)))
		return
	}
	ck.setYieldsPaused(w, h.cut)
	ck.pauseDue = true
}

// joinedInPause: a worker joined while yields are paused. A new process gets nothing
// until the pause ends, so it counts as paused at once. A process that joins again
// may have gone on meanwhile, so it must say again that it yields nothing.
func (ck *checkpoints) joinedInPause(w *worker, newcomer bool) {
	h := ck.pause
	if h == nil {
		return
	}
	ck.setYieldsPaused(w, 0)
	if ck.at(w).barred = newcomer; newcomer {
		ck.setYieldsPaused(w, h.cut)
	} else if h.complete {
		ck.endPause(CutRefused, fmt.Sprintf("rank %d joined again during the pause, and may have gone on yielding", w.rank.no))
		return
	}
	ck.tellPause(w, true, ck.pauseReason())
}

// acked ends a complete pause: an ack after every worker has said that it yields
// nothing means that the model has changed.
func (ck *checkpoints) acked(w *holder) {
	if h := ck.pause; h != nil && h.complete {
		ck.endPause(CutRefused, fmt.Sprintf("rank %d has acked records after it had said that it yields nothing", w.account.no))
	}
}

// ending implements aboveGroup: the pause of a saver that is ended ends.
func (ck *checkpoints) ending(w *worker, reason string) {
	if ck.pause != nil && ck.pause.w == w {
		ck.endPause(CutFenced, reason)
	}
}

// dropped implements aboveGroup. The pause no longer waits for a worker that is gone. If that is
// the saver, the pause ends.
func (ck *checkpoints) dropped(w *worker) {
	delete(ck.procs, w)
	if h := ck.pause; h == nil {
		return
	} else if h.w == w {
		ck.endPause(CutFenced, fmt.Sprintf("rank %d, which paused the yields to save, is gone", w.rank.no))
		return
	}
	ck.pauseDue = true
}

// setYieldsPaused says that w yields nothing because of cut; 0: w may yield again.
func (ck *checkpoints) setYieldsPaused(w *worker, cut uint64) {
	ck.at(w).paused = cut
	ck.ledger.setStill(&w.holder, cut != 0)
}

// checkPaused completes the pause once every living worker has said that it yields
// nothing. It runs once, at the end of a Step.
func (ck *checkpoints) checkPaused() {
	h := ck.pause
	if !ck.pauseDue || h == nil || h.complete || ck.recovering {
		return
	}
	ck.pauseDue = false
	for _, w := range ck.group.processes() {
		if ck.at(w).paused != h.cut {
			return
		}
	}
	h.complete = true
	ck.answerPause(CutOK, "")
}

// notPaused says why the cut that w asks for is not exact; empty: it is.
func (ck *checkpoints) notPaused(w *worker, cut uint64) string {
	switch h := ck.pause; {
	case h != nil && h.cut == cut && h.w == w && h.complete:
		return ""
	case h != nil && h.cut == cut && h.w == w:
		return "not exact: the yields are not paused yet: " + ck.whoYields()
	case ck.lastPause.cut == cut:
		return "not exact: the pause of the yields has ended: " + ck.lastPause.why
	}
	return "not exact: the yields are not paused for this save (a pause does not outlive a restart of the master)"
}

// endPause lets all trainers yield again.
func (ck *checkpoints) endPause(code CutCode, why string) {
	h := ck.pause
	ck.answerPause(code, why)
	for _, w := range ck.group.processes() {
		if ck.at(w).paused != 0 {
			ck.ledger.moves(&w.holder) // it was told to make no progress
		}
		ck.tellPause(w, false, why)
		ck.setYieldsPaused(w, 0)
		ck.at(w).barred = false
	}
	ck.lastPause = endedPause{h.cut, why}
	ck.pause = nil
	ck.ledger.report(Report{Kind: ReportPauseEnded, Cut: h.cut, Rank: h.w.rank.no, Reason: why})
	ck.ledger.unpark()
}

// pauseTimeout ends a pause at its deadline.
func (ck *checkpoints) pauseTimeout() {
	h := ck.pause
	switch {
	case h == nil || ck.now < h.at:
	case h.complete:
		ck.endPause(CutTimeout, fmt.Sprintf("rank %d paused the yields to save, and did not save in time", h.w.rank.no))
	default:
		ck.endPause(CutTimeout, "the yields could not be paused in time: "+ck.whoYields())
	}
}

// whoYields names the workers that have not said yet that they yield nothing.
func (ck *checkpoints) whoYields() string {
	if ck.recovering {
		return "a new master waits for its agents"
	}
	var all []string
	for _, w := range ck.group.processes() {
		switch {
		case ck.at(w).paused == ck.pause.cut:
			continue
		case len(all) == maxNamed:
			return strings.Join(all, "; ") + "; and more"
		case w.session() == 0:
			all = append(all, fmt.Sprintf("rank %d: its agent (%q) is silent", w.rank.no, w.agentName()))
		default:
			all = append(all, fmt.Sprintf("rank %d has not stepped all that it was given", w.rank.no))
		}
	}
	return strings.Join(all, "; ")
}

// checkPause checks the invariants of a pause.
func (ck *checkpoints) checkPause() error {
	h := ck.pause
	if h != nil && (h.w.gone() || ck.model.byStep || h.complete && (h.call != 0 || ck.recovering) || ck.kept(h.cut) != nil) {
		return fmt.Errorf("yields are paused for cut %016x, but its saver is gone, or it was answered before it was complete, or it is frozen", h.cut)
	}
	for _, w := range ck.group.processes() {
		switch {
		case h == nil && (ck.at(w).paused != 0 || ck.at(w).barred):
			return fmt.Errorf("rank %d is paused, and no pause is on", w.rank.no)
		case h != nil && h.complete && ck.at(w).paused != h.cut:
			return fmt.Errorf("the pause for cut %016x is complete, and rank %d has not said that it yields nothing", h.cut, w.rank.no)
		case ck.at(w).barred && w.holds():
			return fmt.Errorf("rank %d joined while yields were paused, and was granted something", w.rank.no)
		}
	}
	return nil
}

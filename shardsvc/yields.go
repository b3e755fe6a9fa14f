package shardsvc

import (
	"fmt"
	"strings"
)

// A cut of a shared model is exact when nothing changes the model between its last
// ack and the capture of the state. So the saver has the yields of all trainers
// held: each finishes what it has, steps it, says so, and waits. Nothing of it is
// stored; docs/CUTS.md, "Holding yields".

const (
	holdDeadline    = 60 * Second
	holdDeadlineMax = 600 * Second
)

// yieldHold is a hold that is on. A worker whose held is its cut has said that it
// yields nothing.
type yieldHold struct {
	cut      uint64
	w        *worker // who saves
	call     uint64  // its call, until it is answered; else 0
	at       Time    // its end, come what may
	complete bool    // every living worker has said so, and none has acked since
}

// heldYields is the hold that ended last, and why: an ask that comes too late is
// told.
type heldYields struct {
	cut uint64
	why string
}

// holdYields begins a hold, or takes the repeated call of one that is on.
func (ck *checkpoints) holdYields(w *worker, call uint64, k *CutHold) {
	if h := ck.yields; h != nil && h.cut == k.Cut && h.w == w {
		h.call = call
		if h.complete {
			ck.answerHold(CutOK, "")
		}
		return
	}
	if reason := ck.badHold(w, k); reason != "" {
		ck.answer(w.session(), w.number, call, CutAnswer{Code: CutRefused, Cut: k.Cut}, 0, reason)
		return
	}
	h := &yieldHold{cut: k.Cut, w: w, call: call, at: ck.now + holdDeadline}
	if k.Deadline > 0 {
		h.at = ck.now + min(k.Deadline, holdDeadlineMax)
	}
	ck.yields, ck.yieldsDue = h, true
	ck.timers.push(timer{at: h.at, kind: timerYields})
	for _, x := range ck.group.workers {
		ck.tellHold(x, true, ck.holdReason())
	}
}

// badHold says why no hold can begin.
func (ck *checkpoints) badHold(w *worker, k *CutHold) string {
	if reason := ck.noCuts(); reason != "" {
		return reason
	}
	switch h := ck.yields; {
	case !ck.ledger.folds:
		return fmt.Sprintf("the model is %s: its cuts are exact, and nobody need be held", ck.cfg.Model)
	case k.Cut == 0:
		return "a hold needs the id of the cut to come"
	case ck.kept(k.Cut) != nil:
		return fmt.Sprintf("cut %016x is frozen already", k.Cut)
	case ck.gated(w):
		return "restore first: " + ck.gate(w)
	case h != nil:
		return fmt.Sprintf("rank %d saves, and holds the yields already: try again when its cut is frozen", h.w.rank.no)
	}
	return ""
}

func (ck *checkpoints) holdReason() string { return fmt.Sprintf("rank %d saves", ck.yields.w.rank.no) }

func (ck *checkpoints) tellHold(w *worker, on bool, reason string) {
	ck.reply(Reply{To: w.session(), Kind: ReplyHold, Worker: w.number, Refused: !on, Reason: reason, Cut: &CutAnswer{Cut: ck.yields.cut}})
}

// answerHold answers the saver, once.
func (ck *checkpoints) answerHold(code CutCode, reason string) {
	h := ck.yields
	ck.answer(h.w.session(), h.w.number, h.call, CutAnswer{Code: code, Cut: h.cut}, 0, reason)
	h.call = 0
}

// yieldsHeld: a worker yields nothing, and all that it did is acked.
func (ck *checkpoints) yieldsHeld(a *agent, k *YieldsHeld) {
	h, w := ck.yields, a.byNumber[k.Worker]
	if h == nil || w == nil || h.cut != k.Cut {
		return // of a hold that has ended
	}
	if k.Untracked != 0 {
		name := fmt.Sprintf("dataset %d", k.Untracked)
		if d := ck.ledger.dataset(k.Untracked); d != nil {
			name = fmt.Sprintf("dataset %q", d.name)
		}
		ck.endHold(CutRefused, fmt.Sprintf("rank %d reads %s without steps (track=False): nobody knows when what it was given is in the model", w.rank.no, name))
		return
	}
	ck.setHeld(w, h.cut)
	ck.yieldsDue = true
}

// holdJoined: a worker came while yields are held. A new process gets nothing
// before they are let go; one that comes again has said nothing until it says it
// again, and may have gone on meanwhile.
func (ck *checkpoints) holdJoined(w *worker, newcomer bool) {
	h := ck.yields
	if h == nil {
		return
	}
	ck.setHeld(w, 0)
	if ck.at(w).barred = newcomer; newcomer {
		ck.setHeld(w, h.cut)
	} else if h.complete {
		ck.endHold(CutRefused, fmt.Sprintf("rank %d came again while its yields were held, and may have gone on", w.rank.no))
		return
	}
	ck.tellHold(w, true, ck.holdReason())
}

// acked: what came after all had said that they yield nothing is in no exact cut.
func (ck *checkpoints) acked(w *holder) {
	if h := ck.yields; h != nil && h.complete {
		ck.endHold(CutRefused, fmt.Sprintf("rank %d has acked records after it had said that it yields none", w.account.no))
	}
}

// holdDropped: nobody waits for a worker that is gone, and its own hold ends.
func (ck *checkpoints) holdDropped(w *worker) {
	delete(ck.procs, w)
	if h := ck.yields; h == nil {
		return
	} else if h.w == w {
		ck.endHold(CutFenced, fmt.Sprintf("rank %d, which held the yields to save, is gone", w.rank.no))
		return
	}
	ck.yieldsDue = true
}

// setHeld: w has said that it yields nothing for cut, or with 0 may yield again.
func (ck *checkpoints) setHeld(w *worker, cut uint64) {
	ck.at(w).held = cut
	ck.ledger.setStill(&w.holder, cut != 0)
}

// checkYields: all who live have said that they yield nothing. It runs once at the
// end of a Step.
func (ck *checkpoints) checkYields() {
	h := ck.yields
	if !ck.yieldsDue || h == nil || h.complete || ck.recovering {
		return
	}
	ck.yieldsDue = false
	for _, w := range ck.group.workers {
		if ck.at(w).held != h.cut {
			return
		}
	}
	h.complete = true
	ck.answerHold(CutOK, "")
}

// notHeld says why the cut that w asks for is not exact.
func (ck *checkpoints) notHeld(w *worker, cut uint64) string {
	switch h := ck.yields; {
	case h != nil && h.cut == cut && h.w == w && h.complete:
		return ""
	case h != nil && h.cut == cut && h.w == w:
		return "not exact: the yields are not held yet: " + ck.whoYields()
	case ck.heldLast.cut == cut:
		return "not exact: the hold of the yields has ended: " + ck.heldLast.why
	}
	return "not exact: no yields are held for this cut (a master that was started again knows of none)"
}

// endHold lets all trainers go on.
func (ck *checkpoints) endHold(code CutCode, why string) {
	h := ck.yields
	ck.answerHold(code, why)
	for _, w := range ck.group.workers {
		if ck.at(w).held != 0 {
			ck.ledger.moves(&w.holder) // it was not to make progress
		}
		ck.tellHold(w, false, why)
		ck.setHeld(w, 0)
		ck.at(w).barred = false
	}
	ck.heldLast = heldYields{h.cut, why}
	ck.yields = nil
	ck.ledger.report(Report{Kind: ReportHoldEnded, Cut: h.cut, Rank: h.w.rank.no, Reason: why})
	ck.ledger.unpark()
}

// holdTimeout: somebody did not stop in time, or the saver did not ask.
func (ck *checkpoints) holdTimeout() {
	h := ck.yields
	switch {
	case h == nil || ck.now < h.at:
	case h.complete:
		ck.endHold(CutTimeout, fmt.Sprintf("rank %d did not ask for its cut in time", h.w.rank.no))
	default:
		ck.endHold(CutTimeout, "the yields could not be held in time: "+ck.whoYields())
	}
}

// whoYields names those who have not said that they yield nothing.
func (ck *checkpoints) whoYields() string {
	if ck.recovering {
		return "a new master waits for its agents"
	}
	var all []string
	for _, w := range ck.group.workers {
		switch {
		case ck.at(w).held == ck.yields.cut:
			continue
		case len(all) == maxNamed:
			return strings.Join(all, "; ") + "; and more"
		case w.session() == 0:
			all = append(all, fmt.Sprintf("rank %d: its agent (%q) is silent", w.rank.no, w.agent.name))
		default:
			all = append(all, fmt.Sprintf("rank %d has not stepped all that it was given", w.rank.no))
		}
	}
	return strings.Join(all, "; ")
}

// checkHold: the invariants of a hold.
func (ck *checkpoints) checkHold() error {
	h := ck.yields
	if h != nil && (h.w.gone() || !ck.ledger.folds || h.complete && (h.call != 0 || ck.recovering) || ck.kept(h.cut) != nil) {
		return fmt.Errorf("yields are held for cut %016x: its saver is gone, or it was answered before it was complete, or it is frozen", h.cut)
	}
	for _, w := range ck.group.workers {
		switch {
		case h == nil && (ck.at(w).held != 0 || ck.at(w).barred):
			return fmt.Errorf("rank %d is held, and no hold is on", w.rank.no)
		case h != nil && h.complete && ck.at(w).held != h.cut:
			return fmt.Errorf("the hold for cut %016x is complete, and rank %d has not said that it yields nothing", h.cut, w.rank.no)
		case ck.at(w).barred && w.leases != nil:
			return fmt.Errorf("rank %d came while yields were held, and was granted something", w.rank.no)
		}
	}
	return nil
}

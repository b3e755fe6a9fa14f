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
func (c *Core) holdYields(w *worker, call uint64, k *CutHold) {
	if h := c.yields; h != nil && h.cut == k.Cut && h.w == w {
		h.call = call
		if h.complete {
			c.answerHold(CutOK, "")
		}
		return
	}
	if reason := c.badHold(w, k); reason != "" {
		c.answer(w.session(), w.number, call, CutAnswer{Code: CutRefused, Cut: k.Cut}, 0, reason)
		return
	}
	h := &yieldHold{cut: k.Cut, w: w, call: call, at: c.now + holdDeadline}
	if k.Deadline > 0 {
		h.at = c.now + min(k.Deadline, holdDeadlineMax)
	}
	c.yields, c.yieldsDue = h, true
	c.timers.push(timer{at: h.at, kind: timerYields})
	for _, x := range c.workers {
		c.tellHold(x, true, c.holdReason())
	}
}

// badHold says why no hold can begin.
func (c *Core) badHold(w *worker, k *CutHold) string {
	if reason := c.noCuts(); reason != "" {
		return reason
	}
	switch h := c.yields; {
	case c.cfg.Model != Shared:
		return fmt.Sprintf("the model is %s: its cuts are exact, and nobody need be held", c.cfg.Model)
	case k.Cut == 0:
		return "a hold needs the id of the cut to come"
	case c.kept(k.Cut) != nil:
		return fmt.Sprintf("cut %016x is frozen already", k.Cut)
	case c.gated(w):
		return "restore first: " + c.gate(w)
	case h != nil:
		return fmt.Sprintf("rank %d saves, and holds the yields already: try again when its cut is frozen", h.w.rank.no)
	}
	return ""
}

func (c *Core) holdReason() string { return fmt.Sprintf("rank %d saves", c.yields.w.rank.no) }

func (c *Core) tellHold(w *worker, on bool, reason string) {
	c.reply(Reply{To: w.session(), Kind: ReplyHold, Worker: w.number, Refused: !on, Reason: reason, Cut: &CutAnswer{Cut: c.yields.cut}})
}

// answerHold answers the saver, once.
func (c *Core) answerHold(code CutCode, reason string) {
	h := c.yields
	c.answer(h.w.session(), h.w.number, h.call, CutAnswer{Code: code, Cut: h.cut}, 0, reason)
	h.call = 0
}

// yieldsHeld: a worker yields nothing, and all that it did is acked.
func (c *Core) yieldsHeld(a *agent, k *YieldsHeld) {
	h, w := c.yields, a.byNumber[k.Worker]
	if h == nil || w == nil || h.cut != k.Cut {
		return // of a hold that has ended
	}
	if k.Untracked != 0 {
		name := fmt.Sprintf("dataset %d", k.Untracked)
		if d := c.dataset(k.Untracked); d != nil {
			name = fmt.Sprintf("dataset %q", d.name)
		}
		c.endHold(CutRefused, fmt.Sprintf("rank %d reads %s without steps (track=False): nobody knows when what it was given is in the model", w.rank.no, name))
		return
	}
	w.held, c.yieldsDue = h.cut, true
}

// holdJoined: a worker came while yields are held. A new process gets nothing
// before they are let go; one that comes again has said nothing until it says it
// again, and may have gone on meanwhile.
func (c *Core) holdJoined(w *worker, newcomer bool) {
	h := c.yields
	if h == nil {
		return
	}
	if w.held, w.barred = 0, newcomer; newcomer {
		w.held = h.cut
	} else if h.complete {
		c.endHold(CutRefused, fmt.Sprintf("rank %d came again while its yields were held, and may have gone on", w.rank.no))
		return
	}
	c.tellHold(w, true, c.holdReason())
}

// holdAcked: what came after all had said that they yield nothing is in no exact cut.
func (c *Core) holdAcked(w *worker) {
	if h := c.yields; h.complete {
		c.endHold(CutRefused, fmt.Sprintf("rank %d has acked records after it had said that it yields none", w.rank.no))
	}
}

// holdDropped: nobody waits for a worker that is gone, and its own hold ends.
func (c *Core) holdDropped(w *worker) {
	w.held, w.barred = 0, false
	if h := c.yields; h == nil {
		return
	} else if h.w == w {
		c.endHold(CutFenced, fmt.Sprintf("rank %d, which held the yields to save, is gone", w.rank.no))
		return
	}
	c.yieldsDue = true
}

// checkYields: all who live have said that they yield nothing. It runs once at the
// end of a Step.
func (c *Core) checkYields() {
	h := c.yields
	if !c.yieldsDue || h == nil || h.complete || c.recovering {
		return
	}
	c.yieldsDue = false
	for _, w := range c.workers {
		if w.held != h.cut {
			return
		}
	}
	h.complete = true
	c.answerHold(CutOK, "")
}

// notHeld says why the cut that w asks for is not exact.
func (c *Core) notHeld(w *worker, cut uint64) string {
	switch h := c.yields; {
	case h != nil && h.cut == cut && h.w == w && h.complete:
		return ""
	case h != nil && h.cut == cut && h.w == w:
		return "not exact: the yields are not held yet: " + c.whoYields()
	case c.heldLast.cut == cut:
		return "not exact: the hold of the yields has ended: " + c.heldLast.why
	}
	return "not exact: no yields are held for this cut (a master that was started again knows of none)"
}

// endHold lets all trainers go on.
func (c *Core) endHold(code CutCode, why string) {
	h := c.yields
	c.answerHold(code, why)
	for _, w := range c.workers {
		if w.held != 0 {
			w.since = c.now // it was not to make progress
		}
		c.tellHold(w, false, why)
		w.held, w.barred = 0, false
	}
	c.heldLast = heldYields{h.cut, why}
	c.yields = nil
	c.report(Report{Kind: ReportHoldEnded, Cut: h.cut, Rank: h.w.rank.no, Reason: why})
	c.unpark()
}

// holdTimeout: somebody did not stop in time, or the saver did not ask.
func (c *Core) holdTimeout() {
	h := c.yields
	switch {
	case h == nil || c.now < h.at:
	case h.complete:
		c.endHold(CutTimeout, fmt.Sprintf("rank %d did not ask for its cut in time", h.w.rank.no))
	default:
		c.endHold(CutTimeout, "the yields could not be held in time: "+c.whoYields())
	}
}

// whoYields names those who have not said that they yield nothing.
func (c *Core) whoYields() string {
	if c.recovering {
		return "a new master waits for its agents"
	}
	var all []string
	for _, w := range c.workers {
		switch {
		case w.held == c.yields.cut:
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
func (c *Core) checkHold() error {
	h := c.yields
	if h != nil && (h.w.gone || c.cfg.Model != Shared || h.complete && (h.call != 0 || c.recovering) || c.kept(h.cut) != nil) {
		return fmt.Errorf("yields are held for cut %016x: its saver is gone, or it was answered before it was complete, or it is frozen", h.cut)
	}
	for _, w := range c.workers {
		switch {
		case h == nil && (w.held != 0 || w.barred):
			return fmt.Errorf("rank %d is held, and no hold is on", w.rank.no)
		case h != nil && h.complete && w.held != h.cut:
			return fmt.Errorf("the hold for cut %016x is complete, and rank %d has not said that it yields nothing", h.cut, w.rank.no)
		case w.barred && w.leases != nil:
			return fmt.Errorf("rank %d came while yields were held, and was granted something", w.rank.no)
		}
	}
	return nil
}

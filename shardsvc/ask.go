package shardsvc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headrace/headrace/shardsvc/cut"
)

const (
	askDeadline = 60 * Second
	maxAsks     = 16 // of one worker at a time
)

// ask is a CutAsk that waits until its cut is complete. Its step does not fold
// meanwhile. Asks are not stored: their askers repeat them.
type ask struct {
	w       *worker
	call    uint64
	cut     CutAsk
	at      Time
	missing uint32 // no rank below it was missing when last looked at
}

// cutCall answers one call of a trainer.
func (c *Core) cutCall(a *agent, k *CutCall) {
	w := a.byNumber[k.Worker]
	switch {
	case w == nil || w.fenced || w.rank.worker != w:
		c.answer(a.session, k.Worker, k.ID, CutAnswer{Code: CutFenced}, 0, "this process is not of the group any more")
	case w.state == ending:
		c.answer(a.session, k.Worker, k.ID, CutAnswer{Code: CutFenced}, 0, "this process is being ended: "+w.why)
	case k.Ask != nil:
		c.askCut(w, k.ID, k.Ask)
	case k.Bind != nil:
		code, reason := c.bind(w.rank, k.Bind.Cut, k.Bind.Path)
		c.answer(a.session, k.Worker, k.ID, CutAnswer{Code: code, Cut: k.Bind.Cut}, 0, reason)
	case k.Drop != nil:
		code, reason := c.dropOf(w.rank, k.Drop.Cut, k.Drop.Reason)
		c.answer(a.session, k.Worker, k.ID, CutAnswer{Code: code, Cut: k.Drop.Cut}, 0, reason)
	case k.Restore != nil:
		c.restore(w, k.ID, k.Restore)
	case k.Hold != nil:
		c.holdYields(w, k.ID, k.Hold)
	}
}

// answer replies to a call; what joining asked for has no number and is not answered.
func (c *Core) answer(to Session, worker uint32, call uint64, what CutAnswer, step int64, reason string) {
	if call == 0 {
		return
	}
	c.reply(Reply{To: to, Kind: ReplyCut, Worker: worker, Request: call, Reason: reason, Step: step, Epoch: c.epoch, Cut: &what})
}

// askCut freezes a cut, or waits until it can.
func (c *Core) askCut(w *worker, call uint64, k *CutAsk) {
	refuse := func(reason string) {
		c.answer(w.session(), w.number, call, CutAnswer{Code: CutRefused, Cut: k.Cut}, k.Step, reason)
	}
	if reason := c.noCuts(); reason != "" {
		refuse(reason)
		return
	}
	c.comeAfter(k.After)
	if old := c.kept(k.Cut); old != nil {
		c.askedAgain(w, call, k, old)
		return
	}
	if s := c.sameStep(k); s != nil {
		c.answerCut(w, call, s)
		return
	}
	if reason := c.badAsk(w, k); reason != "" {
		refuse(reason)
		return
	}
	q := &ask{w: w, call: call, cut: *k, at: c.now + askDeadline}
	if k.Deadline > 0 {
		q.at = c.now + min(k.Deadline, 24*3600*Second)
	}
	mine, again := 0, -1
	for i, x := range c.asks {
		if x.w == w {
			mine++
			if x.cut.Cut == k.Cut {
				again = i
			}
		}
	}
	if again >= 0 { // sent again: its deadline goes on
		c.asks[again].call = call
		return
	}
	if mine == maxAsks {
		refuse(fmt.Sprintf("%d asks of this rank wait already", mine))
		return
	}
	c.asks = append(c.asks, q)
	c.timers.push(timer{at: q.at, kind: timerAsk})
	c.askDue = true
}

// noCuts says why no cut can be asked in this job.
func (c *Core) noCuts() string {
	if c.cfg.Model == "" {
		return "the job declares no model kind, so nobody knows which records are in a model: start the master with --model replicated, private or shared"
	}
	return ""
}

// badAsk says why an ask can never be answered.
func (c *Core) badAsk(w *worker, k *CutAsk) string {
	switch {
	case k.Cut == 0:
		return "a cut needs an id that is not 0"
	case k.Carried != (k.Path == ""):
		return "a cut has a path, or is carried by a framework: one of both"
	case k.Step < 0:
		return fmt.Sprintf("step %d is negative", k.Step)
	case c.gated(w):
		return "restore first: " + c.gate(w)
	case c.cfg.Model == Shared && k.Exact:
		return c.notHeld(w, k.Cut)
	case c.cfg.Model == Shared:
		return ""
	case c.genEnded:
		return fmt.Sprintf("generation %d has ended", c.generation)
	}
	if b := c.newestBound(w.rank); b != nil && k.Step < b.step {
		return fmt.Sprintf("step %d is below %d, the step of the newest bound cut (%016x): what lay between is folded", k.Step, b.step, b.id)
	}
	if low := c.oldestStep(w.rank); k.Step < low && !c.pinned(w.rank, k.Step, k.Step+1) {
		return fmt.Sprintf("step %d is older than the last %d steps, which are kept apart for cuts: the oldest is %d", k.Step, c.cfg.History, low)
	}
	return ""
}

// oldestStep is the first step that a cut can still be asked at.
func (c *Core) oldestStep(r *rank) int64 {
	if c.cfg.Model == Replicated {
		return c.topStep - c.cfg.History
	}
	return r.step - c.cfg.History
}

// pinned: somebody waits for the cut at a step from low up to and without high, or
// one is kept there that may yet be bound.
func (c *Core) pinned(r *rank, low, high int64) bool {
	for _, k := range c.cuts {
		if (k.state == CutFrozen || k.state == CutCarried) && low <= k.step && k.step < high && (k.rank == cut.Group || k.rank == int64(r.no)) {
			return true
		}
	}
	for _, q := range c.asks {
		if low <= q.cut.Step && q.cut.Step < high && (c.cfg.Model == Replicated || q.w.rank == r) {
			return true
		}
	}
	return false
}

// sameStep is the cut of this generation that an ask shares, if there is one.
func (c *Core) sameStep(k *CutAsk) *keptCut {
	if c.cfg.Model != Replicated || c.genEnded {
		return nil
	}
	for _, s := range c.cuts {
		if s.generation == c.generation && s.step == k.Step && (s.state == CutCarried) == k.Carried && s.state < CutVoided {
			return s
		}
	}
	return nil
}

// askedAgain answers an ask for a cut that is frozen.
func (c *Core) askedAgain(w *worker, call uint64, k *CutAsk, old *keptCut) {
	switch {
	case old.state == CutVoided || old.state == cutUnbound:
		c.answer(w.session(), w.number, call, CutAnswer{Code: CutRefused, Cut: k.Cut}, old.step, "the cut was given up: "+old.state.String())
	case old.rank != cut.Group && old.rank != int64(w.rank.no) || c.cfg.Model != Shared && old.step != k.Step:
		c.answer(w.session(), w.number, call, CutAnswer{Code: CutRefused, Cut: k.Cut}, old.step, "the id is that of another cut")
	default:
		c.answerCut(w, call, old)
	}
}

func (c *Core) answerCut(w *worker, call uint64, k *keptCut) {
	c.answer(w.session(), w.number, call, CutAnswer{Code: CutOK, Cut: k.id, Path: k.path, Body: c.whole(k)}, k.step, "")
}

// checkAsks freezes what is complete. It runs once at the end of a Step.
func (c *Core) checkAsks() {
	if !c.askDue || len(c.asks) == 0 {
		c.askDue = false
		return
	}
	c.askDue = false
	c.asks = slices.DeleteFunc(c.asks, func(q *ask) bool {
		if q.w.gone {
			return true
		}
		if !c.isComplete(q) {
			return false
		}
		if c.cfg.Model == Shared && q.cut.Exact { // a drop may have come in between
			if reason := c.notHeld(q.w, q.cut.Cut); reason != "" {
				c.answer(q.w.session(), q.w.number, q.call, CutAnswer{Code: CutRefused, Cut: q.cut.Cut}, q.cut.Step, reason)
				return true
			}
		}
		c.freeze(q)
		return true
	})
}

// isComplete: every rank that has to reported the step, or has nothing to report.
func (c *Core) isComplete(q *ask) bool {
	switch c.cfg.Model {
	case Shared:
		return true
	case Private:
		return q.w.rank.reported(q.cut.Step)
	}
	for ; q.missing < c.worldSize; q.missing++ {
		if r := c.byRank[q.missing]; !c.reported(r, q.cut.Step) {
			return false
		}
	}
	// A rank that was told END may have asked again meanwhile.
	q.missing = 0
	for no := range c.worldSize {
		if !c.reported(c.byRank[no], q.cut.Step) {
			q.missing = no
			return false
		}
	}
	return true
}

func (r *rank) reported(step int64) bool { return r.ended || r.step >= step }

// reported: of a rank of the generation, joined or not.
func (c *Core) reported(r *rank, step int64) bool {
	if r == nil || r.generation != c.generation {
		return c.restored >= step
	}
	return r.reported(step)
}

// askTimeout answers the asks whose deadline has passed.
func (c *Core) askTimeout() {
	c.asks = slices.DeleteFunc(c.asks, func(q *ask) bool {
		if c.now < q.at {
			return false
		}
		c.answer(q.w.session(), q.w.number, q.call, CutAnswer{Code: CutTimeout, Cut: q.cut.Cut}, q.cut.Step, c.whoMisses(q))
		return true
	})
}

func (c *Core) whoMisses(q *ask) string {
	if c.cfg.Model == Private {
		return fmt.Sprintf("rank %d has reported step %d, not %d", q.w.rank.no, q.w.rank.step, q.cut.Step)
	}
	var all []string
	for no := range c.worldSize {
		r := c.byRank[no]
		switch {
		case c.reported(r, q.cut.Step):
		case len(all) == maxNamed:
			return strings.Join(all, "; ") + "; and more"
		case r == nil || r.generation != c.generation:
			all = append(all, fmt.Sprintf("rank %d has not joined", no))
		default:
			all = append(all, fmt.Sprintf("rank %d has reported step %d", no, r.step))
		}
	}
	return strings.Join(all, "; ")
}

// maxNamed ranks are named in a reason.
const maxNamed = 8

// dropAsks answers the asks of a group or process that has ended.
func (c *Core) dropAsks(w *worker, reason string) {
	c.asks = slices.DeleteFunc(c.asks, func(q *ask) bool {
		if w != nil && q.w != w {
			return false
		}
		c.answer(q.w.session(), q.w.number, q.call, CutAnswer{Code: CutFenced, Cut: q.cut.Cut}, q.cut.Step, reason)
		return true
	})
}

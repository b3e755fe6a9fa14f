package shardsvc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headrace/headrace/shardsvc/cut"
)

// restorePhase says how far a generation is in going back to a cut.
type restorePhase uint8

const (
	restoreFree  restorePhase = iota // nothing to go back to, or joining made the choice
	restoreOpen                      // nobody called yet
	restoreWaits                     // the choice is fixed, not all ranks have called; private: a foreign cut was restored
	restoreDone
	restorePhases
)

const restoreDeadline = 600 * Second

// waitingRestore is a call that waits until a rank's frozen cuts are settled, a
// new term has recovered, or it is known whether others train a shared model.
type waitingRestore struct {
	call    uint64
	restore RestoreCall
}

// target is what a call goes back to: a kept cut, a foreign one, or the start.
type target struct {
	kept    *keptCut
	foreign *cut.Cut
	fit     []fitted
	path    string
}

// restore answers the call of a trainer that goes back to a cut.
func (c *Core) restore(w *worker, call uint64, k *RestoreCall) {
	r := w.rank
	if reason := c.noCuts(); reason != "" {
		c.answer(w.session(), w.number, call, CutAnswer{Code: CutRefused}, 0, reason)
		return
	}
	c.comeAfter(k.After)
	if c.recovering { // others may hold leases that they did not assert yet
		w.asking = &waitingRestore{call, *k}
		return
	}
	if c.doubtful(w) {
		w.asking = &waitingRestore{call, *k}
		return
	}
	if c.answered(w, call, k) {
		return
	}
	if c.cfg.Model == Private && k.Mode == RestoreNewest && c.settling(r) && (k.Cut == nil || !c.settles(uint64(k.Cut.ID))) {
		w.asking = &waitingRestore{call, *k}
		return
	}
	witness := c.witness(r, k)
	if witness != nil { // it tells of others, and has nothing to go back to itself
		own := *k
		own.Cut, own.Path = nil, ""
		k = &own
	}
	t, code, reason := c.pick(r, k)
	if code != CutOK {
		step := int64(0)
		a := CutAnswer{Code: code}
		if t.kept != nil {
			a.Cut, a.Path, step = t.kept.id, t.kept.path, t.kept.step
		}
		c.answer(w.session(), w.number, call, a, step, reason)
		return
	}
	again := c.choose(r, &t)
	if witness != nil && c.kept(uint64(witness.ID)) == nil && c.phase == restoreFree && !c.anyTrained(r) {
		c.phase, c.restoring = restoreWaits, 0
		c.dirty.job = true
		c.watchRestore()
		c.park()
	}
	r.called, r.must = true, false
	c.dirtyRank(r)
	c.answerChoice(w, call, again)
	c.checkRestored()
}

// witness is the cut of another private rank, which a rank offers that has none of its
// own: on an empty master nobody may be granted what is in it before its rank has
// come.
func (c *Core) witness(r *rank, k *RestoreCall) *cut.Cut {
	if c.cfg.Model != Private || k.Mode != RestoreNewest || k.Cut == nil || k.Cut.Rank == cut.Rank(r.no) || k.Cut.Rank == cut.Group {
		return nil
	}
	return k.Cut
}

func (t *target) id() uint64 {
	if t.kept != nil {
		return t.kept.id
	}
	return 0
}

func (t *target) step() int64 {
	if t.kept != nil {
		return t.kept.step
	}
	return 0
}

func (c *Core) settles(id uint64) bool {
	k := c.kept(id)
	return k != nil && k.settling
}

// answered: the choice of the generation, or of this process, was made already, or
// it is too late for one.
func (c *Core) answered(w *worker, call uint64, k *RestoreCall) bool {
	r := w.rank
	refuse := func(reason string) bool {
		c.answer(w.session(), w.number, call, CutAnswer{Code: CutRefused}, 0, reason)
		return true
	}
	switch c.cfg.Model {
	case Replicated:
		if c.phase == restoreWaits || c.phase == restoreDone {
			r.called = true
			c.dirtyRank(r)
			c.answerChoice(w, call, comesAgain{})
			c.checkRestored()
			return true
		}
	case Private:
		if r.called {
			c.answerChoice(w, call, comesAgain{})
			return true
		}
	case Shared:
		others := c.othersTrain(w)
		if others && k.Cut != nil && uint64(k.Cut.ID) == c.choice && k.Mode == RestoreExact && !c.ackedSince(uint64(k.Cut.ID)) {
			r.called = true
			c.dirtyRank(r)
			c.answerChoice(w, call, comesAgain{})
			c.unpark()
			return true
		}
		if others && k.Mode == RestoreNewest {
			r.called = true
			c.dirtyRank(r)
			c.answer(w.session(), w.number, call, CutAnswer{}, r.step, "the model outlives its workers, and others train it: nothing is restored")
			c.unpark()
			return true
		} else if others {
			return refuse("others train the model: stop them first")
		}
	}
	if !c.moved(r) {
		return false
	}
	if k.Mode != RestoreExact && k.Cut == nil && !c.keeps(r) {
		c.answer(w.session(), w.number, call, CutAnswer{}, r.step, "")
		return true
	}
	return refuse(fmt.Sprintf("this process has stepped already (step %d): a restore comes before the first step. To go back now, start it again, or use headrace rewind", r.step))
}

// moved: steps were reported since the generation, or the process, began.
func (c *Core) moved(r *rank) bool {
	switch c.cfg.Model {
	case Replicated:
		return c.phase == restoreFree && c.topStep > 0
	case Private:
		return !r.must && r.step > 0
	}
	return r.step > c.restored
}

// anyTrained: another rank has stepped without having restored.
func (c *Core) anyTrained(r *rank) bool {
	return slices.ContainsFunc(c.ranks, func(x *rank) bool { return x != r && !x.called && x.step > 0 })
}

// ackedSince: more is in the model than what is in a kept cut. Who loaded its files
// now would take that out of the model.
func (c *Core) ackedSince(id uint64) bool {
	k := c.kept(id)
	if k == nil || k.state == CutVoided {
		return true
	}
	l := c.linesOf(k)
	for _, p := range c.parts {
		if p == nil {
			continue
		}
		for n := range p.begun() {
			if units, _ := c.comesAgain(p.line(n), nil, l.of(p, n)); units > 0 {
				return true
			}
		}
	}
	return false
}

// othersTrain: another process holds leases, or has acked something.
func (c *Core) othersTrain(w *worker) bool {
	return slices.ContainsFunc(c.workers, func(x *worker) bool { return x != w && c.trains(x) })
}

// trains: x has changed the model, or is about to. What it was granted ahead of its
// own restore it has not been given.
func (c *Core) trains(x *worker) bool {
	return x.leases != nil && x.asking == nil || x.units > 0 || x.rank.step > c.restored
}

// pick finds what a call goes back to.
func (c *Core) pick(r *rank, k *RestoreCall) (t target, code CutCode, reason string) {
	if k.Mode == RestoreStart {
		return t, CutOK, ""
	}
	newest := c.newestVerified(r, k.Failed)
	try := func() (target, CutCode, string) {
		return target{kept: newest}, CutTry, fmt.Sprintf("a newer checkpoint is bound: step %d", newest.step)
	}
	if k.Cut == nil {
		switch {
		case k.Mode == RestoreExact:
			return t, CutRefused, "which cut? none was given"
		case newest != nil:
			return try()
		}
		if failed := c.failedPaths(r, k.Failed); failed != "" {
			return t, CutRefused, c.cannotVerify(r, failed)
		}
		return t, CutOK, ""
	}
	if reason := c.beingRemoved(k.Cut); reason != "" && k.Mode == RestoreExact {
		return t, CutRefused, reason
	}
	if x := c.kept(uint64(k.Cut.ID)); x != nil {
		switch {
		case x.rank != cut.Group && x.rank != int64(r.no):
			return t, CutRefused, fmt.Sprintf("cut %016x is that of rank %d", x.id, x.rank)
		case k.Mode == RestoreNewest && newest != nil && (newest != x && c.after(newest, x) || x.state == CutVoided):
			return try()
		case x.state == CutVoided:
			return t, CutRefused, fmt.Sprintf("cut %016x (step %d) was voided: its records were given to others, or somebody went back to an older one. Offer an older one", x.id, x.step)
		}
		return target{kept: x, path: k.Path}, CutOK, ""
	}
	if k.Mode == RestoreNewest && newest != nil && newest.afterForeign(k.Cut) {
		return try()
	}
	return c.pickForeign(r, k.Cut, k.Path)
}

func (c *Core) pickForeign(r *rank, body *cut.Cut, path string) (t target, code CutCode, reason string) {
	all, err := c.fit(body, r)
	if err != nil {
		return t, CutRefused, err.Error()
	}
	if c.cfg.Model == Private {
		if r == nil || body.Rank != cut.Rank(r.no) {
			return t, CutRefused, fmt.Sprintf("cut %v is that of rank %d", body.ID, body.Rank)
		}
		if err := c.taken(r, all); err != nil {
			return t, CutRefused, err.Error()
		}
	}
	return target{foreign: body, fit: all, path: path}, CutOK, ""
}

// newestVerified is the newest bound cut with a manifest that the caller did not
// find broken.
func (c *Core) newestVerified(r *rank, failed []uint64) *keptCut {
	return c.newest(r, func(k *keptCut) bool {
		return k.state == CutBound && k.path != "" && !slices.Contains(failed, k.id)
	})
}

func (c *Core) failedPaths(r *rank, failed []uint64) string {
	var paths []string
	for _, k := range c.cuts {
		if k.state == CutBound && k.path != "" && (k.rank == cut.Group || k.rank == int64(r.no)) && slices.Contains(failed, k.id) && len(paths) < maxNamed {
			paths = append(paths, k.path)
		}
	}
	return strings.Join(paths, ", ")
}

// cannotVerify says what to do: nothing is given up unasked.
func (c *Core) cannotVerify(r *rank, failed string) string {
	whose, again := "the checkpoints", "all that was acked comes again"
	if c.cfg.Model == Private {
		whose, again = fmt.Sprintf("the checkpoints of rank %d", r.no), fmt.Sprintf("what rank %d had acked comes again, for all ranks", r.no)
	}
	return whose + " that are bound do not verify there: " + failed + ". Bring them back, or say resume=start (HEADRACE_RESUME=start) to begin again without them: " + again
}

// choose goes back to t: one Step. It returns what is pending again.
func (c *Core) choose(r *rank, t *target) (again comesAgain) {
	again = c.chosen(r, t)
	if t.kept != nil || again.units > 0 {
		x := Report{Kind: ReportRestored, Cut: t.id(), Units: again.units, Records: again.Tally, Path: t.path}
		if t.kept != nil {
			x.Step = t.kept.step
		}
		if c.cfg.Model == Private {
			x.Rank = r.no
		}
		c.report(x)
	}
	return again
}

func (c *Core) chosen(r *rank, t *target) (again comesAgain) {
	fresh := t.kept == nil && t.foreign == nil && !c.hasPast()
	if !fresh {
		c.revokeForRestore(r)
	}
	k := t.kept
	switch {
	case t.foreign != nil:
		k = c.keepForeign(t)
	case k != nil && k.state != CutBound:
		c.bound(k, t.path)
	}
	step := int64(0)
	if k != nil {
		step = k.step
	}
	if c.cfg.Model == Private {
		again = c.goBackRank(r, c.linesOf(k))
		c.setBase(r, k)
		c.voidAfter(r, k, t.foreign != nil)
		r.lost, r.step, r.choice, r.ended = false, step, t.id(), false
		c.dirtyRank(r)
		if t.foreign != nil && c.phase == restoreFree && !c.anyTrained(r) {
			c.phase, c.restoring = restoreWaits, 0
			c.watchRestore()
			c.park()
		}
		c.dirty.job = true
		return again
	}
	if c.yields != nil {
		c.endHold(CutRefused, "somebody went back to a checkpoint")
	}
	again = c.goBack(c.linesOf(k))
	c.voidAfter(nil, k, t.foreign != nil)
	if c.folds {
		if c.remark(); !fresh {
			c.epoch++
		}
	}
	c.phase, c.choice, c.restored, c.topStep = restoreWaits, t.id(), step, step
	switch {
	case c.folds:
		c.phase = restoreFree
	case fresh: // the start is where all are
		c.phase = restoreDone
	default:
		c.restoring = 0
		c.watchRestore()
		c.park()
	}
	for _, x := range c.ranks {
		if x.generation == c.generation || c.folds {
			x.step, x.ended = step, false
			c.dirtyRank(x)
		}
	}
	c.dirty.job = true
	return again
}

// keepForeign keeps a cut that this master did not know, as bound.
func (c *Core) keepForeign(t *target) *keptCut {
	own := c.adopt(t.foreign, t.fit)
	k := &keptCut{id: uint64(own.ID), state: CutBound, epoch: own.Epoch, generation: own.Generation, rank: int64(own.Rank), step: own.Step, path: t.path}
	if c.cfg.Model != Private {
		c.epoch = max(c.epoch, own.Epoch) + 1 // what is frozen from now on is newer
	}
	c.addCut(k, own)
	c.isBack(k.id)
	c.reportCut(ReportCutBound, k, "")
	t.kept = k
	return k
}

// revokeForRestore takes the leases of those whose model goes back.
func (c *Core) revokeForRestore(r *rank) {
	for _, w := range c.workers {
		if c.cfg.Model != Private || w.rank == r {
			c.revokeLeases(w, "the model goes back to a checkpoint")
		}
	}
}

// answerChoice tells w what the choice of its generation, or its own, is.
func (c *Core) answerChoice(w *worker, call uint64, again comesAgain) {
	id, step := c.choice, c.restored
	if c.cfg.Model == Private {
		id, step = w.rank.choice, 0
	}
	if id == 0 { // it goes on above what it has reported, if the start was chosen before it stepped
		step = max(step, w.rank.step)
	}
	a := CutAnswer{Cut: id}
	if k := c.kept(id); k != nil {
		a.Path, step = k.path, k.step
	}
	if call != 0 {
		c.reply(Reply{To: w.session(), Kind: ReplyCut, Worker: w.number, Request: call, Step: step, Epoch: c.epoch, Units: again.units, Again: again.reply(), Cut: &a})
	}
}

// watchRestore ends the restore phase at its deadline.
func (c *Core) watchRestore() {
	c.restoreBy = c.now + restoreDeadline
	c.timers.push(timer{at: c.restoreBy, kind: timerRestore})
}

// checkRestored opens the gates when all ranks have called.
func (c *Core) checkRestored() {
	if c.phase == restoreWaits {
		for c.restoring < c.worldSize {
			r := c.byRank[c.restoring]
			if r == nil || r.generation != c.generation || !r.called {
				c.unpark()
				return
			}
			c.restoring++
		}
		c.phase = restoreDone
		c.dirty.job = true
	}
	c.unpark()
}

// restoreDue: somebody did not restore in time.
func (c *Core) restoreDue() {
	if c.genEnded || c.now < c.restoreBy || c.phase != restoreOpen && c.phase != restoreWaits {
		return
	}
	var missing []string
	for no := range c.worldSize {
		if r := c.byRank[no]; r == nil || r.generation != c.generation || !r.called {
			if len(missing) == maxNamed {
				missing = append(missing, "and more")
				break
			}
			missing = append(missing, fmt.Sprintf("rank %d", no))
		}
	}
	reason := "not all ranks restored in time: " + strings.Join(missing, ", ")
	c.report(Report{Kind: ReportRestoreMissing, Reason: reason})
	if c.cfg.Model == Replicated {
		c.endGeneration(reason)
		return
	}
	c.phase = restoreDone
	c.dirty.job = true
	c.unpark()
}

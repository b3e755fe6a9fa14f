package shardsvc

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headrace/headrace/shardsvc/cut"
)

const restoreDeadline = 600 * Second

// target is what a restore or a rewind goes back to: a kept cut, a foreign one, or the
// start.
type target struct {
	kept    *keptCut
	foreign *cut.Cut
	fit     []fitted
	path    string
	memory  bool // its checkpoint lies in memory only
}

// restore answers the call of a trainer that goes back to a cut.
func (ck *checkpoints) restore(w *worker, call uint64, k *RestoreCall) {
	r := w.rank
	if reason := ck.noCuts(); reason != "" {
		ck.answer(w, call, CutAnswer{Code: CutRefused}, 0, reason)
		return
	}
	ck.comeAfter(k.After)
	again := func(reason string) {
		ck.at(w).undecided = ck.now + ck.cfg.SessionTTL
		ck.answer(w, call, CutAnswer{Code: CutAgain}, 0, reason)
	}
	if k.Tells {
		ck.at(w).tells, ck.at(w).readable = true, k.Readable
	}
	if ck.recovering { // others may hold leases that they did not assert yet
		again("a new master waits for its agents")
		return
	}
	if reason := ck.undecided(w, k.Waited); reason != "" {
		again(reason)
		return
	}
	ck.at(w).undecided = 0
	if ck.answered(w, call, k) {
		return
	}
	if k.Mode == RestoreNewest && ck.resolving(r) && (k.Cut == nil || !ck.resolves(uint64(k.Cut.ID))) {
		again(fmt.Sprintf("the master is checking whether the last checkpoint of rank %d is complete", r.no))
		return
	}
	if ck.model.inStep && k.Memory && k.Tells && k.Cut != nil {
		if why, wait := ck.unreadable(uint64(k.Cut.ID)); wait {
			again(why)
			return
		} else if why != "" {
			ck.answer(w, call, CutAnswer{Code: CutRefused, Why: RefusedApart}, 0, why)
			return
		}
	}
	witness := ck.witness(r, k)
	if witness != nil { // the call only shows another rank's cut; its own rank goes back to nothing
		own := *k
		own.Cut, own.Path = nil, ""
		k = &own
	}
	t, code, why := ck.pick(r, k)
	if code != CutOK {
		step := int64(0)
		a := CutAnswer{Code: code, Why: whyRefused(why)}
		if t.kept != nil {
			a.Cut, a.Path, step = t.kept.id, t.kept.path, t.kept.step
		}
		ck.answer(w, call, a, step, why.Error())
		return
	}
	comes := ck.choose(r, &t)
	if witness != nil && ck.kept(uint64(witness.ID)) == nil && ck.phase == restoreFree && !ck.anyTrained(r) {
		ck.awaitRanks()
	}
	ck.past(r).way = wentBack
	ck.ledger.dirtyRank(r.account)
	ck.answerChoice(w, call, comes)
	ck.checkRestored()
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

func (ck *checkpoints) resolves(id uint64) bool {
	k := ck.kept(id)
	return k != nil && k.resolving
}

// answered answers a call that comes too late, or whose choice was made already for the
// generation or for this process.
func (ck *checkpoints) answered(w *worker, call uint64, k *RestoreCall) bool {
	r := w.rank
	if done, moved := ck.kind.answered(w, call, k); done || !moved {
		return done
	}
	if k.Mode != RestoreExact && k.Cut == nil && !ck.keeps(r) {
		ck.answer(w, call, CutAnswer{}, r.lastStep(), "")
		return true
	}
	ck.answer(w, call, CutAnswer{Code: CutRefused}, 0, fmt.Sprintf("this process has stepped already (step %d): a restore comes before the first step. To go back now, start it again, or use headrace rewind", r.lastStep()))
	return true
}

// anyTrained says whether another rank has stepped without having restored.
func (ck *checkpoints) anyTrained(r *rank) bool {
	return slices.ContainsFunc(ck.group.everyRank(), func(x *rank) bool { return x != r && ck.past(x).way != wentBack && x.lastStep() > 0 })
}

// ackedSince says whether the model has more than a kept cut. Loading the files of that
// cut would take it out of the model.
func (ck *checkpoints) ackedSince(id uint64) bool {
	k := ck.kept(id)
	if k == nil || k.state == CutVoided {
		return true
	}
	return ck.ledger.ackedBeside(ck.linesOf(k))
}

// othersTrain says whether another process holds leases or has acked records.
func (ck *checkpoints) othersTrain(w *worker) bool {
	return slices.ContainsFunc(ck.group.processes(), func(x *worker) bool { return x != w && ck.trains(x) })
}

// trains says whether x has changed the model or is about to. While its own restore is
// undecided, it has not been given the rows that it was granted.
func (ck *checkpoints) trains(x *worker) bool {
	return x.holds() && ck.now >= ck.at(x).undecided || x.hasAcked() || x.rank.lastStep() > ck.restored
}

// pick finds what a call goes back to.
func (ck *checkpoints) pick(r *rank, k *RestoreCall) (t target, code CutCode, why error) {
	if k.Mode == RestoreStart {
		return t, CutOK, nil
	}
	newest := ck.newestVerified(r, k.Failed)
	try := func() (target, CutCode, error) {
		return target{kept: newest}, CutTry, fmt.Errorf("a newer checkpoint is bound: step %d", newest.step)
	}
	if k.Cut == nil {
		switch {
		case k.Mode == RestoreExact:
			return t, CutRefused, errors.New("no checkpoint was named: name its step or its path")
		case newest != nil:
			return try()
		}
		if failed := ck.failedPaths(r, k.Failed); failed != "" {
			return t, CutRefused, refusal(RefusedUnverified, "%s", ck.cannotVerify(r, failed))
		}
		return t, CutOK, nil
	}
	if reason := ck.beingRemoved(k.Cut); reason != "" && k.Mode == RestoreExact {
		return t, CutRefused, refusal(RefusedGivenUp, "%s", reason)
	}
	if x := ck.kept(uint64(k.Cut.ID)); x != nil {
		switch {
		case !x.isOf(r):
			return t, CutRefused, fmt.Errorf("the checkpoint with cut %016x is that of rank %d: a rank restores its own", x.id, x.rank)
		case k.Mode == RestoreNewest && newest != nil && (newest != x && ck.after(newest, x) || x.state == CutVoided):
			return try()
		case x.state == CutVoided:
			return t, CutRefused, refusal(RefusedGivenUp, "the checkpoint of step %[2]d (cut %016[1]x) was voided: its records were given to others, or somebody went back to an older checkpoint. Restore an older one", x.id, x.step)
		}
		return target{kept: x, path: k.Path, memory: k.Memory}, CutOK, nil
	}
	if k.Mode == RestoreNewest && newest != nil && newest.afterForeign(k.Cut) {
		return try()
	}
	t, code, why = ck.pickForeign(r, k.Cut, k.Path)
	t.memory = k.Memory
	return t, code, why
}

func (ck *checkpoints) pickForeign(r *rank, body *cut.Cut, path string) (t target, code CutCode, why error) {
	all, err := ck.ledger.fit(body, accountOf(r), slices.ContainsFunc(ck.cuts, func(k *keptCut) bool { return k.state != CutVoided }))
	if err != nil {
		return t, CutRefused, err
	}
	if ck.model.perRank {
		if r == nil || body.Rank != cut.Rank(r.no) {
			return t, CutRefused, fmt.Errorf("the checkpoint (cut %v) is that of rank %d", body.ID, body.Rank)
		}
		if err := ck.ledger.taken(r.account, ck.ownLines(r), all); err != nil {
			return t, CutRefused, err
		}
	}
	return target{foreign: body, fit: all, path: path}, CutOK, nil
}

// newestVerified is the newest bound cut whose manifest the caller did not find broken.
func (ck *checkpoints) newestVerified(r *rank, failed []uint64) *keptCut {
	return ck.newest(r, func(k *keptCut) bool {
		return k.state == CutBound && k.path != "" && !slices.Contains(failed, k.id)
	})
}

func (ck *checkpoints) failedPaths(r *rank, failed []uint64) string {
	var paths []string
	for _, k := range ck.cuts {
		if k.state == CutBound && k.path != "" && k.isOf(r) && slices.Contains(failed, k.id) && len(paths) < maxNamed {
			paths = append(paths, k.path)
		}
	}
	return strings.Join(paths, ", ")
}

// cannotVerify says what to do when no bound checkpoint verifies. The master gives up no
// checkpoint by itself.
func (ck *checkpoints) cannotVerify(r *rank, failed string) string {
	whose, again := "bound checkpoints", "all acked records come again"
	if ck.ownerOf(r) != cut.Group {
		whose, again = fmt.Sprintf("bound checkpoints of rank %d", r.no), fmt.Sprintf("the records that rank %d had acked come again, for all ranks", r.no)
	}
	return "none of the " + whose + " verifies: " + failed + ". Bring them back, or say resume=start (HEADRACE_RESUME=start) to begin again without them: " + again
}

// choose goes back to t, all in one Step. It returns what is pending again.
func (ck *checkpoints) choose(r *rank, t *target) (again comesAgain) {
	again = ck.chosen(r, t)
	if t.kept != nil || again.units > 0 {
		x := Report{Kind: ReportRestored, Cut: t.id(), Units: again.units, Records: again.Tally, Path: t.path, Over: ck.group.begunAnew()}
		if t.kept != nil {
			x.Step = t.kept.step
		}
		if owner := ck.ownerOf(r); owner != cut.Group {
			x.Rank = uint32(owner)
		}
		ck.ledger.report(x)
	}
	return again
}

func (ck *checkpoints) chosen(r *rank, t *target) (again comesAgain) {
	fresh := t.kept == nil && t.foreign == nil && !ck.hasPast()
	if !fresh {
		ck.revokeForRestore(r)
	}
	k := t.kept
	switch {
	case t.foreign != nil:
		k = ck.keepForeign(t)
	case k != nil && k.state != CutBound && t.memory:
		ck.returned(k)
	case k != nil && k.state != CutBound:
		ck.bound(k, t.path)
	}
	again = ck.kind.chosen(r, t, k, fresh)
	for _, x := range ck.cuts {
		if x != k && x.state == cutReturned && x.isOf(r) {
			x.state = CutMemory
			ck.putCut(x)
		}
	}
	return again
}

// keepForeign keeps a cut that this master did not know, as bound.
func (ck *checkpoints) keepForeign(t *target) *keptCut {
	own := ck.ledger.adopt(t.foreign, t.fit)
	k := &keptCut{id: uint64(own.ID), state: CutBound, epoch: own.Epoch, generation: own.Generation, rank: int64(own.Rank), step: own.Step, path: t.path}
	report := ReportCutBound
	if t.memory {
		k.state, report = cutReturned, ReportCutMemory
	}
	if k.rank == cut.Group {
		ck.newEpoch(own.Epoch) // cuts that are frozen from now on are newer
	}
	ck.addCut(k, own)
	ck.isBack(k.id)
	ck.reportCut(report, k, "")
	t.kept = k
	return k
}

// returned says that the model goes back to k, which lies in memory and nowhere else.
func (ck *checkpoints) returned(k *keptCut) {
	if !k.state.inMemory() {
		ck.isBack(k.id)
		ck.reportCut(ReportCutMemory, k, "")
	}
	k.state, k.resolving = cutReturned, false
	ck.putCut(k)
}

// revokeForRestore revokes the leases of all processes whose model goes back.
func (ck *checkpoints) revokeForRestore(r *rank) {
	for _, w := range ck.group.processes() {
		if ck.ownerOf(w.rank) == ck.ownerOf(r) {
			ck.ledger.revokeLeases(&w.holder, "the model goes back to a checkpoint")
		}
	}
}

// answerChoice tells w what its generation, or it itself, went back to.
func (ck *checkpoints) answerChoice(w *worker, call uint64, again comesAgain) {
	id, step := ck.choice, ck.restored
	if ck.model.perRank {
		id, step = ck.past(w.rank).choice, 0
	}
	if id == 0 { // it goes on above what it has reported, if the start was chosen before it stepped
		step = max(step, w.rank.lastStep())
	}
	a := CutAnswer{Cut: id}
	if k := ck.kept(id); k != nil {
		a.Path, step = k.path, k.step
	}
	ck.group.tell(w, Reply{Kind: ReplyCut, Request: call, Step: step, Epoch: ck.epoch, Units: again.units, Again: again.reply(), Cut: &a})
}

// awaitRanks keeps all rows back until every rank has restored, or the deadline has
// passed.
func (ck *checkpoints) awaitRanks() {
	ck.phase, ck.restoring = restoreWaits, 0
	ck.jobDirty = true
	ck.watchRestore()
	ck.ledger.park()
}

// watchRestore ends the restore phase at its deadline.
func (ck *checkpoints) watchRestore() {
	ck.restoreBy = ck.now + restoreDeadline
	ck.timers.push(timer{at: ck.restoreBy, kind: timerRestore})
}

// checkRestored opens the gates when all ranks have called.
func (ck *checkpoints) checkRestored() {
	ck.must = ck.must && slices.ContainsFunc(ck.pasts, func(p *rankPast) bool { return p.way == mustGoBack })
	if ck.phase == restoreWaits {
		for ck.restoring < ck.group.world() {
			if r := ck.group.member(ck.restoring); r == nil || ck.past(r).way != wentBack {
				ck.ledger.unpark()
				return
			}
			ck.restoring++
		}
		ck.phase = restoreDone
		ck.jobDirty = true
	}
	ck.ledger.unpark()
}

// restoreDue runs when some rank has not restored in time.
func (ck *checkpoints) restoreDue() {
	if ck.genEnded || ck.now < ck.restoreBy || ck.phase != restoreOpen && ck.phase != restoreWaits {
		return
	}
	var missing []string
	for no := range ck.group.world() {
		if r := ck.group.member(no); r == nil || ck.past(r).way != wentBack {
			if len(missing) == maxNamed {
				missing = append(missing, "and more")
				break
			}
			missing = append(missing, fmt.Sprintf("rank %d", no))
		}
	}
	reason := "not all ranks restored in time: " + strings.Join(missing, ", ")
	ck.ledger.report(Report{Kind: ReportRestoreMissing, Reason: reason})
	if ck.model.inStep {
		ck.group.endGeneration(reason)
		return
	}
	ck.phase = restoreDone
	ck.jobDirty = true
	ck.ledger.unpark()
}

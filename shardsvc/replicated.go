package shardsvc

import (
	"fmt"
	"slices"
	"strings"
)

// replicated: all ranks have the same model and count the same steps. A generation is
// one start of all of them, and the loss of a member ends it.
type replicated struct{ *checkpoints }

// enter lets a process into the running generation, or starts one.
func (ck replicated) enter(a *agent, r *rank, j *Join, newcomer bool, at made) (again comesAgain, ok bool) {
	if !ck.mayResume(a, j, newcomer) {
		return again, false
	}
	world := max(j.WorldSize, 1)
	switch {
	case !newcomer && (ck.genEnded || r.joinedIn() != ck.generation):
		ck.group.refuseJoin(a, j, fmt.Sprintf("generation %d has ended: start the whole group again", r.joinedIn()))
		return again, false
	case j.Rank >= world:
		ck.group.refuseJoin(a, j, fmt.Sprintf("rank %d is not below the world size %d", j.Rank, world))
		return again, false
	case ck.genEnded || ck.generation == 0:
		return ck.startGeneration(world, j.Resume), true
	case !newcomer:
		return again, true
	case r.joinedIn() == ck.generation:
		ck.group.giveWay(fmt.Sprintf("another process came for rank %d", r.no))
		return ck.startGeneration(world, j.Resume), true
	case world != ck.group.world() && ck.group.olderThanAll(at):
		ck.group.refuseOlder(a, j, fmt.Sprintf("a newer group of %d has joined since this process of a group of %d was started", ck.group.world(), world))
		return again, false
	case world != ck.group.world():
		ck.group.giveWay(fmt.Sprintf("a group of %d ranks came, this one has %d", world, ck.group.world()))
		return ck.startGeneration(world, j.Resume), true
	case j.Resume == ResumeStart && ck.choice != 0:
		ck.group.refuseJoin(a, j, fmt.Sprintf("resume=start, but the others went back to step %d: start all ranks in the same way", ck.restored))
		return again, false
	case j.Resume == ResumeStart && ck.phase == restoreFree:
		ck.phase, ck.jobDirty = restoreDone, true
	}
	return again, true
}

func (ck replicated) startGeneration(world uint32, resume Resume) (again comesAgain) {
	ck.group.startGeneration(world)
	ck.phase, ck.choice, ck.restored = restoreFree, 0, 0
	switch keeps := ck.keeps(nil); {
	case !ck.hasPast():
		if resume == ResumeStart {
			ck.phase = restoreDone // this fixes the choice
		}
	case resume == ResumeStart || resume == ResumeDefault && !keeps:
		again = ck.choose(nil, &target{})
		if !keeps {
			ck.phase = restoreDone // nobody has anything else to go back to
		}
	default:
		ck.phase, ck.restoring = restoreOpen, 0
		ck.watchRestore()
	}
	ck.ledger.report(Report{Kind: ReportGeneration, Units: int64(ck.generation)})
	ck.ledger.kickAll()
	return again
}

func (ck replicated) entered(w *worker, j *Join, first bool) (again comesAgain) {
	past := ck.past(w.rank)
	if first {
		if past.way = noWay; j.Resume == ResumeStart && (ck.phase == restoreOpen || ck.phase == restoreWaits) {
			past.way = wentBack
		}
		ck.ledger.goOn(w.account, ck.restored)
	}
	if past.way == wentBack && ck.phase == restoreOpen {
		again.add(ck.choose(w.rank, &target{}))
	}
	ck.checkRestored()
	return again
}

func (ck replicated) lost(r *rank, why string) {
	if r.joinedIn() == ck.generation {
		ck.group.endGeneration(why)
	}
}

// complete: every rank of the generation has reported the step, or was told END and has
// nothing left to report.
func (ck replicated) complete(q *ask) bool {
	if ck.group.dropsUnknown(ck.recoveredAt) {
		return false
	}
	for ; q.missing < ck.group.world(); q.missing++ {
		if !ck.reported(q.missing, q.cut.Step) {
			return false
		}
	}
	// A rank that was told END before may have asked for more since.
	q.missing = 0
	for no := range ck.group.world() {
		if !ck.reported(no, q.cut.Step) {
			q.missing = no
			return false
		}
	}
	return true
}

// reported says whether a rank of the generation, joined or not, has reported the step.
func (ck replicated) reported(no uint32, step int64) bool {
	if r := ck.group.member(no); r != nil {
		return r.hasReported(step)
	}
	return ck.restored >= step
}

func (ck replicated) missing(q *ask) string {
	var all []string
	for no := range ck.group.world() {
		r := ck.group.member(no)
		switch {
		case ck.reported(no, q.cut.Step):
		case len(all) == maxNamed:
			return strings.Join(all, "; ") + "; and more"
		case r == nil:
			all = append(all, fmt.Sprintf("rank %d has not joined", no))
		default:
			all = append(all, fmt.Sprintf("rank %d has reported step %d", no, r.lastStep()))
		}
	}
	return strings.Join(all, "; ")
}

func (ck replicated) bound(k *keptCut) {
	ck.ledger.foldCut(nil, k.rank, k.generation, k.step)
	ck.ledger.bindDrops(func() *lines { return ck.linesOf(k) })
}

// unreadable names a rank that cannot read a cut's checkpoint from memory; empty: all can.
// wait says that a rank has not told yet which checkpoints it can read. The ranks may be on
// several nodes, and each has its own memory. So a cut in memory counts if every rank can
// read it.
func (ck *checkpoints) unreadable(id uint64) (why string, wait bool) {
	for no := range ck.group.world() {
		p := ck.process(no)
		switch {
		case p == nil || !p.tells:
			return fmt.Sprintf("rank %d has not said yet which checkpoints it can read from memory", no), true
		case !slices.Contains(p.readable, id) && why == "":
			why = fmt.Sprintf("rank %d has no copy of it in memory", no)
		}
	}
	return why, false
}

// process is what is known of the process of a rank of this generation; nil: none has
// joined.
func (ck *checkpoints) process(no uint32) *workerPast {
	if r := ck.group.member(no); r != nil && r.worker() != nil {
		return ck.at(r.worker())
	}
	return nil
}

// answered: all ranks of a generation go back to what the first one chose.
func (ck replicated) answered(w *worker, call uint64, _ *RestoreCall) (done, moved bool) {
	if ck.phase != restoreWaits && ck.phase != restoreDone {
		return false, ck.phase == restoreFree && ck.group.highestStep() > 0
	}
	ck.past(w.rank).way = wentBack
	ck.ledger.dirtyRank(w.account)
	ck.answerChoice(w, call, comesAgain{})
	ck.checkRestored()
	return true, false
}

func (ck replicated) chosen(_ *rank, t *target, k *keptCut, fresh bool) (again comesAgain) {
	again = ck.goBackAll(t, k)
	if ck.phase = restoreDone; !fresh { // else all ranks are at the start already
		ck.awaitRanks()
	}
	ck.restoredTo(t, func(x *rank) bool { return x.joinedIn() == ck.generation })
	return again
}

func (ck replicated) rewound(_ []*rank, t *target, why string) (again comesAgain) {
	ck.group.endGeneration(why)
	ck.newEpoch(0)
	again = ck.choose(nil, t)
	ck.phase = restoreFree // of the next generation
	return again
}

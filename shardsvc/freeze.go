package shardsvc

import "github.com/headrace/headrace/shardsvc/cut"

// carriedKept is how many carried cuts a group or rank keeps: the newest ones.
const carriedKept = 3

// memoryKept is how many cuts in memory a group or rank keeps. A trainer that uses a slot
// again drops the cut that it held; this bounds those that killed trainers have left.
const memoryKept = 64

// freeze makes the cut that q waits for. If another rank of the generation has made the
// cut of that step, q shares it.
func (ck *checkpoints) freeze(q *ask) {
	if s := ck.sameStep(&q.cut); s != nil {
		ck.answerCut(q.w, q.call, s)
		return
	}
	r := q.w.rank
	k := &keptCut{id: q.cut.Cut, state: CutFrozen, epoch: ck.epoch, generation: ck.generation, incarnation: r.newestIncarnation(),
		rank: ck.ownerOf(r), step: q.cut.Step, path: q.cut.Path}
	if q.cut.Carried {
		k.state = CutCarried
	} else if q.cut.Memory {
		k.state = CutMemory
	}
	ck.closeStep(r, k.step)
	body := ck.ledger.members(r.account, k.step, ck.ownLines(r))
	body.ID, body.Epoch, body.Generation, body.Rank, body.Step = cut.ID(k.id), k.epoch, k.generation, cut.Rank(k.rank), k.step
	body.WorldSize, body.Exact = max(ck.group.world(), 1), ck.model.byStep || q.cut.Exact
	ck.addCut(k, body)
	ck.reportCut(ReportCutFrozen, k, "")
	ck.answerCut(q.w, q.call, k)
	if h := ck.pause; h != nil && h.cut == k.id {
		ck.endPause(CutOK, "")
	}
	switch k.state {
	case CutCarried:
		ck.dropOlder(k.rank, CutCarried, carriedKept, "newer ones are carried")
	case CutMemory:
		ck.dropOlder(k.rank, CutMemory, memoryKept, "newer ones lie in memory")
	}
}

// closeStep closes the step for ranks that counted as having reported it because they were
// told END. If such a rank is given rows again, it cannot ack with that step.
func (ck *checkpoints) closeStep(r *rank, step int64) {
	if !ck.model.byStep {
		return
	}
	for _, x := range ck.group.everyRank() {
		if ck.ownerOf(x) == ck.ownerOf(r) && x.joinedIn() == ck.generation {
			ck.ledger.closeStep(x.account, step)
		}
	}
}

// dropOlder keeps the newest cuts of one state, and forgets those before them.
func (ck *checkpoints) dropOlder(rank int64, state CutState, keep int, reason string) {
	n := 0
	for i := len(ck.cuts) - 1; i >= 0; i-- {
		if k := ck.cuts[i]; k.state == state && k.rank == rank {
			if n++; n > keep {
				ck.forgetCut(k, reason)
			}
		}
	}
}

// whole is a kept cut with its segments, up to the highest position that it names.
func (ck *checkpoints) whole(k *keptCut) *cut.Cut {
	body := k.decode()
	body.Version, body.Job, body.Model = cut.Version, ck.cfg.Job, ck.cfg.Model
	return ck.ledger.withSegments(body)
}

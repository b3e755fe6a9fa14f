package shardsvc

import (
	"fmt"
	"slices"
)

// setWorldSize is for jobs in which each rank says for itself how many ranks there are.
func (gr *group) setWorldSize(ranks uint32) { gr.worldSize, gr.jobDirty = ranks, true }

// setTopStep says that the generation goes on from step.
func (gr *group) setTopStep(step int64) { gr.topStep = step }

// replace has the older process of r ended, if it may run. Its rows wait until it is known to
// be gone.
func (gr *group) replace(r *rank) {
	if r.process != present {
		return
	}
	if old := r.worker(); old != nil {
		r.older++
		gr.endWorker(old, fmt.Sprintf("another process came for rank %d", r.no))
	} else {
		r.unheard = true
	}
}

// olderThanAll says whether a process is known to have been made before every process of
// the generation.
func (gr *group) olderThanAll(at made) bool {
	return !slices.ContainsFunc(gr.ranks, func(r *rank) bool { return r.generation == gr.generation && !at.before(r.made) })
}

// startGeneration starts the whole group again, in a new epoch.
func (gr *group) startGeneration(world uint32) {
	gr.generation++
	gr.newEpoch(0)
	gr.worldSize, gr.genEnded, gr.topStep = world, false, 0
	gr.jobDirty = true
}

// endGeneration ends the generation, because a member was lost. All other members are
// fenced, and what they hold becomes pending. Nothing is granted or acked until a new
// group starts.
func (gr *group) endGeneration(reason string) { gr.endsGeneration(reason, false) }

// giveWay ends the generation for a group that has come. over: nobody of this one is left.
func (gr *group) giveWay(reason string) {
	over := len(gr.workers) == 0
	gr.endsGeneration(reason, over)
}

func (gr *group) endsGeneration(reason string, over bool) {
	if gr.genEnded {
		return
	}
	gr.over = over
	gr.genEnded = true
	gr.jobDirty = true
	gr.ledger.report(Report{Kind: ReportGenerationEnded, Units: int64(gr.generation), Reason: reason, Over: over})
	gr.above.generationEnded(reason)
	for len(gr.workers) > 0 {
		w := gr.workers[len(gr.workers)-1]
		gr.fence(w, reason)
		gr.drop(w, fenced, lost, ReclaimedGeneration)
	}
}

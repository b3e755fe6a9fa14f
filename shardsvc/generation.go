package shardsvc

// startGeneration: the whole group starts again.
func (gr *group) startGeneration(world uint32) {
	gr.generation++
	gr.epoch++
	gr.worldSize, gr.genEnded, gr.topStep = world, false, 0
	gr.jobDirty = true
}

// endGeneration: a member was lost, so nothing is granted or acked until a new
// group starts. All others are fenced; their rest is pending.
func (gr *group) endGeneration(reason string) {
	if gr.genEnded {
		return
	}
	gr.genEnded = true
	gr.jobDirty = true
	gr.ledger.report(Report{Kind: ReportGenerationEnded, Units: int64(gr.generation), Reason: reason})
	gr.kind.generationEnded(reason)
	for len(gr.workers) > 0 {
		w := gr.workers[len(gr.workers)-1]
		gr.fence(w, reason)
		gr.drop(w, lost, "generation")
	}
}

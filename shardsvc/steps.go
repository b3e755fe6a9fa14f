package shardsvc

// stepReport takes a step report. All acks of the worker up to and including the step came
// before it.
func (gr *group) stepReport(a *agent, r *StepReport) {
	w := a.byNumber[r.Worker]
	if w == nil || w.rank.worker() != w || !gr.above.counts(w) {
		return // until it has restored, its steps belong to no model
	}
	gr.goesOn(w)
	if r.Step > w.rank.lastStep() {
		gr.topStep = max(gr.topStep, r.Step)
		gr.ledger.reported(w.account, r.Step)
	}
}

// stallDue ends w if it has made no progress for as long as its datasets allow.
func (gr *group) stallDue(w *worker, at Time) {
	// The other ranks of a synchronous group wait for it in a collective.
	if !gr.ledger.stalled(&w.holder, at, gr.awaitsRound(w), gr.model.inStep && gr.worldSize > 1) {
		return
	}
	gr.ledger.report(Report{Kind: ReportStalled, Rank: w.rank.no, Agent: w.agent.name, Reason: "no step while holding leases"})
	w.stalled = w.why == ""
	gr.endWorker(w, "stall: it holds leases and made no step")
}

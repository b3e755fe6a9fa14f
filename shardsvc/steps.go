package shardsvc

// stepReport: all acks of this worker up to and including step came before.
func (gr *group) stepReport(a *agent, r *StepReport) {
	w := a.byNumber[r.Worker]
	if w == nil || w.rank.newest != &w.holder || !gr.kind.counts(w) {
		return // before it restored its steps are those of no model
	}
	if r.Step > w.account.step {
		w.account.step = r.Step
		gr.topStep = max(gr.topStep, r.Step)
		gr.ledger.dirtyRank(w.account)
		if !gr.ledger.folds {
			gr.ledger.stepsDue = true
			gr.ledger.foldOld(w.account)
		}
	}
}

func (gr *group) stallDue(w *worker, at Time) {
	if w.stallAt != at {
		return
	}
	w.stallAt = 0
	if w.gone || w.leases == nil || w.state != running {
		return
	}
	if p, stands := gr.ledger.patience(&w.holder), w.paused || w.still; p == 0 || stands || gr.now < w.since+p {
		if p > 0 {
			w.stallAt = max(w.since+p, gr.now+1)
			if stands {
				w.stallAt = gr.now + p
			}
			gr.timers.push(timer{at: w.stallAt, kind: timerStall, of: &w.holder})
		}
		return
	}
	gr.ledger.report(Report{Kind: ReportStalled, Rank: w.rank.no, Agent: w.agent.name, Reason: "no step while holding leases"})
	w.stalled = w.why == ""
	gr.endWorker(w, "stall: it holds leases and made no step")
}

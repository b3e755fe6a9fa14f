package shardsvc

import "fmt"

// reclaimRank takes back what the process of a rank holds, without its help. The process
// may run on, but it is fenced, so what it does with these rows reaches no checkpoint.
func (gr *group) reclaimRank(e *Reclaim) {
	w, reason := gr.reclaimable(e)
	if reason != "" {
		gr.ledger.rejected("reclaim: %s", reason)
		return
	}
	gr.fence(w, "an operator took its rows back with `headrace reclaim`. To go on, call headrace.shutdown(), headrace.init() and restore()")
	gr.fenceRank(w)
	gr.drop(w, fenced, untouched, ReclaimedOperator)
	gr.lostRank(w.rank, "an operator took its rows back")
}

// reclaimable finds the process whose rows are taken back, or says why they are not.
func (gr *group) reclaimable(e *Reclaim) (w *worker, reason string) {
	if gr.recovering {
		return nil, "a new master waits for its agents: try again in a few seconds"
	}
	r := gr.byRank[e.Rank]
	if r == nil || r.worker() == nil {
		return nil, fmt.Sprintf("rank %d has no process: `headrace status` shows the ranks that have one", e.Rank)
	}
	w = r.worker()
	if e.Incarnation != 0 && e.Incarnation != w.incarnation {
		return nil, fmt.Sprintf("another process has rank %d by now: look again with --dry-run", e.Rank)
	}
	if !gr.model.byStep { // a batch that w has not stepped may be in the model already
		reason = fmt.Sprintf("rows that rank %d has in hand may be in the shared model already, so they go to others only when its process has ended. "+
			"End process %d on the node of agent %q, or let it call stream.close()", w.rank.no, w.pid, w.agent.name)
	}
	return w, reason
}

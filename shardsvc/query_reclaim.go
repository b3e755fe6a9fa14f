package shardsvc

import "github.com/headrace/headrace/shardsvc/cut"

// ReclaimPlan says what a Reclaim would do.
type ReclaimPlan struct {
	Refused     string // why it cannot be done; empty: it can
	Incarnation uint64
	Agent       string
	Pid         int32
	Leases      int      // that become free at once
	Step        int64    // reported by the process
	Kept        int64    // the step of the newest checkpoint; later steps come again. -1: there is no checkpoint
	Fenced      []uint32 // ranks whose processes have to start again
}

// PlanReclaim is the dry run of a Reclaim.
func (ck *checkpoints) PlanReclaim(e *Reclaim) ReclaimPlan {
	w, reason := ck.group.reclaimable(e)
	if reason != "" {
		return ReclaimPlan{Refused: reason}
	}
	plan := ReclaimPlan{Incarnation: w.incarnation, Agent: w.agent.name, Pid: w.pid, Leases: w.leaseCount, Step: w.rank.step, Kept: -1}
	if k := ck.newestBound(w.rank); k != nil {
		plan.Kept = k.step
	}
	for _, x := range ck.group.workers {
		if x == w || ck.ownerOf(w.rank) == cut.Group {
			plan.Fenced = append(plan.Fenced, x.rank.no)
		}
	}
	return plan
}

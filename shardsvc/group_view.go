package shardsvc

import (
	"cmp"
	"slices"
)

type AgentInfo struct {
	Name      string
	Session   Session // 0: lost
	LastHeard Time
	Workers   int
}

type WorkerInfo struct {
	Rank        uint32
	Incarnation uint64
	Agent       string
	Pid         int32
	State       string // running | waiting | paused | stalled | ending | detached
	Rate        float64
	UnitsAcked  uint64
	Step        int64
	Leases      int
	WaitSeconds float64
	StepSeconds float64
	RowsYielded uint64
}

// HasSession says whether a session is open: it was greeted, and has neither ended
// nor expired.
func (gr *group) HasSession(s Session) bool { return gr.sessions[s] != nil }

// Agents that are known, in order of arrival.
func (gr *group) Agents() []AgentInfo {
	all := make([]AgentInfo, 0, len(gr.agents))
	for _, a := range gr.agents {
		all = append(all, AgentInfo{a.name, a.session, a.lastHeard + gr.blocked, len(a.workers)})
	}
	return all
}

// Workers that may run, in order of rank.
func (gr *group) Workers() []WorkerInfo {
	all := make([]WorkerInfo, 0, len(gr.workers))
	for _, w := range gr.workers {
		i := WorkerInfo{Rank: w.rank.no, Incarnation: w.incarnation, Agent: w.agent.name, Pid: w.pid,
			UnitsAcked: w.units, Step: w.rank.step, Leases: w.leaseCount,
			WaitSeconds: w.waitSeconds, StepSeconds: w.stepSeconds, RowsYielded: w.rows}
		for _, r := range w.rates {
			i.Rate = max(i.Rate, float64(r.rate))
		}
		switch {
		case w.state == detached:
			i.State = "detached"
		case w.state == ending && w.stalled:
			i.State = "stalled"
		case w.state == ending:
			i.State = "ending"
		case w.paused:
			i.State = "paused"
		case w.waiting > 0 && w.leases == nil:
			i.State = "waiting"
		default:
			i.State = "running"
		}
		all = append(all, i)
	}
	slices.SortStableFunc(all, func(a, b WorkerInfo) int { return cmp.Compare(a.Rank, b.Rank) })
	return all
}

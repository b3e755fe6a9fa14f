package sim

import (
	"cmp"
	"slices"

	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
)

// The step files of a node (agent/feed/stepfiles.go): they say what a trainer of a shared model has received and
// stepped. They exist as long as the node, whatever process is killed.

const lookEvery = 200 * millisecond

// takeStepFiles asserts what trainers had that ended before they joined this agent.
func (a *agent) takeStepFiles() {
	n := a.node
	if a.w.plan.model != shared {
		return
	}
	for _, t := range slices.Clone(n.files) {
		if _, known := a.files[t]; known || t.alive {
			continue
		}
		if t.generation == 0 || !t.opened || t.finished {
			t.removeFile()
			continue
		}
		a.takeProcess(t)
	}
	a.after(lookEvery, a.takeStepFiles)
}

func (a *agent) takeProcess(t *trainer) {
	a.workers++
	number := a.workers
	a.files[t] = number
	join := &hold.Join{Ended: true, Join: &pb.Join{Worker: number, Rank: t.rank, Incarnation: t.inc, WorldSize: uint32(a.w.worldOf(t)), Generation: t.generation, MadeAt: t.node.clock(t.born)}}
	for _, r := range t.streams {
		join.Resume = append(join.Resume, r.resume())
	}
	a.w.tracef(a.name, "takes the step file of %s", t.name)
	a.do(join)
	if a.fx.Invalid != "" {
		a.w.fail("%s: the step file of %s was refused: %s", a.name, t.name, a.fx.Invalid)
		return
	}
	a.do(&hold.Gone{Worker: number, Reason: pb.Leave_EXITED, Ended: true})
}

// rest reports the steps of an ended process that it had not sent itself.
func (a *agent) rest(s *seat) {
	t := s.t
	if a.w.plan.model != shared || t.noFile || !t.opened {
		return
	}
	streams := slices.Clone(t.streams)
	slices.SortStableFunc(streams, func(x, y *reader) int { return cmp.Compare(x.step, y.step) })
	for _, r := range streams {
		if r.stepped > r.acked {
			a.do(&hold.Stepped{Stream: hold.Stream{Worker: s.number, Number: r.number}, Step: r.step, Batches: 1, Through: r.stepped})
		}
	}
}

// forgotten: nothing of a worker is open any more.
func (a *agent) forgotten(worker uint32) {
	for t, number := range a.files {
		if number == worker {
			delete(a.files, t)
			if !t.alive {
				t.removeFile()
			}
		}
	}
}

func (t *trainer) removeFile() {
	t.node.files = slices.DeleteFunc(t.node.files, func(o *trainer) bool { return o == t })
}

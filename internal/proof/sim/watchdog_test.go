package sim

import (
	"fmt"
	"testing"

	"github.com/headrace/headrace/shardsvc/cut"
)

// forSharedJobs plays jobs of a shared model whose only trouble is what `do` does to the first node.
func forSharedJobs(t *testing.T, name string, do func(w *World, n *node)) {
	t.Helper()
	for seed := uint64(1); seed <= 20; seed++ {
		s := Story{Seed: seed, Size: 4, Without: others(len(Troubles(seed)), nil)}
		w := newWorld(s)
		if w.draw(); w.plan.model != shared || w.plan.nodes == 1 {
			continue
		}
		w = newWorld(s)
		func() {
			defer func() {
				if r := recover(); r != nil {
					t.Errorf("seed %d, %s: %s %v", seed, name, w.fault, r)
				}
			}()
			w.begin()
			do(w, w.nodes[0])
			w.run()
		}()
	}
}

func (w *World) trainersOf(n *node) (all []*trainer) {
	for _, t := range w.trainers {
		if t.node == n && t.alive {
			all = append(all, t)
		}
	}
	return all
}

// A node is cut off, and its agent stands still before or while its session ends. At whatever moment that is,
// its trainers, which compute all the time, have ended when others get the batches in their hands
// (guarantee 6).
func TestTrainersEndInTimeWheneverTheirAgentStandsStill(t *testing.T) {
	ended := 0
	for part := Time(20); part < 48; part += 2 { // of a TTL, in fortieths
		forSharedJobs(t, fmt.Sprintf("still after %d/40 of its session", part), func(w *World, n *node) {
			w.at(second, func() {
				for _, tr := range w.trainersOf(n) {
					tr.pace = 100 * second
					tr.ended = append(tr.ended, func() { ended++ })
				}
			})
			w.at(2*second, func() { w.cutOff(n, 3*w.plan.ttl) })
			w.at(2*second+w.plan.ttl*part/40, func() { n.agent.stop(3 * w.plan.ttl) })
		})
	}
	if ended < 20 {
		t.Errorf("only %d trainers had to end: too few for this test to show anything", ended)
	}
}

// The limit of guarantee 6: a process that was stopped as a whole takes a batch from its socket that others
// have by now, while its agent stands still.
func TestWhatLayInTheSocketOfAStoppedTrainerIsNotHeldAgainstIt(t *testing.T) {
	for part := Time(1); part < 10; part++ {
		forSharedJobs(t, fmt.Sprintf("stopped after %d00 ms", part), func(w *World, n *node) {
			at := part * 100 * millisecond
			w.at(at, func() {
				for _, tr := range w.trainersOf(n) {
					tr.stop(3 * w.plan.ttl)
				}
			})
			w.at(at+200*millisecond, func() { n.agent.stop(5 * w.plan.ttl) })
		})
	}
}

// A master that has lost its disk counts epochs from 1. A checkpoint of an earlier life that does not verify
// is older than what a rank saves now, and is no reason to remove that.
func TestACheckpointOfALostLifeEndsNoneOfThisOne(t *testing.T) {
	w := &World{plan: plan{model: replicated}}
	s := storage{w: w}
	for i, c := range []cut.Cut{{Epoch: 2, Step: 1}, {Epoch: 1, Step: 7}, {Epoch: 1, Step: 56}} {
		c.ID, c.Order, c.Rank = cut.ID(i+1), s.order(cut.Group)+1, cut.Group
		s.all = append(s.all, &manifest{cut: &c, self: &file{}})
	}
	if old := s.removable(cut.Group, 2, s.all[2]); len(old) != 1 || old[0].cut.ID != 1 {
		t.Errorf("%d checkpoints are removable, want only the one of the earlier life", len(old))
	}
}

package sim

import "testing"

// A node is cut off, and its agent stands still before, or while, its session ends:
// whenever that is, its trainers, which compute on and on, have ended when others get
// what they have in hand (guarantee 6).
func TestTrainersEndInTimeWheneverTheirAgentStandsStill(t *testing.T) {
	ended := 0
	for seed := uint64(1); seed <= 20; seed++ {
		w := &World{dice: newDice(seed, 0), story: Story{Seed: seed, Size: 4, Without: others(len(Troubles(seed)), nil)}, disk: &disk{data: map[string][]byte{}}}
		w.draw()
		if w.plan.model != shared || w.plan.nodes == 1 {
			continue
		}
		ttl := w.plan.ttl
		for still := ttl / 2; still < ttl+ttl/5; still += ttl / 40 {
			ended += w.story.cutOffAndStandStill(t, still)
		}
	}
	if ended < 20 {
		t.Errorf("%d trainers had to end: too few to say anything", ended)
	}
}

// cutOffAndStandStill plays s. Its first node is cut off after two seconds, and its
// agent stands still that long after.
func (s Story) cutOffAndStandStill(t *testing.T, still Time) (ended int) {
	t.Helper()
	w := &World{dice: newDice(s.Seed, 0), story: s, disk: &disk{data: map[string][]byte{}}}
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("seed %d, still after %v of %v: %s", s.Seed, span(still), span(w.plan.ttl), w.fault)
		}
	}()
	w.begin()
	n := w.nodes[0]
	w.at(second, func() {
		for _, tr := range w.trainers {
			if tr.node == n && tr.alive {
				tr.pace = 100 * second
				tr.ended = append(tr.ended, func() { ended++ })
			}
		}
	})
	w.at(2*second, func() { w.cutOff(n, 3*w.plan.ttl) })
	w.at(2*second+still, func() { n.agent.stop(3 * w.plan.ttl) })
	w.run()
	return ended
}

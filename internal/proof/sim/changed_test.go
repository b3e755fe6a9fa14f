package sim

import (
	"slices"
	"testing"

	"github.com/headrace/headrace/shardsvc"
)

// The other processes of a group must hear of a change within soonAfter of the moment when the master may
// know it. A silent member is known to be gone one TTL after its last sign.
const soonAfter = 500 * millisecond

// ends is one way in which a group changes. told: the master is told, and need not wait a TTL.
type ends struct {
	name string
	told bool
	do   func(w *World, n *node)
}

var allEnds = []ends{
	{"a process of it is killed", true, func(w *World, n *node) { w.trainersOf(n)[0].kill("test") }},
	{"its node is lost, and is back soon", false, func(w *World, n *node) { w.killNode(n) }},
	{"its node is lost for good", false, func(w *World, n *node) {
		n.agent.ended = nil
		w.killNode(n)
	}},
	{"its node is cut off", false, func(w *World, n *node) { w.cutOff(n, 3*w.plan.ttl) }},
	{"its node stands still", false, func(w *World, n *node) {
		for _, tr := range w.trainersOf(n) {
			tr.stop(3 * w.plan.ttl)
		}
		n.agent.stop(3 * w.plan.ttl)
	}},
	{"another group comes", true, func(w *World, _ *node) { w.startGroup() }},
}

// If a member dies or the group changes, the other ranks hear it within TTL + 0.5 s of virtual time. The
// time runs from the last sign of the dead member at the master to the answer at each other process,
// which then ends. Only that answer ends them: the launcher does nothing here.
func TestTheOthersHearThatTheWorldHasChangedWithinATTL(t *testing.T) {
	for _, e := range allEnds {
		t.Run(e.name, func(t *testing.T) {
			heard := 0
			for seed := uint64(3); heard < 20 && seed < 3000; seed += 3 {
				heard += othersHear(t, seed, e)
			}
			if heard < 20 {
				t.Errorf("only %d processes had to hear of a change: too few for this test to show anything", heard)
			}
		})
	}
}

// othersHear plays a group with rounds that has no other trouble. It counts the processes that had to hear
// of the change.
func othersHear(t *testing.T, seed uint64, e ends) (heard int) {
	s := Story{Seed: seed, Size: 8, Without: others(len(Troubles(seed)), nil)}
	w := newWorld(s)
	if w.draw(); w.plan.model != replicated || !w.plan.rounds || w.plan.ranks == 1 {
		return 0
	}
	w = newWorld(s)
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("seed %d: %s %v", seed, w.fault, r)
		}
	}()
	w.begin()
	g := w.group
	trains := func(m *trainer) bool { return m.alive && !m.finished && m.opened && m.step > 0 }
	for slices.ContainsFunc(g.members, func(m *trainer) bool { return !trains(m) }) {
		if w.step(); g.left > 0 || w.over() {
			return 0
		}
	}
	g.broken, g.next = true, true // so that the launcher does nothing
	dies := g.members[0].node
	session, last := w.heard(dies)
	within := soonAfter + w.plan.ttl
	if e.told { // a process takes at most 100 ms to join
		last, within = w.now+100*millisecond, soonAfter
	}
	e.do(w, dies)
	left := slices.DeleteFunc(slices.Clone(g.members), func(m *trainer) bool { return !m.alive || !e.told && m.node == dies })
	for w.now < last+within {
		w.step()
		if now, at := w.heard(dies); !e.told && (now == session || now == 0) {
			last = max(last, at)
		}
	}
	for _, m := range left {
		if m.alive {
			t.Errorf("seed %d: %s had heard nothing %v after the last sign, of a TTL of %v", seed, m.name, span(w.now-last), span(w.plan.ttl))
		}
	}
	return len(left)
}

func (w *World) step() {
	do, ok := w.next()
	if !ok {
		w.fail("no event is planned any more")
	}
	do()
}

// heard gives the session of a node's agent, and when the master last heard of it.
func (w *World) heard(n *node) (session shardsvc.Session, at Time) {
	m := w.master
	for _, a := range m.core.Agents() {
		if a.Name == n.name {
			return a.Session, w.now - Time(m.now()-a.LastHeard)
		}
	}
	return 0, 0
}

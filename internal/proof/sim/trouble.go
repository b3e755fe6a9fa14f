package sim

import (
	"slices"

	"github.com/headrace/headrace/agent/hold"

	pb "github.com/headrace/headrace/api/headrace/v1"
)

// trouble is one kind of thing that goes wrong.
type trouble struct {
	name string
	do   func(w *World)
	rare bool // in few seeds: it breaks little by itself, and would leave less room for others
}

// Trouble is one trouble that comes.
type Trouble struct {
	At   Time
	Name string
	do   func(w *World)
}

// draw plans all troubles beforehand, from dice of their own: leaving out one does not change the others.
func (p *plan) draw(d dice) {
	if len(p.kinds) == 0 {
		return
	}
	for at := d.time(0, p.every); at < p.trouble; at += d.time(0, p.every) {
		t := pick(d, p.kinds)
		p.troubles = append(p.troubles, Trouble{at, t.name, t.do})
	}
}

// Troubles lists the troubles of a seed, in order.
func Troubles(seed uint64) []Trouble {
	w := &World{dice: newDice(seed, 0), story: Story{Seed: seed}}
	w.draw()
	return w.plan.troubles
}

func (w *World) planTroubles() {
	for i, t := range w.plan.troubles {
		if w.story.without(i) {
			continue
		}
		w.at(t.At, func() {
			if w.calm > 0 {
				return
			}
			w.reached = max(w.reached, i+1)
			w.tracef("TROUBLE", "%d: %s", i, t.Name)
			old := w.dice
			w.dice = newDice(w.story.Seed, uint64(2+i))
			t.do(w)
			w.dice = old
		})
	}
}

const (
	diskLost = "the master's disk is lost"
	oneNode  = "the master is deposed, and goes on with one node"

	endsUnheard = "a trainer ends while agent and master are away"
)

// reclaimed comes in one seed of five. It uses no dice, so that the seed's other draws do not change.
var reclaimed = trouble{name: "somebody takes back what a rank holds", do: func(w *World) { w.reclaimByTool() }}

var troubles = []trouble{
	{"a trainer is killed", func(w *World) {
		if t := w.someTrainer(); t != nil {
			t.kill("trouble")
		}
	}, false},
	{"an agent is killed", func(w *World) { w.someNode().killAgent(w) }, false},
	{"the master is killed", func(w *World) { w.killMaster() }, false},
	{"a node is lost", func(w *World) { w.killNode(w.someNode()) }, false},
	{"all is lost", func(w *World) {
		w.killMaster()
		for _, n := range w.nodes {
			w.killNode(n)
		}
	}, false},
	{diskLost, func(w *World) {
		w.killMaster()
		for _, n := range w.nodes {
			w.killNode(n)
		}
		w.tracef("disk", "is empty")
		w.disk.data, w.emptied = map[string][]byte{}, w.now
		w.books.forget()
		clear(w.books.out)
		w.beginsAnew()
		if w.oneIn(4) {
			w.lives++ // the next master numbers segments again
		}
		if w.plan.model == shared {
			w.modelLost()
		}
		w.reopenAll()
	}, false},
	{"a model is lost", func(w *World) {
		if w.plan.model == shared {
			w.modelLost()
		}
	}, false},
	{"a checkpoint is damaged", func(w *World) {
		if len(w.storage.all) > 0 {
			m := w.storage.all[max(0, len(w.storage.all)-w.of(1, 3))]
			w.tracef("storage", "cut %x is damaged", uint64(m.cut.ID))
			pick(w.dice, append(m.needs, m.self)).bad = true
		}
	}, false},
	{"a connection breaks", func(w *World) {
		if a := w.someNode().agent; a != nil && a.link != nil {
			w.tracef(a.name, "its connection breaks")
			a.link.tear(w.time(0, 100*millisecond), w.time(0, 2*w.plan.ttl))
		}
	}, false},
	{"a node is cut off", func(w *World) { w.cutOff(w.someNode(), w.time(50*millisecond, 4*w.plan.ttl)) }, false},
	{"the master stands still", func(w *World) {
		if w.master != nil {
			w.master.stop(w.time(10*millisecond, 2*w.plan.ttl))
		}
	}, false},
	{"an agent stands still", func(w *World) {
		if a := w.someNode().agent; a != nil {
			a.stop(w.time(10*millisecond, 2*w.plan.ttl))
		}
	}, false},
	{"a trainer stands still", func(w *World) {
		if t := w.someTrainer(); t != nil {
			t.stop(w.time(10*millisecond, 2*w.plan.ttl))
		}
	}, false},
	{endsUnheard, func(w *World) { w.endUnheard() }, true},
	{"the disk is slow", func(w *World) {
		w.slow = true
		w.at(w.now+w.time(second, 5*second), func() { w.slow = false })
	}, false},
	{"the disk fails", func(w *World) {
		w.failing = true
		w.at(w.now+w.time(second, 5*second), func() { w.failing = false })
	}, false},
	{"a second master", func(w *World) { w.startMaster() }, false},
	{"the master is deposed", func(w *World) { w.depose() }, true},
	{oneNode, func(w *World) { w.splitBrain() }, true},
	{"a trainer loses its agent", func(w *World) {
		if t := w.someTrainer(); t != nil && t.l != nil {
			w.tracef(t.name, "its socket breaks")
			t.l.tear(0, w.time(0, 20*millisecond))
		}
	}, false},
	{"another process for a rank", func(w *World) { w.rival() }, false},
	{"somebody goes back to a checkpoint", func(w *World) { w.rewind() }, false},
	{"a dataset is paused", func(w *World) { w.pause() }, false},
	{"specs are applied again", func(w *World) { w.apply() }, true},
	{"a tool binds a checkpoint", func(w *World) { w.bindByTool() }, true},
	{"a checkpoint is removed by hand", func(w *World) { w.removeByTool() }, true},
	{"a save is given up by hand", func(w *World) { w.dropFrozen() }, true},
	{"a rank does not restore", func(w *World) { w.dawdles = !w.dawdled && w.oneIn(4) }, true},
	{"the source deletes", func(w *World) { w.delete() }, false},
	{"a range cannot be read", func(w *World) {
		if a := w.someNode().agent; a != nil {
			a.run(func() { a.failRead() })
		}
	}, false},
}

// theme is a set of troubles that belong together: one may break what another begins. In seeds that draw from
// all kinds, three of the same set in a row are rare.
type theme struct {
	kinds []string
	saves bool // it is about checkpoints
	peace Time // longest time between two of them, in TTLs; 0: as the seed says
}

var themes = []theme{
	{kinds: []string{diskLost, "all is lost", "a checkpoint is damaged", "the source deletes", "another process for a rank"}, saves: true},
	{kinds: []string{"a trainer stands still", "an agent stands still", "a node is cut off", "an agent is killed", "another process for a rank"}},
	{kinds: []string{"the master is killed", "a connection breaks", "a node is cut off", "the disk is slow", "the disk fails"}},
	{kinds: []string{"the master is deposed", oneNode, "another process for a rank"}, peace: 6},
}

// outOfOrder: of two processes of a rank, the one that was made first is heard last, because its agent stood
// still or its node was cut off.
var outOfOrder = theme{kinds: []string{"an agent stands still", "a node is cut off", "another process for a rank"}, peace: 1}

// allAway: a trainer, its agent and the master are away at the same time. The next agent claims the trainer's
// leases from a step file, with tokens of an earlier master.
var allAway = theme{kinds: []string{"the master is killed", "an agent is killed", "a trainer is killed", endsUnheard, endsUnheard}}

// endUnheard: a trainer ends while neither its agent nor the master runs, or shortly after the master has come
// back. The dice decide order and gaps.
func (w *World) endUnheard() {
	t := w.someTrainer()
	if t == nil {
		return
	}
	pace := w.plan.pace
	still, stop := w.time(0, 3*pace), w.time(3*pace, 20*pace)
	agent := still + w.time(pace, 7*pace)
	trainer := agent + w.time(0, 2*pace) - pace/4
	w.killMaster()
	w.whenHeard(func() {
		still, agent, trainer := w.now+still, w.now+agent, w.now+trainer
		w.at(still, func() {
			if w.master != nil {
				w.master.stop(stop)
			}
		})
		w.at(agent, func() { t.node.killAgent(w) })
		w.at(trainer, func() { t.kill("trouble") })
	})
}

// whenHeard calls f once the agents of all nodes that have one are connected to the master, which compares
// processes by their messages.
func (w *World) whenHeard(f func()) {
	w.at(w.now+10*millisecond, func() {
		talk := w.master != nil && w.master.alive && !slices.ContainsFunc(w.nodes, func(n *node) bool {
			return n.agent != nil && n.agent.alive && n.agent.link == nil
		})
		switch {
		case talk:
			w.at(w.now+200*millisecond, f)
		case w.calm == 0:
			w.whenHeard(f)
		}
	})
}

func (h theme) shape(w *World) {
	p := &w.plan
	p.kinds = nil
	for _, t := range troubles {
		if slices.Contains(h.kinds, t.name) {
			p.kinds = append(p.kinds, t)
		}
	}
	if h.saves && p.saves == 0 {
		p.saves = w.of(1, 12)
	}
	if h.peace > 0 {
		p.every, p.trouble = h.peace*p.ttl, 4*h.peace*p.ttl
	}
}

func (w *World) someNode() *node { return pick(w.dice, w.nodes) }

func (w *World) someTrainer() *trainer {
	var alive []*trainer
	for _, t := range w.trainers {
		if t.alive {
			alive = append(alive, t)
		}
	}
	if len(alive) == 0 {
		return nil
	}
	return pick(w.dice, alive)
}

func (w *World) killMaster() {
	if w.master != nil && w.master.alive {
		w.crashes++
		w.master.kill("trouble")
	}
}

func (n *node) killAgent(w *World) {
	if n.agent != nil && n.agent.alive {
		w.crashes++
		n.agent.kill("trouble")
	}
}

func (w *World) killNode(n *node) {
	n.killAgent(w)
	n.boots++
	for _, t := range w.trainers {
		if t.node == n {
			t.kill("its node is lost")
		}
	}
	for _, t := range n.files {
		t.noFile = true
	}
	n.files = nil
	n.memory, n.replicas = nil, nil
	w.storage.powerLoss(n)
}

// cutOff separates a node from the master. Either the connection survives it, or each end gives up at its own
// time.
func (w *World) cutOff(n *node, d Time) {
	w.tracef(n.name, "cut off for %v", span(d))
	n.cut = max(n.cut, w.now+d)
	for _, l := range n.links {
		if l.ends[0].shut && l.ends[1].shut {
			continue
		}
		if w.oneIn(2) {
			l.hold(w.now + d)
		} else {
			l.tear(w.time(0, 2*w.plan.ttl), w.time(0, 2*w.plan.ttl))
		}
	}
	n.links = n.links[:0]
	if a := n.agent; a != nil && a.link != nil {
		n.links = append(n.links, a.link)
	}
}

// rival starts another process for a rank, while the first may still run.
func (w *World) rival() {
	if w.plan.model == replicated {
		w.rivalGroup()
		return
	}
	w.rivalOf(pick(w.dice, w.slots))
}

func (w *World) rivalOf(s *slot) {
	if s.done || !s.cur.alive {
		return
	}
	old := s.cur
	s.start(w)
	w.at(w.now+w.time(0, 4*w.plan.ttl), func() { old.kill("it was replaced long ago") })
	w.standsAtTheDoor(s.cur, func() { w.rivalOf(s) })
}

// rivalGroup: the launcher starts a group while the old one still runs.
func (w *World) rivalGroup() {
	g := w.group
	if g.left > 0 || g.next || w.oneIn(2) {
		return
	}
	g.broken, g.next = true, true
	w.startGroup()
	for _, m := range g.members {
		w.at(w.now+w.time(0, 3*second), func() { m.process.kill("its group was replaced") })
	}
	w.standsAtTheDoor(pick(w.dice, w.group.members), w.rivalGroup)
}

// standsAtTheDoor: the agent of a process that was just started may stand still, and let it in long after a
// newer process is there.
func (w *World) standsAtTheDoor(t *trainer, newer func()) {
	a := t.node.agent
	if w.calm > 0 || a == nil || !w.oneIn(2) {
		return
	}
	a.stop(w.time(100*millisecond, 2*w.plan.ttl))
	w.at(w.now+w.time(20*millisecond, w.plan.ttl), newer)
}

func (a *agent) failRead() {
	for _, s := range a.seats {
		for _, f := range s.streams {
			for _, l := range f.leases {
				if !l.dry && !f.stopped && !f.busy {
					l.dry = true
					kind := pb.KindIO
					if l.id%2 == 0 {
						kind = pb.KindAway
					}
					a.do(&hold.Failed{Lease: l.id, At: l.at, Kind: kind, Message: "the disk hiccuped"})
					f.poke()
					return
				}
			}
		}
	}
}

package sim

import "slices"

// Replicas of checkpoints in memory: some time after a copy is complete, the agent of its node sends it to
// the next node. The replica survives the node of the copy. A rank that starts asks all nodes whose
// agents answer, and takes the newest replica into its own memory before it says what it can read.

// replicaSlots is how many replicas of a rank a node keeps.
const replicaSlots = 2

// replicate sends c to another node, if the node, its agent and the copy still exist by then.
func (n *node) replicate(w *World, c *copied) {
	boots, m := n.boots, c.m
	w.at(w.now+w.time(millisecond, 500*millisecond), func() {
		if n.boots != boots || n.agent == nil || !n.agent.alive || !c.whole || c.m != m || c.bad || !slices.Contains(n.memory, c) {
			return
		}
		for i := 1; i < len(w.nodes); i++ {
			peer := w.nodes[(n.no+i)%len(w.nodes)]
			if peer.agent != nil && peer.agent.alive {
				peer.hold(&copied{rank: c.rank, m: m, whole: true, bad: w.oneIn(20)})
				w.tracef(n.name, "has sent cut %x of rank %d to %s", uint64(m.cut.ID), c.rank, peer.name)
				return
			}
		}
	})
}

// hold keeps a replica, and drops all but the newest replicas of its rank.
func (n *node) hold(c *copied) {
	n.replicas = append(n.replicas, c)
	var of []*copied
	for _, x := range n.replicas {
		if x.rank == c.rank {
			of = append(of, x)
		}
	}
	if len(of) > replicaSlots {
		oldest := slices.MinFunc(of, func(a, b *copied) int { return a.order(b) })
		n.replicas = slices.DeleteFunc(n.replicas, func(x *copied) bool { return x == oldest })
	}
}

func (c *copied) order(o *copied) int { return int(c.m.cut.Order) - int(o.m.cut.Order) }

// fetch takes the newest replica of the rank into the memory of t's node, if it is newer than the copies
// there.
func (t *trainer) fetch() {
	w := t.w
	if !w.plan.replicas {
		return
	}
	var best *copied
	for _, n := range w.nodes {
		if n.agent == nil || !n.agent.alive {
			continue
		}
		for _, c := range n.replicas {
			if c.rank == t.rank && !c.bad && (best == nil || c.order(best) > 0) {
				best = c
			}
		}
	}
	if own := t.newestInMemory(nil); best == nil || own != nil && own.cut.Order >= best.m.cut.Order {
		return
	}
	c := t.copyInto()
	c.m, c.whole = best.m, true
	w.seen.fetched++
	w.tracef(t.name, "fetches cut %x of step %d into the memory of %s", uint64(c.m.cut.ID), c.m.cut.Step, t.node.name)
}

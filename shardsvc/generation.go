package shardsvc

import "fmt"

// replaceShared: the older process is ended; its rows wait until that is known.
func (c *Core) replaceShared(r *rank, newcomer bool) {
	if !newcomer || !r.attached {
		return
	}
	r.others = true
	if old := r.worker; old != nil {
		r.older++
		c.endWorker(old, fmt.Sprintf("another process came for rank %d", r.no))
	} else {
		r.unheard = true
	}
}

// replacePrivate: the older process and its model are out of the group, so all
// that the rank had acked is pending again.
func (c *Core) replacePrivate(r *rank, newcomer bool) int64 {
	if !newcomer {
		return 0
	}
	if old := r.worker; old != nil {
		reason := fmt.Sprintf("another process came for rank %d", r.no)
		c.fence(old, reason)
		c.drop(old, lost, "fenced")
	}
	again := c.pendingAgain(r)
	if again > 0 {
		c.report(Report{Kind: ReportPendingAgain, Rank: r.no, Units: again, Reason: "a new process of a private rank"})
	}
	return again
}

// enterGeneration lets a process into the running generation, or starts one.
func (c *Core) enterGeneration(a *agent, r *rank, j *Join, newcomer bool) (again int64, ok bool) {
	world := max(j.WorldSize, 1)
	switch {
	case !newcomer && (c.genEnded || r.generation != c.generation):
		c.refuseJoin(a, j, fmt.Sprintf("generation %d has ended: start the whole group again", r.generation))
		return 0, false
	case j.Rank >= world:
		c.refuseJoin(a, j, fmt.Sprintf("rank %d is not below the world size %d", j.Rank, world))
		return 0, false
	case c.genEnded || c.generation == 0:
		return c.startGeneration(world), true
	case !newcomer:
		return 0, true
	case newcomer && r.generation == c.generation:
		c.endGeneration(fmt.Sprintf("another process came for rank %d", r.no))
		return c.startGeneration(world), true
	case world != c.worldSize:
		c.endGeneration(fmt.Sprintf("a group of %d came, this one has %d", world, c.worldSize))
		return c.startGeneration(world), true
	}
	return 0, true
}

func (c *Core) startGeneration(world uint32) (again int64) {
	c.generation++
	c.epoch++
	c.worldSize, c.genEnded = world, false
	c.dirty.job = true
	again = c.pendingAgain(nil)
	c.report(Report{Kind: ReportGeneration, Units: int64(c.generation)})
	if again > 0 {
		c.report(Report{Kind: ReportPendingAgain, Units: again, Reason: "a new generation"})
	}
	for _, d := range c.datasets {
		if d != nil {
			c.kick(d)
		}
	}
	return again
}

// endGeneration: a member was lost, so nothing is granted or acked until a new
// group starts. All others are fenced; their rest is pending.
func (c *Core) endGeneration(reason string) {
	if c.genEnded {
		return
	}
	c.genEnded = true
	c.dirty.job = true
	c.report(Report{Kind: ReportGenerationEnded, Units: int64(c.generation), Reason: reason})
	for len(c.workers) > 0 {
		w := c.workers[len(c.workers)-1]
		c.fence(w, reason)
		c.drop(w, lost, "generation")
	}
}

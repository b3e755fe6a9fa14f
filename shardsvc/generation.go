package shardsvc

import (
	"fmt"
	"slices"
)

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

// replacePrivate: the older process and its model are out of the group. The new one
// goes back to a cut of the rank, or begins with nothing.
func (c *Core) replacePrivate(r *rank, j *Join, newcomer bool) (again comesAgain) {
	if !newcomer {
		return again
	}
	c.worldSize = max(j.WorldSize, 1)
	c.dirty.job = true
	past := c.hasPast()
	if old := r.worker; old != nil {
		reason := fmt.Sprintf("another process came for rank %d", r.no)
		c.fence(old, reason)
		c.drop(old, lost, "fenced")
	}
	again = c.rankGone(r)
	r.must, r.called, r.choice, r.step, r.ended = false, false, 0, 0, false
	switch {
	case j.Resume == ResumeStart || j.Resume == ResumeDefault && !c.keeps(r):
		again.add(c.choose(r, &target{}))
		r.called = j.Resume == ResumeStart
	case c.keeps(r) || past:
		r.must = true
	}
	return again
}

// mayResume: a process can not go on from acks that were in a model which is gone.
func (c *Core) mayResume(a *agent, j *Join) bool {
	if j.Resume != ResumeAcked || c.cfg.Model == Shared || c.noCuts() != "" {
		return true
	}
	c.refuseJoin(a, j, fmt.Sprintf("resume=acked: the model of a %s job goes with its processes, so what they acked is in none. Say bound, or start", c.cfg.Model))
	return false
}

// resumeOf: a process that says nothing goes by what a dataset says.
func (c *Core) resumeOf(j *Join) Resume {
	r := j.Resume
	for _, d := range c.datasets {
		if d != nil && r == ResumeDefault {
			r = d.opt.Resume
		}
	}
	return r
}

// badResume says why dataset d can not say r. One model has one past: what one of
// its datasets says goes for all.
func (c *Core) badResume(d *dataset, r Resume) error {
	if r == ResumeDefault {
		return nil
	}
	if r == ResumeAcked && (c.cfg.Model == Replicated || c.cfg.Model == Private) {
		return fmt.Errorf("resume: acked: the model of a %s job goes with its processes, so what they acked is in none. Say bound, or start", c.cfg.Model)
	}
	for _, x := range c.datasets {
		if x != nil && x != d && x.opt.Resume != ResumeDefault && x.opt.Resume != r {
			return fmt.Errorf("resume: %s, but dataset %q of the same job says %s: a model has one past, so they must agree", r, x.name, x.opt.Resume)
		}
	}
	return nil
}

// resumeShared: the first process of a group may begin anew.
func (c *Core) resumeShared(r *rank, j *Join, newcomer bool) (again comesAgain) {
	if !newcomer {
		return again
	}
	r.must, r.called = false, false
	if c.noCuts() != "" {
		return again
	}
	switch {
	case c.recovering && len(c.workers) == 0:
		r.must = j.Resume == ResumeStart || j.Resume == ResumeBound
		return again // others may come back
	case slices.ContainsFunc(c.workers, c.trains): // or did, and are dead
		r.must = j.Resume == ResumeStart
	case len(c.workers) > 0:
	case j.Resume == ResumeStart:
		again = c.choose(r, &target{})
	case j.Resume == ResumeBound:
		r.must = c.hasPast()
	}
	return again
}

// enterGeneration lets a process into the running generation, or starts one.
func (c *Core) enterGeneration(a *agent, r *rank, j *Join, newcomer bool) (again comesAgain, ok bool) {
	world := max(j.WorldSize, 1)
	switch {
	case !newcomer && (c.genEnded || r.generation != c.generation):
		c.refuseJoin(a, j, fmt.Sprintf("generation %d has ended: start the whole group again", r.generation))
		return again, false
	case j.Rank >= world:
		c.refuseJoin(a, j, fmt.Sprintf("rank %d is not below the world size %d", j.Rank, world))
		return again, false
	case c.genEnded || c.generation == 0:
		return c.startGeneration(world, j.Resume), true
	case !newcomer:
		return again, true
	case r.generation == c.generation:
		c.endGeneration(fmt.Sprintf("another process came for rank %d", r.no))
		return c.startGeneration(world, j.Resume), true
	case world != c.worldSize:
		c.endGeneration(fmt.Sprintf("a group of %d came, this one has %d", world, c.worldSize))
		return c.startGeneration(world, j.Resume), true
	case j.Resume == ResumeStart && c.choice != 0:
		c.refuseJoin(a, j, fmt.Sprintf("resume=start, but the others went back to step %d: start the whole group alike", c.restored))
		return again, false
	case j.Resume == ResumeStart && c.phase == restoreFree:
		c.phase, c.dirty.job = restoreDone, true
	}
	return again, true
}

func (c *Core) startGeneration(world uint32, resume Resume) (again comesAgain) {
	c.generation++
	c.epoch++
	c.worldSize, c.genEnded, c.topStep = world, false, 0
	c.phase, c.choice, c.restored = restoreFree, 0, 0
	c.dirty.job = true
	switch keeps := c.keeps(nil); {
	case c.noCuts() != "":
	case !c.hasPast():
		if resume == ResumeStart {
			c.phase = restoreDone // who says so fixes the choice
		}
	case resume == ResumeStart || resume == ResumeDefault && !keeps:
		again = c.choose(nil, &target{})
		if !keeps {
			c.phase = restoreDone // nobody has anything else to go back to
		}
	default:
		c.phase, c.restoring = restoreOpen, 0
		c.watchRestore()
	}
	c.report(Report{Kind: ReportGeneration, Units: int64(c.generation)})
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
	c.dropAsks(nil, reason)
	for len(c.workers) > 0 {
		w := c.workers[len(c.workers)-1]
		c.fence(w, reason)
		c.drop(w, lost, "generation")
	}
}

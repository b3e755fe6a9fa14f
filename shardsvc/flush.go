package shardsvc

// Prove has fx store the job again, although nothing of it has changed: whoever can
// not has lost his store to another master.
func (c *Core) Prove(fx *Effects) {
	c.jobDirty = true
	c.Flush(fx)
}

// Flush encodes all that changed since the last Flush into fx.Puts, once per
// key however many Steps changed it. Call it before committing fx; fx must be
// the Effects of those Steps.
func (c *Core) Flush(fx *Effects) {
	if c.jobDirty {
		c.jobDirty = false
		v := jobValue{c.cfg.Job, c.cfg.Model, c.epoch, c.term, c.generation, c.worldSize, c.genEnded, c.nextDS, c.nextPart,
			c.cutOrder, c.phase, c.choice, c.restored}
		fx.put(Set, func(b []byte) []byte { return append(b, keyJob) }, v.append)
	}
	for _, d := range c.dirty.datasets {
		if d.dirty = false; d.removed {
			continue
		}
		v := datasetValue{d.name, d.reason, d.spec, d.paused, d.failed, d.partsAll, d.opt}
		fx.put(Set, func(b []byte) []byte { return appendNumbers(b, keyDataset, d.id) }, v.append)
	}
	for _, p := range c.dirty.parts {
		if p.dirty = false; p.ds.removed || p.gone {
			continue
		}
		v := partitionValue{p.identity, p.name, p.estimated, p.Complete, p.folded, p.units, p.records}
		fx.put(Set, func(b []byte) []byte { return appendNumbers(b, keyPartition, p.ds.id, p.no) }, v.append)
	}
	for _, ps := range c.dirty.passes {
		if ps.dirty = false; !ps.gone {
			fx.putSettled(ps)
		}
	}
	for _, ps := range c.dirty.pieces {
		if !ps.p.gone && !ps.p.ds.removed { // else all its keys are
			fx.putPieces(ps)
		}
	}
	for _, a := range c.dirty.ranks {
		a.dirty = false
		r := c.rankOf(a.no)
		past := c.past(r)
		v := rankValue{incarnation: r.incarnation, generation: r.generation, step: r.step, attached: r.attached, fenced: r.fenced, others: r.others,
			ended: r.ended, must: past.must, called: past.called, lost: past.lost, choice: past.choice}
		if past.base != nil {
			v.base = past.base.id
		}
		fx.put(Set, func(b []byte) []byte { return appendNumbers(b, keyRank, r.no) }, v.append)
	}
	for _, a := range c.dirtyAgents {
		if a.dirty = false; !a.gone {
			v := agentValue{a.incarnation, c.term, a.superseded}
			fx.put(Set, func(b []byte) []byte { return append(append(b, keyAgent), a.name...) }, v.append)
		}
	}
	c.dirty.reset()
	clear(c.dirtyAgents)
	c.dirtyAgents = c.dirtyAgents[:0]
}

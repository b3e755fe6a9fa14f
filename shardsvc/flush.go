package shardsvc

// Prove adds a write of the job to fx although nothing has changed. If the commit fails,
// another master has the store.
func (c *Core) Prove(fx *Effects) {
	c.jobDirty = true
	c.Flush(fx)
}

// Flush encodes everything that has changed since the last Flush into fx.Puts, once per
// key, however many Steps changed it. Call it before committing fx. fx must be the Effects
// of those Steps.
func (c *Core) Flush(fx *Effects) {
	if c.jobDirty {
		c.jobDirty = false
		v := jobValue{job: c.cfg.Job, model: c.cfg.Model, epoch: c.epoch, term: c.term, generation: c.generation, generationEnded: c.genEnded}
		c.ledger.addTo(&v)
		c.group.addTo(&v)
		c.checkpoints.addTo(&v)
		fx.put(Set, func(b []byte) []byte { return append(b, keyJob) }, v.append)
	}
	c.ledger.flush(fx)
	for _, a := range c.takeDirtyRanks() {
		c.putRank(fx, a)
	}
	c.group.flush(fx)
}

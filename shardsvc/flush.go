package shardsvc

import "github.com/headrace/headrace/shardsvc/line"

// dirty lists what the next Flush encodes. Each thing is in its list once.
type dirty struct {
	job      bool
	datasets []*dataset
	parts    []*partition
	passes   []*pass
	pieces   []*pass // of which acks changed
	ranks    []*rank
	agents   []*agent
}

func (c *Core) dirtyDataset(d *dataset) {
	if !d.dirty {
		d.dirty = true
		c.dirty.datasets = append(c.dirty.datasets, d)
	}
}

func (c *Core) dirtyPartition(p *partition) {
	if !p.dirty {
		p.dirty = true
		c.dirty.parts = append(c.dirty.parts, p)
	}
}

func (c *Core) dirtyPass(ps *pass) {
	if !ps.dirty {
		ps.dirty = true
		c.dirty.passes = append(c.dirty.passes, ps)
	}
}

func (c *Core) dirtyPieces(ps *pass) {
	if !ps.dirtyAcks {
		ps.dirtyAcks = true
		c.dirty.pieces = append(c.dirty.pieces, ps)
	}
}

func (c *Core) dirtyRank(r *rank) {
	if !r.dirty {
		r.dirty = true
		c.dirty.ranks = append(c.dirty.ranks, r)
	}
}

func (c *Core) dirtyAgent(a *agent) {
	if !a.dirty {
		a.dirty = true
		c.dirty.agents = append(c.dirty.agents, a)
	}
}

// Prove has fx store the job again, although nothing of it has changed: whoever can
// not has lost his store to another master.
func (c *Core) Prove(fx *Effects) {
	c.dirty.job = true
	c.Flush(fx)
}

// Flush encodes all that changed since the last Flush into fx.Puts, once per
// key however many Steps changed it. Call it before committing fx; fx must be
// the Effects of those Steps.
func (c *Core) Flush(fx *Effects) {
	if c.dirty.job {
		c.dirty.job = false
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
	for _, r := range c.dirty.ranks {
		r.dirty = false
		v := rankValue{incarnation: r.incarnation, generation: r.generation, step: r.step, attached: r.attached, fenced: r.fenced, others: r.others,
			ended: r.ended, must: r.must, called: r.called, lost: r.lost, choice: r.choice}
		if r.base != nil {
			v.base = r.base.id
		}
		fx.put(Set, func(b []byte) []byte { return appendNumbers(b, keyRank, r.no) }, v.append)
	}
	for _, a := range c.dirty.agents {
		if a.dirty = false; !a.gone {
			v := agentValue{a.incarnation, c.term, a.superseded}
			fx.put(Set, func(b []byte) []byte { return append(append(b, keyAgent), a.name...) }, v.append)
		}
	}
	c.dirty.reset()
}

func (d *dirty) reset() {
	clear(d.datasets)
	clear(d.parts)
	clear(d.passes)
	clear(d.pieces)
	clear(d.ranks)
	clear(d.agents)
	d.datasets, d.parts, d.passes, d.pieces, d.ranks, d.agents = d.datasets[:0], d.parts[:0], d.passes[:0], d.pieces[:0], d.ranks[:0], d.agents[:0]
}

// putSettled is written out because it runs once per pass and batch: it is all
// that an ack costs in the store.
func (fx *Effects) putSettled(ps *pass) {
	k := len(fx.arena)
	fx.arena = appendNumbers(fx.arena, keySettled, ps.p.ds.id, ps.p.no, ps.n)
	v := len(fx.arena)
	units := ps.kinds
	if ps.done != &ps.base {
		units[line.Acked] = ps.folded // the rest is in `a` records
	}
	fx.arena = appendSettledHead(fx.arena, &units, &ps.records, ps.StartPlace(ps.base.Low), len(ps.base.Above))
	for _, s := range ps.base.Above {
		fx.arena = appendPlace(appendPlace(fx.arena, ps.StartPlace(s.Start)), ps.EndPlace(s.End))
		fx.arena = appendUint(fx.arena, s.Val)
	}
	end := len(fx.arena)
	fx.Puts = append(fx.Puts, Put{Op: Set, Key: fx.arena[k:v:v], Value: fx.arena[v:end:end]})
}

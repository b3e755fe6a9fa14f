package shardsvc

// resettle makes base, and the acks that keep says, the settled records of ps;
// the rest below the frontier is pending, but for what is leased. It returns the
// units that were acked and are pending now, and those of which the reverse is true.
// The caller counts the records of base.
func (c *Core) resettle(ps *pass, base settledSet, keep func(*piece) bool) (again, more int64) {
	was := ps.done.spans()
	c.keepPieces(ps, keep)
	ps.base = base
	if ps.done != &ps.base {
		c.rebuildDone(ps)
	}
	now := ps.done.spans()
	for _, s := range was {
		now.clear(s.start, s.end)
	}
	for _, s := range now {
		more += ps.units(s.start, s.end)
	}
	for _, s := range ps.done.spans() {
		was.clear(s.start, s.end)
	}
	for _, s := range was {
		again += ps.units(s.start, s.end)
	}
	ps.kinds[excluded] = ps.excludedUnits()
	ps.kinds[dropped] = 0 // holes have no units
	ps.kinds[acked] = ps.unitsOf(ps.done) - ps.kinds[excluded]
	ps.folded = ps.unitsOf(&ps.base) - ps.kinds[excluded]
	c.advance(ps, ps.done.high())
	c.repend(ps)
	if len(ps.tries) > 0 {
		c.dropTries(ps, 0, ps.frontier)
	}
	c.dirtyPass(ps)
	ps.p.ds.done = false
	return again, more
}

// repend makes pending what is planned and neither settled nor leased.
func (c *Core) repend(ps *pass) {
	ps.p.ds.pending -= ps.pendingUnits
	ps.pending, ps.pendingUnits = ps.pending[:0], 0
	var taken settledSet
	taken.low, taken.above = ps.done.low, append(taken.above, ps.done.above...)
	for l := ps.leases; l != nil; l = l.pnext {
		taken.add(l.prefix, l.end, acked)
	}
	taken.gaps(0, ps.frontier, func(start, end int64) { c.addPending(ps, start, end) })
}

// excludedUnits counts what of the pass stays settled whatever is rewound.
func (ps *pass) excludedUnits() (n int64) {
	for _, e := range ps.p.ofPass(ps.n) {
		n += e.units
	}
	return n
}

// unfold makes the finished passes from n on passes again, all settled.
func (c *Core) unfold(p *partition, n uint32) {
	if n >= p.folded {
		return
	}
	live := p.passes
	last := p.folded
	p.passes, p.folded = nil, n
	for ; n < last; n++ {
		ps := c.newPass(p, n)
		ps.base.low, ps.done.low, ps.frontier = p.lineEnd(), p.lineEnd(), p.lineEnd()
		ps.kinds[excluded] = ps.excludedUnits()
		ps.kinds[acked] = ps.units(0, ps.frontier) - ps.kinds[excluded]
		ps.folded = ps.kinds[acked]
		for i, k := range ps.kinds {
			p.units[i] -= k
		}
		c.dirtyPass(ps)
	}
	p.passes = append(p.passes, live...)
	c.dirtyPartition(p)
}

// begin makes passes up to n, as far as the partition has a line for them.
func (c *Core) begin(p *partition, n uint32) {
	if p.ds.opt.Shuffle && !p.complete {
		return // it has no order yet
	}
	for p.begun() <= n && p.begun() < uint32(p.ds.opt.Passes) {
		if ps := p.last(); ps != nil && ps.frontier < p.lineEnd() {
			old := ps.frontier // a later pass begins when all of it is planned
			c.advance(ps, p.lineEnd())
			c.addPending(ps, old, p.lineEnd())
		}
		c.dirtyPass(c.newPass(p, p.begun()))
	}
}

// plus adds what is settled whatever the cut says.
func (ps *pass) plus(m rangeMap) settledSet {
	for _, x := range ps.excludedOnLine() {
		m.set(x.start, x.end, excluded)
	}
	return setOf(m)
}

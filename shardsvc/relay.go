package shardsvc

import "github.com/headrace/headrace/shardsvc/line"

// resettle makes base, and the acks that keep says, the settled records of ps;
// the rest below the frontier is pending, but for what is leased. It returns the
// units that were acked and are pending now, and those of which the reverse is true.
// The caller counts the records of base.
func (c *Core) resettle(ps *pass, base line.Set, keep func(*piece) bool) (again, more int64) {
	was := ps.done.Spans()
	c.keepPieces(ps, keep)
	ps.base = base
	if ps.done != &ps.base {
		c.rebuildDone(ps)
	}
	now := ps.done.Spans()
	for _, s := range was {
		now.Clear(s.Start, s.End)
	}
	for _, s := range now {
		more += ps.Units(s.Start, s.End)
	}
	for _, s := range ps.done.Spans() {
		was.Clear(s.Start, s.End)
	}
	for _, s := range was {
		again += ps.Units(s.Start, s.End)
	}
	ps.kinds[line.Excluded] = ps.excludedUnits()
	ps.kinds[line.Dropped] = 0 // holes have no units
	ps.kinds[line.Acked] = ps.UnitsOf(ps.done) - ps.kinds[line.Excluded]
	ps.folded = ps.UnitsOf(&ps.base) - ps.kinds[line.Excluded]
	c.advance(ps, ps.done.High())
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
	var taken line.Set
	taken.Low, taken.Above = ps.done.Low, append(taken.Above, ps.done.Above...)
	for l := ps.leases; l != nil; l = l.pnext {
		taken.Add(l.prefix, l.end, line.Acked)
	}
	taken.Gaps(0, ps.frontier, func(start, end int64) { c.addPending(ps, start, end) })
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
		ps.base.Low, ps.done.Low, ps.frontier = p.LineEnd(), p.LineEnd(), p.LineEnd()
		ps.kinds[line.Excluded] = ps.excludedUnits()
		ps.kinds[line.Acked] = ps.Units(0, ps.frontier) - ps.kinds[line.Excluded]
		ps.folded = ps.kinds[line.Acked]
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
	if p.ds.opt.Shuffle && !p.Complete {
		return // it has no order yet
	}
	for p.begun() <= n && p.begun() < uint32(p.ds.opt.Passes) {
		if ps := p.last(); ps != nil && ps.frontier < p.LineEnd() {
			old := ps.frontier // a later pass begins when all of it is planned
			c.advance(ps, p.LineEnd())
			c.addPending(ps, old, p.LineEnd())
		}
		c.dirtyPass(c.newPass(p, p.begun()))
	}
}

// plus adds what is settled whatever the cut says.
func (ps *pass) plus(m line.Map) line.Set {
	for _, x := range ps.excludedOnLine() {
		m.Set(x.Start, x.End, line.Excluded)
	}
	return line.SetOf(m)
}

package shardsvc

import (
	"fmt"
	"slices"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
)

// bind: a valid manifest that carries the cut is at path. What of it was kept
// apart by step folds into the settled sets. r is nil for a tool.
func (c *Core) bind(r *rank, id uint64, path string) (CutCode, string) {
	k := c.kept(id)
	switch {
	case k == nil || k.state == cutUnbound:
		return CutRefused, fmt.Sprintf("there is no cut %016x: it was dropped, or its ask was never answered", id)
	case k.state == CutVoided:
		return CutRefused, fmt.Sprintf("cut %016x was voided: its records were given to others", id)
	case k.state == CutBound:
		return CutOK, ""
	case r != nil && c.foreign(k, r):
		return CutFenced, fmt.Sprintf("cut %016x is not one of this process, or its generation has ended", id)
	case path == "" && k.path == "":
		return CutRefused, "a cut is bound to the path of its manifest, and there is none"
	}
	c.bound(k, path)
	return CutOK, ""
}

// foreign: the cut was not asked for by this process, or its group.
func (c *Core) foreign(k *keptCut, r *rank) bool {
	switch c.cfg.Model {
	case Replicated:
		return k.generation != c.generation || c.genEnded
	case Private:
		return k.rank != int64(r.no) || k.incarnation != r.incarnation
	}
	return false
}

func (c *Core) bindCut(e *BindCut) {
	k, settles := c.kept(e.Cut), c.settles(e.Cut)
	if _, reason := c.bind(nil, e.Cut, e.Path); reason != "" {
		c.rejected("%s", reason)
	} else if settles {
		c.rankSettled(c.rankOf(uint32(k.rank)))
	}
}

func (c *Core) bound(k *keptCut, path string) {
	k.state, k.settling = CutBound, false
	c.isBack(k.id)
	if path != "" {
		k.path = path
	}
	c.putCut(k)
	c.reportCut(ReportCutBound, k, "")
	c.replaced(k)
	if c.cfg.Model == Private {
		r := c.rankOf(uint32(k.rank))
		if r.base != nil && c.after(r.base, k) {
			return
		}
		c.setBase(r, k)
	}
	c.foldBound(k)
}

// replaced: a framework that writes its file in one place has one manifest, which is k's
// from now on. What was bound there is not there any more.
func (c *Core) replaced(k *keptCut) {
	for _, x := range slices.Clone(c.cuts) {
		if x != k && x.state == CutBound && x.path == k.path && k.path != "" {
			c.forgetCut(x, fmt.Sprintf("cut %016x has taken its place at %s", k.id, k.path))
		}
	}
}

// setBase: what rank r began with is in k from now on; nil: it began with nothing.
func (c *Core) setBase(r *rank, k *keptCut) {
	old := r.base
	if old == k {
		return
	}
	r.base = k
	c.dirtyRank(r)
	if old != nil && old.state == cutUnbound {
		c.deleteCut(old)
	}
}

// foldBound: the acks that are in a bound cut need no step any more.
func (c *Core) foldBound(k *keptCut) {
	if c.folds {
		c.remark()
		return
	}
	for _, p := range c.parts {
		if p == nil || p.ds.folds {
			continue
		}
		was := p.records
		for _, ps := range p.passes {
			c.foldPieces(ps, k)
		}
		if p.records != was {
			c.dirtyPartition(p)
		}
		c.changed(p)
	}
}

// remark sets, where acks fold, the marks that follow the newest bound cut.
func (c *Core) remark() {
	var l *lines
	k := c.newestBound(nil)
	if k != nil {
		l = c.linesOf(k)
	}
	for _, d := range c.datasets {
		if d != nil {
			d.acksBind = k == nil
		}
	}
	for _, p := range c.parts {
		if p == nil || p.ds.acksBind {
			continue
		}
		p.boundDone = 0
		for n := range p.begun() {
			ps, set := p.line(n), l.of(p, n)
			if ps.boundLow, ps.boundUnits = set.Low, ps.UnitsOf(set); n < p.folded {
				p.boundDone += ps.boundUnits
			}
		}
	}
}

func (c *Core) foldPieces(ps *pass, k *keptCut) {
	c.keepPieces(ps, func(x *piece) bool {
		in := x.step <= k.step && x.generation == k.generation && (k.rank == cut.Group || x.rank == uint32(k.rank))
		if !in {
			return true
		}
		ps.base.Add(x.start, x.end, line.Acked)
		ps.folded += ps.Units(x.start, x.end)
		c.basis(ps).Add(x.Tally)
		c.dirtyPass(ps)
		return false
	})
}

// dropOf forgets a cut for rank r, or a tool.
func (c *Core) dropOf(r *rank, id uint64, reason string) (CutCode, string) {
	k := c.kept(id)
	if h := c.yields; h != nil && h.cut == id && (r == nil || r == h.w.rank) {
		c.endHold(CutRefused, "the cut was dropped: "+reason)
	}
	switch {
	case k == nil || k.state == cutUnbound:
		c.remove(id) // of another master's life, or said again
		return CutOK, ""
	case k.state == CutVoided:
		return CutOK, "" // it stays known, so that its manifest never counts
	case r != nil && k.rank != cut.Group && k.rank != int64(r.no):
		return CutRefused, fmt.Sprintf("cut %016x is that of rank %d", id, k.rank)
	case id == c.choice && c.phase == restoreWaits:
		return CutRefused, fmt.Sprintf("cut %016x is being restored", id)
	case c.goneBackTo(k):
		return CutRefused, fmt.Sprintf("somebody went back to cut %016x (step %d), and no newer one is bound", id, k.step)
	case r != nil && k.state == CutFrozen && c.foreign(k, r):
		return CutFenced, fmt.Sprintf("cut %016x is not one of this process, or its generation has ended", id)
	}
	if k.state == CutBound {
		c.remove(id)
	}
	c.forgetCut(k, reason)
	return CutOK, ""
}

func (c *Core) dropCut(e *DropCut) {
	k, settles := c.kept(e.Cut), c.settles(e.Cut)
	if _, reason := c.dropOf(nil, e.Cut, e.Reason); reason != "" {
		c.rejected("%s", reason)
	} else if settles {
		c.rankSettled(c.rankOf(uint32(k.rank)))
	}
}

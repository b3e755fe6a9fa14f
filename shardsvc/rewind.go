package shardsvc

import (
	"fmt"
	"math"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
)

// goBack makes l, and what is excluded, the settled records of the whole job; nil:
// nothing. No lease may be out.
func (c *Core) goBack(l *lines) (again comesAgain) {
	for _, p := range c.parts {
		if p == nil {
			continue
		}
		var want []line.Set
		if l != nil {
			want = l.parts[p.no]
		}
		was, units, more := p.tally(), int64(0), int64(0)
		whole := uint32(0) // passes that stay folded
		for whole < p.folded && int64(whole) < int64(len(want)) && want[whole].Low == p.LineEnd() {
			whole++
		}
		c.unfold(p, whole)
		if len(want) > 0 {
			c.begin(p, uint32(len(want)-1))
		}
		if records := l.allRecords(p, int(whole)); records != p.records {
			p.records = records
			c.dirtyPartition(p)
		}
		for _, ps := range p.passes {
			n, m := c.resettle(ps, ps.plus(l.of(p, ps.n).Spans()), func(*piece) bool { return false })
			units, more = units+n, more+m
			ps.records = l.recordsOf(p, ps.n).Within(ps.folded)
		}
		again.add(p.cameBack(was, units, more))
		c.changed(p)
	}
	if c.folds {
		c.remark()
	}
	return again
}

// goBackRank takes what is in the model of rank r and not in l out of the settled
// records; what others settled stays. What is in l and not in the model is added:
// it must be pending.
func (c *Core) goBackRank(r *rank, l *lines) (again comesAgain) {
	own := c.linesOf(r.base)
	for _, p := range c.parts {
		if p == nil || p.ds.folds {
			continue
		}
		was, units, more := p.tally(), int64(0), int64(0)
		for n := range max(p.begun(), l.passes(p)) {
			minus, plus := own.of(p, n).Spans(), l.of(p, n).Spans()
			for _, x := range l.of(p, n).Spans() {
				minus.Clear(x.Start, x.End)
			}
			for _, x := range own.of(p, n).Spans() {
				plus.Clear(x.Start, x.End)
			}
			if len(minus)+len(plus) == 0 && n < p.folded {
				continue
			}
			c.unfold(p, n)
			c.begin(p, n)
			ps := p.passes[n-p.folded]
			base := ps.base.Spans()
			for _, x := range minus {
				base.Clear(x.Start, x.End)
			}
			for _, x := range plus {
				base.Set(x.Start, x.End, line.Acked)
			}
			back, forth := c.resettle(ps, ps.plus(base), func(k *piece) bool { return k.rank != r.no })
			units, more = units+back, more+forth
		}
		c.recount(p, own.allRecords(p, math.MaxInt), l.allRecords(p, math.MaxInt))
		again.add(p.cameBack(was, units, more))
		c.changed(p)
	}
	return again
}

// recount: of what the bases of p hold, `minus` went and `plus` came.
func (c *Core) recount(p *partition, minus, plus cut.Tally) {
	if minus == plus {
		return
	}
	p.records.Without(minus)
	p.records.Add(plus)
	units := p.units[line.Acked]
	for _, ps := range p.passes {
		units += ps.folded
	}
	p.records = p.records.Within(units)
	c.dirtyPartition(p)
}

// passes of p that are in l.
func (l *lines) passes(p *partition) uint32 {
	if l == nil {
		return 0
	}
	return uint32(len(l.parts[p.no]))
}

// takeBack makes the acks of rank r above a step pending again.
func (c *Core) takeBack(r *rank, above int64) (again comesAgain) {
	for _, p := range c.parts {
		if p == nil || p.ds.folds {
			continue
		}
		for _, ps := range p.passes {
			again.add(c.unsettle(ps, r, above))
		}
		c.changed(p)
	}
	return again
}

// revokeLeases takes all that w holds; what it was handed does not count as lost.
func (c *Core) revokeLeases(w *worker, reason string) {
	for w.leases != nil {
		l := w.leases
		c.reply(Reply{To: w.session(), Kind: ReplyRevoke, Token: l.token, Reason: reason})
		c.reclaim(l, untouched, "restore")
	}
}

// voidAfter voids every cut of the group, or of rank r, that is newer than k (nil:
// the start), and the unbound ones of a group's earlier generations.
func (c *Core) voidAfter(r *rank, k *keptCut, foreign bool) {
	reason := "the model went back to the start"
	if k != nil {
		reason = fmt.Sprintf("the model went back to step %d (cut %016x)", k.step, k.id)
	}
	for _, x := range c.cuts {
		switch {
		case x == k || x.rank != cut.Group && x.rank != int64(r.no):
		case k == nil || c.after(x, k), foreign && (x.epoch > k.epoch || x.epoch == k.epoch && x.step > k.step):
			c.void(x, reason)
		case foreign && c.cfg.Model != Replicated && c.hasMore(x, c.linesOf(k)): // what more it has is free for others from now on
			c.void(x, reason)
		case x.rank == cut.Group && x.state == CutFrozen && x.generation < c.generation:
			c.void(x, "its generation has ended and nobody bound it")
		}
	}
}

// hasMore: something is in x that is neither in a cut that lies so nor excluded.
func (c *Core) hasMore(x *keptCut, want *lines) bool {
	if x.state >= CutVoided {
		return false
	}
	has := c.linesOf(x)
	for _, p := range c.parts {
		if p == nil {
			continue
		}
		for n := range has.passes(p) {
			excluded, more := line.SetOf(p.line(n).excludedOnLine()), false
			for _, s := range has.of(p, n).Spans() {
				want.of(p, n).Gaps(s.Start, s.End, func(start, end int64) {
					excluded.Gaps(start, end, func(int64, int64) { more = true })
				})
			}
			if more {
				return true
			}
		}
	}
	return false
}

// rewind goes back without a trainer. All who have the model start again.
func (c *Core) rewind(e *Rewind) {
	ranks, t, reason := c.rewindTarget(e.Cut, e.Path)
	if reason != "" {
		c.rejected("rewind: %s", reason)
		return
	}
	c.comeAfter(e.After)
	why := "somebody went back to the start"
	if e.Cut != nil {
		why = fmt.Sprintf("somebody went back to step %d (cut %v)", e.Cut.Step, e.Cut.ID)
	}
	var again comesAgain
	switch c.cfg.Model {
	case Private:
		for _, r := range ranks {
			r = c.rankOf(r.no)
			if w := r.worker; w != nil {
				c.fence(w, why)
				c.fenceRank(w)
				c.drop(w, untouched, "rewound")
			}
			again.add(c.choose(r, &t))
			r.called = false
		}
	case Replicated:
		c.endGeneration(why)
		c.epoch++
		again = c.choose(nil, &t)
		c.phase = restoreFree // of the next generation
	default:
		again = c.choose(nil, &t)
	}
	c.report(Report{Kind: ReportRewound, Cut: t.id(), Step: t.step(), Path: t.path, Units: again.units, Records: again.Tally, Reason: why})
	for _, d := range c.datasets {
		if d != nil {
			c.kick(d)
		}
	}
}

// rewindTarget is what a person goes back to, and whose model it is.
func (c *Core) rewindTarget(body *cut.Cut, path string) (ranks []*rank, t target, reason string) {
	if reason = c.noCuts(); reason != "" {
		return nil, t, reason
	}
	if c.recovering {
		return nil, t, "a new master waits for its agents: try again in a few seconds"
	}
	if c.cfg.Model == Shared && len(c.workers) > 0 {
		return nil, t, fmt.Sprintf("%d trainers run, and the model outlives them: end them first", len(c.workers))
	}
	if body == nil {
		return c.ranks, t, ""
	}
	var r *rank
	if body.Rank != cut.Group {
		if c.cfg.Model != Private {
			return nil, t, fmt.Sprintf("the cut is one of %s, the job's model is %s", kindOf(int64(body.Rank)), c.cfg.Model)
		}
		if r = c.byRank[uint32(body.Rank)]; r == nil {
			r = &rank{no: uint32(body.Rank)}
		}
		ranks = append(ranks, r)
	}
	t, code, reason := c.pick(r, &RestoreCall{Mode: RestoreExact, Cut: body, Path: path})
	if code != CutOK {
		return nil, t, reason
	}
	return ranks, t, ""
}

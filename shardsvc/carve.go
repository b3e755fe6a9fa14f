package shardsvc

import (
	"math"

	"github.com/headrace/headrace/shardsvc/line"
)

const (
	// maxBlocks of a shuffled lease: each is a piece of its grant.
	maxBlocks = 1024
	maxRate   = math.MaxInt64 / (1 << 24)
)

// size is the size of w's next lease: its rate times the target. Toward the end of a
// bounded input it is at most half of w's share of the rest, so that all processes finish
// together (guided self-scheduling). Example: at 1,000 units/s and a target of 2 s a lease
// has 2,000 units; with 1,000 units left and two equal processes, 250.
func (lg *ledger) size(d *dataset, w *holder, in input) int64 {
	if d.opt.VirtualRanks > 0 {
		return max(d.opt.Initial, d.opt.Block)
	}
	rate := w.rate(d.id, in)
	size, least, most := d.opt.sizes(in)
	if rate > 0 {
		size = int64(min(float64(rate)*float64(d.opt.Target)/float64(Second), float64(most)))
	}
	if size <= least {
		return min(least, most)
	}
	if d.partsAll && d.incomplete == 0 && !d.opt.hasBackfill() {
		left := float64(d.total)*float64(d.opt.Passes) - float64(d.planned) + float64(d.pending)
		share := 0.0
		if sum := d.sumRate[in]; rate > 0 && sum > 0 {
			share = float64(rate) / float64(sum)
		} else {
			share = 1 / float64(max(len(lg.holders), 1))
		}
		size = min(size, int64(left*share/2))
	}
	return min(max(size, least), most)
}

// carve leases the next piece of d to the process that asks for it, or returns nil when
// there is none for it now. Partitions take turns.
func (lg *ledger) carve(d *dataset, r *request) *lease {
	if d.opt.VirtualRanks > 0 {
		return lg.carveVirtual(d, r)
	}
	w := r.w
	most := lg.mostOf(d, w)
	if most == 0 {
		return nil
	}
	if !d.opt.hasBackfill() && !d.opt.Strict { // the usual case, and the shortest way
		return lg.carveReady(d, fromSource, w, most)
	}
	turns, n := d.turns()
	for _, in := range turns[:n] {
		if l := lg.carveReady(d, in, w, most); l != nil {
			return l
		}
	}
	if !d.opt.Strict {
		return nil
	}
	// No partition is free: go on in one that w holds.
	for _, in := range turns[:n] {
		for held := w.leases; held != nil; held = held.wnext {
			if p := held.pass.p; p.ds == d && p.in == in && p.hasWork() {
				if l := lg.carveFrom(p, w, lg.size(d, w, in), most); l != nil {
					lg.changed(p)
					d.granting(p)
					return l
				}
			}
		}
	}
	return nil
}

// carveReady leases a piece of the next ready partition of an input.
func (lg *ledger) carveReady(d *dataset, in input, w *holder, most int64) *lease {
	size := lg.size(d, w, in)
	for d.ready[in].Len() > 0 {
		p := d.ready[in].Pop()
		p.queued = false
		l := lg.carveFrom(p, w, size, most)
		lg.changed(p)
		if l != nil {
			d.granting(p)
			return l
		}
	}
	return nil
}

// carveFrom leases about size units of p, and no more than most.
func (lg *ledger) carveFrom(p *partition, w *holder, size, most int64) *lease {
	if p.holder != nil && p.holder != w {
		return nil
	}
	if !p.dated() {
		return nil
	}
	for i := 0; i < len(p.passes); i++ {
		ps := p.passes[i]
		if p.dropsOld() {
			lg.dropOld(ps)
		}
		for len(ps.pending) > 0 {
			first := ps.pending[0]
			end := lg.clip(ps, first.Start, first.End, size)
			end = first.Start + min(end-first.Start, most)
			if p.holder != nil && !lg.inOrder(ps, first.Start) {
				lg.recall(ps, first.Start)
				return nil
			}
			ps.pending.Clear(first.Start, end)
			units := ps.Units(first.Start, end)
			ps.pendingUnits -= units
			p.ds.pending -= units
			if units == 0 { // it holds no record
				lg.hole(ps, first.Start, end)
				continue
			}
			return lg.newLease(ps, w, first.Start, end, tries(first.Val))
		}
	}
	for {
		ps := p.last()
		if ps == nil || ps.frontier >= p.LineEnd() && !ps.mayLead() {
			if !p.mayBegin() {
				return nil
			}
			ps = lg.newPass(p, p.begun())
			lg.dirtyPass(ps)
			lg.dropOld(ps)
			continue
		}
		if p.holder != nil && p.asks() {
			return nil // the answer may make a range below the frontier pending
		}
		start := ps.frontier
		end := lg.clip(ps, start, p.LineEnd(), size)
		end = ps.reachOut(start, start+min(end-start, most), size)
		if lg.advance(ps, end) == 0 {
			lg.hole(ps, start, end)
			continue
		}
		lg.needSegments(p)
		return lg.newLease(ps, w, start, end, 0)
	}
}

// inOrder says whether start lies after all leases that are out, so that a strict
// partition may lease from there.
func (lg *ledger) inOrder(ps *pass, start int64) bool {
	for _, q := range ps.p.passes {
		for l := q.leases; l != nil; l = l.pnext {
			if q.n > ps.n || q == ps && l.end > start {
				return false
			}
		}
	}
	return true
}

// asks says whether a holder was asked for a part of p and has not answered yet.
func (p *partition) asks() bool {
	for _, ps := range p.passes {
		for l := ps.leases; l != nil; l = l.pnext {
			if l.asked {
				return true
			}
		}
	}
	return false
}

// recall asks the holder of a strict partition for everything that it has not delivered and
// that lies after start. That part is granted again after the range that is pending at
// start. Otherwise the holder, which may be short of a batch, would wait for ever. Example:
// [100, 200) is pending again and the holder has [200, 300): it is asked for [200, 300).
func (lg *ledger) recall(ps *pass, start int64) {
	for _, q := range ps.p.passes {
		for l := q.leases; l != nil; l = l.pnext {
			behind := q.n > ps.n || q == ps && l.end > start
			if behind && !l.asked && lg.now >= l.stealAfter && l.w.mayAsk() {
				lg.askFor(l, l.w, max(l.prefix, l.frontier))
			}
		}
	}
}

// advance moves the frontier to pos, if it lies below, and returns the units that it passes.
func (lg *ledger) advance(ps *pass, pos int64) (units int64) {
	if pos > ps.frontier {
		units = ps.Units(ps.frontier, pos)
		ps.p.ds.planned += units
		ps.frontier = pos
	}
	return units
}

// clip says where a lease of about size units from start ends: at a border of segments or
// blocks, and so that no small rest remains. Example: size 100, and the segment ends after
// 103 units: the lease takes all 103.
func (lg *ledger) clip(ps *pass, start, limit, size int64) int64 {
	if ps.Order != nil {
		block := ps.Order.Block
		limit = min(limit, (start/block+maxBlocks)*block)
		if size < limit-start {
			if end := (start + size) / block * block; end > start {
				return end
			}
			return start + size
		}
		return limit
	}
	s := &ps.p.Segs[ps.p.SegAt(start)]
	limit = min(limit, s.LineEnd())
	if _, least, most := ps.p.ds.opt.sizes(ps.p.in); limit-start <= size || limit-start-size < least/2 && limit-start <= most {
		return limit
	}
	return start + size
}

// hole settles a range that holds no record.
func (lg *ledger) hole(ps *pass, start, end int64) {
	ps.base.Add(start, end, line.Dropped)
	if ps.done != &ps.base {
		ps.done.Add(start, end, line.Dropped)
	}
	if len(ps.tries) > 0 {
		lg.dropTries(ps, start, end)
	}
	lg.dirtyPass(ps)
}

// pieces appends the ranges of the source that a lease reads to fx.Pieces.
func (lg *ledger) pieces(l *lease) (lo, hi int32) {
	lo = int32(len(lg.fx.Pieces))
	ps, p := l.pass, l.pass.p
	if ps.Order == nil {
		s := &p.Segs[p.SegAt(l.prefix)]
		lg.fx.Pieces = append(lg.fx.Pieces, Piece{OrderStart: l.prefix - l.shift, Segment: s.ID,
			Start: l.prefix - l.shift, End: l.end - l.shift, Locator: s.Locator, Name: s.Name})
		return lo, lo + 1
	}
	ps.EachPiece(l.prefix, l.end, func(at int64, s *line.Segment, start, end int64) {
		lg.fx.Pieces = append(lg.fx.Pieces, Piece{OrderStart: at, Segment: s.ID, Start: start, End: end, Locator: s.Locator, Name: s.Name})
	})
	return lo, int32(len(lg.fx.Pieces))
}

package shardsvc

import (
	"fmt"
	"slices"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
)

// Dropped rows are those that lie beyond the last full round of a series with tail="drop"
// (docs/ROUNDS.md). They are settled, and in no model. They belong to the step of the last
// round, as its acks do: a cut at that step or a later one has them. After a return to an
// earlier step they are pending again. A settled set forgets why a range below its low mark
// is settled, so dropped ranges have a list of their own.

// drop is one `q` key: a range of one pass in one segment of order space.
type drop struct {
	listed
	step  int64
	loose bool // no bound cut has it: it is not in pass.base
}

// dropRest settles everything of a dataset that is pending or not planned, as dropped at a
// step. Nothing of it may be leased.
func (lg *ledger) dropRest(id DatasetID, step int64) (units int64) {
	for _, p := range lg.dataset(id).parts {
		if !p.Complete {
			continue
		}
		for _, ps := range p.passes {
			if end := p.LineEnd(); ps.frontier < end {
				old := ps.frontier
				lg.advance(ps, end)
				lg.addPending(ps, old, end)
			}
			for _, s := range slices.Clone(ps.pending) {
				units += lg.dropRange(ps, s.Start, s.End, step)
			}
			ps.pending = ps.pending[:0]
		}
		lg.changed(p)
	}
	return units
}

// lastStepIn returns the highest step among the acks of a dataset that are in no bound cut.
// If there is none above 0, it returns step: a lease without a record may be acked with
// step 0.
func (lg *ledger) lastStepIn(id DatasetID, step int64) (last int64) {
	for _, p := range lg.dataset(id).parts {
		for _, ps := range p.passes {
			for i := range ps.acks {
				last = max(last, ps.acks[i].step)
			}
		}
	}
	if last == 0 {
		return step
	}
	return last
}

// asking says whether a holder was asked for rows of a dataset and has not answered.
func (lg *ledger) asking(id DatasetID) bool {
	d := lg.dataset(id)
	return d != nil && slices.ContainsFunc(d.parts, (*partition).asks)
}

// dropRange settles a pending range. Each segment has a drop of its own.
func (lg *ledger) dropRange(ps *pass, start, end, step int64) (units int64) {
	n := ps.Units(start, end)
	ps.pendingUnits -= n
	ps.p.ds.pending -= n
	ps.eachSegment(start, end, func(start, end int64) {
		n := ps.Units(start, end)
		if n == 0 {
			ps.base.Add(start, end, line.Dropped)
			ps.done.Add(start, end, line.Dropped)
			lg.dirtyPass(ps)
			return
		}
		lg.addDrop(ps, start, end, step, true)
		ps.done.Add(start, end, line.Dropped)
		ps.kinds[line.Dropped] += n
	})
	if len(ps.tries) > 0 {
		lg.dropTries(ps, start, end)
	}
	return n
}

// eachSegment cuts a range of the line where segments end.
func (ps *pass) eachSegment(start, end int64, each func(start, end int64)) {
	for start < end {
		stop := end
		if ps.Order == nil {
			stop = min(end, ps.p.Segs[ps.p.SegAt(start)].LineEnd())
		}
		each(start, stop)
		start = stop
	}
}

func (lg *ledger) addDrop(ps *pass, start, end, step int64, loose bool) {
	x, p := drop{ps.listing(start, end), step, loose}, ps.p
	p.dropped = slices.Insert(p.dropped, placeIn(p.dropped, &x.listed), x)
	lg.putDrop(p, &x)
}

func (lg *ledger) putDrop(p *partition, x *drop) {
	v := dropValue{x.end, x.units, x.step, x.loose}
	lg.fx.put(Set, x.key(keyDropped, p), v.append)
}

// droppedUnits counts the dropped units of the pass. loose are those that no bound cut has.
func (ps *pass) droppedUnits() (all, loose int64) {
	for _, x := range ofPass(ps.p.dropped, ps.n) {
		if all += x.units; x.loose {
			loose += x.units
		}
	}
	return all, loose
}

func (ps *pass) dropsLoose() bool {
	return slices.ContainsFunc(ofPass(ps.p.dropped, ps.n), func(x drop) bool { return x.loose })
}

// dropsIn says whether anything of a pass is dropped, here or in l.
func (p *partition) dropsIn(pass uint32, l *lines) bool {
	return len(ofPass(p.dropped, pass)) > 0 || slices.ContainsFunc(l.dropped[p.no], func(x drop) bool { return x.pass == pass })
}

// dropsOf are the drops of a partition in a cut.
func dropsOf(q *cut.Partition) (all []drop) {
	for i := range q.Dropped {
		x := &q.Dropped[i]
		all = append(all, drop{listed{x.Pass, x.Piece.Segment, x.Piece.Start, x.Piece.End, x.Units}, x.Step, false})
	}
	return all
}

// eachLoose calls each with the drops of the pass that no bound cut has.
func (ps *pass) eachLoose(each func(x *drop, start, end int64)) {
	all := ofPass(ps.p.dropped, ps.n)
	for i := range all {
		if x := &all[i]; x.loose {
			start, end, _ := ps.onLine(&x.listed)
			each(x, start, end)
		}
	}
}

// bindDrops is called when a cut is bound; lines gives its records. Its drops are no longer
// loose.
func (lg *ledger) bindDrops(lines func() *lines) {
	if !slices.ContainsFunc(lg.parts, func(p *partition) bool {
		return p != nil && slices.ContainsFunc(p.dropped, func(x drop) bool { return x.loose })
	}) {
		return
	}
	l := lines()
	for _, p := range lg.parts {
		if p == nil {
			continue
		}
		for _, ps := range p.passes {
			ps.eachLoose(func(x *drop, start, end int64) {
				if l.of(p, ps.n).Prefix(start) < end {
					return
				}
				x.loose = false
				ps.base.Add(start, end, line.Dropped)
				lg.putDrop(p, x)
				lg.dirtyPass(ps)
			})
		}
		lg.changed(p)
	}
}

// redrop replaces the drops of the partition by those of a cut; nil: by none. Of a drop that
// the cut has not settled wholly, only the settled part counts. A range that is excluded by
// now is not dropped.
func (lg *ledger) redrop(p *partition, l *lines) {
	for i := range p.dropped {
		lg.fx.put(Delete, p.dropped[i].key(keyDropped, p), nil)
	}
	p.dropped = p.dropped[:0]
	if l == nil {
		return
	}
	for i := range l.dropped[p.no] {
		x := &l.dropped[p.no][i]
		ps := p.line(x.pass)
		start, end, ok := ps.onLine(&x.listed)
		if !ok {
			continue
		}
		var free line.Map
		free.Set(start, end, line.Dropped)
		l.of(p, x.pass).Gaps(start, end, free.Clear)
		free.Without(ps.excludedOnLine())
		for _, s := range free {
			ps.eachSegment(s.Start, s.End, func(start, end int64) {
				if ps.Units(start, end) > 0 {
					lg.addDrop(ps, start, end, x.step, false)
				}
			})
		}
	}
}

// loadDropped takes the `q` keys, after the acks and before pending is derived.
func (lg *ledger) loadDropped(all []stored[dropValue]) error {
	for _, s := range all {
		p, v := lg.partition(s.key.part), &s.val
		if p == nil || p.ds.id != s.key.ds || s.key.pass >= p.begun() || s.key.start >= v.end || v.units < 1 || v.loose && s.key.pass < p.folded {
			return fmt.Errorf("stored %s: no such partition or pass, or nothing in it", s.key)
		}
		x := drop{listed{s.key.pass, s.key.segment, s.key.start, v.end, v.units}, v.step, v.loose}
		if n := len(p.dropped); n > 0 && p.dropped[n-1].overlaps(&x.listed) {
			return fmt.Errorf("stored %s: it overlaps the one before it", s.key)
		}
		p.dropped = append(p.dropped, x)
		if !x.loose {
			continue
		}
		ps, start, end, err := lg.loadRange(s.key, line.Place{Segment: s.key.segment, Offset: v.end})
		if err != nil {
			return err
		}
		if ps.done == &ps.base || ps.done.Touches(start, end) {
			return fmt.Errorf("stored %s: settled twice, or the model kind drops nothing", s.key)
		}
		ps.done.Add(start, end, line.Dropped)
		ps.kinds[line.Dropped] += ps.Units(start, end)
	}
	return nil
}

// checkDropped checks that the ranges that are settled as dropped are those of the list.
func (p *partition) checkDropped() error {
	var folded int64
	for i := range p.dropped {
		x := &p.dropped[i]
		if i > 0 && p.dropped[i-1].compare(&x.listed) >= 0 {
			return fmt.Errorf("dropped ranges are out of order at pass %d segment %d [%d, %d)", x.pass, x.segment, x.start, x.end)
		}
		if x.pass < p.folded {
			folded += x.units
		}
	}
	if folded != p.units[line.Dropped] {
		return fmt.Errorf("%d units of finished passes are dropped, their ranges have %d", p.units[line.Dropped], folded)
	}
	for _, ps := range p.passes {
		all := ofPass(p.dropped, ps.n)
		units, _ := ps.droppedUnits()
		for i := range all {
			x := &all[i]
			start, end, ok := ps.onLine(&x.listed)
			if !ok || ps.Units(start, end) != x.units {
				return fmt.Errorf("pass %d: dropped segment %d [%d, %d) does not hold %d units", ps.n, x.segment, x.start, x.end, x.units)
			}
			if settled := ps.base.Prefix(start) >= end; settled == x.loose || ps.done.Prefix(start) < end {
				return fmt.Errorf("pass %d: [%d, %d) is dropped; in the base: %v, in a bound cut: %v", ps.n, start, end, settled, !x.loose)
			}
		}
		if units != ps.kinds[line.Dropped] {
			return fmt.Errorf("pass %d: %d units are dropped, their ranges have %d", ps.n, ps.kinds[line.Dropped], units)
		}
	}
	return nil
}

// DroppedInfo is one dropped range in the source's own coordinates.
type DroppedInfo struct {
	Partition  PartitionNo
	Identity   string
	Label      string // what people call the partition
	Pass       uint32
	Segment    int64
	Start, End int64
	Step       int64
}

// Dropped lists at most limit dropped ranges of a dataset, in order of partition, pass and
// place. total counts all of them.
func (lg *ledger) Dropped(id DatasetID, limit int) (some []DroppedInfo, total int) {
	d := lg.dataset(id)
	if d == nil {
		return nil, 0
	}
	for _, p := range d.parts {
		for i := range p.dropped {
			x := &p.dropped[i]
			p.eachInSource(&x.listed, func(segment, start, end int64) {
				if total++; len(some) < limit {
					some = append(some, DroppedInfo{p.no, p.identity, p.label(), x.pass, segment, start, end, x.step})
				}
			})
		}
	}
	return some, total
}

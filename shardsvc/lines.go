package shardsvc

import (
	"fmt"
	"slices"
)

// lines are a cut's records on the lines of the partitions that are there.
type lines struct {
	parts   [][]settledSet // by number and pass
	records [][]Tally      // of those
}

func (c *Core) newLines() *lines {
	return &lines{make([][]settledSet, len(c.parts)), make([][]Tally, len(c.parts))}
}

// recordsOf are those of a pass that are in the cut.
func (l *lines) recordsOf(p *partition, n uint32) Tally {
	if l != nil && int64(n) < int64(len(l.records[p.no])) {
		return l.records[p.no][n]
	}
	return Tally{}
}

// allRecords are those of passes [0, n) of a partition that are in the cut.
func (l *lines) allRecords(p *partition, n int) (t Tally) {
	if l != nil {
		all := l.records[p.no]
		for _, x := range all[:min(n, len(all))] {
			t.add(x)
		}
	}
	return t
}

// of is what of a pass is in the cut.
func (l *lines) of(p *partition, n uint32) *settledSet {
	if l != nil && int64(n) < int64(len(l.parts[p.no])) {
		return &l.parts[p.no][n]
	}
	return &settledSet{}
}

// linesOf reads a kept cut; what of it belongs to datasets that are gone is left
// out. nil: the start.
func (c *Core) linesOf(k *keptCut) *lines {
	if k == nil {
		return nil
	}
	l := c.newLines()
	body := k.decode()
	for i := range body.Datasets {
		for j := range body.Datasets[i].Partitions {
			q := &body.Datasets[i].Partitions[j]
			if p := c.partition(q.Number); p != nil && p.identity == q.Identity {
				sets, err := p.sets(q)
				if err != nil {
					panic("shardsvc: a kept cut does not fit its partition: " + err.Error())
				}
				l.parts[p.no], l.records[p.no] = sets, p.tallies(q, sets)
			}
		}
	}
	return l
}

// line is pass n of p; one that is not there is only good for its coordinates.
func (p *partition) line(n uint32) *pass {
	if n >= p.folded && n < p.begun() {
		return p.passes[n-p.folded]
	}
	ps := &pass{p: p, n: n}
	ps.done = &ps.base
	if n < p.folded {
		ps.base.low = p.lineEnd()
	}
	if p.ds.opt.Shuffle && p.complete && p.blocks > 0 {
		ps.order = p.newOrder(n)
	}
	return ps
}

func (s *settledSet) clone() settledSet {
	return settledSet{low: s.low, above: slices.Clone(s.above)}
}

// spans are all ranges of the set, from 0 on.
func (s *settledSet) spans() rangeMap {
	var m rangeMap
	if s.low > 0 {
		m = append(m, span{end: s.low, val: acked})
	}
	return append(m, s.above...)
}

// setOf is the inverse of spans.
func setOf(m rangeMap) settledSet {
	s := settledSet{above: slices.Clone(m)}
	s.absorb()
	return s
}

// unitsOf counts what a set holds.
func (ps *pass) unitsOf(s *settledSet) int64 {
	n := ps.units(0, s.low)
	for _, x := range s.above {
		n += ps.units(x.start, x.end)
	}
	return n
}

// add appends a pass to q, if anything of it is in the set. Of the set's units
// some are excluded or dropped.
func (q *CutPartition) add(ps *pass, set *settledSet, records Tally, excluded, dropped int64) {
	u := CutUnits{ps.unitsOf(set) - excluded - dropped, excluded, dropped}
	records = records.within(u.Acked)
	switch {
	case set.low == 0 && len(set.above) == 0:
		return
	case ps.n == q.PassesDone && ps.p.complete && set.low == ps.p.lineEnd():
		q.PassesDone++
		q.Done = CutUnits{q.Done.Acked + u.Acked, q.Done.Excluded + u.Excluded, q.Done.Dropped + u.Dropped}
		q.Records.add(records)
		return
	}
	s := CutPass{Pass: ps.n, Low: ps.startPlace(set.low).public(), Units: u, Records: records}
	for _, x := range set.above {
		s.Ranges = append(s.Ranges, CutRange{ps.startPlace(x.start).public(), ps.endPlace(x.end).public(), Kind(x.val)})
	}
	q.Passes = append(q.Passes, s)
}

// sets is the inverse: what of each pass is in q.
func (p *partition) sets(q *CutPartition) ([]settledSet, error) {
	sets := make([]settledSet, q.PassesDone)
	for i := range sets {
		sets[i].low = p.lineEnd()
	}
	for i := range q.Passes {
		s := &q.Passes[i]
		for int64(len(sets)) < int64(s.Pass) {
			sets = append(sets, settledSet{})
		}
		set, err := p.line(s.Pass).setOf(s)
		if err != nil {
			return nil, err
		}
		sets = append(sets, set)
	}
	return sets, nil
}

func (ps *pass) setOf(s *CutPass) (set settledSet, err error) {
	low, ok := ps.onLine(s.Low.private())
	if !ok {
		return set, fmt.Errorf("pass %d: segment %d offset %d is not in it", ps.n, s.Low.Segment, s.Low.Offset)
	}
	set.low = low
	for _, x := range s.Ranges {
		start, ok1 := ps.onLine(x.Start.private())
		end, ok2 := ps.onLine(x.End.private())
		if !ok1 || !ok2 || start >= end {
			return set, fmt.Errorf("pass %d: segment %d [%d, ...) is not in it", ps.n, x.Start.Segment, x.Start.Offset)
		}
		set.add(start, end, uint32(x.Kind))
	}
	if set.high() > ps.p.lineEnd() {
		return set, fmt.Errorf("pass %d: it has records beyond the end of the segments", ps.n)
	}
	return set, nil
}

func (l *lines) union(m *lines) *lines {
	if l == nil {
		return m
	}
	for no, sets := range m.parts {
		mine := l.parts[no]
		for n := range sets {
			if n == len(mine) {
				mine = append(mine, settledSet{})
			}
			for _, x := range sets[n].spans() {
				mine[n].add(x.start, x.end, x.val)
			}
		}
		l.parts[no] = mine
	}
	return l
}

func (p place) public() Place  { return Place{p.segment, p.offset} }
func (p Place) private() place { return place{p.Segment, p.Offset} }

package shardsvc

import (
	"fmt"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
)

// lines are a cut's records on the lines of the partitions that are there.
type lines struct {
	parts    [][]line.Set  // by number and pass
	records  [][]cut.Tally // of those
	dropped  [][]drop      // of them, by number
	excluded [][]listed    // what the cut lists as excluded, by number
}

func (lg *ledger) newLines() *lines {
	n := len(lg.parts)
	return &lines{make([][]line.Set, n), make([][]cut.Tally, n), make([][]drop, n), make([][]listed, n)}
}

// put adds the part of the cut that belongs to p.
func (l *lines) put(p *partition, q *cut.Partition, sets []line.Set) {
	l.parts[p.no], l.records[p.no], l.dropped[p.no] = sets, p.tallies(q, sets), dropsOf(q)
	for i := range q.Excluded {
		e := &q.Excluded[i]
		l.excluded[p.no] = append(l.excluded[p.no], listed{e.Pass, e.Piece.Segment, e.Piece.Start, e.Piece.End, e.Units})
	}
}

// recordsOf counts the records of a pass that are in the cut.
func (l *lines) recordsOf(p *partition, n uint32) cut.Tally {
	if l != nil && int64(n) < int64(len(l.records[p.no])) {
		return l.records[p.no][n]
	}
	return cut.Tally{}
}

// allRecords counts the records of passes [0, n) of a partition that are in the cut.
func (l *lines) allRecords(p *partition, n int) (t cut.Tally) {
	if l != nil {
		all := l.records[p.no]
		for _, x := range all[:min(n, len(all))] {
			t.Add(x)
		}
	}
	return t
}

// excludedOf returns the ranges of p that the cut lists as excluded.
func (l *lines) excludedOf(p *partition) []listed {
	if l == nil {
		return nil
	}
	return l.excluded[p.no]
}

// droppedOf returns the ranges of p that the cut lists as dropped.
func (l *lines) droppedOf(p *partition) []drop {
	if l == nil {
		return nil
	}
	return l.dropped[p.no]
}

// of is the part of a pass that is in the cut.
func (l *lines) of(p *partition, n uint32) *line.Set {
	if l != nil && int64(n) < int64(len(l.parts[p.no])) {
		return &l.parts[p.no][n]
	}
	return &line.Set{}
}

// linesOfBody lays a cut on the lines of the partitions that are there. It leaves out
// datasets that were deleted.
func (lg *ledger) linesOfBody(body *cut.Cut) *lines {
	l := lg.newLines()
	for i := range body.Datasets {
		for j := range body.Datasets[i].Partitions {
			q := &body.Datasets[i].Partitions[j]
			if p := lg.partition(q.Number); p != nil && p.identity == q.Identity {
				sets, err := p.sets(q)
				if err != nil {
					panic("shardsvc: a kept cut does not fit its partition: " + err.Error())
				}
				l.put(p, q, sets)
			}
		}
	}
	return l
}

// fitBody checks that a kept cut lies on the lines of its partitions. Before that it moves
// heads as far as the cut proves.
func (lg *ledger) fitBody(body *cut.Cut) error {
	for i := range body.Datasets {
		for j := range body.Datasets[i].Partitions {
			q := &body.Datasets[i].Partitions[j]
			p := lg.partition(q.Number)
			if p == nil || p.identity != q.Identity {
				continue
			}
			for n := range q.Passes {
				lg.growTo(p, line.Place(q.Passes[n].Low))
				for _, x := range q.Passes[n].Ranges {
					lg.growTo(p, line.Place(x.End))
				}
			}
			if _, err := p.sets(q); err != nil {
				return fmt.Errorf("stored cut %016x: partition %s: %w", body.ID, p.identity, err)
			}
		}
	}
	return nil
}

// line is pass n of p. If the pass is folded, or has not begun, the result only translates
// positions.
func (p *partition) line(n uint32) *pass {
	if n >= p.folded && n < p.begun() {
		return p.passes[n-p.folded]
	}
	ps := &pass{p: p, n: n, Line: line.Of(&p.Table, n)}
	ps.done = &ps.base
	if n < p.folded {
		ps.base.Low = p.LineEnd()
	}
	return ps
}

// addPass appends a pass to q, if anything of it is in the set. excluded and dropped are
// the numbers of excluded and of dropped units in the set. A pass that is settled wholly
// counts in q.Done, and its records in done.
func addPass(q *cut.Partition, done *cut.Tally, ps *pass, set *line.Set, records cut.Tally, excluded, dropped int64) {
	u := cut.Units{Acked: ps.UnitsOf(set) - excluded - dropped, Excluded: excluded, Dropped: dropped}
	records = records.Within(u.Acked)
	switch {
	case set.Low == 0 && len(set.Above) == 0:
		return
	case ps.n == q.Done && ps.p.Complete && set.Low == ps.p.LineEnd():
		q.Done++
		q.DoneUnits.Add(u)
		done.Add(records)
		return
	}
	s := cut.Pass{Pass: ps.n, Low: cut.Place(ps.StartPlace(set.Low)), Units: u, Records: &records}
	for _, x := range set.Above {
		s.Ranges = append(s.Ranges, cut.Range{Start: cut.Place(ps.StartPlace(x.Start)), End: cut.Place(ps.EndPlace(x.End)), Kind: cut.Kind(x.Val)})
	}
	q.Passes = append(q.Passes, s)
}

// sets is the inverse of addPass: the part of each pass that is in q.
func (p *partition) sets(q *cut.Partition) ([]line.Set, error) {
	sets := make([]line.Set, q.Done)
	for i := range sets {
		sets[i].Low = p.LineEnd()
	}
	for i := range q.Passes {
		s := &q.Passes[i]
		for int64(len(sets)) < int64(s.Pass) {
			sets = append(sets, line.Set{})
		}
		set, err := p.line(s.Pass).setOf(s)
		if err != nil {
			return nil, err
		}
		sets = append(sets, set)
	}
	return sets, nil
}

func (ps *pass) setOf(s *cut.Pass) (set line.Set, err error) {
	low, ok := ps.OnLine(line.Place(s.Low))
	if !ok {
		return set, fmt.Errorf("pass %d: segment %d offset %d is not in it", ps.n, s.Low.Segment, s.Low.Offset)
	}
	set.Low = low
	for _, x := range s.Ranges {
		start, ok1 := ps.OnLine(line.Place(x.Start))
		end, ok2 := ps.OnLine(line.Place(x.End))
		if !ok1 || !ok2 || start >= end {
			return set, fmt.Errorf("pass %d: segment %d [%d, ...) is not in it", ps.n, x.Start.Segment, x.Start.Offset)
		}
		set.Add(start, end, uint32(x.Kind))
	}
	if set.High() > ps.p.LineEnd() {
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
				mine = append(mine, line.Set{})
			}
			mine[n].Unite(&sets[n])
		}
		l.parts[no] = mine
	}
	return l
}

package line

// Place is a position in order space: (segment, offset). A shuffled pass has one
// order segment, 0, whose offsets are those of the line.
type Place struct{ Segment, Offset int64 }

// Line is one pass over a table of segments: segments laid end to end, or, with an
// order, permuted blocks. Its positions are int64 units from 0 on.
type Line struct {
	table *Table
	Order *order // nil: not shuffled
}

// Of returns pass n over a table. A shuffled pass has no order until all segments are
// listed.
func Of(t *Table, n uint32) Line {
	if t.Size == 0 || !t.Complete || t.Count == 0 {
		return Line{table: t}
	}
	return Line{t, t.newOrder(n)}
}

// Units counts the units of a range of the line that hold records. The unused ends of
// short blocks hold none.
func (ln *Line) Units(start, end int64) int64 {
	if ln.Order == nil {
		return end - start
	}
	return end - start - (ln.Order.below(end) - ln.Order.below(start))
}

// UnitsIn counts the units of a map's spans that hold records.
func (ln *Line) UnitsIn(m Map) (n int64) {
	for _, s := range m {
		n += ln.Units(s.Start, s.End)
	}
	return n
}

// UnitsOf counts the units of a set that hold records.
func (ln *Line) UnitsOf(s *Set) int64 {
	n := ln.Units(0, s.Low)
	for _, x := range s.Above {
		n += ln.Units(x.Start, x.End)
	}
	return n
}

// StartPlace and EndPlace translate positions of the line into order space. At the border
// of two segments StartPlace gives the start of the second one, and EndPlace the end of
// the first one. Example: with segments [100, 150) and [0, 30), position 50 is offset 0 of
// the second segment as a start, and offset 150 of the first one as an end.
func (ln *Line) StartPlace(pos int64) Place {
	t := ln.table
	if ln.Order != nil || len(t.Segs) == 0 {
		return Place{Offset: pos}
	}
	s := &t.Segs[t.SegAt(pos)]
	return Place{s.ID, pos - s.Base + s.Start}
}

func (ln *Line) EndPlace(pos int64) Place {
	t := ln.table
	if ln.Order != nil || pos == 0 || len(t.Segs) == 0 || pos <= t.Segs[0].Base {
		return ln.StartPlace(pos)
	}
	s := &t.Segs[t.SegAt(pos-1)]
	return Place{s.ID, pos - s.Base + s.Start}
}

// OnLine is the inverse of StartPlace and EndPlace. ok is false if the place does not lie
// on the line.
func (ln *Line) OnLine(at Place) (pos int64, ok bool) {
	t := ln.table
	if ln.Order != nil {
		return at.Offset, at.Segment == 0 && at.Offset >= 0 && at.Offset <= t.LineEnd()
	}
	i := t.SegByID(at.Segment)
	if i < 0 {
		return 0, at == Place{} && len(t.Segs) == 0
	}
	s := &t.Segs[i]
	end := s.End
	if i == len(t.Segs)-1 && t.Growing() {
		end = Max // a lease may end ahead of head
	}
	if at.Offset < s.Start || at.Offset > end {
		return 0, false
	}
	return at.Offset - s.Start + s.Base, true
}

// Within returns the positions of the part of [start, end) of a segment that lies on an
// unshuffled line. ok is false if there is none.
func (ln *Line) Within(segment, start, end int64) (lo, hi int64, ok bool) {
	i := ln.table.SegByID(segment)
	if i < 0 {
		return 0, 0, false
	}
	s := &ln.table.Segs[i]
	lo, hi = max(start, s.Start), min(end, s.End)
	return lo - s.Start + s.Base, hi - s.Start + s.Base, lo < hi
}

// EachPiece calls each for every piece of the source that [from, to) of the line reads, in
// the order of the line. at is the position of the piece on the line.
func (ln *Line) EachPiece(from, to int64, each func(at int64, s *Segment, start, end int64)) {
	t := ln.table
	for pos := from; pos < to; {
		if ln.Order == nil {
			s := &t.Segs[t.SegAt(pos)]
			end := min(to, s.LineEnd())
			if end <= pos {
				return
			}
			each(pos, s, pos-s.Base+s.Start, end-s.Base+s.Start)
			pos = end
			continue
		}
		block := ln.Order.Block
		in := ln.Order.Source(pos)
		s := &t.Segs[t.segByBlock(in)]
		first := s.Start + (in-s.block)*block
		start, end := first+pos%block, min(first+min(block, to-pos/block*block), s.End)
		if start < end {
			each(pos, s, start, end)
		}
		pos = (pos/block + 1) * block
	}
}

// EachOfSegment is the reverse of EachPiece: it calls each for every part of the line that
// [s.Start, end) of a segment takes up. A position plus shift is the offset at the source.
// A block of another virtual rank is the call each(0, 0, 0). It stops when each returns
// false.
func (ln *Line) EachOfSegment(s *Segment, end int64, each func(from, to, shift int64) bool) {
	o := ln.Order
	if o == nil {
		each(s.Base, s.Base+end-s.Start, s.Start-s.Base)
		return
	}
	for b := int64(0); b*o.Block < end-s.Start; b++ {
		at := int64(o.Perm.Place(uint64(s.block + b)))
		if at%o.every != o.first { // another virtual rank's
			if !each(0, 0, 0) {
				return
			}
			continue
		}
		at = at / o.every * o.Block
		if !each(at, at+min(o.Block, end-s.Start-b*o.Block), s.Start+b*o.Block-at) {
			return
		}
	}
}

package line

import (
	"slices"
	"sort"
)

// Span is [start, end) on a line, with a value.
type Span struct {
	Start, End int64
	Val        uint32
}

// Map is sorted, disjoint spans. Two spans that touch have different values: Set merges
// equal ones.
type Map []Span

// from returns the index of the first span that ends at or after pos.
func (m Map) from(pos int64) int {
	if n := len(m); n == 0 || m[n-1].End < pos {
		return n
	}
	return sort.Search(len(m), func(i int) bool { return m[i].End >= pos })
}

// Set gives [start, end) the value val.
func (m *Map) Set(start, end int64, val uint32) { m.write(start, end, val, true) }

// Clear removes [start, end).
func (m *Map) Clear(start, end int64) { m.write(start, end, 0, false) }

// Without removes the spans of n, whatever their values.
func (m *Map) Without(n Map) {
	for _, s := range n {
		m.Clear(s.Start, s.End)
	}
}

// With gives the spans of n the value val.
func (m *Map) With(n Map, val uint32) {
	for _, s := range n {
		m.Set(s.Start, s.End, val)
	}
}

func (m *Map) write(start, end int64, val uint32, keep bool) {
	if start >= end {
		return
	}
	s := *m
	i := s.from(start)
	j := i
	for j < len(s) && s[j].Start <= end {
		j++
	}
	var buf [3]Span
	n := 0
	mid := Span{start, end, val}
	right, hasRight := Span{}, false
	if i < j {
		if l := s[i]; l.Start < start {
			if keep && l.Val == val {
				mid.Start = l.Start
			} else {
				buf[0], n = Span{l.Start, min(l.End, start), l.Val}, 1
			}
		}
		if r := s[j-1]; r.End > end {
			if keep && r.Val == val {
				mid.End = r.End
			} else {
				right, hasRight = Span{max(r.Start, end), r.End, r.Val}, true
			}
		}
	}
	if keep {
		buf[n] = mid
		n++
	}
	if hasRight {
		buf[n] = right
		n++
	}
	*m = splice(s, i, j, buf[:n])
}

// splice replaces s[i:j] by with, in place where it fits.
func splice(s Map, i, j int, with []Span) Map {
	grow := len(with) - (j - i)
	old := len(s)
	if grow > 0 {
		for range grow {
			s = append(s, Span{})
		}
	}
	copy(s[j+grow:], s[j:old])
	copy(s[i:], with)
	return s[:old+grow]
}

// Overlap returns the indices [i, j) of the spans that share a unit with
// [start, end).
func (m Map) Overlap(start, end int64) (i, j int) {
	if start >= end {
		return 0, 0
	}
	i = m.from(start)
	if i < len(m) && m[i].End == start {
		i++
	}
	j = i
	for j < len(m) && m[j].Start < end {
		j++
	}
	return i, j
}

// Kinds of settled ranges.
const (
	Acked = iota
	Excluded
	Dropped
	Kinds
)

// Set is a set of settled positions: everything below Low, and ranges above it, each with
// its kind.
type Set struct {
	Low   int64
	Above Map
}

func (s *Set) Add(start, end int64, kind uint32) {
	if start <= s.Low {
		s.Low = max(s.Low, end)
	} else {
		s.Above.Set(start, end, kind)
	}
	s.absorb()
}

func (s *Set) absorb() {
	n := 0
	for n < len(s.Above) && s.Above[n].Start <= s.Low {
		s.Low = max(s.Low, s.Above[n].End)
		n++
	}
	if n > 0 {
		s.Above = s.Above[:copy(s.Above, s.Above[n:])]
	}
}

// High is the end of the highest settled range.
func (s *Set) High() int64 {
	if n := len(s.Above); n > 0 {
		return s.Above[n-1].End
	}
	return s.Low
}

// Prefix returns how far everything from pos on is settled without a gap.
func (s *Set) Prefix(pos int64) int64 {
	pos = max(pos, s.Low)
	i, _ := s.Above.Overlap(pos, pos+1)
	for i < len(s.Above) && s.Above[i].Start <= pos {
		pos = s.Above[i].End
		i++
	}
	return pos
}

// Touches says whether any unit of [start, end) is settled.
func (s *Set) Touches(start, end int64) bool {
	if start < s.Low && start < end {
		return true
	}
	i, j := s.Above.Overlap(start, end)
	return i < j
}

// Gaps calls each with every unsettled range of [start, end).
func (s *Set) Gaps(start, end int64, each func(start, end int64)) {
	start = max(start, s.Low)
	i, j := s.Above.Overlap(start, end)
	for ; i < j; i++ {
		if s.Above[i].Start > start {
			each(start, s.Above[i].Start)
		}
		start = max(start, s.Above[i].End)
	}
	if start < end {
		each(start, end)
	}
}

// Unite adds all ranges of t, with their kinds.
func (s *Set) Unite(t *Set) {
	for _, x := range t.Spans() {
		s.Add(x.Start, x.End, x.Val)
	}
}

// Minus is the ranges of s that are not in t. Example: [0, 300) minus [0, 200) is [200,
// 300).
func (s *Set) Minus(t *Set) Map {
	m := s.Spans()
	m.Without(t.Spans())
	return m
}

// Clone returns a copy that shares no memory with s.
func (s *Set) Clone() Set {
	return Set{Low: s.Low, Above: slices.Clone(s.Above)}
}

// Spans returns all ranges of the set, from 0 on. The kinds of ranges below Low are not
// kept: they count as Acked.
func (s *Set) Spans() Map {
	var m Map
	if s.Low > 0 {
		m = append(m, Span{End: s.Low, Val: Acked})
	}
	return append(m, s.Above...)
}

// SetOf is the inverse of Spans.
func SetOf(m Map) Set {
	s := Set{Above: slices.Clone(m)}
	s.absorb()
	return s
}

package shardsvc

import "sort"

// span is [start, end) on a line, with a value.
type span struct {
	start, end int64
	val        uint32
}

// rangeMap is sorted, disjoint spans; neighbours with one value are one span.
type rangeMap []span

// from returns the index of the first span that ends at or after pos.
func (m rangeMap) from(pos int64) int {
	if n := len(m); n == 0 || m[n-1].end < pos {
		return n
	}
	return sort.Search(len(m), func(i int) bool { return m[i].end >= pos })
}

// set gives [start, end) the value val.
func (m *rangeMap) set(start, end int64, val uint32) { m.write(start, end, val, true) }

// clear removes [start, end).
func (m *rangeMap) clear(start, end int64) { m.write(start, end, 0, false) }

func (m *rangeMap) write(start, end int64, val uint32, keep bool) {
	if start >= end {
		return
	}
	s := *m
	i := s.from(start)
	j := i
	for j < len(s) && s[j].start <= end {
		j++
	}
	var buf [3]span
	n := 0
	mid := span{start, end, val}
	right, hasRight := span{}, false
	if i < j {
		if l := s[i]; l.start < start {
			if keep && l.val == val {
				mid.start = l.start
			} else {
				buf[0], n = span{l.start, min(l.end, start), l.val}, 1
			}
		}
		if r := s[j-1]; r.end > end {
			if keep && r.val == val {
				mid.end = r.end
			} else {
				right, hasRight = span{max(r.start, end), r.end, r.val}, true
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
func splice(s rangeMap, i, j int, with []span) rangeMap {
	grow := len(with) - (j - i)
	old := len(s)
	if grow > 0 {
		for range grow {
			s = append(s, span{})
		}
	}
	copy(s[j+grow:], s[j:old])
	copy(s[i:], with)
	return s[:old+grow]
}

// overlap returns the indices [i, j) of the spans that share a unit with
// [start, end).
func (m rangeMap) overlap(start, end int64) (i, j int) {
	if start >= end {
		return 0, 0
	}
	i = m.from(start)
	if i < len(m) && m[i].end == start {
		i++
	}
	j = i
	for j < len(m) && m[j].start < end {
		j++
	}
	return i, j
}

// Kinds of settled.
const (
	acked = iota
	excluded
	dropped
	kinds
)

// settledSet is all of the line below low, and ranges above it with their kind.
type settledSet struct {
	low   int64
	above rangeMap
}

func (s *settledSet) add(start, end int64, kind uint32) {
	if start <= s.low {
		s.low = max(s.low, end)
	} else {
		s.above.set(start, end, kind)
	}
	s.absorb()
}

func (s *settledSet) absorb() {
	n := 0
	for n < len(s.above) && s.above[n].start <= s.low {
		s.low = max(s.low, s.above[n].end)
		n++
	}
	if n > 0 {
		s.above = s.above[:copy(s.above, s.above[n:])]
	}
}

// high is the end of the highest settled range.
func (s *settledSet) high() int64 {
	if n := len(s.above); n > 0 {
		return s.above[n-1].end
	}
	return s.low
}

// prefix returns how far everything from pos on is settled without a gap.
func (s *settledSet) prefix(pos int64) int64 {
	pos = max(pos, s.low)
	i, _ := s.above.overlap(pos, pos+1)
	for i < len(s.above) && s.above[i].start <= pos {
		pos = s.above[i].end
		i++
	}
	return pos
}

// touches says whether any unit of [start, end) is settled.
func (s *settledSet) touches(start, end int64) bool {
	if start < s.low && start < end {
		return true
	}
	i, j := s.above.overlap(start, end)
	return i < j
}

// gaps calls each with every unsettled range of [start, end).
func (s *settledSet) gaps(start, end int64, each func(start, end int64)) {
	start = max(start, s.low)
	i, j := s.above.overlap(start, end)
	for ; i < j; i++ {
		if s.above[i].start > start {
			each(start, s.above[i].start)
		}
		start = max(start, s.above[i].end)
	}
	if start < end {
		each(start, end)
	}
}

package audit

import (
	"cmp"
	"slices"

	"github.com/headrace/headrace/flashckpt/manifest"
)

// set is sorted, disjoint ranges that do not touch each other.
type set []manifest.Range

// normal makes a set of ranges in any order.
func normal(ranges []manifest.Range) set {
	slices.SortFunc(ranges, func(a, b manifest.Range) int {
		return cmp.Or(cmp.Compare(a.Segment(), b.Segment()), cmp.Compare(a.Start(), b.Start()))
	})
	out := set(ranges[:0])
	for _, r := range ranges {
		if r.Start() >= r.End() {
			continue
		}
		if n := len(out); n > 0 && out[n-1].Segment() == r.Segment() && out[n-1].End() >= r.Start() {
			out[n-1][2] = max(out[n-1][2], r.End())
			continue
		}
		out = append(out, r)
	}
	return out
}

// minus is what of s is not in t.
func (s set) minus(t set) set {
	var out set
	j := 0
	for _, r := range s {
		start := r.Start()
		for j < len(t) && (t[j].Segment() < r.Segment() || t[j].Segment() == r.Segment() && t[j].End() <= start) {
			j++
		}
		for k := j; k < len(t) && t[k].Segment() == r.Segment() && t[k].Start() < r.End(); k++ {
			if t[k].Start() > start {
				out = append(out, manifest.Range{r.Segment(), start, t[k].Start()})
			}
			start = max(start, t[k].End())
		}
		if start < r.End() {
			out = append(out, manifest.Range{r.Segment(), start, r.End()})
		}
	}
	return out
}

func (s set) has(segment, offset int64) bool {
	i, found := slices.BinarySearchFunc(s, manifest.Place{segment, offset}, func(r manifest.Range, at manifest.Place) int {
		switch {
		case r.Segment() != at.Segment():
			return cmp.Compare(r.Segment(), at.Segment())
		case at.Offset() < r.Start():
			return 1
		case at.Offset() >= r.End():
			return -1
		}
		return 0
	})
	return found && i < len(s)
}

func (s set) units() (n int64) {
	for _, r := range s {
		n += r.End() - r.Start()
	}
	return n
}

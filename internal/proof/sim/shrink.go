package sim

import (
	"fmt"
	"slices"
	"strings"
)

// Shrink looks for the fewest troubles with which a failing seed still fails. It leaves out halves, then
// smaller parts, then single troubles, until every one that is left is needed. Leaving out a trouble may
// change other draws, so the result may be another failure. It is still a failure.
func Shrink(s Story) (Story, Result) {
	best := s.Run(nil)
	if best.Failed == "" {
		return s, best
	}
	s.Size = best.Size
	all := Troubles(s.Seed)
	left := make([]int, 0, len(all))
	for i := range all {
		if i < best.Reached && !s.without(i) {
			left = append(left, i)
		}
	}
	try := func(keep []int) bool {
		t := Story{Seed: s.Seed, Size: s.Size, Without: others(len(all), keep)}
		r := t.Run(nil)
		if r.Failed == "" {
			return false
		}
		s, best = t, r
		return true
	}
	if !try(left) { // drop those that come after the failure
		return s, best
	}
	for part := max(len(left)/2, 1); len(left) > 0; {
		fewer := false
		for at := 0; at < len(left); {
			keep := slices.Delete(slices.Clone(left), at, min(at+part, len(left)))
			if try(keep) {
				left, fewer = keep, true
			} else {
				at += part
			}
		}
		if part == 1 && !fewer {
			break
		}
		part = max(part/2, 1)
	}
	return s, best
}

func (s Story) without(i int) bool {
	return slices.Contains(s.Without, i)
}

// others lists the numbers below n that are not in keep.
func others(n int, keep []int) (out []int) {
	for i := range n {
		if len(keep) > 0 && keep[0] == i {
			keep = keep[1:]
		} else {
			out = append(out, i)
		}
	}
	return out
}

// String lists the troubles that came.
func (s Story) String() string {
	var b strings.Builder
	for i, t := range Troubles(s.Seed) {
		if !s.without(i) {
			fmt.Fprintf(&b, "%12.6f  trouble %d: %s\n", float64(t.At)/1e9, i, t.Name)
		}
	}
	if b.Len() == 0 {
		return "  no trouble at all\n"
	}
	return b.String()
}

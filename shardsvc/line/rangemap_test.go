package line

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestRangeMapIsAnArray compares a Map with an array that has one value per unit.
func TestRangeMapIsAnArray(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 40
		var m Map
		var units [size]uint32 // 0: none
		for range rapid.IntRange(0, 40).Draw(t, "writes") {
			start := rapid.Int64Range(0, size-1).Draw(t, "start")
			end := rapid.Int64Range(start, size).Draw(t, "end")
			val := uint32(rapid.IntRange(0, 2).Draw(t, "val"))
			if val == 0 {
				m.Clear(start, end)
			} else {
				m.Set(start, end, val)
			}
			for i := start; i < end; i++ {
				units[i] = val
			}
			check(t, m, units[:])
		}
		from := rapid.Int64Range(0, size-1).Draw(t, "from")
		to := rapid.Int64Range(from, size).Draw(t, "to")
		i, j := m.Overlap(from, to)
		for k, s := range m {
			if in := s.Start < to && from < s.End && from < to; in != (k >= i && k < j) {
				t.Fatalf("overlap(%d, %d) = [%d, %d) of %v", from, to, i, j, m)
			}
		}
	})
}

func check(t *rapid.T, m Map, units []uint32) {
	var got [64]uint32
	for i, s := range m {
		if s.Start >= s.End || i > 0 && (m[i-1].End > s.Start || m[i-1].End == s.Start && m[i-1].Val == s.Val) {
			t.Fatalf("not sorted, disjoint and merged: %v", m)
		}
		for u := s.Start; u < s.End; u++ {
			got[u] = s.Val
		}
	}
	for u, v := range units {
		if got[u] != v {
			t.Fatalf("unit %d is %d, want %d: %v", u, got[u], v, m)
		}
	}
}

// TestSettledSetIsAnArray compares a Set's low mark, prefixes and gaps with an array that has one bool per unit.
func TestSettledSetIsAnArray(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 40
		var s Set
		var units [size + 1]bool
		for range rapid.IntRange(0, 20).Draw(t, "adds") {
			start := rapid.Int64Range(0, size-1).Draw(t, "start")
			end := rapid.Int64Range(start+1, size).Draw(t, "end")
			s.Add(start, end, uint32(rapid.IntRange(0, Kinds-1).Draw(t, "kind")))
			for i := start; i < end; i++ {
				units[i] = true
			}
			low := int64(0)
			for units[low] {
				low++
			}
			if s.Low != low {
				t.Fatalf("low is %d, want %d", s.Low, low)
			}
		}
		from := rapid.Int64Range(0, size-1).Draw(t, "from")
		to := rapid.Int64Range(from, size).Draw(t, "to")
		want := from
		for units[want] {
			want++
		}
		if got := s.Prefix(from); got != max(want, s.Low) {
			t.Fatalf("prefix(%d) is %d, want %d of %+v", from, got, want, s)
		}
		free := int64(0)
		for i := from; i < to; i++ {
			if !units[i] {
				free++
			}
		}
		s.Gaps(from, to, func(start, end int64) {
			for i := start; i < end; i++ {
				if units[i] {
					t.Fatalf("gap holds unit %d", i)
				}
			}
			free -= end - start
		})
		if free != 0 || s.Touches(from, to) == (from < to && !anyOf(units[from:to])) && from < to {
			t.Fatalf("gaps of [%d, %d) miss %d units, touches %v", from, to, free, s.Touches(from, to))
		}
	})
}

func TestTwoSetsAreTwoArrays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 40
		var s, u Set
		var inS, inU [size]bool
		for range rapid.IntRange(0, 20).Draw(t, "adds") {
			start := rapid.Int64Range(0, size-1).Draw(t, "start")
			end := rapid.Int64Range(start+1, size).Draw(t, "end")
			to, in := &s, &inS
			if rapid.Bool().Draw(t, "second") {
				to, in = &u, &inU
			}
			to.Add(start, end, Acked)
			for i := start; i < end; i++ {
				in[i] = true
			}
		}
		both := s.Clone()
		both.Unite(&u)
		only := s.Minus(&u)
		for i := range int64(size) {
			if both.Touches(i, i+1) != (inS[i] || inU[i]) {
				t.Fatalf("unit %d: %+v and %+v unite to %+v", i, s, u, both)
			}
			if j, k := only.Overlap(i, i+1); (j < k) != (inS[i] && !inU[i]) {
				t.Fatalf("unit %d: %+v without %+v is %v", i, s, u, only)
			}
		}
		again := only
		again.With(s.Spans(), Acked)
		if got := SetOf(again); !slices.Equal(got.Spans(), s.Spans()) {
			t.Fatalf("%v with %+v is %+v", only, s, got)
		}
	})
}

func anyOf(units []bool) bool {
	for _, u := range units {
		if u {
			return true
		}
	}
	return false
}

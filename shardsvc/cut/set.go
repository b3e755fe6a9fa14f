package cut

import (
	"cmp"
	"iter"
	"slices"

	"github.com/headrace/headrace/sources"
)

// Set is sorted, disjoint pieces that do not touch each other.
type Set []Piece

// NewSet makes a set of pieces that may come in any order. It reuses the memory of
// pieces.
func NewSet(pieces []Piece) Set {
	slices.SortFunc(pieces, func(a, b Piece) int {
		return cmp.Or(cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.Start, b.Start))
	})
	out := Set(pieces[:0])
	for _, p := range pieces {
		if p.Start >= p.End {
			continue
		}
		if n := len(out); n > 0 && out[n-1].Segment == p.Segment && out[n-1].End >= p.Start {
			out[n-1].End = max(out[n-1].End, p.End)
			continue
		}
		out = append(out, p)
	}
	return out
}

// Minus returns the parts of s that are not in t. Example: [0, 300) minus [100, 200)
// is [0, 100) and [200, 300).
func (s Set) Minus(t Set) Set {
	var out Set
	j := 0
	for _, p := range s {
		start := p.Start
		for j < len(t) && (t[j].Segment < p.Segment || t[j].Segment == p.Segment && t[j].End <= start) {
			j++
		}
		for k := j; k < len(t) && t[k].Segment == p.Segment && t[k].Start < p.End; k++ {
			if t[k].Start > start {
				out = append(out, Piece{p.Segment, start, t[k].Start})
			}
			start = max(start, t[k].End)
		}
		if start < p.End {
			out = append(out, Piece{p.Segment, start, p.End})
		}
	}
	return out
}

// Has says whether a place lies in the set.
func (s Set) Has(at Place) bool {
	_, found := slices.BinarySearchFunc(s, at, func(p Piece, at Place) int {
		switch {
		case p.Segment != at.Segment:
			return cmp.Compare(p.Segment, at.Segment)
		case at.Offset < p.Start:
			return 1
		case at.Offset >= p.End:
			return -1
		}
		return 0
	})
	return found
}

// Units returns the number of units in the set.
func (s Set) Units() (n int64) {
	for _, p := range s {
		n += p.End - p.Start
	}
	return n
}

// Pieces cuts the ranges of the given kinds at the borders of segments.
func (all Ranges) Pieces(segs []sources.Segment, of ...Kind) (out []Piece) {
	for _, r := range all {
		if slices.Contains(of, r.Kind) {
			out = slices.AppendSeq(out, r.Pieces(segs))
		}
	}
	return out
}

// Pieces cuts r at the borders of segments. A range of a shuffled pass stays whole: it
// lies in order segment 0.
func (r Range) Pieces(segs []sources.Segment) iter.Seq[Piece] {
	return func(yield func(Piece) bool) {
		if r.Start.Segment == r.End.Segment {
			yield(Piece{r.Start.Segment, r.Start.Offset, r.End.Offset})
			return
		}
		first, _ := slices.BinarySearchFunc(segs, r.Start.Segment, func(g sources.Segment, id int64) int { return cmp.Compare(g.ID, id) })
		for i := first; i < len(segs) && segs[i].ID <= r.End.Segment; i++ {
			p := Piece{segs[i].ID, segs[i].Start, segs[i].End}
			if p.Segment == r.Start.Segment {
				p.Start = r.Start.Offset
			}
			if p.Segment == r.End.Segment {
				p.End = r.End.Offset
			}
			if p.Start < p.End && !yield(p) {
				return
			}
		}
	}
}

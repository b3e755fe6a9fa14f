package cut

import (
	"cmp"
	"iter"
	"slices"

	"github.com/headrace/headrace/sources"
)

// Set is sorted, disjoint pieces that do not touch each other.
type Set []Piece

// NewSet makes a set of pieces in any order. It takes the slice.
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

// Minus is what of s is not in t.
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

// Units counts what is in the set.
func (s Set) Units() (n int64) {
	for _, p := range s {
		n += p.End - p.Start
	}
	return n
}

// Pieces are the parts of ranges of some kinds that lie in each of the segments.
func (all Ranges) Pieces(segs []sources.Segment, of ...Kind) (out []Piece) {
	for _, r := range all {
		if slices.Contains(of, r.Kind) {
			out = slices.AppendSeq(out, r.Pieces(segs))
		}
	}
	return out
}

// Pieces are the parts of r that lie in each of the segments. With a shuffle that is
// r itself: it lies in order segment 0.
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

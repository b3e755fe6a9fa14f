package audit

import (
	"slices"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/sources"
)

// A segment of pushed records whose chunk was deleted may be trimmed: it is sealed, has no
// locator, and begins as far before its end as it and the segments before it had records.
// Example: [0, 10) of segments 4, 5 and 6 become [-20, 10) of segment 6. A newer cut lists
// one segment where an older one lists three.

// aligned is p with its trimmed segments listed one by one, as far as q lists them so. It is
// p itself if there is nothing to split, or if p names a position that a split would move.
func aligned(p, q *cut.Partition) *cut.Partition {
	var segs []sources.Segment
	base, at, j := int64(0), int64(0), 0 // on the line; at is where q.Segments[j] begins
	for _, g := range p.Segments {
		end := base + g.End - g.Start
		for ; j < len(q.Segments) && at < base; j++ {
			at += q.Segments[j].End - q.Segments[j].Start
		}
		for g.Sealed && len(g.Locator) == 0 && j < len(q.Segments) && at == base {
			x := q.Segments[j]
			n := x.End - x.Start
			if x.ID >= g.ID || n <= 0 || base+n >= end {
				break
			}
			segs = append(segs, x)
			g.Start, base, at, j = g.Start+n, base+n, at+n, j+1
		}
		segs = append(segs, g)
		base = end
	}
	if len(segs) == len(p.Segments) {
		return p
	}
	out := *p
	out.Segments = segs
	for _, at := range places(p) {
		if i, there := slices.BinarySearchFunc(segs, at.Segment, func(g sources.Segment, id int64) int { return int(min(max(g.ID-id, -1), 1)) }); !there || at.Offset < segs[i].Start {
			return p
		}
	}
	return &out
}

// places are the positions that p names.
func places(p *cut.Partition) (all []cut.Place) {
	for i := range p.Passes {
		all = append(all, p.Passes[i].Low)
		for _, x := range p.Passes[i].Ranges {
			all = append(all, x.Start, x.End)
		}
	}
	for _, e := range p.Excluded {
		all = append(all, cut.Place{Segment: e.Piece.Segment, Offset: e.Piece.Start})
	}
	for _, x := range p.Dropped {
		all = append(all, cut.Place{Segment: x.Piece.Segment, Offset: x.Piece.Start})
	}
	return all
}

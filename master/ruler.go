package master

import (
	"github.com/headrace/headrace/sources"
)

// ruler measures distances between positions of a partition, with its segments laid end
// to end. Its readings can be compared with those of the partition's earlier rulers.
type ruler struct {
	segs []sources.Segment // in order; earlier ones may be missing
	base int64             // the place of the beginning of the first one
}

// next returns the ruler of the present segments. fresh says that its readings cannot be
// compared with those of r.
func (r ruler) next(segs []sources.Segment) (n ruler, fresh bool) {
	if len(segs) == 0 {
		return ruler{}, true
	}
	for i := range r.segs {
		if g := &r.segs[i]; g.ID == segs[0].ID {
			return ruler{segs, r.at(sources.Position{Segment: g.ID, Offset: g.Start})}, false
		}
	}
	return ruler{segs, segs[0].Start}, true
}

// at returns the place of a position. A position outside all listed segments counts as the
// nearest border.
func (r ruler) at(p sources.Position) int64 {
	at := r.base
	for i := range r.segs {
		switch g := &r.segs[i]; {
		case g.ID == p.Segment:
			return at + p.Offset - g.Start
		case g.ID > p.Segment:
			return at
		default:
			at += g.End - g.Start
		}
	}
	return at
}

// pieces returns the parts of segments between two positions.
func (r ruler) pieces(from, to sources.Position) []sources.Range {
	if from.Segment == to.Segment {
		return []sources.Range{{Segment: from.Segment, Start: from.Offset, End: to.Offset}}
	}
	var all []sources.Range
	for i := range r.segs {
		g := &r.segs[i]
		if g.ID < from.Segment || g.ID > to.Segment {
			continue
		}
		piece := sources.Range{Segment: g.ID, Start: g.Start, End: g.End}
		if g.ID == from.Segment {
			piece.Start = from.Offset
		}
		if g.ID == to.Segment {
			piece.End = to.Offset
		}
		if piece.Start < piece.End {
			all = append(all, piece)
		}
	}
	return all
}

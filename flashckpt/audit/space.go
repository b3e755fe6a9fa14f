package audit

import (
	"cmp"
	"slices"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/sources"
)

// space turns the order space of one pass of a partition into the source's
// segments and back.
type space struct {
	segs   []sources.Segment
	block  int64   // 0: not shuffled
	blocks []int64 // number of each segment's first block, and of all
	has    int64   // blocks that are on this line
	perm   permutation
	// bit_exact: block i of the order is the first+i*every-th of the permutation.
	first, every int64
	inOrder      bool
}

func newSpace(d *cut.Dataset, p *cut.Partition, pass uint32) *space {
	s := &space{segs: p.Segments}
	if d.Shuffle == nil {
		return s
	}
	s.block, s.every, s.inOrder = d.Shuffle.Block, 1, d.Shuffle.InOrder
	_, rank := d.VirtualRank(p)
	if d.Shuffle.VirtualRanks > 0 {
		s.first, s.every = int64(rank), int64(d.Shuffle.VirtualRanks)
	}
	n := int64(0)
	for i := range s.segs {
		s.blocks = append(s.blocks, n)
		n += (s.segs[i].End - s.segs[i].Start + s.block - 1) / s.block
	}
	s.blocks = append(s.blocks, n)
	s.perm = newPermutation(uint64(n), d.Shuffle.Seed, pass)
	s.has = d.Shuffle.BlocksOf(rank, n)
	return s
}

// whole is everything that there is to settle.
func (s *space) whole() cut.Set {
	if s.block > 0 {
		return cut.NewSet([]cut.Piece{{Segment: 0, Start: 0, End: s.has * s.block}})
	}
	var all []cut.Piece
	for i := range s.segs {
		all = append(all, cut.Piece{Segment: s.segs[i].ID, Start: s.segs[i].Start, End: s.segs[i].End})
	}
	return cut.NewSet(all)
}

// below is everything before a place.
func (s *space) below(low cut.Place) cut.Set {
	if s.block > 0 {
		return cut.NewSet([]cut.Piece{{Segment: 0, Start: 0, End: low.Offset}})
	}
	var all []cut.Piece
	for i := range s.segs {
		g := &s.segs[i]
		switch {
		case g.ID < low.Segment:
			all = append(all, cut.Piece{Segment: g.ID, Start: g.Start, End: g.End})
		case g.ID == low.Segment:
			all = append(all, cut.Piece{Segment: g.ID, Start: g.Start, End: low.Offset})
		}
	}
	return cut.NewSet(all)
}

// source is a set of order space in the source's own segments.
func (s *space) source(order cut.Set) cut.Set {
	if s.block == 0 {
		return order
	}
	var all []cut.Piece
	for _, r := range order {
		for at := r.Start; at < r.End; {
			from := at % s.block
			next := min(r.End, at-from+s.block)
			b := s.inputBlock(at / s.block)
			i, exact := slices.BinarySearch(s.blocks[:len(s.segs)], b)
			if !exact {
				i--
			}
			for i+1 < len(s.segs) && s.blocks[i+1] == b { // segments without a block lie in between
				i++
			}
			g := &s.segs[i]
			start := g.Start + (b-s.blocks[i])*s.block + from
			all = append(all, cut.Piece{Segment: g.ID, Start: min(start, g.End), End: min(start+next-at, g.End)})
			at = next
		}
	}
	return cut.NewSet(all)
}

// inputBlock is the block of the input that is block i of the order.
func (s *space) inputBlock(i int64) int64 {
	if i = s.first + i*s.every; s.inOrder {
		return i
	}
	return int64(s.perm.source(uint64(i)))
}

// order is where a position of the source lies in order space; false: it is another
// virtual rank's. The position lies inside its segment.
func (s *space) order(segment, offset int64) (at cut.Place, own bool) {
	if s.block == 0 {
		return cut.Place{Segment: segment, Offset: offset}, true
	}
	i, _ := slices.BinarySearchFunc(s.segs, segment, func(g sources.Segment, id int64) int { return cmp.Compare(g.ID, id) })
	from := offset - s.segs[i].Start
	b := s.blocks[i] + from/s.block
	if !s.inOrder {
		b = int64(s.perm.order(uint64(b)))
	}
	return cut.Place{Segment: 0, Offset: b/s.every*s.block + from%s.block}, b%s.every == s.first
}

// name of a segment for people.
func (s *space) name(id int64) string {
	i, ok := slices.BinarySearchFunc(s.segs, id, func(g sources.Segment, id int64) int { return cmp.Compare(g.ID, id) })
	if !ok {
		return ""
	}
	return s.segs[i].Name
}

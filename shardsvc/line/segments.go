package line

import (
	"sort"

	"github.com/headrace/headrace/sources"
)

// Max bounds offsets and lines, so that sums of a few never overflow.
const Max = 1 << 60

// Segment is a segment of a partition and its place on the line.
type Segment struct {
	ID, Start, End int64
	Sealed         bool
	Base           int64 // position of Start on the line, if not shuffled
	block          int64 // number of its first block, if shuffled
	Locator        []byte
	Name           string
}

// LineEnd is where the segment ends on the line.
func (s *Segment) LineEnd() int64 { return s.Base + s.End - s.Start }

// Blocks says in which order the blocks of a shuffled line come. Size is 0 if nothing is
// shuffled. A virtual rank has every Every-th block, from block First on.
type Blocks struct {
	Size         int64
	Seed         uint64
	InOrder      bool // the order is that of the input
	First, Every int64
}

// Table lists the segments of one partition, as far as they are known.
type Table struct {
	Segs     []Segment // in order of id, without those that Prune dropped
	Total    int64     // units listed
	Complete bool      // no segment will follow, and all ends are final
	Pruned   bool      // Prune has dropped some
	Blocks
	LastSeg int64 // id of the last one listed, -1: none
	Count   int64 // blocks listed
}

// Fits says whether a segment may be appended.
func (t *Table) Fits(start, end int64) bool {
	return -Max <= start && start <= end && end <= Max && t.Total+(end-start) <= Max
}

// Extend appends a segment.
func (t *Table) Extend(s *sources.Segment) *Segment {
	t.Segs = append(t.Segs, Segment{ID: s.ID, Start: s.Start, End: s.End, Sealed: s.Sealed,
		Base: t.Total, block: t.Count, Locator: s.Locator, Name: s.Name})
	t.LastSeg = s.ID
	t.Total += s.End - s.Start
	t.Count += t.blocksOf(s.End - s.Start)
	return &t.Segs[len(t.Segs)-1]
}

func (t *Table) blocksOf(units int64) int64 {
	if t.Size == 0 {
		return 0
	}
	return (units + t.Size - 1) / t.Size
}

// SetEnd moves the end of the last segment.
func (t *Table) SetEnd(end int64) {
	s := &t.Segs[len(t.Segs)-1]
	t.Total += end - s.End
	t.Count += t.blocksOf(end-s.Start) - t.blocksOf(s.End-s.Start)
	s.End = end
}

// Growing says whether records may still come at the end of the last segment.
func (t *Table) Growing() bool {
	n := len(t.Segs)
	return n > 0 && !t.Segs[n-1].Sealed && !t.Complete && t.Size == 0
}

// Farthest is the last position that the last segment can grow to.
func (t *Table) Farthest() int64 {
	s := &t.Segs[len(t.Segs)-1]
	return Max - s.Start + s.Base
}

// LineEnd is where the line ends for now. A shuffled line has no end before all
// segments are listed.
func (t *Table) LineEnd() int64 {
	if t.Size == 0 {
		return t.Total
	}
	if !t.Complete {
		return 0
	}
	return t.LineBlocks() * t.Size
}

// LineBlocks counts the blocks on the line.
func (t *Table) LineBlocks() int64 { return (t.Count - t.First - 1 + t.Every) / t.Every }

// SegAt returns the index of the segment that contains line position pos, or
// of the last one when pos is the end of the line.
func (t *Table) SegAt(pos int64) int {
	n := len(t.Segs)
	if n > 0 && t.Segs[n-1].Base <= pos && (t.Segs[n-1].End > t.Segs[n-1].Start || pos >= t.Total) {
		return n - 1
	}
	i := sort.Search(n, func(i int) bool { return t.Segs[i].LineEnd() > pos })
	return min(i, n-1)
}

// SegByID returns the index of a segment, or -1 if the table does not have it.
func (t *Table) SegByID(id int64) int {
	i := sort.Search(len(t.Segs), func(i int) bool { return t.Segs[i].ID >= id })
	if i < len(t.Segs) && t.Segs[i].ID == id {
		return i
	}
	return -1
}

// segByBlock returns the index of the segment that block number n lies in.
func (t *Table) segByBlock(n int64) int {
	lo, hi := 0, len(t.Segs)
	for hi-lo > 1 {
		mid := int(uint(lo+hi) >> 1)
		if t.Segs[mid].block <= n {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// Prune drops the first n segments.
func (t *Table) Prune(n int) {
	t.Segs = append([]Segment(nil), t.Segs[n:]...)
	t.Pruned = true
}

// Forgotten says whether the segment was pruned, so that all of it is settled.
func (t *Table) Forgotten(segment int64) bool {
	return t.Pruned && len(t.Segs) > 0 && segment < t.Segs[0].ID
}

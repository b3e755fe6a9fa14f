package shardsvc

import (
	"cmp"
	"sort"

	"github.com/headrace/headrace/shardsvc/line"
)

// A partition lists the ranges of its passes that are excluded (excluded.go), and those
// that are dropped (dropped.go). Each list is in order.

// listed is a range of such a list: of one pass, in one segment of order space.
type listed struct {
	pass                uint32
	segment, start, end int64
	units               int64
}

// inList is an exclusion or a drop.
type inList[T any] interface {
	*T
	place() *listed
}

func (r *listed) place() *listed { return r }

func (r *listed) compare(s *listed) int {
	return cmp.Or(cmp.Compare(r.pass, s.pass), cmp.Compare(r.segment, s.segment), cmp.Compare(r.start, s.start))
}

// overlaps says whether r, which is listed before s, reaches into s.
func (r *listed) overlaps(s *listed) bool {
	return r.pass == s.pass && r.segment == s.segment && r.end > s.start
}

// key is where r is stored, under the letter of its list.
func (r *listed) key(letter byte, p *partition) func([]byte) []byte {
	pass, segment, start := r.pass, r.segment, r.start
	return func(b []byte) []byte { return appendRangeKey(b, letter, p.ds.id, p.no, pass, segment, start) }
}

// onLine is where r lies on the line of its pass.
func (ps *pass) onLine(r *listed) (start, end int64, ok bool) {
	start, ok1 := ps.OnLine(line.Place{Segment: r.segment, Offset: r.start})
	end, ok2 := ps.OnLine(line.Place{Segment: r.segment, Offset: r.end})
	return start, end, ok1 && ok2 && start < end
}

// listing returns [start, end) of a pass, which lies in one segment, as it is listed.
func (ps *pass) listing(start, end int64) listed {
	from, to := ps.StartPlace(start), ps.EndPlace(end)
	return listed{ps.n, from.Segment, from.Offset, to.Offset, ps.Units(start, end)}
}

// ofPass is the part of a list that belongs to one pass.
func ofPass[T any, P inList[T]](all []T, n uint32) []T {
	i := sort.Search(len(all), func(i int) bool { return P(&all[i]).place().pass >= n })
	j := sort.Search(len(all), func(i int) bool { return P(&all[i]).place().pass > n })
	return all[i:j]
}

// placeIn is where r belongs in a list.
func placeIn[T any, P inList[T]](all []T, r *listed) int {
	return sort.Search(len(all), func(i int) bool { return P(&all[i]).place().compare(r) >= 0 })
}

// eachInSource calls do with the pieces of r in the source's own coordinates.
func (p *partition) eachInSource(r *listed, do func(segment, start, end int64)) {
	if !p.ds.opt.Shuffle {
		do(r.segment, r.start, r.end)
		return
	}
	p.inOrder(r.pass).EachPiece(r.start, r.end, func(_ int64, s *line.Segment, start, end int64) { do(s.ID, start, end) })
}

// inOrder is a pass of a shuffled partition with its order. The order of a folded pass is
// computed again.
func (p *partition) inOrder(n uint32) *pass {
	if n >= p.folded && n < p.begun() {
		return p.passes[n-p.folded]
	}
	return &pass{p: p, n: n, Line: line.Of(&p.Table, n)}
}

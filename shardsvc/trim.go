package shardsvc

import (
	"slices"

	"github.com/headrace/headrace/shardsvc/line"
)

// trim does what a Trim asks, for the segments of p that end at or before low on the line.
// named are the segments that kept cuts name.
func (lg *ledger) trim(p *partition, e *Trim, low int64, named map[int64]bool) {
	for _, e := range p.excluded {
		named[e.segment] = true
	}
	for _, x := range p.dropped {
		named[x.segment] = true
	}
	kept := make([]line.Segment, 0, len(p.Segs))
	var run []line.Segment
	fold := func() {
		if len(run) > 0 {
			kept = append(kept, lg.foldSegments(p, run))
			run = run[:0]
		}
	}
	last := len(p.Segs) - 1 // stays: its end is the head
	for i := range p.Segs {
		g := &p.Segs[i]
		switch {
		case i == last || !g.Sealed || g.ID >= e.Before || g.LineEnd() > low:
			fold()
			p.Segs = append(kept, p.Segs[i:]...)
			return
		case needed(e.Needed, g.ID):
			fold()
			kept = append(kept, *g)
		case named[g.ID] || p.tried(g):
			fold()
			if len(g.Locator) > 0 {
				g.Locator = nil
				lg.putSegment(p, g)
			}
			kept = append(kept, *g)
		default:
			run = append(run, *g)
		}
	}
}

func needed(all []int64, id int64) bool {
	_, is := slices.BinarySearch(all, id)
	return is
}

// tried says whether a try names part of a segment.
func (p *partition) tried(g *line.Segment) bool {
	return slices.ContainsFunc(p.passes, func(ps *pass) bool {
		i, j := ps.tries.Overlap(g.Base, g.LineEnd())
		return i < j
	})
}

// foldSegments makes one segment of a run, in the store too.
func (lg *ledger) foldSegments(p *partition, run []line.Segment) line.Segment {
	g := run[len(run)-1]
	if len(run) == 1 && len(g.Locator) == 0 {
		return g // it was trimmed before
	}
	g.Base, g.Locator = run[0].Base, nil
	g.Start = g.End - (run[len(run)-1].LineEnd() - g.Base)
	if len(run) > 1 {
		from, to := run[0].ID, g.ID
		lg.fx.put(DeleteRange,
			func(b []byte) []byte { return be.AppendUint64(appendNumbers(b, keySegment, p.ds.id, p.no), flip(from)) },
			func(b []byte) []byte { return be.AppendUint64(appendNumbers(b, keySegment, p.ds.id, p.no), flip(to)) })
	}
	lg.putSegment(p, &g)
	return g
}

func trimmed(g line.Segment) bool { return g.Sealed && len(g.Locator) == 0 }

// trimmedAt returns the index of the trimmed segment into which segment id was folded, or
// -1.
func (p *partition) trimmedAt(id int64) int {
	i, there := slices.BinarySearchFunc(p.Segs, id, func(g line.Segment, id int64) int { return int(min(max(g.ID-id, -1), 1)) })
	if there || i == len(p.Segs) || !p.Segs[i].Sealed || len(p.Segs[i].Locator) > 0 {
		return -1
	}
	return i
}

// trimmedAway finds the trimmed segment into which a segment was folded. If all of it is
// settled, trimmedAway returns where it ends on the line, otherwise -1.
func (ps *pass) trimmedAway(segment int64) int64 {
	i := ps.p.trimmedAt(segment)
	if i < 0 || ps.Order != nil || ps.done.Prefix(ps.p.Segs[i].Base) < ps.p.Segs[i].LineEnd() {
		return -1
	}
	return ps.p.Segs[i].LineEnd()
}

// split takes a segment out of the trimmed one that it was folded into. Its Base is where it
// begins on the line, as a cut lists it. It says whether there was one.
func (p *partition) split(s *line.Segment) bool {
	i := p.trimmedAt(s.ID)
	if i < 0 || p.Segs[i].Base != s.Base || s.LineEnd() >= p.Segs[i].LineEnd() || s.End <= s.Start || !s.Sealed {
		return false
	}
	p.Segs[i].Start += s.End - s.Start
	p.Segs[i].Base = s.LineEnd()
	p.Segs = slices.Insert(p.Segs, i, *s)
	return true
}

// takeSplit takes over a table in which segments are listed one by one again, because a
// cut that was adopted names them.
func (lg *ledger) takeSplit(p, with *partition) {
	segs := make([]line.Segment, 0, len(with.Segs))
	for _, s := range with.Segs {
		if s.ID > p.LastSeg {
			break
		}
		segs = append(segs, s)
	}
	old := p.Segs
	p.Segs = segs
	for i := range segs {
		at, there := slices.BinarySearchFunc(old, segs[i].ID, func(g line.Segment, id int64) int { return int(min(max(g.ID-id, -1), 1)) })
		if !there || old[at].Start != segs[i].Start {
			lg.putSegment(p, &segs[i])
		}
	}
}

package sim

import (
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/sources"
)

// In half of the seeds with pushed input, the master deletes chunks below the retain mark. Then it has their
// segments trimmed: a run of them becomes one segment that begins at a negative offset. Anything may
// happen between the two. Judged here: only deleted chunks are trimmed, no segment changes its number, and
// every position that the core names still means the same records.

// clean trims segments whose chunks were deleted before. It deletes chunks that are not needed any more, once
// that is durable.
func (m *master) clean() {
	w := m.w
	if len(w.pushes) == 0 || w.story.Seed%2 == 0 || !m.disk.mine(m) {
		return
	}
	for i := range w.plan.datasets {
		id := shardsvc.DatasetID(i + 1)
		needed := map[shardsvc.PartitionNo]cut.Place{}
		for _, n := range m.core.Needed(id) {
			needed[n.Partition] = cut.Place{Segment: n.Segment, Offset: n.Offset}
		}
		for _, info := range m.core.Partitions(id) {
			from, needs := needed[info.Number]
			if !needs {
				from = cut.Place{Segment: lives}
			}
			m.cleanPartition(info.Number, w.input.part(info.Identity), from)
		}
	}
}

// cleanPartition keeps what begins at `from` or later.
func (m *master) cleanPartition(no shardsvc.PartitionNo, p *part, from cut.Place) {
	w := m.w
	var needless []*segment
	gone, trims := int64(0), false // chunks are deleted up to gone; some may not be trimmed yet
	for _, g := range m.core.Segments(no, -1, 0) {
		s := p.segment(g.ID)
		if before(from, cut.Place{Segment: g.ID, Offset: g.End}) {
			break
		}
		if s.low == s.end && len(needless) == 0 {
			gone, trims = g.ID+1, trims || len(g.Locator) > 0
		} else {
			needless = append(needless, s)
		}
	}
	if trims && w.oneIn(2) {
		w.tracef(m.name, "trims %s before segment %d", p.identity, gone)
		m.step(&shardsvc.Trim{Partition: no, Before: gone})
	}
	if len(needless) > 0 && w.oneIn(3) {
		m.cur.events++
		m.cur.calls = append(m.cur.calls, func() {
			for _, s := range needless {
				w.deleteBelow(p, s, s.end)
			}
		})
	}
}

// unfold gives the place of an offset in the pushed segments. A trimmed segment begins before 0: there are
// the records of the segments that were folded into it.
func (p *part) unfold(segment, offset int64) cut.Place {
	for offset < 0 && place(segment) > 0 {
		segment--
		offset += p.segment(segment).end
	}
	return cut.Place{Segment: segment, Offset: offset}
}

// unfolded gives the pieces of a range of a segment, in segments as they were pushed.
func (p *part) unfolded(segment, start, end int64) (pieces []sources.Range) {
	for at := p.unfold(segment, start); ; at = (cut.Place{Segment: at.Segment + 1}) {
		if at.Segment == segment {
			return append(pieces, sources.Range{Segment: segment, Start: at.Offset, End: end})
		}
		pieces = append(pieces, sources.Range{Segment: at.Segment, Start: at.Offset, End: p.segment(at.Segment).end})
	}
}

package shardsvc

import "github.com/headrace/headrace/shardsvc/line"

// tooOld is the kind of exclusions of records that are older than the dataset wants.
const tooOld = "too_old"

// cutoff is the place of an Aged.
type cutoff struct {
	line.Place
	reason string
	when   int64
}

// aged sets a new cutoff. It may lie before the last one: the age may have been raised.
func (lg *ledger) aged(e *Aged) {
	p := lg.partition(e.Partition)
	if p == nil {
		lg.rejected("aged: no partition %d", e.Partition)
		return
	}
	if !p.dropsOld() {
		return // the spec has changed meanwhile
	}
	lg.growTo(p, line.Place{Segment: e.Segment, Offset: e.Offset}) // records lie before it
	p.young = &cutoff{line.Place{Segment: e.Segment, Offset: e.Offset}, e.Reason, e.When}
	if !lg.recovering { // while it recovers, an agent may still assert a lease of them
		for _, ps := range p.passes {
			lg.dropOld(ps)
		}
	}
	lg.needSegments(p)
	lg.changed(p)
	lg.kick(p.ds) // a strict partition's holder may wait for it
}

// dropsOld says whether records of p may be too old. Records of a backfill never are: a
// history is old.
func (p *partition) dropsOld() bool { return p.ds.opt.DropOld && p.in == fromSource }

// dated says whether p's records may be granted: it is known which of them are too old.
func (p *partition) dated() bool { return !p.dropsOld() || p.young != nil }

// dropOld excludes the records of a pass that are too old, unless they are settled or
// leased. Example: [0, 100) is settled, [100, 200) leased, and the cutoff is 500: [200,
// 500) is excluded. If the lease comes back at 150, [150, 200) is excluded before it could
// be granted again.
func (lg *ledger) dropOld(ps *pass) {
	p := ps.p
	if !p.dropsOld() || p.young == nil {
		return
	}
	end := p.before(p.young.Place)
	if old := ps.frontier; end > old {
		lg.advance(ps, end)
		lg.addPending(ps, old, end)
		lg.needSegments(p)
	}
	if len(ps.pending) == 0 || ps.pending[0].Start >= end {
		return
	}
	var old []line.Span // each in one segment, as an exclusion is
	ps.EachPiece(ps.pending[0].Start, end, func(at int64, _ *line.Segment, start, stop int64) {
		old = append(old, line.Span{Start: at, End: at + stop - start})
	})
	for _, s := range old {
		lg.exclude(ps, s.Start, s.End, &loss{kind: tooOld, reason: p.young.reason, when: p.young.when})
	}
}

// before is the position of a place on the line of p: records before the place lie below it.
// If the segment of the place is not listed yet, this is the end of the line.
func (p *partition) before(at line.Place) int64 {
	if len(p.Segs) == 0 || at.Segment > p.LastSeg {
		return p.LineEnd()
	}
	for i := range p.Segs {
		if s := &p.Segs[i]; s.ID == at.Segment {
			return s.Base + min(max(at.Offset-s.Start, 0), s.End-s.Start)
		} else if s.ID > at.Segment {
			return s.Base // the place lies in a segment that was trimmed
		}
	}
	return p.LineEnd()
}

package shardsvc

import (
	"github.com/headrace/headrace/shardsvc/line"
	"github.com/headrace/headrace/sources"
)

// head moves the end of the last, unsealed segment. A report may arrive late, so a lower
// end counts only if it says that the end has fallen. If the end then lies below records
// that were planned, the source has lost them (diverged), and the dataset stops. Example:
// records up to 500 are planned, and the end falls to 430: [430, 500) is reported.
func (lg *ledger) head(h *Head) {
	p := lg.partition(h.Partition)
	if p == nil {
		return
	}
	i := p.SegByID(h.Segment)
	if i < 0 || i != len(p.Segs)-1 {
		return // heads come late and often: a sealed or forgotten segment has none
	}
	s := &p.Segs[i]
	if h.End == s.End && h.Sealed == s.Sealed || h.End < s.End && !h.Fallen {
		return
	}
	for _, ps := range p.passes {
		planned := min(ps.frontier, p.Total)
		if ps.Order != nil && planned > 0 { // shuffled: planned records may lie anywhere
			planned = s.Base + s.End - s.Start
		}
		if at := h.End - s.Start + s.Base; at < planned && planned > s.Base {
			lg.diverged(ps, s, h.End, planned-s.Base+s.Start)
			return
		}
	}
	if s.Sealed || h.End < s.Start || h.End > line.Max || p.Total+h.End-s.End > line.Max {
		return
	}
	lg.setHead(p, h.End)
	if h.Sealed {
		lg.endLead(p)
		s.Sealed = true
		lg.putSegment(p, s)
	}
	lg.changed(p)
	lg.kick(p.ds) // a strict partition's holder may wait for it
}

func (lg *ledger) diverged(ps *pass, s *line.Segment, head, planned int64) {
	p := ps.p
	lg.report(Report{Kind: ReportDiverged, Dataset: p.ds.id, Partition: p.no, Pass: ps.n, Segment: s.ID, Start: head, End: planned})
	lost := sources.Range{Partition: sources.PartitionID(p.identity), Segment: s.ID, Start: head, End: planned}
	lg.failDataset(p.ds, (&sources.Diverged{Range: lost, Name: p.name, Head: head}).Error(), false)
}

// setHead moves the end of the last segment.
func (lg *ledger) setHead(p *partition, end int64) {
	var idle *holder // had nothing to do until now
	if ps := p.last(); ps != nil {
		if l := ps.lead(); l != nil && !l.w.busy() {
			idle = l.w
		}
	}
	if p.counts1() {
		p.ds.total += end - p.Segs[len(p.Segs)-1].End
	}
	p.SetEnd(end)
	if idle != nil {
		idle.since = lg.now
		lg.watchStall(idle)
	}
}

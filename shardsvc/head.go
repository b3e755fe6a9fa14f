package shardsvc

import "github.com/headrace/headrace/sources"

// head moves the end of the last, unsealed segment. Who tells it may be late: a
// lower one counts only where it is said to have fallen. Then an end below what
// was planned inside the head known before is the event diverged.
func (c *Core) head(h *Head) {
	p := c.partition(h.Partition)
	if p == nil {
		return
	}
	i := p.segByID(h.Segment)
	if i < 0 || i != len(p.segs)-1 {
		return // heads come late and often: a sealed or forgotten segment has none
	}
	s := &p.segs[i]
	if h.End == s.end && h.Sealed == s.sealed || h.End < s.end && !h.Fallen {
		return
	}
	for _, ps := range p.passes {
		planned := min(ps.frontier, p.total)
		if at := h.End - s.start + s.base; ps.order == nil && at < planned && planned > s.base {
			c.diverged(ps, s, h.End, planned-s.base+s.start)
			return
		}
	}
	if s.sealed || h.End < s.start || h.End > maxLine || p.total+h.End-s.end > maxLine {
		return
	}
	if p.ds.opt.Shuffle {
		b := p.ds.opt.Block
		p.blocks += (h.End-s.start+b-1)/b - (s.end-s.start+b-1)/b
	}
	c.setHead(p, h.End)
	if h.Sealed {
		c.endLead(p)
		s.sealed = true
		c.putSegment(p, s)
	}
	c.changed(p)
	c.kick(p.ds) // a strict partition's holder may wait for it
}

func (c *Core) diverged(ps *pass, s *segment, head, planned int64) {
	p := ps.p
	c.report(Report{Kind: ReportDiverged, Dataset: p.ds.id, Partition: p.no, Pass: ps.n, Segment: s.id, Start: head, End: planned})
	lost := sources.Range{Partition: sources.PartitionID(p.identity), Segment: s.id, Start: head, End: planned}
	c.failDataset(p.ds, (&sources.Diverged{Range: lost, Name: p.name, Head: head}).Error())
}

// setHead moves the end of the last segment.
func (c *Core) setHead(p *partition, end int64) {
	s := &p.segs[len(p.segs)-1]
	var idle *worker // has nothing to do until now
	if ps := p.last(); ps != nil {
		if l := ps.lead(); l != nil && !l.w.busy() {
			idle = l.w
		}
	}
	p.total += end - s.end
	if p.counts1() {
		p.ds.total += end - s.end
	}
	s.end = end
	if idle != nil {
		idle.since = c.now
		c.watchStall(idle)
	}
}

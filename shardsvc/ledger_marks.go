package shardsvc

// MarkInfo is a low mark of one (partition, pass): everything before it is in the cuts that
// the mark belongs to.
type MarkInfo struct {
	Partition PartitionNo
	Identity  string
	Pass      uint32
	Segment   int64 // of the source, or 0 where the pass is shuffled
	Offset    int64
	Units     int64 // from there to head
	Shuffled  bool  // Segment and Offset are in order space: unless Units is 0, they mean nothing to a source
}

func (lg *ledger) lowMarks(id DatasetID, low func(*pass) int64) []MarkInfo {
	d := lg.dataset(id)
	if d == nil {
		return nil
	}
	var all []MarkInfo
	for _, p := range d.parts {
		if len(p.Segs) == 0 {
			continue
		}
		end := p.LineEnd()
		ps, at := p.line(0), int64(0)
		for n := range max(p.begun(), 1) {
			ps = p.line(n)
			if at = low(ps); at < end || !p.Complete {
				break
			}
		}
		m := MarkInfo{Partition: p.no, Identity: p.identity, Pass: ps.n, Units: ps.Units(at, end), Shuffled: p.ds.opt.Shuffle}
		place := ps.StartPlace(at)
		m.Segment, m.Offset = place.Segment, place.Offset
		all = append(all, m)
	}
	return all
}

// marks are positions on the line: committed <= bound <= acked <= leased <= planned <=
// head.
type marks struct{ committed, bound, acked, leased, planned, head int64 }

func (ps *pass) marks() marks {
	planned := ps.frontier - ps.ahead()
	m := marks{acked: ps.done.Low, leased: planned, planned: planned, head: ps.p.LineEnd()}
	if len(ps.pending) > 0 {
		m.leased = ps.pending[0].Start
	}
	switch {
	case ps.p.ds.acksBind:
		m.bound = m.acked
	case ps.done != &ps.base:
		m.bound = ps.base.Low
	default:
		m.bound = ps.boundLow
	}
	m.committed = m.bound
	return m
}

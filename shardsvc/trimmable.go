package shardsvc

import "github.com/headrace/headrace/shardsvc/cut"

// trimmable says how far the segments of a partition may be trimmed: to low on the line.
// All before it is settled in every pass, and in the oldest kept cut. named are the
// segments that kept cuts name.
func (ck *checkpoints) trimmable(no PartitionNo) (p *partition, low int64, named map[int64]bool) {
	p = ck.ledger.partition(no)
	if p == nil || p.ds.opt.Shuffle || p.virtual > 0 || p.begun() < uint32(p.ds.opt.Passes) || len(p.Segs) == 0 {
		return nil, 0, nil
	}
	low = p.LineEnd()
	oldest, bound := ck.oldest(), ck.boundLow(p.ds.id)
	for n := range uint32(p.ds.opt.Passes) {
		ps := p.line(n)
		low = min(low, ps.done.Low, bound(ps))
		if oldest != nil {
			low = min(low, oldest.of(p, n).Low)
		}
	}
	named = map[int64]bool{}
	for _, k := range ck.cuts {
		if k.state != CutVoided {
			namedBy(k.decode(), p, named)
		}
	}
	return p, low, named
}

// namedBy adds the segments of p that a cut names.
func namedBy(body *cut.Cut, p *partition, named map[int64]bool) {
	for i := range body.Datasets {
		for j := range body.Datasets[i].Partitions {
			q := &body.Datasets[i].Partitions[j]
			if q.Number != p.no || q.Identity != p.identity {
				continue
			}
			for _, x := range q.Dropped {
				named[x.Piece.Segment] = true
			}
			for n := range q.Passes {
				named[q.Passes[n].Low.Segment] = true
				for _, x := range q.Passes[n].Ranges {
					named[x.Start.Segment], named[x.End.Segment] = true, true
				}
			}
		}
	}
}

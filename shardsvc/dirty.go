package shardsvc

import "github.com/headrace/headrace/shardsvc/line"

// dirty lists what the next Flush encodes. Each thing is in its list once.
type dirty struct {
	datasets []*dataset
	parts    []*partition
	passes   []*pass
	pieces   []*pass // passes whose acks changed
	ranks    []*account
}

func (lg *ledger) dirtyDataset(d *dataset) {
	if !d.dirty {
		d.dirty = true
		lg.dirty.datasets = append(lg.dirty.datasets, d)
	}
}

func (lg *ledger) dirtyPartition(p *partition) {
	if !p.dirty {
		p.dirty = true
		lg.dirty.parts = append(lg.dirty.parts, p)
	}
}

func (lg *ledger) dirtyPass(ps *pass) {
	if !ps.dirty {
		ps.dirty = true
		lg.dirty.passes = append(lg.dirty.passes, ps)
	}
}

func (lg *ledger) dirtyPieces(ps *pass) {
	if !ps.dirtyAcks {
		ps.dirtyAcks = true
		lg.dirty.pieces = append(lg.dirty.pieces, ps)
	}
}

func (lg *ledger) dirtyRank(r *account) {
	if !r.dirty {
		r.dirty = true
		lg.dirty.ranks = append(lg.dirty.ranks, r)
	}
}

func (d *dirty) reset() {
	clear(d.datasets)
	clear(d.parts)
	clear(d.passes)
	clear(d.pieces)
	d.datasets, d.parts, d.passes, d.pieces = d.datasets[:0], d.parts[:0], d.passes[:0], d.pieces[:0]
}

// putSettled encodes a pass. It is written out by hand because it runs once per pass and
// batch: where acks fold, this is all that an ack costs in the store.
func (fx *Effects) putSettled(ps *pass) {
	b := fx.arena
	k := len(b)
	b = appendNumbers(b, keySettled, ps.p.ds.id, ps.p.no, ps.n)
	v := len(b)
	units := ps.kinds
	if ps.done != &ps.base {
		units[line.Acked] = ps.folded // the rest is in `a` records
		_, loose := ps.droppedUnits()
		units[line.Dropped] -= loose // they are in `q` records
	}
	b = appendSettledHead(b, &units, &ps.records, ps.StartPlace(ps.base.Low), len(ps.base.Above))
	for i := range ps.base.Above {
		s := &ps.base.Above[i]
		b = appendSettledRange(b, ps.StartPlace(s.Start), ps.EndPlace(s.End), s.Val)
	}
	fx.arena = b
	fx.Puts = append(fx.Puts, Put{Op: Set, Key: b[k:v:v], Value: b[v:len(b):len(b)]})
}

// flush encodes everything of the ledger that has changed, except for the ranks.
func (lg *ledger) flush(fx *Effects) {
	for _, d := range lg.dirty.datasets {
		if d.dirty = false; d.state == removed {
			continue
		}
		v := datasetValue{d.name, d.reason, d.spec, d.state == paused, d.state == failed, d.partsAll, d.opt}
		fx.put(Set, func(b []byte) []byte { return appendNumbers(b, keyDataset, d.id) }, v.append)
	}
	for _, p := range lg.dirty.parts {
		if p.dirty = false; p.ds.state == removed || p.gone {
			continue
		}
		v := partitionValue{p.identity, p.name, p.estimated, p.Complete, p.folded, p.units, p.records}
		fx.put(Set, func(b []byte) []byte { return appendNumbers(b, keyPartition, p.ds.id, p.no) }, v.append)
	}
	for _, ps := range lg.dirty.passes {
		if ps.dirty = false; !ps.gone {
			fx.putSettled(ps)
		}
	}
	for _, ps := range lg.dirty.pieces {
		if !ps.p.gone && ps.p.ds.state != removed { // else all its keys are deleted
			fx.putPieces(ps)
		}
	}
	lg.dirty.reset()
}

// takeDirtyRanks gives the ranks that have changed, and forgets them. The result is valid
// until the next rank changes.
func (lg *ledger) takeDirtyRanks() []*account {
	all := lg.dirty.ranks
	for _, a := range all {
		a.dirty = false
	}
	lg.dirty.ranks = all[:0]
	return all
}

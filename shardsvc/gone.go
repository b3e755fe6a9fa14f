package shardsvc

import (
	"math"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/gone"
	"github.com/headrace/headrace/shardsvc/line"
)

// Deletion says what a source has deleted, and Gone which input is gone because of that.
type (
	Deletion = gone.Deletion
	Gone     = gone.Input
)

// gone lists the input that going back to a cut needs and the source has deleted. The cut
// lies at want; if this master does not keep it, fit says where it lies.
func (lg *ledger) gone(shares []share, want *lines, fit []fitted, deleted []Deletion) Gone {
	if len(deleted) == 0 {
		return Gone{}
	}
	var all []gone.Partition
	there := map[*partition]bool{nil: true} // partitions of the job that fit covers
	for i := range fit {
		f := &fit[i]
		there[f.p], there[f.old] = true, true
		now := f.p
		if f.begins != nil { // nobody has read from it
			now = nil
		}
		all = append(all, lg.afterwards(f.with, now, f.sets, shares))
	}
	for _, p := range lg.parts {
		if there[p] {
			continue
		}
		var sets []line.Set
		if want != nil {
			sets = want.parts[p.no]
		}
		all = append(all, lg.afterwards(p, p, sets, shares))
	}
	return gone.Search(all, deleted)
}

// afterwards is a partition as it will be after going back. now is the job's partition of
// today; nil: there is none, or it begins elsewhere. sets holds the part of each pass that is
// in the cut.
func (lg *ledger) afterwards(p, now *partition, sets []line.Set, shares []share) gone.Partition {
	o := &p.ds.opt
	x := gone.Partition{Table: &p.Table, Dataset: p.ds.id, Name: p.ds.name, Label: p.label(), Source: p.source, Virtual: p.virtual > 0, Passes: uint32(o.Passes),
		Begun: max(p.begun(), uint32(len(sets))), Unread: !lg.perRank && p.counts1(), Shuffle: o.Shuffle, GoesOn: o.GoOnAfterLoss}
	if now != nil {
		x.Begun = max(x.Begun, now.begun())
	}
	x.Pass = func(n uint32) gone.Pass {
		ps, set := p.line(n), &line.Set{}
		if int(n) < len(sets) {
			set = &sets[n]
		}
		y := gone.Pass{Line: ps.Line, Cut: set, Excluded: line.SetOf(ps.excludedOnLine())}
		if lg.perRank {
			own := lg.ofRanks(shares, now, n)
			y.Own = &own
		}
		return y
	}
	return x
}

// ofRanks is the part of a pass that the ranks have in their models or hold.
func (lg *ledger) ofRanks(shares []share, p *partition, n uint32) (m line.Map) {
	if p == nil {
		return nil
	}
	ps := p.line(n)
	for _, r := range shares {
		set, _ := ps.ofRank(r.account, math.MaxInt64, r.own.of(p, n), cut.Tally{})
		m.With(set.Spans(), line.Acked)
		for l := ps.leases; l != nil; l = l.pnext {
			if l.w.account == r.account {
				m.Set(l.prefix, l.end, line.Acked)
			}
		}
	}
	return m
}

package shardsvc

import (
	"fmt"

	"github.com/headrace/headrace/shardsvc/cut"
)

// bit_exact: the blocks of the input are dealt out to a fixed number of virtual
// ranks, block i of the order to virtual rank i mod V. Each of them is a partition
// in strict order, which only those get leases of who ask for that virtual rank.
// Nothing is stolen, and leases are of one size, so what a virtual rank reads, and
// in which order, is a function of the input, the seed and V: whoever reads it.

// named gives p its identity, and with it its virtual rank.
func (p *partition) named(identity string) error {
	p.identity, p.source, p.virtual = identity, identity, 0
	n := p.ds.opt.VirtualRanks
	if n == 0 {
		return nil
	}
	source, v := cut.SourceIdentity(identity, n)
	if v < 0 {
		return fmt.Errorf("partition %q is of none of the %d virtual ranks of a bit_exact dataset", identity, n)
	}
	for _, q := range p.ds.parts {
		if q != p && q.source != source {
			return fmt.Errorf("partition %q beside %q: a bit_exact dataset has one partition of its source", identity, q.identity)
		}
	}
	p.source, p.virtual = source, uint32(v)+1
	p.First, p.Every = int64(v), int64(n)
	return nil
}

// counts1: the listing of p counts in the dataset's total. All virtual ranks list
// the same segments, and so one of them does.
func (p *partition) counts1() bool { return p.virtual <= 1 }

// listed counts the units of pass n.
func (p *partition) listed(n uint32) int64 {
	if p.virtual == 0 {
		return p.Total
	}
	return p.line(n).Units(0, p.LineEnd())
}

// exactPasses bounds what is counted again at a start: what a virtual rank has of
// a shuffled pass depends on where that has the short blocks.
const exactPasses = 1024

// listedFolded counts the units of the passes that were folded away, or, of too
// many, not exactly, what they have at most.
func (p *partition) listedFolded() (all int64, exact bool) {
	if p.virtual == 0 || p.folded > exactPasses {
		return p.Total * int64(p.folded), p.virtual == 0
	}
	for n := range p.folded {
		all += p.listed(n)
	}
	return all, true
}

// listedSoFar counts the units of all passes begun, at least of one.
func (p *partition) listedSoFar() (all int64) {
	if p.virtual == 0 {
		return p.Total * int64(max(p.begun(), 1))
	}
	if p.begun() == 0 {
		return p.listed(0)
	}
	for _, n := range p.units {
		all += n
	}
	for _, ps := range p.passes {
		all += ps.Units(0, p.LineEnd())
	}
	return all
}

// virtualRank is the partition of virtual rank v, from 1; nil: it is not known yet,
// or there is none.
func (d *dataset) virtualRank(v uint32) *partition {
	for _, p := range d.parts {
		if v > 0 && p.virtual == v {
			return p
		}
	}
	return nil
}

// carveVirtual leases the next piece of the virtual rank that r reads.
func (lg *ledger) carveVirtual(d *dataset, r *request) *lease {
	p := d.virtualRank(r.virtual)
	if p == nil {
		return nil
	}
	l := lg.carveFrom(p, r.w, lg.size(d, r.w))
	lg.changed(p)
	return l
}

package shardsvc

import (
	"fmt"
	"math"

	"github.com/headrace/headrace/shardsvc/cut"
)

// bit_exact deals the blocks of the input out to a fixed number V of virtual ranks: block
// i of the order belongs to virtual rank i mod V. Each virtual rank is a partition in
// strict order. Only streams that ask for a virtual rank get its leases. Nothing is
// stolen, and all leases have one size. So the rows of a virtual rank, and their order,
// depend only on the input, the seed and V, and not on the process that reads them.
// Example: with V = 4, virtual rank 1 reads blocks 1, 5, 9 and so on.

// named gives p its identity, and with it its virtual rank.
func (p *partition) named(identity string) error {
	p.identity, p.source, p.virtual = identity, identity, 0
	p.in = p.ds.opt.inputOf(identity)
	n := p.ds.opt.VirtualRanks
	if n == 0 {
		return nil
	}
	source, v := cut.SourceIdentity(identity, n)
	if v < 0 {
		return fmt.Errorf("partition %q belongs to none of the %d virtual ranks of a bit_exact dataset", identity, n)
	}
	for _, q := range p.ds.parts {
		if q != p && q.source != source {
			return fmt.Errorf("partition %q beside %q: a bit_exact dataset reads only one partition of its source", identity, q.identity)
		}
	}
	p.source, p.virtual = source, uint32(v)+1
	p.First, p.Every = int64(v), int64(n)
	return nil
}

// counts1 says whether the listing of p counts in the dataset's total. All virtual ranks
// list the same segments, so only the first one counts.
func (p *partition) counts1() bool { return p.virtual <= 1 }

// listed counts the units of pass n.
func (p *partition) listed(n uint32) int64 {
	if p.virtual == 0 {
		return p.Total
	}
	return p.line(n).Units(0, p.LineEnd())
}

// exactPasses bounds how many folded passes are counted again at a start. The units of a
// virtual rank differ between shuffled passes, because a pass may give it short blocks.
const exactPasses = 1024

// listedFolded counts the units of the folded passes. With more than exactPasses of them
// it gives an upper bound, and says that it is not exact.
func (p *partition) listedFolded() (all int64, exact bool) {
	if p.virtual == 0 || p.folded > exactPasses {
		return p.Total * int64(p.folded), p.virtual == 0
	}
	for n := range p.folded {
		all += p.listed(n)
	}
	return all, true
}

// listedSoFar counts the units of all passes that have begun, and of one pass if none has.
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

// virtualRank is the partition of virtual rank v, counted from 1; nil if it is not listed
// yet, or there is none.
func (d *dataset) virtualRank(v uint32) *partition {
	if v > 0 && int(v) <= len(d.parts) && d.parts[v-1].virtual == v {
		return d.parts[v-1] // as they are listed
	}
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
	l := lg.carveFrom(p, r.w, lg.size(d, r.w, fromSource), math.MaxInt64)
	lg.changed(p)
	return l
}

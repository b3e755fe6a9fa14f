package shardsvc

import (
	"fmt"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
)

// maxRows bounds the rows that an ack may claim, so that no sum of acks overflows.
const maxRows = 1 << 40

// tally returns the tally of the units that an ack settles. It is the one that the ack
// carries, if the records were counted and the tally is plausible.
func (k *Ack) tally(l *lease, units int64) cut.Tally {
	t := cut.Tally{Rows: k.Rows, Oldest: k.Oldest, Newest: k.Newest}
	if !k.Told || l.line(k.From) != l.prefix || k.Rows > maxRows || t.Check(0) != nil {
		return cut.Untold(units)
	}
	return t
}

// basis is where the records of ps.base are counted: per pass, or for `private` per
// partition only. The cuts of private ranks say which records of a pass each rank has.
// Their sum is kept per partition, because a rank may take back records of passes that are
// folded.
func (lg *ledger) basis(ps *pass) *cut.Tally {
	if lg.perRank && !ps.p.ds.folds {
		return &ps.p.records
	}
	return &ps.records
}

// tally counts the records that are acked, in all passes.
func (p *partition) tally() cut.Tally {
	t := p.records
	for _, ps := range p.passes {
		t.Add(ps.tally())
	}
	return t
}

func (ps *pass) tally() cut.Tally {
	t := ps.records
	for i := range ps.acks {
		t.Add(ps.acks[i].Tally)
	}
	return t
}

// cameBack counts the records that are no longer settled in a partition. was: its records
// before. units: units that were settled and are not any more. more: units that were not
// settled and are now. The share of bad records is one of those that are acked now.
func (p *partition) cameBack(was cut.Tally, units, more int64) comesAgain {
	now := p.tally()
	p.ds.bad.good += now.Rows - was.Rows
	if more > 0 || now.Untold > was.Untold { // nobody knows the rows of the units that are in only one of the two
		return comesAgain{units, cut.Untold(units)}
	}
	was.Without(now)
	return comesAgain{units, cut.Tally{Rows: was.Rows, Untold: was.Untold}.Within(units)}
}

// tallies counts the records of a cut's passes, by the number of the pass. A pass that the
// cut does not have has none. The records of all finished passes stand with the first of
// them, because finished passes come and go together. Only their untold units are spread,
// because a pass never has more of them than it has acked units.
func (p *partition) tallies(q *cut.Partition, sets []line.Set) []cut.Tally {
	all := make([]cut.Tally, len(sets))
	if q.Done > 0 {
		all[0] = q.DoneCounted()
		left := all[0].Untold
		for n := range q.Done {
			all[n].Untold = min(left, max(p.line(n).UnitsOf(&sets[n])-others(q, n), 0))
			left -= all[n].Untold
		}
	}
	for i := range q.Passes {
		all[q.Passes[i].Pass] = q.Passes[i].Counted()
	}
	return all
}

// others counts the units of a pass that the cut lists as excluded or dropped.
func others(q *cut.Partition, pass uint32) (units int64) {
	for i := range q.Excluded {
		if q.Excluded[i].Pass == pass {
			units += q.Excluded[i].Units
		}
	}
	for i := range q.Dropped {
		if q.Dropped[i].Pass == pass {
			units += q.Dropped[i].Units
		}
	}
	return units
}

// checkRecords checks the records of the folded passes, of each base and of each ack: no
// count of rows is negative, and no more units are untold than are acked.
func (lg *ledger) checkRecords(p *partition) error {
	base := p.units[line.Acked]
	for _, ps := range p.passes {
		units := ps.folded
		if ps.done == &ps.base {
			units = ps.kinds[line.Acked]
		}
		if lg.basis(ps) == &p.records {
			base += units
			units = 0
		}
		if err := ps.records.Check(units); err != nil {
			return fmt.Errorf("pass %d: %w", ps.n, err)
		}
		for i := range ps.acks {
			k := &ps.acks[i]
			if err := k.Check(ps.Units(k.start, k.end)); err != nil {
				return fmt.Errorf("pass %d, acked by rank %d at step %d: %w", ps.n, k.rank, k.step, err)
			}
		}
	}
	if err := p.records.Check(base); err != nil {
		return fmt.Errorf("all passes that are done: %w", err)
	}
	return nil
}

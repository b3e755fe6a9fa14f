package shardsvc

import (
	"fmt"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
)

// maxRows bounds what an ack may say, so that sums of all that can ever be acked
// do not overflow.
const maxRows = 1 << 40

// of is the tally of units that an ack settles: what it says, if it is told and can
// be true.
func (k *Ack) tally(l *lease, units int64) cut.Tally {
	t := cut.Tally{Rows: k.Rows, Oldest: k.Oldest, Newest: k.Newest}
	if !k.Told || l.line(k.From) != l.prefix || k.Rows > maxRows || t.Check(0) != nil {
		return cut.Untold(units)
	}
	return t
}

// basis is where the records of ps.base are counted. In `private` the ranks' share
// of a pass is known from their cuts; of all together only the partition's sum is
// kept, as what a rank takes back may lie in passes that are folded.
func (lg *ledger) basis(ps *pass) *cut.Tally {
	if lg.perRank && !ps.p.ds.folds {
		return &ps.p.records
	}
	return &ps.records
}

// tally is what is settled of all passes.
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

// comesAgain counts what was acked and is pending again.
type comesAgain struct {
	units     int64
	cut.Tally // its times are not kept
}

func (a *comesAgain) add(b comesAgain) {
	a.units += b.units
	a.Tally.Add(b.Tally)
}

// cameBack is what left a partition, whose records were `was`: units that were
// settled, while `more` that were not became so.
func (p *partition) cameBack(was cut.Tally, units, more int64) comesAgain {
	now := p.tally()
	if more > 0 || now.Untold > was.Untold { // nobody counts what is in one and not in the other
		return comesAgain{units, cut.Untold(units)}
	}
	was.Without(now)
	return comesAgain{units, cut.Tally{Rows: was.Rows, Untold: was.Untold}.Within(units)}
}

// reply is a for a Reply; nil: nothing comes again.
func (a comesAgain) reply() *cut.Tally {
	if a.units == 0 {
		return nil
	}
	return &a.Tally
}

// tallies of a cut's passes, by number; one that is not there has none. That of all
// passes that are done stands with the first of them: they come and go together, but
// for what is untold, which is never more than a pass has.
func (p *partition) tallies(q *cut.Partition, sets []line.Set) []cut.Tally {
	all := make([]cut.Tally, len(sets))
	if q.Done > 0 {
		all[0] = q.DoneCounted()
		left := all[0].Untold
		for n := range q.Done {
			all[n].Untold = min(left, p.line(n).UnitsOf(&sets[n]))
			left -= all[n].Untold
		}
	}
	for i := range q.Passes {
		all[q.Passes[i].Pass] = q.Passes[i].Counted()
	}
	return all
}

// checkRecords: none are fewer than no rows, and no more units are untold than are
// acked, of the passes that are folded, of each base and of each ack.
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

package shardsvc

import (
	"errors"
	"fmt"

	"github.com/headrace/headrace/shardsvc/line"
)

// Tally counts the records of settled units. Units say how much of the input is
// settled; how many records that were only its reader knows, and says with acks.
type Tally struct {
	Rows   int64 // records that became rows; with Untold: at least so many
	Untold int64 // units of whose records nobody said how many they are
	// Event times of the oldest and the newest record, ms since 1970; 0 and 0: none
	// has one.
	Oldest, Newest int64
}

// maxRows bounds what an ack may say, so that sums of all that can ever be acked
// do not overflow.
const maxRows = 1 << 40

func untold(units int64) Tally { return Tally{Untold: units} }

// of is the tally of units that an ack settles: what it says, if it is told and can
// be true.
func (k *Ack) tally(l *lease, units int64) Tally {
	t := Tally{Rows: k.Rows, Oldest: k.Oldest, Newest: k.Newest}
	if !k.Told || l.line(k.From) != l.prefix || k.Rows > maxRows || t.check(0) != nil {
		return untold(units)
	}
	return t
}

func (t *Tally) add(o Tally) {
	t.Rows = min(t.Rows+o.Rows, line.Max)
	t.Untold += o.Untold
	switch {
	case o.Oldest == 0 && o.Newest == 0:
	case t.Oldest == 0 && t.Newest == 0:
		t.Oldest, t.Newest = o.Oldest, o.Newest
	default:
		t.Oldest, t.Newest = min(t.Oldest, o.Oldest), max(t.Newest, o.Newest)
	}
}

// without takes out records that are in t. How old the others are stays as it was:
// a bound.
func (t *Tally) without(o Tally) {
	t.Rows = max(t.Rows-o.Rows, 0)
	t.Untold = max(t.Untold-o.Untold, 0)
	if t.Rows == 0 {
		t.Oldest, t.Newest = 0, 0
	}
}

// within: of so many units no more can be untold.
func (t Tally) within(units int64) Tally {
	t.Untold = min(t.Untold, units)
	return t
}

// check says what can not be of the records of so many units.
func (t *Tally) check(units int64) error {
	switch {
	case t.Rows < 0 || t.Rows > line.Max:
		return fmt.Errorf("%d rows", t.Rows)
	case t.Untold < 0 || t.Untold > units:
		return fmt.Errorf("%d untold units of %d", t.Untold, units)
	case t.Oldest > t.Newest || (t.Oldest == 0) != (t.Newest == 0):
		return fmt.Errorf("the oldest record is of %d, the newest of %d", t.Oldest, t.Newest)
	case t.Rows == 0 && t.Newest != 0:
		return errors.New("there are times, and no rows")
	}
	return nil
}

// basis is where the records of ps.base are counted. In `private` the ranks' share
// of a pass is known from their cuts; of all together only the partition's sum is
// kept, as what a rank takes back may lie in passes that are folded.
func (c *Core) basis(ps *pass) *Tally {
	if c.cfg.Model == Private && !ps.p.ds.folds {
		return &ps.p.records
	}
	return &ps.records
}

// tally is what is settled of all passes.
func (p *partition) tally() Tally {
	t := p.records
	for _, ps := range p.passes {
		t.add(ps.tally())
	}
	return t
}

func (ps *pass) tally() Tally {
	t := ps.records
	for i := range ps.acks {
		t.add(ps.acks[i].Tally)
	}
	return t
}

// comesAgain counts what was acked and is pending again.
type comesAgain struct {
	units int64
	Tally // its times are not kept
}

func (a *comesAgain) add(b comesAgain) {
	a.units += b.units
	a.Tally.add(b.Tally)
}

// cameBack is what left a partition, whose records were `was`: units that were
// settled, while `more` that were not became so.
func (p *partition) cameBack(was Tally, units, more int64) comesAgain {
	now := p.tally()
	if more > 0 || now.Untold > was.Untold { // nobody counts what is in one and not in the other
		return comesAgain{units, untold(units)}
	}
	was.without(now)
	return comesAgain{units, Tally{Rows: was.Rows, Untold: was.Untold}.within(units)}
}

// reply is a for a Reply; nil: nothing comes again.
func (a comesAgain) reply() *Tally {
	if a.units == 0 {
		return nil
	}
	return &a.Tally
}

// tallies of a cut's passes, by number; one that is not there has none. That of all
// passes that are done stands with the first of them: they come and go together, but
// for what is untold, which is never more than a pass has.
func (p *partition) tallies(q *CutPartition, sets []line.Set) []Tally {
	all := make([]Tally, len(sets))
	if q.PassesDone > 0 {
		all[0] = q.Records
		left := q.Records.Untold
		for n := range q.PassesDone {
			all[n].Untold = min(left, p.line(n).UnitsOf(&sets[n]))
			left -= all[n].Untold
		}
	}
	for i := range q.Passes {
		all[q.Passes[i].Pass] = q.Passes[i].Records
	}
	return all
}

// Records counts all that is in the cut.
func (c *Cut) Records() (t Tally) {
	for i := range c.Datasets {
		for j := range c.Datasets[i].Partitions {
			p := &c.Datasets[i].Partitions[j]
			t.add(p.Records)
			for k := range p.Passes {
				t.add(p.Passes[k].Records)
			}
		}
	}
	return t
}

func (t *Tally) append(b []byte) []byte {
	b = appendInt(appendInt(b, t.Rows), t.Untold)
	return appendInt(appendInt(b, t.Oldest), t.Newest-t.Oldest)
}

// tally reads what append wrote, of so many units.
func (d *decoder) tally(units int64) Tally {
	t := Tally{Rows: d.int(), Untold: d.int(), Oldest: d.int()}
	t.Newest = t.Oldest + d.int()
	if d.err == nil {
		if err := t.check(units); err != nil {
			d.fail(fmt.Errorf("its records can not be: %w", err))
		}
	}
	return t
}

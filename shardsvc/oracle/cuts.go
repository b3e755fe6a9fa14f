package oracle

import "fmt"

// Set is a set of units, for example those of a cut.
type Set map[unitKey]bool

// Group is the rank of a cut that belongs to all ranks together.
const Group = int64(-1)

func (u *unit) of(rank int64) bool { return rank == Group || int64(u.rank) == rank }

// Members returns the units that are in the model of a rank, or of Group, at a step.
func (b *Book) Members(rank, step int64) Set {
	set := Set{}
	for k, u := range b.units {
		if u.settled && !u.excluded && u.of(rank) && u.step <= step {
			set[k] = true
		}
	}
	return set
}

// Add puts a range into the set.
func (s Set) Add(r Range) {
	for o := r.Start; o < r.End; o++ {
		s[unitKey{r.Partition, r.Pass, r.Segment, o}] = true
	}
}

// WithoutExcluded returns s without the units that are excluded by now.
func (b *Book) WithoutExcluded(s Set) Set {
	left := Set{}
	for k := range s {
		if u := b.units[k]; u == nil || !u.excluded {
			left[k] = true
		}
	}
	return left
}

// Same returns an error that names a unit which is in only one of the two sets.
func (s Set) Same(t Set) error {
	for k := range s {
		if !t[k] {
			return fmt.Errorf("%v of %d records is not among the %d others", k, len(s), len(t))
		}
	}
	for k := range t {
		if !s[k] {
			return fmt.Errorf("%v of %d records is not among the %d others", k, len(t), len(s))
		}
	}
	return nil
}

// Bind notes that s is in a bound cut. Its units lose their step.
func (b *Book) Bind(s Set) {
	for k := range s {
		if u := b.units[k]; u != nil && u.settled {
			u.step = -1
		}
	}
}

// Restore makes s the content of the model of a rank, or of Group. untold is the part of
// s whose records nobody counted. again is what the model had and loses; more counts the
// units that it did not have and gets.
func (b *Book) Restore(rank int64, s, untold Set) (again Back, more int64, err error) {
	for k, u := range b.units {
		if u.settled && !u.excluded && u.of(rank) && !s[k] {
			again.take(k, u)
		}
	}
	for k := range s {
		u := b.units[k]
		if u == nil {
			u = &unit{}
			b.units[k] = u
		}
		switch {
		case u.excluded:
			return again, 0, fmt.Errorf("%v was excluded, and is in a cut", k)
		case u.settled && !u.of(rank):
			return again, 0, fmt.Errorf("%v is in the model of rank %d, and in a cut of rank %d", k, u.rank, rank)
		case !u.settled:
			u.settled = true
			u.times++
			more++
			if rank != Group {
				u.rank = uint32(rank)
			}
		}
		u.step, u.untold = -1, untold[k]
	}
	return again, more, nil
}

// Back counts what was settled and is not any more.
type Back struct {
	Units int64
	Count
}

func (a *Back) take(k unitKey, u *unit) {
	u.settled = false
	u.times--
	if a.Units++; u.untold {
		a.Untold++
	} else if row, _ := Record(k.partition, k.segment, k.offset); row {
		a.Rows++
	}
}

// TakeBack unsettles the acks of a rank above a step.
func (b *Book) TakeBack(rank uint32, above int64) (again Back) {
	for k, u := range b.units {
		if u.settled && !u.excluded && u.rank == rank && u.step > above {
			again.take(k, u)
		}
	}
	return again
}

// Forget unsettles every unit. It keeps only what the source has lost.
func (b *Book) Forget() {
	for _, u := range b.units {
		*u = unit{gone: u.gone}
	}
}

// Open returns the units of r that are not settled.
func (b *Book) Open(r Range) Set {
	set := Set{}
	set.Add(r)
	for k := range set {
		if u := b.units[k]; u != nil && u.settled {
			delete(set, k)
		}
	}
	return set
}

// And returns the units that are in both sets.
func (s Set) And(t Set) Set {
	both := Set{}
	for k := range s {
		if t[k] {
			both[k] = true
		}
	}
	return both
}

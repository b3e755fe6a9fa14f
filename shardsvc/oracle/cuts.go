package oracle

import "fmt"

// Set is the records of a cut, one by one.
type Set map[unitKey]bool

// Group is the rank of a cut that is not one rank's.
const Group = int64(-1)

func (u *unit) of(rank int64) bool { return rank == Group || int64(u.rank) == rank }

// Members is what is in the model at a step: of a rank, or of all.
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

// WithoutExcluded is the set without what is excluded by now.
func (b *Book) WithoutExcluded(s Set) Set {
	left := Set{}
	for k := range s {
		if u := b.units[k]; u == nil || !u.excluded {
			left[k] = true
		}
	}
	return left
}

// Same says which record is in one of two sets only.
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

// Bind: what is in the set needs no step any more.
func (b *Book) Bind(s Set) {
	for k := range s {
		if u := b.units[k]; u != nil && u.settled {
			u.step = -1
		}
	}
}

// Restore makes the set what is in the model of a rank, or of all, some units of it
// untold. It returns what was in it and is not, and how many units the reverse.
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

// Back is what was settled and is not any more.
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

// Forget empties the book but for what the source has.
func (b *Book) Forget() {
	for _, u := range b.units {
		*u = unit{gone: u.gone}
	}
}

// Open is what of r is not settled.
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

// And is what is in both.
func (s Set) And(t Set) Set {
	both := Set{}
	for k := range s {
		if t[k] {
			both[k] = true
		}
	}
	return both
}

// Package oracle is the simple model that tests compare the core with. It keeps one entry
// per unit of the input and shares no code with the core. A test tells it everything that
// was promised (granted, acked, excluded), and it returns an error when two promises
// contradict each other: a unit that is acked twice, or granted after it was acked. It
// uses the source's own coordinates, so that an error in order space shows too.
//
//	oracle.go   Book: units, and what may happen to them
//	cuts.go     sets of units: what is in a cut, binding and restoring
//	records.go  the made-up record at each unit, and counts of records
package oracle

import "fmt"

// Range is [Start, End) of one segment of a partition, in one pass.
type Range struct {
	Partition, Pass uint32
	Segment         int64
	Start, End      int64
}

func (r Range) String() string {
	return fmt.Sprintf("partition %d pass %d segment %d [%d, %d)", r.Partition, r.Pass, r.Segment, r.Start, r.End)
}

type unitKey struct {
	partition, pass uint32
	segment, offset int64
}

type unit struct {
	settled  bool
	gone     bool // the source has lost it
	excluded bool // settled, and stays so whatever is rewound
	bad      bool // it cannot be decoded
	rank     uint32
	step     int64 // of its ack; -1: it is in a cut that was bound or restored
	untold   bool  // its ack did not say whether there is a record
	times    int   // how often it was settled, less what rewinds took back
}

// Book keeps every unit.
type Book struct {
	passes   uint32
	segments []Range // Pass is 0
	units    map[unitKey]*unit
}

func New(passes uint32) *Book { return &Book{passes: passes, units: map[unitKey]*unit{}} }

// List adds a segment, in all passes.
func (b *Book) List(r Range) { b.segments = append(b.segments, r) }

// Grow moves the end of a listed segment.
func (b *Book) Grow(partition uint32, segment, end int64) {
	for i := range b.segments {
		if s := &b.segments[i]; s.Partition == partition && s.Segment == segment {
			s.End = max(s.End, end)
		}
	}
}

func (b *Book) listed(r Range) bool {
	for _, s := range b.segments {
		if s.Partition == r.Partition && s.Segment == r.Segment && s.Start <= r.Start && r.End <= s.End {
			return r.Pass < b.passes
		}
	}
	return false
}

func (b *Book) each(r Range, f func(*unit) error) error {
	for o := r.Start; o < r.End; o++ {
		k := unitKey{r.Partition, r.Pass, r.Segment, o}
		u := b.units[k]
		if u == nil {
			u = &unit{}
			b.units[k] = u
		}
		if err := f(u); err != nil {
			return fmt.Errorf("%v, unit %d: %w", r, o, err)
		}
	}
	return nil
}

// Grant checks that no unit of r was settled before, and that r exists.
func (b *Book) Grant(r Range) error {
	if r.Start >= r.End || !b.listed(r) {
		return fmt.Errorf("%v was granted and is not in the input", r)
	}
	return b.each(r, func(u *unit) error {
		if u.settled {
			return fmt.Errorf("was granted after rank %d settled it", u.rank)
		}
		return nil
	})
}

// Ack settles r for rank, at a step. It is an error if a unit is settled already. told
// means that the ack said how many records there are.
func (b *Book) Ack(r Range, rank uint32, step int64, told bool) error {
	return b.each(r, func(u *unit) error {
		if u.settled {
			return fmt.Errorf("was settled by rank %d before rank %d", u.rank, rank)
		}
		u.settled, u.rank, u.step, u.untold = true, rank, step, !told
		u.times++
		return nil
	})
}

// Lose notes that the source no longer has r, in any pass.
func (b *Book) Lose(r Range) error {
	for r.Pass = range b.passes {
		if err := b.each(r, func(u *unit) error { u.gone = true; return nil }); err != nil {
			return err
		}
	}
	return nil
}

// Spoil notes that the records in r cannot be decoded, in any pass.
func (b *Book) Spoil(r Range) error {
	for r.Pass = range b.passes {
		if err := b.each(r, func(u *unit) error { u.bad = true; return nil }); err != nil {
			return err
		}
	}
	return nil
}

// Exclude settles r for good. It is an error if the source still has a unit of r that is
// not bad, or if a unit was settled before. goesBack means that the same event goes back
// to a cut without r: then a unit that was acked may be excluded, since it is in no
// model any more.
func (b *Book) Exclude(r Range, goesBack bool) error {
	if r.Start >= r.End || !b.listed(r) {
		return fmt.Errorf("%v was excluded and is not in the input", r)
	}
	return b.each(r, func(u *unit) error {
		switch {
		case u.settled && (u.excluded || !goesBack):
			return fmt.Errorf("was excluded after it was settled")
		case !u.gone && !u.bad:
			return fmt.Errorf("was excluded, and the source has it")
		case !u.settled:
			u.times++
		}
		u.settled, u.excluded = true, true
		return nil
	})
}

// Readmit notes that r is not excluded any more, because the cut that the job goes back to
// has it in its model. Restore, which follows, settles it.
func (b *Book) Readmit(r Range) error {
	return b.each(r, func(u *unit) error {
		if !u.excluded {
			return fmt.Errorf("is not excluded any more, and it never was")
		}
		u.excluded, u.settled = false, false
		u.times--
		return nil
	})
}

// Excluded counts the excluded units.
func (b *Book) Excluded() (n int64) {
	for _, u := range b.units {
		if u.excluded {
			n++
		}
	}
	return n
}

// IsExcluded says whether all of r is excluded.
func (b *Book) IsExcluded(r Range) bool {
	return b.each(r, func(u *unit) error {
		if !u.excluded {
			return fmt.Errorf("is not excluded")
		}
		return nil
	}) == nil
}

// Settled counts the settled units.
func (b *Book) Settled() (n int64) {
	for _, u := range b.units {
		if u.settled {
			n++
		}
	}
	return n
}

// Done returns an error unless every unit of every pass is settled exactly once.
func (b *Book) Done() error {
	return b.DoneOf(func(uint32, int64, int64) bool { return true })
}

// DoneOf is Done for the units that asked accepts.
func (b *Book) DoneOf(asked func(pass uint32, segment, offset int64) bool) error {
	for pass := range b.passes {
		for _, s := range b.segments {
			for at := s.Start; at < s.End; at++ {
				if !asked(pass, s.Segment, at) {
					continue
				}
				one := Range{s.Partition, pass, s.Segment, at, at + 1}
				err := b.each(one, func(u *unit) error {
					if !u.settled || u.times != 1 {
						return fmt.Errorf("settled %v, %d times", u.settled, u.times)
					}
					return nil
				})
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Package oracle is the dumb model that tests compare the core with: one entry
// per unit of the input, no cleverness, nothing shared with the core. It is told
// what was promised (granted, acked, given up) and says when two promises do not
// fit together. It works on the source's own coordinates, so that a wrong order
// space shows too.
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
	settled bool
	rank    uint32
	times   int // settled so often, rewinds undone
}

// Book keeps every unit.
type Book struct {
	passes   uint32
	segments []Range // Pass is 0
	units    map[unitKey]*unit
}

func New(passes uint32) *Book { return &Book{passes: passes, units: map[unitKey]*unit{}} }

// List makes a segment known, in all passes.
func (b *Book) List(r Range) { b.segments = append(b.segments, r) }

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

// Ack settles r for rank. A unit that is settled already is an error.
func (b *Book) Ack(r Range, rank uint32) error {
	return b.each(r, func(u *unit) error {
		if u.settled {
			return fmt.Errorf("was settled by rank %d before rank %d", u.rank, rank)
		}
		u.settled, u.rank = true, rank
		u.times++
		return nil
	})
}

// Again makes what a rank settled unsettled and returns how many units that is.
func (b *Book) Again(mine func(rank uint32) bool) (n int64) {
	for _, u := range b.units {
		if u.settled && mine(u.rank) {
			u.settled = false
			u.times--
			n++
		}
	}
	return n
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

// Done says nil if every unit of every pass is settled, exactly once.
func (b *Book) Done() error {
	for pass := range b.passes {
		for _, s := range b.segments {
			s.Pass = pass
			err := b.each(s, func(u *unit) error {
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
	return nil
}

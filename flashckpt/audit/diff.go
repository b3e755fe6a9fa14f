package audit

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/sources"
)

// Difference is, for one pass of a partition, the records that one cut has and the other
// has not.
type Difference struct {
	Dataset   string  `json:"dataset"`
	Unit      string  `json:"unit"`
	Partition string  `json:"partition"`
	Label     string  `json:"label"` // what people call it
	Pass      uint32  `json:"pass"`
	OnlyA     []Range `json:"only_a"`
	UnitsA    int64   `json:"units_only_a"`
	OnlyB     []Range `json:"only_b"`
	UnitsB    int64   `json:"units_only_b"`
	// RowsA is the number of records in OnlyA; nil: not known. It is known if cut A has all
	// records of cut B. RowsB likewise.
	RowsA *int64 `json:"rows_only_a"`
	RowsB *int64 `json:"rows_only_b"`
}

// Diff compares the records of two models. It fails if a position does not mean the same
// record in both: the shuffle differs, or a segment number means another file.
func Diff(a, b *cut.Cut) ([]Difference, error) {
	var out []Difference
	for _, name := range union(a.Datasets, b.Datasets, func(d *cut.Dataset) string { return d.Name }) {
		da, db, err := pair(a, b, name)
		if err != nil {
			return nil, fmt.Errorf("dataset %s: %w", name, err)
		}
		for _, identity := range union(da.Partitions, db.Partitions, func(p *cut.Partition) string { return p.Identity }) {
			pa, pb := partitionOf(da, identity), partitionOf(db, identity)
			pa, pb = aligned(pa, pb), aligned(pb, pa)
			if err := sameSegments(pa, pb, da.Shuffle != nil); err != nil {
				return nil, fmt.Errorf("dataset %s, partition %s: %w", name, identity, err)
			}
			for _, pass := range passes(pa, pb) {
				if d := difference(da, pa, pb, pass); d.UnitsA+d.UnitsB > 0 {
					d.Dataset, d.Partition, d.Label = name, identity, identity
					if called := cmp.Or(pa.Name, pb.Name); called != "" {
						d.Label = called
					}
					out = append(out, d)
				}
			}
		}
	}
	return out, nil
}

// difference of one pass. The longer of the two segment tables contains the other, so all
// positions of both cuts are found in it.
func difference(d *cut.Dataset, a, b *cut.Partition, pass uint32) Difference {
	longer := a
	if len(b.Segments) > len(a.Segments) {
		longer = b
	}
	s := newSpace(d, longer, pass)
	inA := members(a, pass, newSpace(d, a, pass))
	inB := members(b, pass, newSpace(d, b, pass))
	onlyA, onlyB := s.source(inA.Minus(inB)), s.source(inB.Minus(inA))
	unit := d.UnitOf(longer)
	out := Difference{Unit: unit, Pass: pass, OnlyA: named(s, onlyA), UnitsA: sources.InUnits(unit, onlyA.Units()), OnlyB: named(s, onlyB), UnitsB: sources.InUnits(unit, onlyB.Units())}
	zero := int64(0)
	switch {
	case out.UnitsB == 0:
		out.RowsA, out.RowsB = fewer(recordsOf(a, pass), recordsOf(b, pass)), &zero
	case out.UnitsA == 0:
		out.RowsA, out.RowsB = &zero, fewer(recordsOf(b, pass), recordsOf(a, pass))
	}
	return out
}

func union[T any](a, b []T, key func(*T) string) []string {
	all := map[string]bool{}
	for _, list := range [][]T{a, b} {
		for i := range list {
			all[key(&list[i])] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func datasetOf(c *cut.Cut, name string) *cut.Dataset {
	for i := range c.Datasets {
		if c.Datasets[i].Name == name {
			return &c.Datasets[i]
		}
	}
	return nil
}

func partitionOf(d *cut.Dataset, identity string) *cut.Partition {
	for i := range d.Partitions {
		if d.Partitions[i].Identity == identity {
			return &d.Partitions[i]
		}
	}
	return &cut.Partition{Identity: identity}
}

// pair is a dataset in both cuts. A cut without the dataset has no records of it.
func pair(a, b *cut.Cut, name string) (x, y *cut.Dataset, err error) {
	x, y = datasetOf(a, name), datasetOf(b, name)
	switch {
	case x == nil:
		return &cut.Dataset{Name: name, Unit: y.Unit, Shuffle: y.Shuffle}, y, nil
	case y == nil:
		return x, &cut.Dataset{Name: name, Unit: x.Unit, Shuffle: x.Shuffle}, nil
	case x.Unit != y.Unit:
		return nil, nil, fmt.Errorf("its unit is %s in the one and %s in the other", x.Unit, y.Unit)
	case (x.Shuffle == nil) != (y.Shuffle == nil) || x.Shuffle != nil && *x.Shuffle != *y.Shuffle:
		return nil, nil, errors.New("its shuffle is not the same in both: positions do not mean the same records")
	}
	return x, y, nil
}

// sameSegments: a number means the same segment in both.
func sameSegments(a, b *cut.Partition, shuffled bool) error {
	if shuffled && len(a.Segments) != len(b.Segments) && begun(a) && begun(b) {
		return fmt.Errorf("it is shuffled over %d segments in the one and %d in the other", len(a.Segments), len(b.Segments))
	}
	for i := range min(len(a.Segments), len(b.Segments)) {
		x, y := &a.Segments[i], &b.Segments[i]
		if x.ID != y.ID || x.Start != y.Start || x.Sealed && y.Sealed && x.End != y.End || !bytes.Equal(x.Locator, y.Locator) && !(x.Sealed && y.Sealed && (len(x.Locator) == 0 || len(y.Locator) == 0)) {
			return fmt.Errorf("segment %d is %s [%d, %d) in the one, and segment %d, %s [%d, %d), in the other: positions do not mean the same records",
				x.ID, x.Name, x.Start, x.End, y.ID, y.Name, y.Start, y.End)
		}
	}
	return nil
}

func begun(p *cut.Partition) bool { return p.Done > 0 || len(p.Passes) > 0 }

// passes returns the passes in which at least one of the cuts has something settled.
func passes(a, b *cut.Partition) []uint32 {
	all := map[uint32]bool{}
	for _, p := range []*cut.Partition{a, b} {
		for n := range p.Done {
			all[n] = true
		}
		for i := range p.Passes {
			all[p.Passes[i].Pass] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

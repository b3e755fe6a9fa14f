package cut

import (
	"fmt"

	"github.com/headrace/headrace/sources"
)

// binaryVersion 2 added virtual ranks, 3 the records, 4 dropped pieces. Decode reads 1, too.
// A cut that drops nothing is written as version 3, which an older Headrace reads.
const (
	binaryVersion  = 4
	recordsVersion = 3
)

// Append appends the binary form, in which the core stores a cut. It leaves out job,
// model and order, which the core keeps beside it, and the partitions' names, which
// the core knows itself.
func (c *Cut) Append(b []byte) []byte {
	version := c.version()
	b = append(b, version)
	b = appendUint(appendUint(appendUint(b, c.ID), c.Epoch), c.Generation)
	b = appendInt(appendInt(b, int64(c.Rank)), c.Step)
	b = appendBool(appendUint(b, c.WorldSize), c.Exact)
	b = appendUint(b, len(c.Datasets))
	for i := range c.Datasets {
		b = c.Datasets[i].append(b, version)
	}
	return b
}

// Decode reads what Append wrote. It refuses a cut that the validator refuses,
// except that positions are not checked against segments: the core stores cuts
// without them. Errors: *Error.
func Decode(b []byte) (*Cut, error) {
	if len(b) == 0 {
		return nil, damaged("it is empty")
	}
	r := &reader{b: b[1:], version: b[0]}
	switch {
	case b[0] > binaryVersion:
		return nil, &Error{ErrNewer, "version", fmt.Sprintf("the stored cut has version %d, this Headrace knows up to %d: start the newer one", b[0], binaryVersion)}
	case b[0] < 1:
		return nil, damaged("version %d, must be 1 or more", b[0])
	}
	c := &Cut{ID: ID(r.uint()), Epoch: r.u32(), Generation: r.u32(), Rank: Rank(r.int()), Step: r.int(), WorldSize: r.u32(), Exact: r.bool()}
	c.Datasets = list(r, 6, r.dataset)
	if err := r.done(); err != nil {
		return nil, damaged("%v", err)
	}
	if e := c.check(true); e != nil {
		return nil, e
	}
	return c, nil
}

// version is the oldest that has everything of the cut.
func (c *Cut) version() byte {
	for i := range c.Datasets {
		for j := range c.Datasets[i].Partitions {
			if len(c.Datasets[i].Partitions[j].Dropped) > 0 {
				return binaryVersion
			}
		}
	}
	return recordsVersion
}

func (d *Dataset) append(b []byte, version byte) []byte {
	b = appendText(appendText(b, d.Name), d.Unit)
	s := d.Shuffle
	if b = appendBool(b, s != nil); s == nil {
		s = &Shuffle{}
	}
	b = appendInt(appendUint(b, s.Seed), s.Block)
	b = appendUint(appendBool(b, s.InOrder), s.VirtualRanks)
	b = appendUint(b, len(d.Partitions))
	for i := range d.Partitions {
		b = d.Partitions[i].append(b, version)
	}
	return b
}

func (r *reader) dataset() Dataset {
	d := Dataset{Name: r.text(), Unit: r.text()}
	shuffled, s := r.bool(), Shuffle{Seed: r.uint(), Block: r.int()}
	if r.version >= 2 {
		s.InOrder, s.VirtualRanks = r.bool(), r.u32()
	}
	if shuffled {
		d.Shuffle = &s
	}
	d.Partitions = list(r, 11, r.partition)
	return d
}

func (p *Partition) append(b []byte, version byte) []byte {
	b = appendText(appendUint(b, p.Number), p.Identity)
	b = appendBool(appendBool(b, p.Estimated), p.Complete)
	b = p.DoneUnits.append(appendUint(b, p.Done))
	b = p.DoneCounted().Append(b)
	b = appendUint(b, len(p.Segments))
	for i := range p.Segments {
		s := &p.Segments[i]
		b = appendInt(appendInt(appendInt(b, s.ID), s.Start), s.End)
		b = appendText(appendText(appendBool(b, s.Sealed), s.Locator), s.Name)
	}
	b = appendUint(b, len(p.Passes))
	for i := range p.Passes {
		b = p.Passes[i].append(b)
	}
	b = appendUint(b, len(p.Excluded))
	for i := range p.Excluded {
		e := &p.Excluded[i]
		b = appendInt(appendUint(b, e.Pass), e.Piece.Segment)
		b = appendInt(appendInt(appendInt(b, e.Piece.Start), e.Piece.End), e.Units)
		b = appendInt(appendText(appendText(b, e.Kind), e.Reason), e.When)
	}
	if version < binaryVersion {
		return b
	}
	b = appendUint(b, len(p.Dropped))
	for i := range p.Dropped {
		x := &p.Dropped[i]
		b = appendInt(appendUint(b, x.Pass), x.Piece.Segment)
		b = appendInt(appendInt(appendInt(appendInt(b, x.Piece.Start), x.Piece.End), x.Units), x.Step)
	}
	return b
}

func (r *reader) partition() Partition {
	p := Partition{Number: r.u32(), Identity: r.text(), Estimated: r.bool(), Complete: r.bool(), Done: r.u32(), DoneUnits: r.units()}
	if p.DoneRecords = r.tally(); p.Done == 0 && p.DoneRecords != nil && *p.DoneRecords == (Tally{}) {
		p.DoneRecords = nil
	}
	p.Segments = list(r, 6, r.segment)
	p.Passes = list(r, 7, r.pass)
	p.Excluded = list(r, 8, r.exclusion)
	if r.version >= 4 {
		p.Dropped = list(r, 6, r.drop)
	}
	return p
}

func (r *reader) segment() sources.Segment {
	return sources.Segment{ID: r.int(), Start: r.int(), End: r.int(), Sealed: r.bool(), Locator: r.bytes(), Name: r.text()}
}

func (r *reader) drop() Drop {
	return Drop{Pass: r.u32(), Piece: Piece{r.int(), r.int(), r.int()}, Units: r.int(), Step: r.int()}
}

func (r *reader) exclusion() Exclusion {
	return Exclusion{Pass: r.u32(), Piece: Piece{r.int(), r.int(), r.int()}, Units: r.int(), Kind: r.text(), Reason: r.text(), When: r.int()}
}

func (u *Units) append(b []byte) []byte {
	return appendInt(appendInt(appendInt(b, u.Acked), u.Excluded), u.Dropped)
}

func (r *reader) units() Units { return Units{r.int(), r.int(), r.int()} }

// Append appends the binary form of a tally.
func (t Tally) Append(b []byte) []byte {
	b = appendInt(appendInt(b, t.Rows), t.Untold)
	return appendInt(appendInt(b, t.Oldest), t.Newest-t.Oldest)
}

// tally returns nil if the version of the cut did not count records.
func (r *reader) tally() *Tally {
	if r.version < recordsVersion {
		return nil
	}
	t := &Tally{Rows: r.int(), Untold: r.int(), Oldest: r.int()}
	t.Newest = t.Oldest + r.int()
	return t
}

func (q *Pass) append(b []byte) []byte {
	b = q.Units.append(appendUint(b, q.Pass))
	b = q.Counted().Append(b)
	at := Place{}
	b = q.Low.append(b, &at)
	b = appendUint(b, len(q.Ranges))
	for i := range q.Ranges {
		g := &q.Ranges[i]
		b = appendUint(g.End.append(g.Start.append(b, &at), &at), g.Kind)
	}
	return b
}

func (r *reader) pass() Pass {
	q := Pass{Pass: r.u32(), Units: r.units(), Records: r.tally()}
	at := Place{}
	q.Low = r.place(&at)
	q.Ranges = list(r, 5, func() Range {
		return Range{Start: r.place(&at), End: r.place(&at), Kind: Kind(min(r.uint(), uint64(kinds)))}
	})
	return q
}

// append writes p as its distance from at, and moves at to p. A cut has many ranges
// that lie near each other, so distances take fewer bytes than positions.
func (p Place) append(b []byte, at *Place) []byte {
	b = appendInt(b, p.Segment-at.Segment)
	if p.Segment == at.Segment {
		b = appendInt(b, p.Offset-at.Offset)
	} else {
		b = appendInt(b, p.Offset)
	}
	*at = p
	return b
}

func (r *reader) place(at *Place) Place {
	p := Place{Segment: at.Segment + r.int(), Offset: r.int()}
	if p.Segment == at.Segment {
		p.Offset += at.Offset
	}
	*at = p
	return p
}

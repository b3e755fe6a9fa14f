package shardsvc

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/headrace/headrace/shardsvc/line"
	"github.com/headrace/headrace/sources"
)

// cutVersion 2 has virtual ranks, 3 the records.
const cutVersion = 3

// Encode appends the durable form of the cut, which DecodeCut reads.
func (c *Cut) Encode(b []byte) []byte {
	b = append(b, cutVersion)
	b = appendUint(b, c.ID)
	b = appendUint(b, c.Epoch)
	b = appendUint(b, c.Generation)
	b = appendInt(b, c.Rank)
	b = appendInt(b, c.Step)
	b = appendUint(b, c.World)
	b = appendBool(b, c.Exact)
	b = appendUint(b, len(c.Datasets))
	for i := range c.Datasets {
		b = c.Datasets[i].append(b)
	}
	return b
}

// DecodeCut reads what Encode wrote. What it returns passes Check.
func DecodeCut(b []byte) (*Cut, error) {
	d, version := openUpTo(b, cutVersion)
	c := &Cut{ID: d.uint(), Epoch: d.u32(), Generation: d.u32(), Rank: d.int(), Step: d.int(), World: d.u32(), Exact: d.bool()}
	for range d.count(6) {
		c.Datasets = append(c.Datasets, d.cutDataset(version))
	}
	if err := d.done(); err != nil {
		return nil, fmt.Errorf("cut: %w", err)
	}
	return c, c.Check()
}

func (s *CutDataset) append(b []byte) []byte {
	b = appendString(appendString(b, s.Name), s.Unit)
	b = appendBool(b, s.Shuffle)
	b = appendInt(appendUint(b, s.Seed), s.Block)
	b = appendUint(appendBool(b, s.InOrder), s.VirtualRanks)
	b = appendUint(b, len(s.Partitions))
	for i := range s.Partitions {
		b = s.Partitions[i].append(b)
	}
	return b
}

func (d *decoder) cutDataset(version byte) CutDataset {
	s := CutDataset{Name: d.string(), Unit: d.string(), Shuffle: d.bool(), Seed: d.uint(), Block: d.int()}
	if version >= 2 {
		s.InOrder, s.VirtualRanks = d.bool(), d.u32()
	}
	for range d.count(11) {
		s.Partitions = append(s.Partitions, d.cutPartition(version))
	}
	return s
}

func (p *CutPartition) append(b []byte) []byte {
	b = appendString(appendUint(b, p.Number), p.Identity)
	b = appendBool(appendBool(b, p.Estimated), p.Complete)
	b = p.Records.append(p.Done.append(appendUint(b, p.PassesDone)))
	b = appendUint(b, len(p.Segments))
	for _, s := range p.Segments {
		b = appendInt(appendInt(appendInt(b, s.ID), s.Start), s.End)
		b = appendString(appendString(appendBool(b, s.Sealed), s.Locator), s.Name)
	}
	b = appendUint(b, len(p.Passes))
	for i := range p.Passes {
		b = p.Passes[i].append(b)
	}
	b = appendUint(b, len(p.Excluded))
	for _, e := range p.Excluded {
		b = appendInt(appendUint(b, e.Pass), e.Segment)
		b = appendInt(appendInt(appendInt(b, e.Start), e.End), e.Units)
		b = appendInt(appendString(appendString(b, e.Kind), e.Reason), e.When)
	}
	return b
}

func (d *decoder) cutPartition(version byte) CutPartition {
	p := CutPartition{Number: d.u32(), Identity: d.string(), Estimated: d.bool(), Complete: d.bool(), PassesDone: d.u32(), Done: d.cutUnits()}
	p.Records = d.cutRecords(version, &p.Done)
	for range d.count(6) {
		p.Segments = append(p.Segments, sources.Segment{ID: d.int(), Start: d.int(), End: d.int(), Sealed: d.bool(), Locator: d.bytes(), Name: d.string()})
	}
	for range d.count(7) {
		p.Passes = append(p.Passes, d.cutPass(version))
	}
	for range d.count(8) {
		p.Excluded = append(p.Excluded, CutExcluded{Pass: d.u32(), Segment: d.int(), Start: d.int(), End: d.int(), Units: d.int(), Kind: d.string(), Reason: d.string(), When: d.int()})
	}
	return p
}

func (u *CutUnits) append(b []byte) []byte {
	return appendInt(appendInt(appendInt(b, u.Acked), u.Excluded), u.Dropped)
}

// cutRecords reads the records of acked units; an older version did not count them.
func (d *decoder) cutRecords(version byte, u *CutUnits) Tally {
	if version < 3 {
		return untold(max(u.Acked, 0))
	}
	return d.tally(u.Acked)
}

func (d *decoder) cutUnits() CutUnits { return CutUnits{d.int(), d.int(), d.int()} }

func (p *CutPass) append(b []byte) []byte {
	b = p.Records.append(p.Units.append(appendUint(b, p.Pass)))
	at := Place{}
	b = p.Low.after(&at, b)
	b = appendUint(b, len(p.Ranges))
	for i := range p.Ranges {
		r := &p.Ranges[i]
		b = appendUint(r.End.after(&at, r.Start.after(&at, b)), uint32(r.Kind))
	}
	return b
}

func (d *decoder) cutPass(version byte) CutPass {
	p := CutPass{Pass: d.u32(), Units: d.cutUnits()}
	p.Records = d.cutRecords(version, &p.Units)
	at := Place{}
	p.Low = d.placeAfter(&at)
	for range d.count(5) {
		r := CutRange{Start: d.placeAfter(&at), End: d.placeAfter(&at)}
		kind := d.uint()
		if kind >= line.Kinds {
			d.fail(fmt.Errorf("unknown kind %d of a range", kind))
		}
		r.Kind = Kind(kind)
		p.Ranges = append(p.Ranges, r)
	}
	return p
}

// after writes p as its distance from at, which it moves: ranges are many, and
// near each other.
func (p Place) after(at *Place, b []byte) []byte {
	b = appendInt(b, p.Segment-at.Segment)
	if p.Segment == at.Segment {
		b = appendInt(b, p.Offset-at.Offset)
	} else {
		b = appendInt(b, p.Offset)
	}
	*at = p
	return b
}

func (d *decoder) placeAfter(at *Place) Place {
	p := Place{Segment: at.Segment + d.int(), Offset: d.int()}
	if p.Segment == at.Segment {
		p.Offset += at.Offset
	}
	*at = p
	return p
}

func (p Place) compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Segment, q.Segment), cmp.Compare(p.Offset, q.Offset))
}

// Check says what of a cut can not be, whoever wrote it. Whether it fits the
// datasets of a job is another question.
func (c *Cut) Check() error {
	switch {
	case c.ID == 0:
		return errors.New("cut: its id is 0")
	case c.Rank < Group || c.Rank > math.MaxUint32:
		return fmt.Errorf("cut %016x: no rank %d", c.ID, c.Rank)
	case c.Step < 0:
		return fmt.Errorf("cut %016x: step %d is negative", c.ID, c.Step)
	}
	names := map[string]bool{}
	for i := range c.Datasets {
		d := &c.Datasets[i]
		if names[d.Name] || d.Name == "" {
			return fmt.Errorf("cut %016x: dataset %q has no name or is there twice", c.ID, d.Name)
		}
		names[d.Name] = true
		if err := d.check(); err != nil {
			return fmt.Errorf("cut %016x: dataset %q: %w", c.ID, d.Name, err)
		}
	}
	return nil
}

func (d *CutDataset) check() error {
	if d.Shuffle && (d.Block < 1 || d.Block > 1<<40) {
		return fmt.Errorf("shuffle block is %d, must be 1 to 2^40", d.Block)
	}
	seen := map[string]bool{}
	for i := range d.Partitions {
		p := &d.Partitions[i]
		if seen[p.Identity] || p.Identity == "" {
			return fmt.Errorf("partition %q has no identity or is there twice", p.Identity)
		}
		seen[p.Identity] = true
		if err := p.check(); err != nil {
			return fmt.Errorf("partition %s: %w", p.Identity, err)
		}
	}
	return nil
}

func (p *CutPartition) check() error {
	last, sum := int64(-1), int64(0)
	for _, s := range p.Segments {
		if s.ID <= last || s.Start < -line.Max || s.Start > s.End || s.End > line.Max || sum+(s.End-s.Start) > line.Max {
			return fmt.Errorf("segment %d [%d, %d) is out of order or too large", s.ID, s.Start, s.End)
		}
		last, sum = s.ID, sum+(s.End-s.Start)
	}
	next := p.PassesDone
	for i := range p.Passes {
		q := &p.Passes[i]
		if q.Pass < next || q.Pass == math.MaxUint32 {
			return fmt.Errorf("pass %d is out of order", q.Pass)
		}
		next = q.Pass + 1
		at := q.Low
		for _, r := range q.Ranges {
			if r.Start.compare(at) < 0 || r.End.compare(r.Start) <= 0 {
				return fmt.Errorf("pass %d: the range from segment %d offset %d is empty or out of order", q.Pass, r.Start.Segment, r.Start.Offset)
			}
			at = r.End
		}
		if min(q.Units.Acked, q.Units.Excluded, q.Units.Dropped) < 0 {
			return fmt.Errorf("pass %d: its units are %+v", q.Pass, q.Units)
		}
		if err := q.Records.check(q.Units.Acked); err != nil {
			return fmt.Errorf("pass %d: its records can not be: %w", q.Pass, err)
		}
	}
	if min(p.Done.Acked, p.Done.Excluded, p.Done.Dropped) < 0 {
		return fmt.Errorf("units of finished passes are %+v", p.Done)
	}
	if err := p.Records.check(p.Done.Acked); err != nil {
		return fmt.Errorf("the records of finished passes can not be: %w", err)
	}
	for i, e := range p.Excluded {
		if e.Start >= e.End || e.Units < 0 {
			return fmt.Errorf("excluded range [%d, %d) of segment %d is empty", e.Start, e.End, e.Segment)
		}
		if i > 0 {
			q := p.Excluded[i-1]
			if cmp.Or(cmp.Compare(q.Pass, e.Pass), cmp.Compare(q.Segment, e.Segment), cmp.Compare(q.End-1, e.Start)) >= 0 {
				return fmt.Errorf("excluded range [%d, %d) of segment %d is out of order", e.Start, e.End, e.Segment)
			}
		}
	}
	return nil
}

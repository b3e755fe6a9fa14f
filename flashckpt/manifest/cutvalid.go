package manifest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// What the core adds up stays below this (shardsvc's limit for lines).
const maxUnits = 1 << 60

// Orders are counted one by one, and a master goes on above the highest it is shown.
const maxOrder = 1<<62 - 1

func (v *check) cut(field string, c *Cut) {
	in := func(name string) string {
		if field == "" {
			return name
		}
		return field + "." + name
	}
	v.that(c.Version == Version, in("version"), "%d, must be %d", c.Version, Version)
	v.that(c.ID != 0, in("id"), "missing")
	v.text(in("job"), c.Job, 1, 256)
	v.that(c.Step >= 0, in("step"), "%d, must not be negative", c.Step)
	v.that(c.Order <= maxOrder, in("order"), "%d, must be below 2^62", c.Order)
	v.that(c.WorldSize >= 1, in("world_size"), "0, must be at least 1")
	v.that((c.Rank != nil) == (c.Model == "private"), in("rank"), "it is there for model private, and for no other")
	v.that(c.Model == "shared" || c.Exact, in("exact"), "false, but only a shared model's cut may be inexact")
	names := map[string]bool{}
	for i := range c.Datasets {
		d := &c.Datasets[i]
		where := in(at("datasets", i))
		v.text(where+".name", d.Name, 1, 256)
		v.that(!names[d.Name], where+".name", "%q is there twice", d.Name)
		names[d.Name] = true
		v.dataset(where, d)
		if v.err != nil {
			return
		}
	}
}

func (v *check) dataset(field string, d *Dataset) {
	v.that(d.Unit == "bytes" || d.Unit == "records", field+".unit", "%.40q: must be bytes or records", d.Unit)
	if d.Shuffle != nil {
		v.that(d.Shuffle.Block >= 1 && d.Shuffle.Block <= 1<<40, field+".shuffle.block", "%d, must be 1 to 2^40", d.Shuffle.Block)
		v.that(d.Shuffle.VirtualRanks <= maxVirtualRanks, field+".shuffle.virtual_ranks", "%d, at most %d", d.Shuffle.VirtualRanks, maxVirtualRanks)
		v.that(!d.Shuffle.InOrder || d.Shuffle.VirtualRanks > 0, field+".shuffle.in_order", "true, but there are no virtual ranks")
	}
	ids := make(map[string]bool, len(d.Partitions))
	for i := range d.Partitions {
		p := &d.Partitions[i]
		where := field + "." + at("partitions", i)
		v.text(where+".identity", p.Identity, 1, 4096)
		v.text(where+".name", p.Name, 0, 4096)
		v.that(!ids[p.Identity], where+".identity", "%q is there twice", p.Identity)
		ids[p.Identity] = true
		if _, rank := d.VirtualRank(p); rank < 0 {
			v.that(false, where+".identity", "%.80q is of none of the %d virtual ranks", p.Identity, d.Shuffle.VirtualRanks)
		}
		if v.err != nil {
			return
		}
		if s := v.space(where, d, p); v.err == nil {
			v.partition(where, p, s)
		}
	}
}

// space is where a partition's positions may lie.
type space struct {
	shuffled bool
	end      int64 // of order segment 0, shuffled
	segs     []Segment
}

// holds says whether [start, end) of a segment lies inside of it. The end of a
// segment that may still grow is not known here.
func (s *space) holds(segment, start, end int64) bool {
	if s.shuffled {
		return segment == 0 && 0 <= start && start <= end && end <= s.end
	}
	i, ok := slices.BinarySearchFunc(s.segs, segment, func(g Segment, id int64) int { return cmp.Compare(g.ID, id) })
	if !ok {
		return len(s.segs) == 0 && segment == 0 && start == 0 && end == 0
	}
	g := &s.segs[i]
	last := g.End
	if !g.Sealed {
		last = maxUnits
	}
	return g.Start <= start && start <= end && end <= last
}

func (v *check) space(field string, d *Dataset, p *Partition) *space {
	s := &space{shuffled: d.Shuffle != nil, segs: p.Segments}
	total, blocks := int64(0), int64(0)
	for i := range p.Segments {
		g := &p.Segments[i]
		total += g.End - g.Start
		if s.shuffled {
			blocks += (g.End - g.Start + d.Shuffle.Block - 1) / d.Shuffle.Block
		}
		if g.ID >= 0 && (i == 0 || g.ID > p.Segments[i-1].ID) && -maxUnits <= g.Start && g.Start <= g.End && g.End <= maxUnits &&
			(g.Sealed || i == len(p.Segments)-1) && len(g.Locator) <= 1<<20 && len(g.Name) <= 1<<20 && total <= maxUnits {
			continue // there may be a million
		}
		where := field + "." + at("segments", i)
		v.that(g.ID >= 0 && (i == 0 || g.ID > p.Segments[i-1].ID), where+".id", "%d, must be above the one before it", g.ID)
		v.that(-maxUnits <= g.Start && g.Start <= g.End && g.End <= maxUnits, where, "[%d, %d) is no range", g.Start, g.End)
		v.that(g.Sealed || i == len(p.Segments)-1, where+".sealed", "false, but only the last segment may grow")
		v.that(len(g.Locator) <= 1<<20 && len(g.Name) <= 1<<20, where, "name or locator is longer than 2^20 bytes")
		v.that(total <= maxUnits, where, "more than 2^60 units")
		return nil
	}
	if s.shuffled {
		v.that(blocks <= maxUnits/d.Shuffle.Block, field+".segments", "%d blocks of %d", blocks, d.Shuffle.Block)
		if v.err == nil {
			_, rank := d.VirtualRank(p)
			s.end = d.Shuffle.BlocksOf(rank, blocks) * d.Shuffle.Block
		}
	}
	return s
}

func (v *check) partition(field string, p *Partition, s *space) {
	v.that(p.Done == 0 || p.Complete, field+".done", "%d passes, but the listing is not complete", p.Done)
	v.that(!s.shuffled || p.Complete || len(p.Passes) == 0, field+".passes", "a shuffled pass begins when the listing is complete")
	v.units(field+".done_units", p.DoneUnits)
	v.records(field+".done_records", p.DoneRecords, p.DoneUnits)
	next := p.Done
	for i := range p.Passes {
		ps := &p.Passes[i]
		where := field + "." + at("passes", i)
		v.that(ps.Pass >= next && ps.Pass < math.MaxUint32, where+".pass", "%d, must be %d or more", ps.Pass, next)
		next = ps.Pass + 1
		v.that(s.holds(ps.Low.Segment(), ps.Low.Offset(), ps.Low.Offset()), where+".low", "%v lies in no segment", ps.Low)
		v.units(where+".units", ps.Units)
		v.records(where+".records", ps.Records, ps.Units)
		if v.err != nil {
			return
		}
		v.ranges(where+".ranges", ps, s)
	}
	for i := range p.Excluded {
		e := &p.Excluded[i]
		where := field + "." + at("excluded", i)
		v.that(e.Range.Start() < e.Range.End() && s.holds(e.Range.Segment(), e.Range.Start(), e.Range.End()), where+".range", "%v is empty or lies in no segment", e.Range)
		v.that(e.Units >= 0, where+".units", "%d, must not be negative", e.Units)
		v.that(i == 0 || inOrder(&p.Excluded[i-1], e), where, "%v of pass %d does not come after the one before it", e.Range, e.Pass)
		v.that(len(e.Kind)+len(e.Reason) <= 64<<10, where+".reason", "longer than 65536 bytes")
		if v.err != nil {
			return
		}
	}
}

func inOrder(a, b *Excluded) bool {
	return a.Pass < b.Pass || a.Pass == b.Pass && before(a.Range, b.Range)
}

func (v *check) units(field string, u Units) {
	for _, n := range [...]int64{u.Acked, u.Excluded, u.Dropped} {
		v.that(n >= 0 && n <= math.MaxInt64/4, field, "%d, must not be negative nor absurd", n)
	}
}

// records of acked units, if they were counted.
func (v *check) records(field string, r *Records, of Units) {
	if r == nil {
		return
	}
	v.that(r.Rows >= 0 && r.Rows <= maxUnits, field+".rows", "%d, must not be negative nor absurd", r.Rows)
	v.that(r.Untold >= 0 && r.Untold <= of.Acked, field+".untold", "%d of %d acked units", r.Untold, of.Acked)
	v.that(r.Oldest <= r.Newest && (r.Oldest == 0) == (r.Newest == 0), field+".oldest", "%d, and newest %d: no span of times", r.Oldest, r.Newest)
	v.that(r.Rows > 0 || r.Newest == 0, field+".newest", "%d, but there are no rows", r.Newest)
}

// ranges: each list sorted, nothing twice, all above low and inside a segment.
func (v *check) ranges(field string, ps *Pass, s *space) {
	r := &ps.Ranges
	lists := [...]struct {
		name string
		list []Range
	}{{"acked", r.Acked}, {"excluded", r.Excluded}, {"dropped", r.Dropped}}
	kinds := 0
	for _, l := range lists {
		if len(l.list) > 0 {
			kinds++
		}
		for i, g := range l.list {
			if g.Start() < g.End() && s.holds(g.Segment(), g.Start(), g.End()) && above(g, ps.Low) && (i == 0 || before(l.list[i-1], g)) {
				continue // there may be a million
			}
			where := fmt.Sprintf("%s.%s[%d]", field, l.name, i)
			v.that(g.Start() < g.End(), where, "%v is empty", g)
			v.that(s.holds(g.Segment(), g.Start(), g.End()), where, "%v lies in no segment", g)
			v.that(above(g, ps.Low), where, "%v lies below the low mark %v", g, ps.Low)
			v.that(i == 0 || before(l.list[i-1], g), where, "%v does not come after %v", g, l.list[max(i-1, 0)])
			return
		}
	}
	if kinds < 2 {
		return
	}
	all := slices.Concat(r.Acked, r.Excluded, r.Dropped)
	slices.SortFunc(all, compareRanges)
	for i := range all[1:] {
		v.that(before(all[i], all[i+1]), field, "%v and %v overlap", all[i], all[i+1])
	}
}

// before: a ends before b begins.
func before(a, b Range) bool {
	return a.Segment() < b.Segment() || a.Segment() == b.Segment() && a.End() <= b.Start()
}

func above(r Range, low Place) bool {
	return r.Segment() > low.Segment() || r.Segment() == low.Segment() && r.Start() >= low.Offset()
}

func compareRanges(a, b Range) int {
	return cmp.Or(cmp.Compare(a.Segment(), b.Segment()), cmp.Compare(a.Start(), b.Start()))
}

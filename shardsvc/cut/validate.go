package cut

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/headrace/headrace/sources"
)

// MaxOrder is the highest order of a cut. Orders are counted one by one, and a master
// continues above the highest that it is shown.
const MaxOrder = 1<<62 - 1

// Validate returns an *Error if the cut contradicts itself. Every position must lie in
// one of its segments, lists must be sorted, nothing may be settled twice, and counts
// must be possible. It does not check that the cut fits a job's datasets.
func (c *Cut) Validate() error {
	if e := c.Wrong(); e != nil {
		return e
	}
	return nil
}

// Wrong is Validate with a typed result, for callers that add to the path.
func (c *Cut) Wrong() *Error {
	switch {
	case c.Version != Version:
		return invalid("version", "%d, must be %d", c.Version, Version)
	case !slices.Contains([]string{"shared", "replicated", "private"}, c.Model):
		return invalid("model", "%.40q: must be shared, replicated or private", c.Model)
	case (c.Rank != Group) != (c.Model == "private"):
		return invalid("rank", "must be there for model private, and for no other")
	case c.Model != "shared" && !c.Exact:
		return invalid("exact", "false, but only a shared model's cut may be inexact")
	case c.WorldSize < 1:
		return invalid("world_size", "0, must be at least 1")
	}
	if e := text("job", c.Job, 1, 256); e != nil {
		return e
	}
	if e := c.check(false); e != nil || c.Model == "replicated" {
		return e
	}
	return c.dropsNothing()
}

// dropsNothing: only ranks that train in rounds drop rows.
func (c *Cut) dropsNothing() *Error {
	for i := range c.Datasets {
		for j := range c.Datasets[i].Partitions {
			if len(c.Datasets[i].Partitions[j].Dropped) > 0 {
				return invalid("dropped", "only a replicated model's cut has it").at("partitions", j).at("datasets", i)
			}
		}
	}
	return nil
}

// check is the validator. bare means a cut as the core stores it, without its
// segments: the core checks its positions against its own segments. Names and other
// texts of a bare cut are not checked either; the core stores them as it got them.
func (c *Cut) check(bare bool) *Error {
	switch {
	case c.ID == 0:
		return invalid("id", "missing")
	case c.Rank < Group || c.Rank > math.MaxUint32:
		return invalid("rank", "%d, must be 0 to 2^32-1", c.Rank)
	case c.Step < 0:
		return invalid("step", "%d, must not be negative", c.Step)
	case c.Order > MaxOrder:
		return invalid("order", "%d, must be below 2^62", c.Order)
	}
	names := make(map[string]bool, len(c.Datasets))
	for i := range c.Datasets {
		d := &c.Datasets[i]
		if names[d.Name] {
			return invalid("name", "%q is there twice", d.Name).at("datasets", i)
		}
		names[d.Name] = true
		if e := d.check(bare); e != nil {
			return e.at("datasets", i)
		}
	}
	return nil
}

func (d *Dataset) check(bare bool) *Error {
	if e := d.texts(bare); e != nil {
		return e
	}
	if s := d.Shuffle; s != nil {
		switch {
		case s.Block < 1 || s.Block > 1<<40:
			return invalid("shuffle.block", "%d, must be 1 to 2^40", s.Block)
		case s.VirtualRanks > sources.MaxVirtualRanks:
			return invalid("shuffle.virtual_ranks", "%d, at most %d", s.VirtualRanks, sources.MaxVirtualRanks)
		case s.InOrder && s.VirtualRanks == 0 && !bare:
			return invalid("shuffle.in_order", "true, but there are no virtual ranks")
		}
	}
	identities := make(map[string]bool, len(d.Partitions))
	for i := range d.Partitions {
		p := &d.Partitions[i]
		if identities[p.Identity] {
			return invalid("identity", "%q is there twice", p.Identity).at("partitions", i)
		}
		identities[p.Identity] = true
		if e := p.check(d, bare); e != nil {
			return e.at("partitions", i)
		}
	}
	return nil
}

func (d *Dataset) texts(bare bool) *Error {
	switch {
	case d.Name == "":
		return invalid("name", "missing")
	case bare:
		return nil
	case d.Unit != sources.Bytes && d.Unit != sources.Records && d.Unit != sources.Entries:
		return invalid("unit", "%.40q: must be bytes, records or entries", d.Unit)
	}
	return text("name", d.Name, 1, 256)
}

func (p *Partition) texts(bare bool) *Error {
	switch {
	case p.Identity == "":
		return invalid("identity", "missing")
	case bare:
		return nil
	}
	if u := p.Unit; u != "" && u != sources.Bytes && u != sources.Records && u != sources.Entries {
		return invalid("unit", "%.40q: must be bytes, records or entries", u)
	}
	if e := text("identity", p.Identity, 1, 4096); e != nil {
		return e
	}
	return text("name", p.Name, 0, 4096)
}

func (p *Partition) check(d *Dataset, bare bool) *Error {
	if e := p.texts(bare); e != nil {
		return e
	}
	_, rank := d.VirtualRank(p)
	if rank < 0 {
		return invalid("identity", "%.80q is of none of the %d virtual ranks", p.Identity, d.Shuffle.VirtualRanks)
	}
	room, e := p.room(d, rank)
	if e != nil {
		return e
	}
	room.bare = bare
	if !bare {
		switch {
		case p.Done > 0 && !p.Complete:
			return invalid("done", "%d passes, but the listing is not complete", p.Done)
		case d.Shuffle != nil && !p.Complete && len(p.Passes) > 0:
			return invalid("passes", "a shuffled pass begins when the listing is complete, and it is not")
		}
	}
	return p.settled(&room)
}

// room says where the positions of a partition may lie.
type room struct {
	bare     bool // the cut has no segments: every position is accepted
	shuffled bool
	end      int64 // if shuffled: the end of order segment 0
	segs     []sources.Segment
}

// room checks the table of segments and returns the room that it makes.
func (p *Partition) room(d *Dataset, rank int) (room, *Error) {
	r := room{shuffled: d.Shuffle != nil, segs: p.Segments}
	total, blocks, last := int64(0), int64(0), int64(-1)
	for i := range p.Segments {
		g := &p.Segments[i]
		if g.ID <= last {
			return r, invalid("id", "%d, must be above the one before it", g.ID).at("segments", i)
		}
		last = g.ID
		if g.Start < -maxLine || g.Start > g.End || g.End > maxLine {
			return r, invalid("", "[%d, %d) is no range of offsets", g.Start, g.End).at("segments", i)
		}
		total += g.End - g.Start
		switch {
		case !g.Sealed && i < len(p.Segments)-1:
			return r, invalid("sealed", "false, but only the last segment may grow").at("segments", i)
		case len(g.Locator) > 1<<20 || len(g.Name) > 1<<20:
			return r, invalid("", "name or locator is longer than 2^20 bytes").at("segments", i)
		case total > maxLine:
			return r, invalid("", "the segments up to it have more than 2^60 units").at("segments", i)
		}
		if r.shuffled {
			blocks += (g.End - g.Start + d.Shuffle.Block - 1) / d.Shuffle.Block
		}
	}
	if r.shuffled {
		if blocks > maxLine/d.Shuffle.Block {
			return r, invalid("segments", "%d blocks of %d are more than 2^60 units", blocks, d.Shuffle.Block)
		}
		r.end = d.Shuffle.BlocksOf(rank, blocks) * d.Shuffle.Block
	}
	return r, nil
}

// holds says whether a place lies inside a segment, or at its end. An unsealed segment
// may have grown since, so it has no upper limit here.
func (r *room) holds(at Place) bool {
	switch {
	case r.bare:
		return true
	case r.shuffled:
		return at.Segment == 0 && 0 <= at.Offset && at.Offset <= r.end
	}
	i, ok := slices.BinarySearchFunc(r.segs, at.Segment, func(g sources.Segment, id int64) int { return cmp.Compare(g.ID, id) })
	if !ok {
		return len(r.segs) == 0 && at == Place{}
	}
	g := &r.segs[i]
	last := g.End
	if !g.Sealed {
		last = maxLine
	}
	return g.Start <= at.Offset && at.Offset <= last
}

func text(field, s string, least, most int) *Error {
	switch {
	case len(s) < least:
		return invalid(field, "missing")
	case len(s) > most:
		return invalid(field, "%d bytes long, at most %d", len(s), most)
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return invalid(field, "%q has a control character", s)
	}
	return nil
}

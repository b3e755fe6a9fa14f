package shardsvc

import (
	"errors"
	"fmt"
	"slices"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
	"github.com/headrace/headrace/sources"
)

// dataset is a named use of a source.
type dataset struct {
	id                       DatasetID
	name, reason             string
	spec                     []byte
	opt                      Options
	paused, failed, partsAll bool
	removed                  bool
	folds                    bool // as of the core, for methods that have no core at hand
	acksBind                 bool // what is acked counts as bound

	parts []*partition // by number
	ready line.Queue[*partition]

	waiting line.Queue[request]
	told    State // what waiting requests were told last
	untold  int   // requests that were told nothing yet
	kicked  bool

	// Of all partitions: units of one reading, units below frontiers of all
	// passes begun, pending units, partitions not complete, drained, settled.
	total, planned, pending          int64
	incomplete, undrained, unsettled int
	leases                           int
	done                             bool // was reported
	sumRate                          int64
	rated                            int // workers with a rate
	nextScan                         Time
	scanAt                           Time
	dirty                            bool
}

func (o *Options) validate() error {
	switch {
	case o.Passes < 1 || o.Passes > 1<<31:
		return fmt.Errorf("passes is %d, must be 1 to 2147483648", o.Passes)
	case o.Min < 1 || o.Max < o.Min:
		return fmt.Errorf("lease sizes: min %d, max %d; need 1 <= min <= max", o.Min, o.Max)
	case o.Initial < 1:
		return fmt.Errorf("lease initial is %d, must be at least 1", o.Initial)
	case o.Target <= 0:
		return fmt.Errorf("lease target is %d ns, must be positive", o.Target)
	case o.Stall < 0:
		return fmt.Errorf("lease stall is %d ns, must not be negative", o.Stall)
	case o.Shuffle && (o.Block < 1 || o.Block > 1<<40):
		return fmt.Errorf("shuffle block is %d, must be 1 to 2^40", o.Block)
	case o.Max > line.Max || o.Initial > line.Max:
		return fmt.Errorf("lease sizes: max %d, initial %d; at most 2^60", o.Max, o.Initial)
	case o.Resume > ResumeStart:
		return fmt.Errorf("unknown resume %d", o.Resume)
	case o.VirtualRanks > cut.MaxVirtualRanks:
		return fmt.Errorf("%d virtual ranks, at most %d", o.VirtualRanks, cut.MaxVirtualRanks)
	case o.VirtualRanks > 0 && !(o.Shuffle && o.Strict):
		return errors.New("virtual ranks need blocks and a strict order")
	case o.InOrder && o.VirtualRanks == 0:
		return errors.New("blocks in order are for virtual ranks")
	case o.Shuffle && o.Strict && o.VirtualRanks == 0:
		return errors.New("order: strict and shuffle exclude each other")
	}
	return nil
}

func (c *Core) applyDataset(e *ApplyDataset) {
	if err := e.Options.validate(); err != nil {
		c.rejected("dataset %q: %v", e.Name, err)
		return
	}
	d := c.dataset(e.ID)
	if x := c.named(e.Name); e.Name == "" || x != nil && x != d {
		c.rejected("dataset %q: it has no name, or another one has it", e.Name)
		return
	}
	if err := c.badResume(d, e.Options.Resume); err != nil {
		c.rejected("dataset %q: %v", e.Name, err)
		return
	}
	if d == nil {
		if e.ID != c.nextDS {
			c.rejected("dataset %q: number %d is not the next, %d", e.Name, e.ID, c.nextDS)
			return
		}
		c.nextDS++
		c.dirty.job = true
		d = c.newDataset(e.ID)
		c.setOptions(d, e.Options)
	}
	o, n := d.opt, e.Options
	switch {
	case o.Strict != n.Strict || o.Shuffle != n.Shuffle || o.Seed != n.Seed || o.Block != n.Block || o.VirtualRanks != n.VirtualRanks || o.InOrder != n.InOrder:
		c.rejected("dataset %q: order, shuffle and bit_exact can not change once it exists: delete it and apply it again", d.name)
		return
	case n.Passes != o.Passes && slices.ContainsFunc(d.parts, func(p *partition) bool { return p.Pruned || p.begun() > uint32(n.Passes) }):
		c.rejected("dataset %q: passes can not change from %d to %d so late: records of the last pass are settled", d.name, o.Passes, n.Passes)
		return
	}
	d.name, d.spec = e.Name, e.Spec
	c.setOptions(d, n)
	c.dirtyDataset(d)
	for _, p := range d.parts {
		c.changed(p)
	}
	c.kick(d)
}

func (c *Core) setOptions(d *dataset, o Options) {
	d.opt = o
	d.folds = c.folds
	d.acksBind = c.folds && !c.hasBound()
}

func (c *Core) newDataset(id DatasetID) *dataset {
	d := &dataset{id: id}
	for int64(len(c.datasets)) <= int64(id) {
		c.datasets = append(c.datasets, nil)
	}
	c.datasets[id] = d
	return d
}

func (c *Core) removeDataset(id DatasetID) {
	d := c.dataset(id)
	if d == nil {
		c.rejected("remove: no dataset %d", id)
		return
	}
	d.removed = true
	for _, p := range d.parts {
		for _, ps := range p.passes {
			for ps.leases != nil {
				l := ps.leases
				c.reply(Reply{To: l.w.session(), Kind: ReplyRevoke, Token: l.token, Reason: "dataset " + d.name + " was deleted"})
				c.forget(l)
			}
			ps.gone = true
		}
		c.parts[p.no] = nil
	}
	for d.waiting.Len() > 0 {
		c.stand(d, d.waiting.Pop(), Deleted, "dataset "+d.name+" was deleted")
	}
	c.dropParked(d, "dataset "+d.name+" was deleted")
	for _, letter := range []byte{keyDataset, keyPartition, keySegment, keySettled, keyAck, keyTries, keyExcluded} {
		c.fx.put(DeleteRange,
			func(b []byte) []byte { return appendNumbers(b, letter, id) },
			func(b []byte) []byte { return appendNumbers(b, letter, id+1) })
	}
	c.datasets[id] = nil
}

func (c *Core) setPaused(id DatasetID, paused bool) {
	d := c.dataset(id)
	if d == nil {
		c.rejected("pause: no dataset %d", id)
		return
	}
	d.paused = paused
	if !paused {
		d.failed, d.reason = false, ""
		for _, p := range d.parts {
			for _, ps := range p.passes {
				c.forgiveFailures(ps)
			}
		}
	}
	if paused {
		c.recallLeads(d)
	}
	c.dirtyDataset(d)
	c.kick(d)
}

func (c *Core) failDataset(d *dataset, reason string) {
	if d.failed {
		return
	}
	d.failed, d.reason = true, reason
	c.dirtyDataset(d)
	c.report(Report{Kind: ReportDatasetFailed, Dataset: d.id, Reason: reason})
	c.kick(d)
}

func (c *Core) addPartition(e *AddPartition) {
	d := c.dataset(e.Dataset)
	if d == nil || e.Number != c.nextPart || d.partsAll {
		c.rejected("partition %d %q of dataset %d: unknown dataset, listing finished, or not the next number %d", e.Number, e.Identity, e.Dataset, c.nextPart)
		return
	}
	if e.Identity == "" || slices.ContainsFunc(d.parts, func(p *partition) bool { return p.identity == e.Identity }) {
		c.rejected("partition %d of dataset %d: no identity, or %q is there already", e.Number, e.Dataset, e.Identity)
		return
	}
	if err := (&partition{ds: d}).named(e.Identity); err != nil {
		c.rejected("dataset %q: %v", d.name, err)
		return
	}
	c.needSegments(c.makePartition(d, e.Identity, e.Name, e.Estimated))
}

func (c *Core) makePartition(d *dataset, identity, name string, estimated bool) *partition {
	p := c.newPartition(d, c.nextPart)
	c.nextPart++
	c.dirty.job = true
	if err := p.named(identity); err != nil {
		panic("shardsvc: " + err.Error()) // was checked
	}
	p.name, p.estimated = name, estimated
	c.dirtyPartition(p)
	return p
}

// noSegments is the table of a partition of d before any segment is listed.
func (d *dataset) noSegments() line.Table {
	t := line.Table{LastSeg: -1}
	if o := &d.opt; o.Shuffle {
		t.Blocks = line.Blocks{Size: o.Block, Seed: o.Seed, InOrder: o.InOrder, Every: 1}
	}
	return t
}

func (c *Core) newPartition(d *dataset, no PartitionNo) *partition {
	p := &partition{no: no, ds: d, Table: d.noSegments()}
	d.parts = append(d.parts, p)
	d.incomplete++
	d.undrained++
	d.unsettled++
	for int64(len(c.parts)) <= int64(no) {
		c.parts = append(c.parts, nil)
	}
	c.parts[no] = p
	return p
}

func (c *Core) partitionsListed(id DatasetID) {
	d := c.dataset(id)
	if d == nil {
		c.rejected("partitions listed: no dataset %d", id)
		return
	}
	d.partsAll = true
	c.dirtyDataset(d)
	c.kick(d)
}

func (c *Core) addSegments(e *AddSegments) {
	p := c.partition(e.Partition)
	if p == nil {
		c.rejected("segments: no partition %d", e.Partition)
		return
	}
	for i := range e.Segments {
		s := &e.Segments[i]
		if s.ID <= p.LastSeg {
			continue
		}
		if p.Complete || s.ID < 0 || !p.Fits(s.Start, s.End) {
			c.rejected("partition %s: segment %d [%d, %d) %s: the listing is complete or the bounds are wrong", p.label(), s.ID, s.Start, s.End, s.Name)
			return
		}
		if n := len(p.Segs); n > 0 && !p.Segs[n-1].Sealed {
			c.endLead(p)
			p.Segs[n-1].Sealed = true
			c.putSegment(p, &p.Segs[n-1])
		}
		c.putSegment(p, c.appendSegment(p, s))
	}
	p.asked = false
	if e.Complete && !p.Complete {
		c.complete(p)
		c.dirtyPartition(p)
	}
	c.needSegments(p)
	c.changed(p)
	c.kick(p.ds) // a strict partition's holder may wait for it
}

func (c *Core) appendSegment(p *partition, s *sources.Segment) *line.Segment {
	if p.counts1() {
		p.ds.total += s.End - s.Start
	}
	return p.Extend(s)
}

// complete: the line is final.
func (c *Core) complete(p *partition) {
	if n := len(p.Segs); n > 0 && !p.Segs[n-1].Sealed {
		c.endLead(p)
		p.Segs[n-1].Sealed = true
		if c.fx != nil {
			c.putSegment(p, &p.Segs[n-1])
		}
	}
	p.Complete = true
	p.ds.incomplete--
}

func (c *Core) putSegment(p *partition, s *line.Segment) {
	v := segmentValue{s.Start, s.End, s.Sealed, s.Locator, s.Name}
	c.fx.put(Set, func(b []byte) []byte {
		return be.AppendUint64(appendNumbers(b, keySegment, p.ds.id, p.no), flip(s.ID))
	}, v.append)
}

// needSegments asks discovery for more when few are left to plan. A shuffled
// pass needs all of them.
func (c *Core) needSegments(p *partition) {
	if p.Complete || p.asked || p.Growing() {
		return
	}
	if ps := p.last(); !p.ds.opt.Shuffle && len(p.Segs) > 0 {
		at := 0
		if ps != nil {
			at = p.SegAt(ps.frontier)
		}
		if len(p.Segs)-at > c.cfg.Ahead {
			return
		}
	}
	p.asked = true
	c.report(Report{Kind: ReportNeedSegments, Dataset: p.ds.id, Partition: p.no, Segment: p.LastSeg})
}

package shardsvc

import (
	"slices"

	"github.com/headrace/headrace/shardsvc/line"
	"github.com/headrace/headrace/sources"
)

// dataset is a named use of a source.
type dataset struct {
	id       DatasetID
	name     string
	spec     []byte
	opt      Options
	state    datasetState
	reason   string      // of failed
	losses   []lostRange // those that made it fail, and those that were found since; in memory only
	partsAll bool        // it gets no more partitions
	folds    bool        // a copy of ledger.folds, for methods without a ledger
	acksBind bool        // acked records count as bound: no cut is bound, and acks fold

	landings landings // transactions that were pushed
	bad      badRecords

	parts      []*partition          // by number
	byIdentity map[string]*partition // the same, by identity
	ready      readyQueues
	newest     int // grants of the source since the last one of the backfill

	waiting line.Queue[request]
	told    State // what waiting requests were told last
	untold  int   // requests that were told nothing yet
	kicked  bool

	// Sums over all partitions. total: units of one reading. planned: units below the
	// frontiers of all passes that have begun. pending: units. incomplete, undrained,
	// unsettled: partitions.
	total, planned, pending          int64
	incomplete, undrained, unsettled int
	leases                           int
	done                             bool // was reported
	sumRate                          [inputs]int64
	rated                            [inputs]int // workers with a rate
	nextScan                         Time
	level                            map[*holder]bool // the rows that are left are spread evenly over them (level.go)
	levelUntil                       Time
	levelPart                        int64 // units of each
	scanAt                           Time
	dirty                            bool
}

func (lg *ledger) applyDataset(e *ApplyDataset) {
	if err := e.Options.validate(); err != nil {
		lg.rejected("dataset %q: %v", e.Name, err)
		return
	}
	d := lg.dataset(e.ID)
	if x := lg.named(e.Name); e.Name == "" || x != nil && x != d {
		lg.rejected("dataset %q: its name is empty, or another dataset has it", e.Name)
		return
	}
	if err := lg.badResume(d, e.Options.Resume); err != nil {
		lg.rejected("dataset %q: %v", e.Name, err)
		return
	}
	if d == nil {
		if e.ID != lg.nextDS {
			lg.rejected("dataset %q: number %d is not the next, %d", e.Name, e.ID, lg.nextDS)
			return
		}
		lg.nextDS++
		lg.jobDirty = true
		d = lg.newDataset(e.ID)
		lg.setOptions(d, e.Options)
	}
	o, n := d.opt, e.Options
	switch {
	case o.Strict != n.Strict || o.Shuffle != n.Shuffle || o.Seed != n.Seed || o.Block != n.Block || o.VirtualRanks != n.VirtualRanks || o.InOrder != n.InOrder:
		lg.rejected("dataset %q: order, shuffle and bit_exact cannot change once it exists: delete it and apply it again", d.name)
		return
	case o.Backfill.Kind != n.Backfill.Kind:
		lg.rejected("dataset %q: its backfill cannot change from %q to %q once it exists: delete it and apply it again", d.name, o.Backfill.Kind, n.Backfill.Kind)
		return
	case n.Passes != o.Passes && slices.ContainsFunc(d.parts, func(p *partition) bool { return p.Pruned || p.begun() > uint32(n.Passes) }):
		lg.rejected("dataset %q: passes cannot change from %d to %d so late: records of the last pass are settled", d.name, o.Passes, n.Passes)
		return
	}
	d.name, d.spec = e.Name, e.Spec
	lg.setOptions(d, n)
	lg.dirtyDataset(d)
	for _, p := range d.parts {
		p.young = nil // the limit of age may have changed
		lg.changed(p)
	}
	lg.kick(d)
}

func (lg *ledger) setOptions(d *dataset, o Options) {
	d.opt = o
	d.folds = lg.folds
	d.acksBind = lg.folds && !lg.someBound
}

func (lg *ledger) newDataset(id DatasetID) *dataset {
	d := &dataset{id: id, byIdentity: map[string]*partition{}}
	for int64(len(lg.datasets)) <= int64(id) {
		lg.datasets = append(lg.datasets, nil)
	}
	lg.datasets[id] = d
	return d
}

func (lg *ledger) removeDataset(e *RemoveDataset) {
	id := e.ID
	d := lg.dataset(id)
	if d == nil {
		lg.rejected("remove: no dataset %d", id)
		return
	}
	d.state = removed
	for _, p := range d.parts {
		for _, ps := range p.passes {
			for ps.leases != nil {
				l := ps.leases
				lg.reply(Reply{To: l.w.session(), Kind: ReplyRevoke, Token: l.token, Reason: "dataset " + d.name + " was deleted"})
				lg.forget(l)
			}
			ps.gone = true
		}
		lg.parts[p.no] = nil
	}
	for d.waiting.Len() > 0 {
		lg.deleted(d, d.waiting.Pop(), "dataset "+d.name+" was deleted")
	}
	lg.dropParked(d, "dataset "+d.name+" was deleted")
	for _, letter := range []byte{keyDataset, keyPartition, keySegment, keySettled, keyAck, keyTries, keyExcluded, keyDropped, keyLetter, keyTransaction} {
		lg.fx.put(DeleteRange,
			func(b []byte) []byte { return appendNumbers(b, letter, id) },
			func(b []byte) []byte { return appendNumbers(b, letter, id+1) })
	}
	lg.datasets[id] = nil
	if e.Leftover {
		lg.keepLeftover(Leftover{id, d.name, d.spec})
	}
}

func (lg *ledger) setPaused(id DatasetID, pause bool) {
	d := lg.dataset(id)
	if d == nil {
		lg.rejected("pause: no dataset %d", id)
		return
	}
	if pause {
		d.pause()
		lg.recallLeads(d)
	} else {
		d.resume()
		for _, p := range d.parts {
			for _, ps := range p.passes {
				lg.forgiveFailures(ps)
			}
		}
	}
	lg.dirtyDataset(d)
	lg.kick(d)
}

// failDataset stops a dataset with a reason. lost says that the source has lost records
// and the spec says on_loss: stop.
func (lg *ledger) failDataset(d *dataset, reason string, lost bool) {
	if !d.fail(reason) {
		return
	}
	lg.dirtyDataset(d)
	lg.report(Report{Kind: ReportDatasetFailed, Dataset: d.id, Reason: reason, Lost: lost})
	lg.kick(d)
}

func (lg *ledger) addPartition(e *AddPartition) {
	d := lg.dataset(e.Dataset)
	if d == nil || e.Number != lg.nextPart || d.partsAll {
		lg.rejected("partition %d %q of dataset %d: unknown dataset, listing finished, or not the next number %d", e.Number, e.Identity, e.Dataset, lg.nextPart)
		return
	}
	if e.Identity == "" || d.byIdentity[e.Identity] != nil {
		lg.rejected("partition %d of dataset %d: no identity, or %q is there already", e.Number, e.Dataset, e.Identity)
		return
	}
	if err := (&partition{ds: d}).named(e.Identity); err != nil {
		lg.rejected("dataset %q: %v", d.name, err)
		return
	}
	lg.needSegments(lg.makePartition(d, e.Identity, e.Name, e.Estimated))
	lg.endLostPushed(d, e.Identity)
}

func (lg *ledger) makePartition(d *dataset, identity, name string, estimated bool) *partition {
	p := lg.newPartition(d, lg.nextPart)
	lg.nextPart++
	lg.jobDirty = true
	if err := p.named(identity); err != nil {
		panic("shardsvc: " + err.Error()) // was checked
	}
	d.byIdentity[identity] = p
	p.name, p.estimated = name, estimated
	lg.dirtyPartition(p)
	return p
}

// noSegments is the table of a partition of d while no segment is listed.
func (d *dataset) noSegments() line.Table {
	t := line.Table{LastSeg: -1}
	if o := &d.opt; o.Shuffle {
		t.Blocks = line.Blocks{Size: o.Block, Seed: o.Seed, InOrder: o.InOrder, Every: 1}
	}
	return t
}

func (lg *ledger) newPartition(d *dataset, no PartitionNo) *partition {
	p := &partition{no: no, ds: d, Table: d.noSegments()}
	d.parts = append(d.parts, p)
	d.incomplete++
	d.undrained++
	d.unsettled++
	for int64(len(lg.parts)) <= int64(no) {
		lg.parts = append(lg.parts, nil)
	}
	lg.parts[no] = p
	return p
}

func (lg *ledger) partitionsListed(id DatasetID) {
	d := lg.dataset(id)
	if d == nil {
		lg.rejected("partitions listed: no dataset %d", id)
		return
	}
	d.partsAll = true
	lg.dirtyDataset(d)
	lg.kick(d)
}

func (lg *ledger) addSegments(e *AddSegments) {
	p := lg.partition(e.Partition)
	if p == nil {
		lg.rejected("segments: no partition %d", e.Partition)
		return
	}
	for i := range e.Segments {
		s := &e.Segments[i]
		if s.ID <= p.LastSeg {
			continue
		}
		if p.Complete || s.ID < 0 || !p.Fits(s.Start, s.End) {
			lg.rejected("partition %s: segment %d [%d, %d) %s: the listing is complete or the bounds are wrong", p.label(), s.ID, s.Start, s.End, s.Name)
			return
		}
		if n := len(p.Segs); n > 0 && !p.Segs[n-1].Sealed {
			lg.endLead(p)
			p.Segs[n-1].Sealed = true
			lg.putSegment(p, &p.Segs[n-1])
		}
		lg.putSegment(p, lg.appendSegment(p, s))
	}
	p.asked = false
	if e.Complete && !p.Complete {
		lg.complete(p)
		lg.dirtyPartition(p)
	}
	lg.needSegments(p)
	lg.changed(p)
	lg.kick(p.ds) // a strict partition's holder may wait for it
}

func (lg *ledger) appendSegment(p *partition, s *sources.Segment) *line.Segment {
	if p.counts1() {
		p.ds.total += s.End - s.Start
	}
	return p.Extend(s)
}

// complete makes the line final: no segment will follow.
func (lg *ledger) complete(p *partition) {
	if n := len(p.Segs); n > 0 && !p.Segs[n-1].Sealed {
		lg.endLead(p)
		p.Segs[n-1].Sealed = true
		if lg.fx != nil {
			lg.putSegment(p, &p.Segs[n-1])
		}
	}
	p.Complete = true
	p.ds.incomplete--
}

func (lg *ledger) putSegment(p *partition, s *line.Segment) {
	v := segmentValue{s.Start, s.End, s.Sealed, s.Locator, s.Name}
	lg.fx.put(Set, func(b []byte) []byte {
		return be.AppendUint64(appendNumbers(b, keySegment, p.ds.id, p.no), flip(s.ID))
	}, v.append)
}

// needSegments asks discovery for more segments when few are left to plan. A shuffled pass
// needs all segments before it begins.
func (lg *ledger) needSegments(p *partition) {
	if p.Complete || p.asked || p.Growing() {
		return
	}
	if ps := p.last(); !p.ds.opt.Shuffle && len(p.Segs) > 0 {
		at := 0
		if ps != nil {
			at = p.SegAt(ps.frontier)
		}
		if len(p.Segs)-at > lg.cfg.Ahead {
			return
		}
	}
	p.asked = true
	lg.report(Report{Kind: ReportNeedSegments, Dataset: p.ds.id, Partition: p.no, Segment: p.LastSeg})
}

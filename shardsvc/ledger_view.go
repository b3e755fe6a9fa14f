package shardsvc

import (
	"slices"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
)

// DatasetInfo is what the core knows of one dataset.
type DatasetInfo struct {
	ID      DatasetID
	Name    string
	Spec    []byte
	Options Options
	State   DatasetState
	Reason  string
	Counts  Counts // of its source
	// Backfill has the counts of the backfill, in its own unit.
	Backfill Counts
	Records  cut.Tally // acked, in all passes; private: its times are bounds
	// Reached is the newest event time that is acked, of the partition that is furthest
	// behind, in ms; 0: no partition that is behind has one.
	Reached         int64
	Partitions      int
	PartitionsKnown bool // all partitions are listed (PartitionsListed)
	ListingComplete bool
	Pass            uint32 // oldest one that is not settled
	Leases          int
	Waiting         int // open requests
	Bad             BadInfo
}

// Counts are in units of the source.
type Counts struct {
	Listed, Planned, Pending, Leased, Settled int64
	Acked, Excluded, Dropped                  int64
	Committed, Bound                          int64
}

// PartitionInfo says how far one partition is listed.
type PartitionInfo struct {
	Number      PartitionNo
	Dataset     DatasetID
	Identity    string
	Label       string // what people call it
	Source      string // its identity without the virtual rank
	Complete    bool
	LastSegment int64 // -1: none
	Segments    int   // kept in memory
	Ahead       int64 // units listed beyond the frontier
	Growing     bool  // the last segment is unsealed
	Head        int64 // where it ends, as far as is known
}

// PassInfo is the state of one (partition, pass).
type PassInfo struct {
	Number    PartitionNo
	Identity  string
	Label     string // what people call the partition
	Unit      string // of its offsets
	Pass      uint32
	Distances Distances
	Counts    Counts
	Leases    int
	Lease     []LeaseInfo // at most 100
}

// Distances to head in units: Committed >= Bound >= Acked >= Leased >= Planned.
type Distances struct {
	Committed, Bound, Acked, Leased, Planned, Head int64
	Estimated                                      bool
}

type LeaseInfo struct {
	Token              Token
	Agent              string
	Rank               uint32
	Segment            int64
	Start, Prefix, End int64
	Age                Time
}

// Datasets in order of number.
func (lg *ledger) Datasets() []DatasetInfo {
	var all []DatasetInfo
	for _, d := range lg.datasets {
		if d != nil {
			all = append(all, lg.info(d))
		}
	}
	return all
}

func (lg *ledger) Dataset(id DatasetID) (DatasetInfo, bool) {
	if d := lg.dataset(id); d != nil {
		return lg.info(d), true
	}
	return DatasetInfo{}, false
}

// DatasetState is the state of a dataset as people and tools see it.
type DatasetState string

const (
	DatasetListing DatasetState = "listing" // nothing is listed yet
	DatasetRunning DatasetState = "running"
	DatasetPaused  DatasetState = "paused"
	DatasetFailed  DatasetState = "failed"
	DatasetDone    DatasetState = "done"
)

func (lg *ledger) info(d *dataset) DatasetInfo {
	i := DatasetInfo{ID: d.id, Name: d.name, Spec: d.spec, Options: d.opt, Reason: d.reason, Partitions: len(d.parts),
		PartitionsKnown: d.partsAll, ListingComplete: d.partsAll && d.incomplete == 0,
		Pass: uint32(d.opt.Passes - 1), Leases: d.leases, Waiting: d.waiting.Len(), Bad: d.bad.info()}
	for _, p := range d.parts {
		c, t := p.counts(), p.tally()
		if p.in == fromBackfill {
			i.Backfill.add(c)
		} else {
			i.Counts.add(c)
		}
		i.Records.Add(t)
		if c.Listed > c.Settled && t.Newest != 0 && (i.Reached == 0 || t.Newest < i.Reached) {
			i.Reached = t.Newest
		}
		if !p.left.settled() {
			i.Pass = min(i.Pass, p.oldest())
		}
	}
	switch y := lg.standing(d, nil).why; {
	case y == datasetFailed:
		i.State = DatasetFailed
	case y == allSettled:
		i.State = DatasetDone
	case y == datasetPaused:
		i.State = DatasetPaused
	case !i.ListingComplete && d.total == 0 && !slices.ContainsFunc(d.parts, (*partition).Growing):
		i.State = DatasetListing
	default:
		i.State = DatasetRunning
	}
	return i
}

// oldest is the oldest pass that is not settled.
func (p *partition) oldest() uint32 {
	for _, ps := range p.passes {
		if !ps.over() {
			return ps.n
		}
	}
	return min(p.begun(), uint32(p.ds.opt.Passes-1))
}

// Plus adds counts, of one unit or not.
func (a Counts) Plus(b Counts) Counts {
	a.add(b)
	return a
}

func (a *Counts) add(b Counts) {
	a.Listed += b.Listed
	a.Planned += b.Planned
	a.Pending += b.Pending
	a.Leased += b.Leased
	a.Settled += b.Settled
	a.Acked += b.Acked
	a.Excluded += b.Excluded
	a.Dropped += b.Dropped
	a.Committed += b.Committed
	a.Bound += b.Bound
}

// counts of all passes that have begun. If none has, the first one counts as listed.
func (p *partition) counts() Counts {
	n := p.foldedCounts()
	n.Listed = p.listedSoFar()
	for _, ps := range p.passes {
		n.add(ps.counts())
	}
	return n
}

func (p *partition) foldedCounts() (n Counts) {
	n.Acked, n.Excluded, n.Dropped = p.units[line.Acked], p.units[line.Excluded], p.units[line.Dropped]
	n.Settled = n.Acked + n.Excluded + n.Dropped
	n.Planned = n.Settled
	if n.Bound = p.boundDone; p.ds.acksBind || !p.ds.folds {
		n.Bound = n.Settled
	}
	n.Committed = n.Bound
	return n
}

func (ps *pass) counts() (n Counts) {
	n.Acked, n.Excluded, n.Dropped = ps.kinds[line.Acked], ps.kinds[line.Excluded], ps.kinds[line.Dropped]
	n.Settled = n.Acked + n.Excluded + n.Dropped
	n.Pending, n.Leased = ps.pendingUnits, ps.leasedUnits-ps.ahead()
	n.Planned = ps.Units(0, ps.frontier) - ps.ahead()
	switch {
	case ps.p.ds.acksBind:
		n.Bound = n.Settled
	case ps.done != &ps.base:
		_, loose := ps.droppedUnits()
		n.Bound = ps.folded + n.Excluded + n.Dropped - loose
	default:
		n.Bound = ps.boundUnits
	}
	n.Committed = n.Bound
	return n
}

func (ps *pass) distances() Distances {
	m := ps.marks()
	to := func(at int64) int64 { return ps.Units(at, m.head) }
	return Distances{to(m.committed), to(m.bound), to(m.acked), to(m.leased), to(m.planned), 0, ps.p.estimated}
}

// Partitions of a dataset, in order of number.
func (lg *ledger) Partitions(id DatasetID) []PartitionInfo {
	d := lg.dataset(id)
	if d == nil {
		return nil
	}
	all := make([]PartitionInfo, 0, len(d.parts))
	for _, p := range d.parts {
		i := PartitionInfo{Number: p.no, Dataset: id, Identity: p.identity, Label: p.label(), Source: p.source, Complete: p.Complete,
			LastSegment: p.LastSeg, Segments: len(p.Segs), Ahead: p.Total, Growing: p.Growing()}
		if n := len(p.Segs); n > 0 {
			i.Head = p.Segs[n-1].End
		}
		if ps := p.last(); ps != nil {
			i.Ahead = max(0, p.LineEnd()-ps.frontier)
		} else if p.folded > 0 {
			i.Ahead = 0
		}
		all = append(all, i)
	}
	return all
}

// State lists the passes of at most limit partitions with a number above
// after: those begun and not settled, or else the last one.
func (lg *ledger) State(now Time, id DatasetID, after PartitionNo, limit int) []PassInfo {
	d := lg.dataset(id)
	if d == nil {
		return nil
	}
	var all []PassInfo
	for _, p := range d.parts {
		if p.no <= after {
			continue
		}
		if limit--; limit < 0 {
			break
		}
		n := len(all)
		for _, ps := range p.passes {
			if !ps.over() || ps.n+1 == p.begun() {
				all = append(all, ps.info(now-lg.blocked))
			}
		}
		if n == len(all) {
			counts := p.foldedCounts()
			counts.Listed = p.listed(p.oldest())
			i := PassInfo{Number: p.no, Identity: p.identity, Label: p.label(), Unit: p.ds.opt.unit(p.in), Pass: p.oldest(), Counts: counts}
			if p.folded == 0 {
				all := p.listed(0)
				i.Distances = Distances{all, all, all, all, all, 0, p.estimated}
			}
			all = append(all, i)
		}
	}
	return all
}

func (ps *pass) info(now Time) PassInfo {
	i := PassInfo{Number: ps.p.no, Identity: ps.p.identity, Label: ps.p.label(), Unit: ps.p.ds.opt.unit(ps.p.in), Pass: ps.n, Distances: ps.distances(), Counts: ps.counts(), Leases: ps.leaseCount}
	i.Counts.Listed = ps.p.listed(ps.n)
	for l := ps.leases; l != nil && len(i.Lease) < 100; l = l.pnext {
		i.Lease = append(i.Lease, LeaseInfo{Token: l.token, Agent: l.w.speaker.name, Rank: l.w.account.no, Segment: l.segment,
			Start: l.start - l.shift, Prefix: l.prefix - l.shift, End: l.end - l.shift, Age: now - l.granted})
	}
	return i
}

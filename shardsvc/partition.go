package shardsvc

import (
	"math"
	"sort"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
)

// partition is one ordered sequence of records of a dataset. The fields that a grant and
// an ack read stand first: with thousands of partitions in turn, none is in the CPU's cache.
type partition struct {
	ds        *dataset
	passes    []*pass // begun and not folded, by number
	holder    *holder // strict: the process that has its leases
	young     *cutoff // its records before this are too old (old.go); nil: not known in this term
	no        PartitionNo
	virtual   uint32    // the virtual rank that it belongs to, from 1; 0: none
	in        input     // the input of the dataset that it belongs to
	queued    bool      // in ds.ready
	asked     bool      // ReportNeedSegments was sent for this listing
	left      remaining // what is left to do in it
	gone      bool      // another partition has its identity now
	dirty     bool
	estimated bool
	folded    uint32 // passes [0, folded) are settled and forgotten
	line.Table
	source string // its identity at the source: identity without the virtual rank

	identity  string
	name      string            // for people: label
	units     [line.Kinds]int64 // of the folded passes
	records   cut.Tally         // of the folded passes; private: see basis
	boundDone int64             // where acks fold: units of the folded passes in the newest bound cut

	excluded []exclusion // in order of pass and place
	dropped  []drop      // in order of pass and place

	holderHas int     // leases
	ended     *holder // of a virtual rank: the process that was told END
}

// remaining is what is left to do in a partition. A later state contains the earlier ones.
type remaining uint8

const (
	leftToPlan   remaining = iota // something is pending, or not planned yet
	leftToSettle                  // all passes are planned and nothing is pending: the partition is drained
	leftNothing                   // all is settled
)

func (r remaining) drained() bool { return r >= leftToSettle }
func (r remaining) settled() bool { return r >= leftNothing }

// label is what people call p.
func (p *partition) label() string {
	if p.name != "" {
		return p.name
	}
	return p.identity
}

// pass is one reading of a partition. All positions are on its line. As in partition, the
// fields that a grant and an ack read stand first.
type pass struct {
	p *partition
	line.Line
	frontier  int64     // everything below was planned
	done      *line.Set // base and acks together; is base where acks fold
	leases    *lease    // list through pnext
	n         uint32
	dirty     bool
	gone      bool
	dirtyAcks bool // unsaved or dropped is not empty

	pending                   line.Map
	base                      line.Set
	pendingUnits, leasedUnits int64
	leaseCount                int
	kinds                     [line.Kinds]int64
	records                   cut.Tally // in base; private: see basis
	tries                     line.Map  // mirrors the `t` keys

	acks    []piece      // by start; only where acks do not fold
	old     int          // of acks: those that could fold and have not yet (foldLater)
	unsaved []int64      // starts of the `a` keys that the next Flush writes
	dropped []line.Place // `a` keys that the next Flush deletes before that
	folded  int64        // acked units in base

	boundLow, boundUnits int64 // where acks fold: low mark and units of the newest bound cut
}

// piece is a range that one rank acked at one step. Pieces that were folded together have
// the highest of their steps.
type piece struct {
	start, end       int64
	rank, generation uint32
	step             int64
	cut.Tally
	inKey
}

// planned says whether all of the pass is planned, so that its frontier never moves again.
func (ps *pass) planned() bool { return ps.p.Complete && ps.frontier == ps.p.LineEnd() }

// over says whether every unit of the pass is settled.
func (ps *pass) over() bool {
	return ps.leases == nil && len(ps.pending) == 0 && ps.planned()
}

func (lg *ledger) newPass(p *partition, n uint32) *pass {
	ps := &pass{p: p, n: n, Line: line.Of(&p.Table, n)}
	ps.done = &ps.base
	if !p.ds.folds {
		ps.done = &line.Set{}
	}
	p.passes = append(p.passes, ps)
	return ps
}

// last is the newest pass that has begun; nil before the first pass begins, and after the
// last one was folded.
func (p *partition) last() *pass {
	if n := len(p.passes); n > 0 {
		return p.passes[n-1]
	}
	return nil
}

// begun counts the passes begun.
func (p *partition) begun() uint32 { return p.folded + uint32(len(p.passes)) }

// mayBegin says whether the next pass may begin now.
func (p *partition) mayBegin() bool {
	if p.begun() >= uint32(p.ds.opt.Passes) || p.LineEnd() == 0 && !p.Growing() {
		return false
	}
	ps := p.last()
	if ps == nil {
		return true
	}
	return ps.planned() && len(ps.pending) == 0
}

// hasWork says whether something could be carved.
func (p *partition) hasWork() bool {
	if !p.dated() {
		return false
	}
	for _, ps := range p.passes {
		if len(ps.pending) > 0 {
			return true
		}
	}
	if ps := p.last(); ps != nil && (ps.frontier < p.LineEnd() || ps.mayLead()) {
		return true
	}
	return p.mayBegin()
}

// changed updates everything that is derived from the state of a partition: the ready
// queue, the dataset's sums, and which finished passes fold. Call it after each change of
// pending, leased or settled ranges, or of segments.
func (lg *ledger) changed(p *partition) {
	d := p.ds
	if len(p.passes) > 0 && p.passes[0].over() { // seldom
		lg.foldPasses(p)
	}
	if lg.neverBack() {
		lg.pruneSettled(p)
	}
	end := p.LineEnd()
	now := leftToPlan
	if p.Complete && (end == 0 || p.begun() >= uint32(d.opt.Passes)) {
		now = leftNothing
		for _, ps := range p.passes {
			if len(ps.pending) > 0 || ps.frontier != end {
				now = leftToPlan
				break
			}
			if ps.leases != nil {
				now = leftToSettle
			}
		}
	}
	if now != p.left {
		d.count(p, -1)
		p.left = now
		d.count(p, 1)
		lg.kick(d)
	}
	if p.virtual > 0 {
		lg.kick(d)
		return
	}
	if !p.queued && (!d.opt.Strict || p.holder == nil) && !now.drained() && p.hasWork() {
		p.queued = true
		d.ready[p.in].Push(p)
		lg.kick(d)
	}
}

// count adds n to the partitions of d that are as p is.
func (d *dataset) count(p *partition, n int) {
	if !p.left.drained() {
		d.undrained += n
	}
	if !p.left.settled() {
		d.unsettled += n
	}
}

// foldPasses forgets finished passes and keeps only how many there were and their units.
func (lg *ledger) foldPasses(p *partition) {
	for len(p.passes) > 0 && p.passes[0].over() && len(p.passes[0].acks) == 0 && !p.passes[0].dropsLoose() {
		ps := p.passes[0]
		for i, n := range ps.kinds {
			p.units[i] += n
		}
		p.records.Add(ps.records)
		p.boundDone += ps.boundUnits
		lg.clearTries(ps, 0, math.MaxInt64)
		lg.fx.put(Delete, func(b []byte) []byte { return appendNumbers(b, keySettled, p.ds.id, p.no, ps.n) }, nil)
		ps.gone = true
		p.passes = append(p.passes[:0], p.passes[1:]...)
		p.folded++
		lg.dirtyPartition(p)
		lg.report(Report{Kind: ReportPassDone, Dataset: p.ds.id, Partition: p.no, Pass: ps.n})
	}
}

// neverBack says that no cut can be asked for, so settled records stay settled for ever.
func (lg *ledger) neverBack() bool { return lg.cfg.Model == "" }

// pruneSettled drops segments that the last pass has settled wholly, once discovery does
// not need them any more (Segments). Nothing of them may come back (neverBack).
func (lg *ledger) pruneSettled(p *partition) {
	const worthIt = 64
	if !p.Complete || p.ds.opt.Shuffle || len(p.Segs) < 2 || p.begun() < uint32(p.ds.opt.Passes) || len(p.passes) > 1 {
		return
	}
	low := p.Total
	if ps := p.last(); ps != nil {
		low = ps.done.Low
	}
	n := sort.Search(len(p.Segs), func(i int) bool { return p.Segs[i].LineEnd() > low })
	n = min(n, len(p.Segs)-1)
	if n < worthIt || n < len(p.Segs)/2 && len(p.passes) > 0 {
		return
	}
	p.Prune(n)
}

package shardsvc

import (
	"math"
	"sort"
)

// segment is a piece of the line of an unshuffled pass.
type segment struct {
	id, start, end int64
	sealed         bool
	base           int64 // where start lies on the line
	block          int64 // number of its first block, with shuffle
	locator        []byte
	name           string
}

func (s *segment) lineEnd() int64 { return s.base + s.end - s.start }

// partition is one ordered sequence of records of a dataset.
type partition struct {
	no        PartitionNo
	ds        *dataset
	identity  string
	source    string // its identity at the source: identity without the virtual rank
	name      string // for people: label
	virtual   uint32 // whose it is, from 1; 0: of no virtual rank
	estimated bool
	complete  bool // no segment will follow, all ends are final

	segs    []segment // in order of id; those of a prefix that nothing needs any more are dropped
	pruned  bool
	lastSeg int64 // id of the last one listed, -1: none
	total   int64 // units listed
	blocks  int64

	folded    uint32       // passes [0, folded) are settled and forgotten
	units     [kinds]int64 // of those
	records   Tally        // of those; private: see basis
	boundDone int64        // of those, where acks fold: in the newest bound cut
	passes    []*pass      // begun and not folded, by number

	excluded []exclusion // in order of pass and place

	holder    *worker // strict: who has its leases
	holderHas int     // leases
	queued    bool    // in ds.ready
	ended     *worker // of a virtual rank: who was told END
	asked     bool    // ReportNeedSegments was sent for this listing
	drained   bool    // all passes are planned, nothing is pending
	settled   bool    // ... and nothing is leased
	gone      bool    // another partition has its identity now
	dirty     bool
}

// label is what people call p.
func (p *partition) label() string {
	if p.name != "" {
		return p.name
	}
	return p.identity
}

// pass is one reading of a partition. All positions are on its line.
type pass struct {
	p *partition
	n uint32

	frontier int64 // everything below was planned
	pending  rangeMap
	tries    rangeMap // mirrors the `t` keys
	base     settledSet
	done     *settledSet // base and acks together; is base where acks fold
	acks     []piece     // by start; only where acks do not fold
	kinds    [kinds]int64
	folded   int64  // of kinds[acked]: units in base
	records  Tally  // of those; private: see basis
	order    *order // with shuffle

	boundLow, boundUnits int64 // where acks fold: of the newest bound cut

	pendingUnits, leasedUnits int64
	leases                    *lease // list through pnext
	leaseCount                int
	dirty, gone               bool

	unsaved   []int64 // where keys of acks begin that are to be written
	dropped   []place // keys that are to be deleted, before
	dirtyAcks bool    // there is one or the other
}

// piece is what one rank acked at one step, or, folded, up to it.
type piece struct {
	start, end       int64
	rank, generation uint32
	step             int64
	Tally
	inKey
}

// lineEnd is where the line ends for now.
func (p *partition) lineEnd() int64 {
	if !p.ds.opt.Shuffle {
		return p.total
	}
	if !p.complete {
		return 0
	}
	return p.lineBlocks() * p.ds.opt.Block
}

// segAt returns the index of the segment that contains line position pos, or
// of the last one when pos is the end of the line.
func (p *partition) segAt(pos int64) int {
	n := len(p.segs)
	if n > 0 && p.segs[n-1].base <= pos && (p.segs[n-1].end > p.segs[n-1].start || pos >= p.total) {
		return n - 1
	}
	i := sort.Search(n, func(i int) bool { return p.segs[i].lineEnd() > pos })
	return min(i, n-1)
}

// startPlace and endPlace turn line positions into order space. The border of
// two segments is the start of the second one, and as an end the end of the
// first.
func (ps *pass) startPlace(pos int64) place {
	p := ps.p
	if ps.order != nil || len(p.segs) == 0 {
		return place{0, pos}
	}
	s := &p.segs[p.segAt(pos)]
	return place{s.id, pos - s.base + s.start}
}

func (ps *pass) endPlace(pos int64) place {
	if ps.order != nil || pos == 0 || len(ps.p.segs) == 0 || pos <= ps.p.segs[0].base {
		return ps.startPlace(pos)
	}
	s := &ps.p.segs[ps.p.segAt(pos-1)]
	return place{s.id, pos - s.base + s.start}
}

// onLine is the inverse of both.
func (ps *pass) onLine(at place) (pos int64, ok bool) {
	if ps.order != nil {
		return at.offset, at.segment == 0 && at.offset >= 0 && at.offset <= ps.p.lineEnd()
	}
	i := ps.p.segByID(at.segment)
	if i < 0 {
		return 0, at == place{} && len(ps.p.segs) == 0
	}
	s := &ps.p.segs[i]
	end := s.end
	if i == len(ps.p.segs)-1 && ps.p.growing() {
		end = maxLine // a lease may end ahead of head
	}
	if at.offset < s.start || at.offset > end {
		return 0, false
	}
	return at.offset - s.start + s.base, true
}

func (p *partition) segByID(id int64) int {
	i := sort.Search(len(p.segs), func(i int) bool { return p.segs[i].id >= id })
	if i < len(p.segs) && p.segs[i].id == id {
		return i
	}
	return -1
}

// units counts the records' units of a range of the line: dead tails hold none.
func (ps *pass) units(start, end int64) int64 {
	if ps.order == nil {
		return end - start
	}
	return end - start - (ps.order.below(end) - ps.order.below(start))
}

// planned is fully so when the frontier can never move again.
func (ps *pass) planned() bool { return ps.p.complete && ps.frontier == ps.p.lineEnd() }

// over: every unit is settled.
func (ps *pass) over() bool {
	return ps.planned() && len(ps.pending) == 0 && ps.leases == nil
}

func (c *Core) newPass(p *partition, n uint32) *pass {
	ps := &pass{p: p, n: n}
	ps.done = &ps.base
	if !p.ds.folds {
		ps.done = &settledSet{}
	}
	if p.ds.opt.Shuffle && p.complete && p.blocks > 0 {
		ps.order = p.newOrder(n)
	}
	p.passes = append(p.passes, ps)
	return ps
}

// last is the newest pass begun, nil before the first and after the last.
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
	if p.begun() >= uint32(p.ds.opt.Passes) || p.lineEnd() == 0 && !p.growing() {
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
	for _, ps := range p.passes {
		if len(ps.pending) > 0 {
			return true
		}
	}
	if ps := p.last(); ps != nil && (ps.frontier < p.lineEnd() || ps.mayLead()) {
		return true
	}
	return p.mayBegin()
}

// changed keeps what follows from a partition's state: the ready queue, the
// dataset's counters, and the folding of finished passes. Call it after every
// change of pending, leases, settled, segments.
func (c *Core) changed(p *partition) {
	d := p.ds
	c.foldPasses(p)
	drained := p.complete && (p.lineEnd() == 0 || p.begun() >= uint32(d.opt.Passes))
	settled := drained
	if drained {
		for _, ps := range p.passes {
			if len(ps.pending) > 0 || ps.frontier != p.lineEnd() {
				drained, settled = false, false
				break
			}
			if ps.leases != nil {
				settled = false
			}
		}
	}
	if drained != p.drained {
		d.undrained += sign(p.drained)
		p.drained = drained
		c.kick(d)
	}
	if settled != p.settled {
		d.unsettled += sign(p.settled)
		p.settled = settled
		c.kick(d)
	}
	if p.virtual > 0 {
		c.kick(d)
		return
	}
	if !p.queued && (!d.opt.Strict || p.holder == nil) && !drained && p.hasWork() {
		p.queued = true
		d.ready.push(p)
		c.kick(d)
	}
}

func sign(was bool) int {
	if was {
		return 1
	}
	return -1
}

// foldPasses forgets finished passes but for their number and units.
func (c *Core) foldPasses(p *partition) {
	for len(p.passes) > 0 && p.passes[0].over() && len(p.passes[0].acks) == 0 {
		ps := p.passes[0]
		for i, n := range ps.kinds {
			p.units[i] += n
		}
		p.records.add(ps.records)
		p.boundDone += ps.boundUnits
		c.clearTries(ps, 0, math.MaxInt64)
		c.fx.put(Delete, func(b []byte) []byte { return appendNumbers(b, keySettled, p.ds.id, p.no, ps.n) }, nil)
		ps.gone = true
		p.passes = append(p.passes[:0], p.passes[1:]...)
		p.folded++
		c.dirtyPartition(p)
		c.report(Report{Kind: ReportPassDone, Dataset: p.ds.id, Partition: p.no, Pass: ps.n})
	}
	c.prune(p)
}

// neverBack: no cut can be asked of d, so what is settled stays so.
func (c *Core) neverBack(d *dataset) bool { return c.cfg.Model == "" || d.opt.NoCheckpoints }

// prune drops the segments that the last pass has wholly settled, once no
// listing needs them (Segments).
func (c *Core) prune(p *partition) {
	const worthIt = 64
	if !c.neverBack(p.ds) || !p.complete || p.ds.opt.Shuffle || len(p.segs) < 2 || p.begun() < uint32(p.ds.opt.Passes) || len(p.passes) > 1 {
		return
	}
	low := p.total
	if ps := p.last(); ps != nil {
		low = ps.done.low
	}
	n := sort.Search(len(p.segs), func(i int) bool { return p.segs[i].lineEnd() > low })
	n = min(n, len(p.segs)-1)
	if n < worthIt || n < len(p.segs)/2 && len(p.passes) > 0 {
		return
	}
	p.segs = append([]segment(nil), p.segs[n:]...)
	p.pruned = true
}

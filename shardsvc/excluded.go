package shardsvc

import (
	"fmt"
	"slices"

	"github.com/headrace/headrace/shardsvc/line"
)

// exclusion is one `x` key: a range of one pass that is settled as excluded. It is in order
// space, so that neighbours that are excluded one by one become one exclusion. It stays
// when its pass is folded, and when the job goes back to a cut that does not have it in its
// model.
type exclusion struct {
	listed
	kind, reason string // kind: truncated, bad_record, too_old
	when         int64  // of its first part, ms since 1970
	column       string // of a bad record
}

// loss is what a source no longer has, in its own coordinates.
type loss struct {
	segment, start, end int64
	kind, reason        string
	when                int64
	column              string // of a bad record
}

// truncated takes the news that the source has deleted [e.Start, e.End). A leased part of
// it stays leased: its holder may have read it already, and reports the loss if it has not.
// For the same reason a new term ignores the event until holders could assert their leases.
// Nothing is excluded of a partition that nobody has begun to read.
func (lg *ledger) truncated(e *Truncated) {
	p := lg.partition(e.Partition)
	if p == nil {
		lg.rejected("truncated: no partition %d", e.Partition)
		return
	}
	if lg.recovering || !p.dated() { // it is not known yet which records are too old; those are excluded as that
		return // the source will say so again
	}
	x := loss{segment: e.Segment, start: e.Start, end: e.End, kind: lossTruncated, reason: e.Reason, when: e.When}
	if p.begun() == 0 { // nobody has read from it, but a checkpoint that is restored later may have these records in its model
		if p.ds.losses != nil && !p.ds.opt.GoOnAfterLoss {
			lg.nameLoss(p.ds, lostRange{p.label(), 0, x.segment, x.start, x.end, x.kind, x.reason})
		}
		return
	}
	lg.growTo(p, line.Place{Segment: e.Segment, Offset: e.End}) // deleted records were there
	for _, ps := range p.passes {
		if ps.Order != nil {
			continue // its leases meet the loss block by block
		}
		lg.dropOld(ps)
		start, end, ok := ps.Within(x.segment, x.start, x.end)
		if !ok {
			continue
		}
		if !p.ds.opt.GoOnAfterLoss {
			if start, end, any := ps.unreadOf(&x); any {
				lg.stopAtLoss(ps, start, end, &x)
			}
			continue
		}
		if old := ps.frontier; end > old {
			lg.advance(ps, end)
			lg.addPending(ps, old, end)
		}
		lg.exclude(ps, start, end, &x)
	}
	lg.needSegments(p)
	lg.changed(p)
}

// The kinds of exclusions.
const (
	lossTruncated = "truncated"  // the source has deleted it
	badRecord     = "bad_record" // it cannot be decoded (bad.go)
)

// readLoss handles a loss that the holder of l met. From `from` on the lease is pending
// again.
func (lg *ledger) readLoss(l *lease, from int64, f *ReadFailure) {
	ps, end := l.pass, l.end
	if ps.Order == nil && f.Lost.Segment == l.segment { // deleted records were there
		lg.growTo(ps.p, line.Place{Segment: l.segment, Offset: min(f.Lost.End, end-l.shift)})
	}
	if from < end {
		lg.reportBack(l, from, ReclaimedTruncated)
	}
	lg.giveBack(l, from, untouched)
	lg.dropOld(ps)
	lg.lostLease(ps, from, end, &loss{segment: f.Lost.Segment, start: f.Lost.Start, end: f.Lost.End, kind: lossTruncated, reason: f.Message, when: f.When})
}

// lostLease excludes the lost part of [from, end), or stops the dataset. The holder of a
// lease met the loss at `from` or after it, and [from, end) is pending again.
func (lg *ledger) lostLease(ps *pass, from, end int64, x *loss) {
	first, last := int64(-1), int64(-1)
	ps.EachPiece(from, end, func(at int64, s *line.Segment, start, stop int64) {
		lo, hi := max(x.start, start), min(x.end, stop)
		if s.ID != x.segment || lo >= hi {
			return
		}
		if !ps.p.ds.opt.GoOnAfterLoss {
			if i, j := ps.pending.Overlap(at+lo-start, at+hi-start); i == j {
				return // it is too old, and excluded as that
			}
			if first < 0 {
				first = lo
			}
			last = hi
			return
		}
		lg.exclude(ps, at+lo-start, at+hi-start, x)
	})
	if first >= 0 {
		lg.stopAtLoss(ps, first, last, x)
	}
	lg.changed(ps.p)
}

// exclude settles the pending parts of [start, end), and lists each of them. It says
// whether there was one.
func (lg *ledger) exclude(ps *pass, start, end int64, x *loss) (any bool) {
	i, j := ps.pending.Overlap(start, end)
	any = i < j
	for _, s := range slices.Clone(ps.pending[i:j]) {
		lo, hi := max(s.Start, start), min(s.End, end)
		units := ps.Units(lo, hi)
		ps.pending.Clear(lo, hi)
		ps.pendingUnits -= units
		ps.p.ds.pending -= units
		ps.base.Add(lo, hi, line.Excluded)
		if ps.done != &ps.base {
			ps.done.Add(lo, hi, line.Excluded)
		}
		ps.kinds[line.Excluded] += units
		lg.dropTries(ps, lo, hi)
		lg.dirtyPass(ps)
		lg.addExclusion(ps.p, exclusion{ps.listing(lo, hi), x.kind, x.reason, x.when, x.column})
		ps.EachPiece(lo, hi, func(_ int64, s *line.Segment, start, end int64) {
			lg.report(Report{Kind: ReportExcluded, Dataset: ps.p.ds.id, Partition: ps.p.no, Pass: ps.n, Segment: s.ID,
				Start: start, End: end, Units: end - start, Reason: x.kind + ": " + x.reason, Bad: x.kind == badRecord, Old: x.kind == tooOld})
		})
	}
	return any
}

// addExclusion keeps e. If e begins where another exclusion of its kind ends, they become
// one, unless they are bad records.
func (lg *ledger) addExclusion(p *partition, e exclusion) {
	p.ds.bad.count(&e)
	i := placeIn(p.excluded, &e.listed)
	if i > 0 {
		if q := &p.excluded[i-1]; q.follows(&e) {
			q.end, q.units, q.reason = e.end, q.units+e.units, e.reason // sources delete from the beginning on, so the reason of the later part covers all
			lg.joinExclusion(p, i-1)
			return
		}
	}
	p.excluded = slices.Insert(p.excluded, i, e)
	lg.joinExclusion(p, i)
}

// joinExclusion stores p.excluded[i], together with the next one if that follows it.
func (lg *ledger) joinExclusion(p *partition, i int) {
	e := &p.excluded[i]
	if i+1 < len(p.excluded) && e.follows(&p.excluded[i+1]) {
		next := p.excluded[i+1]
		e.end, e.units, e.reason = next.end, e.units+next.units, next.reason
		lg.fx.put(Delete, next.key(keyExcluded, p), nil)
		p.excluded = slices.Delete(p.excluded, i+1, i+2)
		e = &p.excluded[i]
	}
	v := exclusionValue{e.end, e.units, e.kind, e.reason, e.when, e.column}
	lg.fx.put(Set, e.key(keyExcluded, p), v.append)
}

// follows says whether f begins where e ends.
func (e *exclusion) follows(f *exclusion) bool {
	return e.pass == f.pass && e.segment == f.segment && e.end == f.start && e.kind == f.kind && e.kind != badRecord
}

// givesWay returns the ranges of pass n that are excluded here although the model of the
// cut at l has them. Example: cuts 100 and 200 are saved. The job goes back to cut 100, and
// records after it are excluded. Then the job goes on from cut 200 after all: it has these
// records, and was kept only on storage. Bad records stay excluded.
func (p *partition) givesWay(n uint32, l *lines) (give line.Map) {
	all := ofPass(p.excluded, n)
	if len(all) == 0 {
		return nil
	}
	ps, has := p.line(n), l.of(p, n).Spans()
	for _, x := range ofPass(l.excludedOf(p), n) {
		if start, end, ok := ps.onLine(&x); ok {
			has.Clear(start, end)
		}
	}
	for _, x := range ofPass(l.droppedOf(p), n) {
		if start, end, ok := ps.onLine(&x.listed); ok {
			has.Clear(start, end)
		}
	}
	for i := range all {
		if e := &all[i]; e.kind != badRecord && !p.Forgotten(e.segment) {
			start, end, _ := ps.onLine(&e.listed)
			for _, s := range has {
				if s.Val == line.Acked {
					give.Set(max(s.Start, start), min(s.End, end), line.Acked)
				}
			}
		}
	}
	return give
}

// readmit ends the exclusion of records that are in the model of the cut at l, and returns
// how many units they are. No pass that has such records may be folded.
func (lg *ledger) readmit(p *partition, l *lines) (units int64) {
	for _, ps := range p.passes {
		for _, s := range p.givesWay(ps.n, l) {
			units += ps.Units(s.Start, s.End)
			lg.endExclusion(ps, s.Start, s.End)
			ps.EachPiece(s.Start, s.End, func(_ int64, g *line.Segment, start, end int64) {
				lg.report(Report{Kind: ReportReadmitted, Dataset: p.ds.id, Partition: p.no, Pass: ps.n, Segment: g.ID,
					Start: start, End: end, Units: end - start})
			})
		}
	}
	return units
}

// endExclusion takes [from, to) of a pass out of the list. The parts of an exclusion before
// and after it stay listed.
func (lg *ledger) endExclusion(ps *pass, from, to int64) {
	p := ps.p
	for _, e := range slices.Clone(ofPass(p.excluded, ps.n)) {
		start, end, ok := ps.onLine(&e.listed)
		if !ok || e.kind == badRecord || p.Forgotten(e.segment) || end <= from || to <= start {
			continue
		}
		i := placeIn(p.excluded, &e.listed)
		lg.fx.put(Delete, e.key(keyExcluded, p), nil)
		p.excluded = slices.Delete(p.excluded, i, i+1)
		for _, left := range [][2]int64{{start, min(end, from)}, {max(start, to), end}} {
			if left[0] < left[1] && ps.Units(left[0], left[1]) > 0 {
				lg.addExclusion(p, exclusion{ps.listing(left[0], left[1]), e.kind, e.reason, e.when, e.column})
			}
		}
	}
}

// excludedOnLine is the part of the pass that stays settled, whichever cut the job goes
// back to.
func (ps *pass) excludedOnLine() line.Map {
	var m line.Map
	for _, e := range ofPass(ps.p.excluded, ps.n) {
		if ps.p.Forgotten(e.segment) {
			continue
		}
		start, end, _ := ps.onLine(&e.listed)
		m.Set(start, end, line.Excluded)
	}
	return m
}

// loadExcluded takes the `x` keys, after everything else of the passes is loaded.
func (lg *ledger) loadExcluded(all []stored[exclusionValue]) error {
	for _, s := range all {
		p := lg.partition(s.key.part)
		v := &s.val
		if p == nil || p.ds.id != s.key.ds || s.key.pass >= p.begun() || s.key.start >= v.end || v.units < 1 {
			return fmt.Errorf("stored %s: no such partition or pass, or nothing in it", s.key)
		}
		e := exclusion{listed{s.key.pass, s.key.segment, s.key.start, v.end, v.units}, v.kind, v.reason, v.when, v.column}
		if n := len(p.excluded); n > 0 && p.excluded[n-1].overlaps(&e.listed) {
			return fmt.Errorf("stored %s: it overlaps the one before it", s.key)
		}
		p.excluded = append(p.excluded, e)
		p.ds.bad.count(&e)
	}
	for _, p := range lg.parts {
		if p == nil {
			continue
		}
		if err := p.checkExcluded(); err != nil {
			return fmt.Errorf("stored partition %s: %w", p.identity, err)
		}
	}
	return nil
}

// checkExcluded checks that the ranges that are settled as excluded are those of the
// exclusions.
func (p *partition) checkExcluded() error {
	var folded int64
	for i := range p.excluded {
		e := &p.excluded[i]
		if i > 0 && p.excluded[i-1].compare(&e.listed) >= 0 {
			return fmt.Errorf("excluded ranges are out of order at pass %d segment %d [%d, %d)", e.pass, e.segment, e.start, e.end)
		}
		if e.pass < p.folded {
			folded += e.units
		}
	}
	if folded != p.units[line.Excluded] {
		return fmt.Errorf("%d units of finished passes are excluded, their records say %d", p.units[line.Excluded], folded)
	}
	for _, ps := range p.passes {
		var units int64
		for _, e := range ofPass(p.excluded, ps.n) {
			units += e.units
			if p.Forgotten(e.segment) {
				continue
			}
			start, end, ok := ps.onLine(&e.listed)
			if !ok || ps.Units(start, end) != e.units {
				return fmt.Errorf("pass %d: excluded segment %d [%d, %d) does not hold %d units", ps.n, e.segment, e.start, e.end, e.units)
			}
		}
		for _, s := range ps.excludedOnLine() {
			if ps.base.Prefix(s.Start) < s.End {
				return fmt.Errorf("pass %d: [%d, %d) is recorded as excluded and not settled", ps.n, s.Start, s.End)
			}
		}
		if units != ps.kinds[line.Excluded] {
			return fmt.Errorf("pass %d: %d units are excluded, their records say %d", ps.n, ps.kinds[line.Excluded], units)
		}
	}
	return nil
}

// ExcludedInfo is one excluded range in the source's own coordinates.
type ExcludedInfo struct {
	Partition    PartitionNo
	Identity     string
	Label        string // what people call the partition
	Pass         uint32
	Segment      int64
	Start, End   int64
	Kind, Reason string
	When         int64  // ms since 1970
	Column       string // of a bad record
}

// Excluded lists at most limit excluded ranges of a dataset after the first skip ones, in
// order of partition, pass and place. total counts all of them.
func (lg *ledger) Excluded(id DatasetID, skip, limit int) (some []ExcludedInfo, total int) {
	d := lg.dataset(id)
	if d == nil {
		return nil, 0
	}
	for _, p := range d.parts {
		for i := range p.excluded {
			e := &p.excluded[i]
			p.eachInSource(&e.listed, func(segment, start, end int64) {
				if total++; total > skip && len(some) < limit {
					some = append(some, ExcludedInfo{p.no, p.identity, p.label(), e.pass, segment, start, end, e.kind, e.reason, e.when, e.column})
				}
			})
		}
	}
	return some, total
}

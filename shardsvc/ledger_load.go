package shardsvc

import (
	"fmt"
	"slices"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
	"github.com/headrace/headrace/sources"
)

// load makes the ledger of what was stored.
func (lg *ledger) load(l *loading) error {
	if l.job != nil {
		lg.nextDS, lg.nextPart = l.job.nextDataset, l.job.nextPartition
	}
	for _, s := range l.datasets {
		if lg.dataset(s.key.ds) != nil || s.key.ds >= lg.nextDS {
			return fmt.Errorf("stored %s: the number is taken, or not below the next one, %d", s.key, lg.nextDS)
		}
		d := lg.newDataset(s.key.ds)
		d.name, d.reason, d.spec = s.val.name, s.val.reason, s.val.spec
		lg.setOptions(d, s.val.opt)
		d.partsAll = s.val.partsAll
		d.state.load(s.val.paused, s.val.failed)
	}
	if err := lg.loadLeftovers(l.leftovers); err != nil {
		return err
	}
	if err := lg.loadPartitions(l); err != nil {
		return err
	}
	if err := lg.loadLanded(l.landed); err != nil {
		return err
	}
	if err := lg.loadPasses(l); err != nil {
		return err
	}
	for _, s := range l.ranks {
		a := lg.account(s.key.rank)
		a.step, a.ended = s.val.step, s.val.ended
	}
	return nil
}

// addTo adds what is stored of the ledger to the job.
func (lg *ledger) addTo(v *jobValue) { v.nextDataset, v.nextPartition = lg.nextDS, lg.nextPart }

// start derives what follows from the loaded state.
func (lg *ledger) start() {
	for _, p := range lg.parts {
		if p != nil {
			lg.changed(p)
			lg.needSegments(p)
		}
	}
}

// serveAll serves all datasets. If a dataset was done before, that was reported before.
func (lg *ledger) serveAll() {
	for _, d := range lg.datasets {
		if d != nil {
			d.done = d.partsAll && d.unsettled == 0
			lg.kick(d)
		}
	}
}

func (lg *ledger) loadPartitions(l *loading) error {
	for _, s := range l.parts {
		d := lg.dataset(s.key.ds)
		if d == nil || lg.partition(s.key.part) != nil || s.key.part >= lg.nextPart {
			return fmt.Errorf("stored %s: no such dataset, or the number is taken, or not below the next one, %d", s.key, lg.nextPart)
		}
		p := lg.newPartition(d, s.key.part)
		if err := p.named(s.val.identity); err != nil {
			return fmt.Errorf("stored %s: %w", s.key, err)
		}
		d.byIdentity[p.identity] = p
		p.name, p.estimated, p.folded, p.units, p.records = s.val.name, s.val.estimated, s.val.done, s.val.units, s.val.records
		if p.folded > uint32(d.opt.Passes) {
			return fmt.Errorf("stored %s: %d passes are done of %d", s.key, p.folded, d.opt.Passes)
		}
	}
	for _, s := range l.segs {
		p := lg.partition(s.key.part)
		if p == nil || p.ds.id != s.key.ds || s.key.segment <= p.LastSeg || !p.Fits(s.val.start, s.val.end) {
			return fmt.Errorf("stored %s: no such partition, or out of order", s.key)
		}
		lg.appendSegment(p, &sources.Segment{ID: s.key.segment, Start: s.val.start, End: s.val.end, Sealed: s.val.sealed, Locator: s.val.locator, Name: s.val.name})
	}
	for _, s := range l.parts {
		if s.val.complete {
			p := lg.partition(s.key.part)
			if n := len(p.Segs); n > 0 {
				p.Segs[n-1].Sealed = true
			}
			p.Complete = true
			p.ds.incomplete--
		}
	}
	for _, s := range l.parts {
		if p := lg.partition(s.key.part); !p.foldedAddUp() {
			return fmt.Errorf("stored %s: %d passes of %d units are done, its counts say %d", s.key, p.folded, p.Total, p.units)
		}
	}
	return nil
}

// foldedAddUp says whether each unit of the folded passes is settled once.
func (p *partition) foldedAddUp() bool {
	if p.folded > 0 && p.Total > line.Max/int64(p.folded) {
		return false
	}
	left, exact := p.listedFolded()
	for _, n := range p.units {
		if n < 0 || n > left {
			return false
		}
		left -= n
	}
	return left == 0 || !exact
}

// loadPasses loads the passes with their settled ranges, and then everything that refers
// to a pass: acks, tries, dropped and excluded ranges, dead letters.
func (lg *ledger) loadPasses(l *loading) error {
	for _, s := range l.settled {
		if err := lg.loadPass(s.key, &s.val); err != nil {
			return err
		}
	}
	for _, s := range l.acks {
		if err := lg.loadAcks(s.key, &s.val); err != nil {
			return err
		}
	}
	if err := lg.loadDropped(l.dropped); err != nil {
		return err
	}
	for _, s := range l.tries {
		ps, start, end, err := lg.loadRange(s.key, s.val.end)
		if err != nil {
			return err
		}
		ps.tries.Set(start, end, s.val.tries)
	}
	for _, p := range lg.parts {
		if p != nil {
			lg.loadLine(p)
		}
	}
	for _, p := range lg.parts {
		if p == nil {
			continue
		}
		if err := lg.checkRecords(p); err != nil {
			return fmt.Errorf("stored partition %s: %w", p.identity, err)
		}
	}
	if err := lg.loadExcluded(l.excluded); err != nil {
		return err
	}
	for _, p := range lg.parts {
		if p == nil {
			continue
		}
		if err := p.checkDropped(); err != nil {
			return fmt.Errorf("stored partition %s: %w", p.identity, err)
		}
	}
	return lg.loadLetters(l.letters)
}

// loadPass begins a pass with its stored settled set.
func (lg *ledger) loadPass(k key, v *settledValue) error {
	p := lg.partition(k.part)
	if p == nil || p.ds.id != k.ds || k.pass != p.begun() || k.pass >= uint32(p.ds.opt.Passes) {
		return fmt.Errorf("stored %s: no such partition, or a pass out of order", k)
	}
	lg.growTo(p, v.low)
	for _, r := range v.ranges {
		lg.growTo(p, r.end)
	}
	ps := lg.newPass(p, k.pass)
	low, ok := ps.OnLine(v.low)
	ps.base.Low = low
	ps.kinds = v.units
	ps.folded = v.units[line.Acked]
	if ps.records = v.records; lg.basis(ps) != &ps.records && ps.records != (cut.Tally{}) { // of an older version
		p.records.Add(ps.records)
		ps.records = cut.Tally{}
		lg.dirtyPartition(p)
		lg.dirtyPass(ps)
	}
	for _, r := range v.ranges {
		start, ok1 := ps.OnLine(r.start)
		end, ok2 := ps.OnLine(r.end)
		if ok = ok && ok1 && ok2 && start < end; ok {
			ps.base.Add(start, end, r.kind)
		}
	}
	if !ok {
		return fmt.Errorf("stored %s: a range lies outside the segments", k)
	}
	if sum := ps.kinds[line.Acked] + ps.kinds[line.Excluded] + ps.kinds[line.Dropped]; sum != ps.UnitsOf(&ps.base) || min(ps.kinds[line.Acked], ps.kinds[line.Excluded], ps.kinds[line.Dropped]) < 0 {
		return fmt.Errorf("stored %s: its ranges hold %d units, its counts say %d", k, ps.UnitsOf(&ps.base), sum)
	}
	if ps.done != &ps.base {
		lg.rebuildDone(ps)
	}
	return nil
}

// loadAcks adds the pieces of one stored run of acks to their pass. Each piece begins where
// the one before it ends.
func (lg *ledger) loadAcks(k key, v *ackValue) error {
	for i, x := range v.pieces {
		ps, start, end, err := lg.loadRange(k, line.Place{Segment: k.segment, Offset: x.end})
		if err != nil {
			return err
		}
		if ps.done == &ps.base || ps.done.Touches(start, end) {
			return fmt.Errorf("stored %s: settled twice, or the model kind keeps no steps", k)
		}
		units, records := ps.Units(start, end), x.records
		if v.uncounted {
			records = cut.Untold(units)
		} else if records.Untold > units {
			return fmt.Errorf("stored %s: %d units are untold of %d", k, records.Untold, units)
		}
		ps.acks = append(ps.acks, piece{start: start, end: end, rank: v.rank, generation: v.generation, step: x.step, Tally: records,
			inKey: inKey{head: i == 0, stored: i == 0}})
		ps.done.Add(start, end, line.Acked)
		ps.kinds[line.Acked] += units
		k.start = x.end
	}
	return nil
}

func (lg *ledger) loadRange(k key, to line.Place) (ps *pass, start, end int64, err error) {
	p := lg.partition(k.part)
	if p == nil || p.ds.id != k.ds || k.pass < p.folded || k.pass >= p.begun() {
		return nil, 0, 0, fmt.Errorf("stored %s: no such partition or pass", k)
	}
	ps = p.passes[k.pass-p.folded]
	lg.growTo(p, to)
	start, ok := ps.OnLine(line.Place{Segment: k.segment, Offset: k.start})
	end, ok2 := ps.OnLine(to)
	if !ok || !ok2 || start >= end {
		return nil, 0, 0, fmt.Errorf("stored %s: the range lies outside the segments", k)
	}
	return ps, start, end, nil
}

// loadLine derives frontier and pending. The frontier is the highest position that was
// ever handed out and left a trace in the store. Everything below it that is not settled
// is pending.
func (lg *ledger) loadLine(p *partition) {
	for _, n := range p.units {
		p.ds.planned += n
	}
	for i, ps := range p.passes {
		high := ps.done.High()
		if n := len(ps.tries); n > 0 {
			high = max(high, ps.tries[n-1].End)
		}
		if i < len(p.passes)-1 {
			high = p.LineEnd() // the next one began, so it was planned
		}
		lg.advance(ps, high)
		ps.done.Gaps(0, high, func(start, end int64) { lg.addPending(ps, start, end) })
	}
}

// loadRecent lines up the pieces that may fold once their step is old.
func (lg *ledger) loadRecent() {
	type mine struct {
		r *account
		recentPiece
	}
	var all []mine
	for _, p := range lg.parts {
		if p == nil {
			continue
		}
		for _, ps := range p.passes {
			for _, k := range ps.acks {
				all = append(all, mine{lg.account(k.rank), recentPiece{ps, k.start, k.step}})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b mine) int { return int(min(max(a.step-b.step, -1), 1)) })
	for _, m := range all {
		m.r.recent.Push(m.recentPiece)
	}
}

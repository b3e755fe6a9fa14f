package shardsvc

import (
	"fmt"
	"slices"

	"github.com/headrace/headrace/shardsvc/line"
)

// checkLedger checks the counts of datasets, and that leases, holders and tokens agree.
func (lg *ledger) checkLedger() error {
	for _, d := range lg.datasets {
		if d == nil {
			continue
		}
		if err := lg.checkDataset(d); err != nil {
			return fmt.Errorf("dataset %d %q: %w", d.id, d.name, err)
		}
	}
	for _, w := range lg.holders {
		n := 0
		for l := w.leases; l != nil; l = l.wnext {
			n++
			if l.w != w || lg.leases.slots[l.slot].l != l {
				return fmt.Errorf("rank %d lists a lease that is not its own or closed", w.account.no)
			}
		}
		if n != w.leaseCount || w.gone() {
			return fmt.Errorf("rank %d: %d leases, counted %d, gone %v", w.account.no, n, w.leaseCount, w.gone())
		}
	}
	for i := range lg.leases.slots {
		if l := lg.leases.slots[i].l; l != nil && lg.find(l.token) != &lg.leases.slots[i] {
			return fmt.Errorf("token %v does not find its lease", l.token)
		}
	}
	for k, at := range lg.leases.older {
		if s := &lg.leases.slots[at]; k.Term >= lg.term || s.token != k || s.l == nil && s.w == nil {
			return fmt.Errorf("token %v of an older term names slot %d, which has %v", k, at, s.token)
		}
	}
	return nil
}

func (lg *ledger) checkDataset(d *dataset) error {
	var total, planned, pending int64
	var incomplete, undrained, unsettled, leases int
	if len(d.byIdentity) != len(d.parts) {
		return fmt.Errorf("%d partitions, and %d by identity", len(d.parts), len(d.byIdentity))
	}
	for _, p := range d.parts {
		if d.byIdentity[p.identity] != p {
			return fmt.Errorf("partition %s is not found by its identity", p.identity)
		}
		if p.counts1() {
			total += p.Total
		}
		if n := p.counts(); n.Planned > n.Listed || n.Settled+n.Leased+n.Pending != n.Planned {
			return fmt.Errorf("partition %s: its counts do not add up: %+v", p.identity, n)
		}
		if !p.Complete {
			incomplete++
		}
		if !p.left.drained() {
			undrained++
		}
		if !p.left.settled() {
			unsettled++
		}
		for _, n := range p.units {
			planned += n
		}
		if err := p.checkExcluded(); err != nil {
			return fmt.Errorf("partition %d %s: %w", p.no, p.identity, err)
		}
		if err := p.checkDropped(); err != nil {
			return fmt.Errorf("partition %d %s: %w", p.no, p.identity, err)
		}
		if err := lg.checkRecords(p); err != nil {
			return fmt.Errorf("partition %d %s: %w", p.no, p.identity, err)
		}
		for _, ps := range p.passes {
			if err := lg.checkPass(ps); err != nil {
				return fmt.Errorf("partition %d %s pass %d: %w", p.no, p.identity, ps.n, err)
			}
			planned += ps.Units(0, ps.frontier)
			pending += ps.pendingUnits
			leases += ps.leaseCount
		}
		if p.hasWork() && p.virtual == 0 && !p.queued && p.holder == nil {
			return fmt.Errorf("partition %d has work and is not in the ready queue", p.no)
		}
		if p.left.drained() && p.hasWork() {
			return fmt.Errorf("partition %d is drained and has work", p.no)
		}
	}
	got := [...]int64{total, planned, pending, int64(incomplete), int64(undrained), int64(unsettled), int64(leases)}
	kept := [...]int64{d.total, d.planned, d.pending, int64(d.incomplete), int64(d.undrained), int64(d.unsettled), int64(d.leases)}
	if got != kept {
		return fmt.Errorf("total, planned, pending, incomplete, undrained, unsettled, leases are %v, kept %v", got, kept)
	}
	return nil
}

func (lg *ledger) checkPass(ps *pass) error {
	m := ps.marks()
	if !(0 <= m.committed && m.committed <= m.bound && m.bound <= m.acked && m.acked <= m.leased && m.leased <= m.planned && m.planned <= m.head) {
		return fmt.Errorf("not committed <= bound <= acked <= leased <= planned <= head: %+v", m)
	}
	if err := ps.checkLead(); err != nil {
		return err
	}
	var all []line.Span // every unit below the frontier, once
	settled := []line.Span{{End: ps.done.Low}}
	settled = append(settled, ps.done.Above...)
	all = append(all, settled...)
	all = append(all, ps.pending...)
	var pending, leased int64
	for _, s := range ps.pending {
		pending += ps.Units(s.Start, s.End)
		if i, j := ps.tries.Overlap(s.Start, s.End); s.Val != 0 && (j != i+1 || ps.tries[i].Val != s.Val) {
			return fmt.Errorf("tries of pending [%d, %d) are %x, stored otherwise", s.Start, s.End, s.Val)
		}
	}
	n := 0
	for l := ps.leases; l != nil; l = l.pnext {
		n++
		if lg.leases.slots[l.slot].l != l || l.pass != ps || l.prefix >= l.end || l.prefix < l.start || ps.StartPlace(l.prefix).Segment != ps.EndPlace(l.end).Segment {
			return fmt.Errorf("lease %v [%d, %d, %d) is closed, empty or crosses segments", l.token, l.start, l.prefix, l.end)
		}
		if ps.p.ds.opt.Strict && l.w != ps.p.holder {
			return fmt.Errorf("strict, and a lease is not the holder's")
		}
		all = append(all, line.Span{Start: l.prefix, End: l.end})
		leased += ps.Units(l.prefix, l.end)
	}
	if n != ps.leaseCount || pending != ps.pendingUnits || leased != ps.leasedUnits {
		return fmt.Errorf("leases %d, pending %d, leased %d; kept %d, %d, %d", n, pending, leased, ps.leaseCount, ps.pendingUnits, ps.leasedUnits)
	}
	slices.SortFunc(all, func(a, b line.Span) int { return cmp2(a, b) })
	at := int64(0)
	for _, s := range all {
		if s.Start != at {
			return fmt.Errorf("[%d, %d) is in none or in two of pending, leased, settled: %v", min(at, s.Start), max(at, s.Start), all)
		}
		at = s.End
	}
	if at != ps.frontier {
		return fmt.Errorf("accounted up to %d, planned up to %d", at, ps.frontier)
	}
	return lg.checkSettled(ps)
}

// checkLead: only one lease ends ahead of head, it is the last on the line, and
// nothing else is there.
func (ps *pass) checkLead() error {
	head := ps.p.LineEnd()
	if ps.frontier <= head {
		return nil
	}
	l := ps.lead()
	if l == nil || l.prefix > head || l.start > head {
		return fmt.Errorf("planned up to %d, ahead of head %d, and no lease from below head ends there", ps.frontier, head)
	}
	if n := len(ps.pending); n > 0 && ps.pending[n-1].End > head || ps.done.High() > head {
		return fmt.Errorf("pending or settled ahead of head %d", head)
	}
	for k := ps.leases; k != nil; k = k.pnext {
		if k != l && k.end > head {
			return fmt.Errorf("two leases end ahead of head %d: %v and %v", head, l.token, k.token)
		}
	}
	return nil
}

func cmp2(a, b line.Span) int {
	if a.Start != b.Start {
		return int(min(max(a.Start-b.Start, -1), 1))
	}
	return int(min(max(a.End-b.End, -1), 1))
}

// checkSettled: units per kind, and that done is base, the acks and the drops.
func (lg *ledger) checkSettled(ps *pass) error {
	sum := int64(0)
	for _, n := range ps.kinds {
		sum += n
	}
	if units := ps.Units(0, ps.frontier) - ps.pendingUnits - ps.leasedUnits; sum != units {
		return fmt.Errorf("settled %d units, counted %v", units, ps.kinds)
	}
	if ps.done == &ps.base {
		return nil
	}
	again := line.Set{Low: ps.base.Low, Above: slices.Clone(ps.base.Above)}
	end := int64(-1)
	for i, k := range ps.acks {
		if k.start < end || again.Touches(k.start, k.end) {
			return fmt.Errorf("ack piece [%d, %d) of rank %d is out of order or settled twice", k.start, k.end, k.rank)
		}
		if !k.head && (i == 0 || k.stored || k.unsaved || !lg.sameRun(ps, &ps.acks[i-1], &k)) || k.head && !k.stored && !k.unsaved {
			return fmt.Errorf("ack piece [%d, %d) of rank %d is in no key, or in one of others (%+v)", k.start, k.end, k.rank, k.inKey)
		}
		end = k.end
		again.Add(k.start, k.end, line.Acked)
	}
	ps.eachLoose(func(_ *drop, start, end int64) { again.Add(start, end, line.Dropped) })
	if again.Low != ps.done.Low || !slices.Equal(again.Above, ps.done.Above) {
		return fmt.Errorf("base, acks and drops make %+v, kept %+v", again, *ps.done)
	}
	return nil
}

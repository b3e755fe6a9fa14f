package shardsvc

import "math"

// Leveling spreads the rows that a dataset has left evenly over some holders, for a round
// that will be closed short (docs/ROUNDS.md). Holders with more than their part are asked
// for the tails of their leases, as in a steal. The holder with the fewest units gets these
// tails. Example: one of four holders has [0, 60) and has delivered nothing
// of it. It keeps [0, 15), and the others get 15 units each.

// level begins leveling. Until the given time, grants of the dataset go to the poorest holder
// first.
func (lg *ledger) level(id DatasetID, holders []*holder, until Time) {
	d := lg.dataset(id)
	if d == nil || d.opt.Strict || d.opt.VirtualRanks > 0 || len(holders) < 2 || !d.backfillOut() || !lg.standing(d, nil).why.grants() {
		return
	}
	d.level, d.levelUntil = make(map[*holder]bool, len(holders)), until
	for _, w := range holders {
		d.level[w] = true
	}
	total := d.unleased()
	poorest := holders[0]
	for _, w := range holders {
		n := lg.backlog(d, w)
		if total += n; n < lg.backlog(d, poorest) {
			poorest = w
		}
	}
	d.levelPart = (total + int64(len(holders)) - 1) / int64(len(holders))
	for _, w := range holders {
		if more := lg.backlog(d, w) - d.levelPart; more < 0 {
			lg.recallLeadsOf(d, w)
		} else {
			lg.askDown(d, w, poorest, more)
		}
	}
	lg.kick(d)
	lg.watchSteal(d, until)
}

// recallLeadsOf asks w for the parts of its leases ahead of head: a process that holds a
// lead does not ask for rows that are there.
func (lg *ledger) recallLeadsOf(d *dataset, w *holder) {
	for l := w.leases; l != nil; l = l.wnext {
		if l.pass.p.ds == d && l.leads() && !l.asked && w.mayAsk() {
			lg.askFor(l, w, max(l.prefix, l.frontier, l.pass.p.LineEnd()))
		}
	}
}

// askDown asks w for so many units, the newest leases first.
func (lg *ledger) askDown(d *dataset, w, thief *holder, units int64) {
	if !w.mayAsk() {
		return
	}
	for l := w.leases; l != nil && units > 0; l = l.wnext {
		there := l.reach() - max(l.prefix, l.frontier)
		if l.pass.p.ds != d || there <= 0 || l.asked {
			continue
		}
		n := min(units, there)
		lg.askFor(l, thief, l.reach()-n)
		units -= n
	}
}

// backlog is what w holds of d and has not acked: units that are there. It includes what the
// process of w has received, because those rows are in its next batch.
func (lg *ledger) backlog(d *dataset, w *holder) (n int64) {
	for l := w.leases; l != nil; l = l.wnext {
		if l.pass.p.ds == d {
			n += max(0, l.reach()-l.prefix)
		}
	}
	return n
}

// leveling says whether grants of d go to the poorest holder.
func (lg *ledger) leveling(d *dataset) bool { return lg.now < d.levelUntil }

// leveled ends leveling when its time has come.
func (lg *ledger) leveled(d *dataset) {
	if d.level != nil && !lg.leveling(d) {
		d.level = nil
		lg.kick(d)
	}
}

// poorestFirst moves the request of the poorest of the leveled holders to the front.
func (lg *ledger) poorestFirst(d *dataset) {
	all := d.waiting.All()
	best, fewest := 0, int64(-1)
	for i := range all {
		if d.level[all[i].w] {
			if n := lg.backlog(d, all[i].w); fewest < 0 || n < fewest {
				best, fewest = i, n
			}
		}
	}
	r := all[best]
	copy(all[1:best+1], all[:best])
	all[0] = r
}

// mostOf is the most that w may be granted at once. While d is leveled, w gets only the rest
// of its part. A holder that has its part waits until leveling ends, because free units are
// the part of another holder, which may not have asked for them yet.
func (lg *ledger) mostOf(d *dataset, w *holder) int64 {
	if !lg.leveling(d) {
		return math.MaxInt64
	}
	return lg.restOfPart(d, w)
}

func (lg *ledger) restOfPart(d *dataset, w *holder) int64 {
	if !d.level[w] || d.unleased() == 0 {
		return math.MaxInt64
	}
	return max(0, d.levelPart-lg.backlog(d, w))
}

// unleased counts the units that are there and leased to nobody.
func (d *dataset) unleased() int64 {
	n := d.pending
	for _, p := range d.parts {
		if ps := p.last(); ps != nil && ps.frontier < p.LineEnd() {
			n += ps.Units(ps.frontier, p.LineEnd())
		}
	}
	return n
}

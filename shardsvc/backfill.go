package shardsvc

import "github.com/headrace/headrace/shardsvc/line"

// backfillEvery: with NewestFirst, one grant in so many goes to the backfill, even while
// the source has records. All grants take about the same time to train.
const backfillEvery = 8

// backfillOut says whether every record of the backfill is leased or settled. Until all of
// it is listed, the answer is no.
func (d *dataset) backfillOut() bool {
	some := false
	for _, p := range d.parts {
		if p.in == fromBackfill {
			if some = true; !p.left.drained() {
				return false
			}
		}
	}
	return some || !d.opt.hasBackfill()
}

// turns returns the inputs that may be granted now, the preferred one first.
func (d *dataset) turns() (all [inputs]input, n int) {
	switch {
	case !d.opt.hasBackfill():
		return [inputs]input{fromSource}, 1
	case !d.opt.Backfill.NewestFirst && !d.backfillOut():
		return [inputs]input{fromBackfill}, 1
	case !d.opt.Backfill.NewestFirst, d.newest >= backfillEvery-1:
		return [inputs]input{fromBackfill, fromSource}, 2
	}
	return [inputs]input{fromSource, fromBackfill}, 2
}

// granting counts the grants of the source since the last one of the backfill.
func (d *dataset) granting(p *partition) {
	if d.newest++; p.in == fromBackfill || d.ready[fromBackfill].Len() == 0 {
		d.newest = 0
	}
}

// upNext is the partition of the next grant; nil: none is ready.
func (d *dataset) upNext() *partition {
	all, n := d.turns()
	for _, in := range all[:n] {
		if q := &d.ready[in]; q.Len() > 0 {
			return q.All()[0]
		}
	}
	return nil
}

// unready takes p out of the partitions that are ready.
func (d *dataset) unready(p *partition) {
	for i := range d.ready {
		d.ready[i].Keep(func(x **partition) bool { return *x != p })
	}
}

// readyQueues are the partitions with work, of each input.
type readyQueues [inputs]line.Queue[*partition]

package sim

import (
	"slices"

	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
)

// Rounds with tail="drop": records that no full round has at the end of the data are in no model. The core
// lists them, and so does each cut of that step or a later one.

// dropped says for each record whether the core lists it as dropped. It fails if one is listed twice.
func (m *master) dropped() []bool {
	w := m.w
	out := make([]bool, w.records)
	for i := range w.plan.datasets {
		d, ok := m.core.Dataset(shardsvc.DatasetID(i + 1))
		if !ok {
			continue
		}
		units := int64(0)
		all, _ := m.core.Dropped(d.ID, 1<<30)
		for _, x := range all {
			units += x.End - x.Start
			w.eachIn(x.Identity, x.Pass, x.Segment, x.Start, x.End, func(_ *segment, rec int32, _ int64) {
				if out[rec] {
					w.fail("%s is listed as dropped twice", w.input.where(rec))
				}
				out[rec] = true
			})
		}
		if counted := d.Counts.Dropped + d.Backfill.Dropped; units != counted {
			w.fail("%d units of %s are listed as dropped, %d are counted", units, d.Name, counted)
		}
		if units > 0 && !w.plan.drops {
			w.fail("%d units of %s are dropped, and no stream reads full rounds only", units, d.Name)
		}
	}
	return out
}

// markDropped sets `to` to `as` for the records that a partition of a cut lists as dropped.
func (w *World) markDropped(to []bool, as bool, d *cut.Dataset, q *cut.Partition) {
	p := w.input.part(q.Identity)
	for k := range q.Dropped {
		x := &q.Dropped[k]
		start, end := p.unfold(x.Piece.Segment, x.Piece.Start), p.unfold(x.Piece.Segment, x.Piece.End)
		w.mark(to, as, d, p, q.Identity, x.Pass, func(at cut.Place) bool { return !before(at, start) && before(at, end) })
	}
}

// droppedIn says for each record whether the cuts of some checkpoints list it as dropped.
func (w *World) droppedIn(all []*manifest) []bool {
	out := make([]bool, w.records)
	if !w.plan.drops {
		return out
	}
	for _, x := range all {
		for i := range x.cut.Datasets {
			d := &x.cut.Datasets[i]
			for j := range d.Partitions {
				w.markDropped(out, true, d, &d.Partitions[j])
			}
		}
	}
	return out
}

// checkDrops checks that each bound checkpoint of the last generation lists the records that were dropped
// at its step or before. A dataset that had no round is left out: its drop has the step of another
// dataset, and a cut of that step may be older.
func (w *World) checkDrops() {
	m := w.master
	if !w.plan.drops {
		return
	}
	all := m.dropped()
	for _, k := range m.core.Cuts() {
		x := w.storage.bound(k.Path, k.ID)
		if k.State != shardsvc.CutBound || x == nil || k.Generation != m.core.Job().Generation {
			continue
		}
		listed := w.droppedIn([]*manifest{x})
		for i := range w.plan.datasets {
			if !w.hadRounds(uint32(i+1), k.Generation) {
				continue
			}
			drops, _ := m.core.Dropped(shardsvc.DatasetID(i+1), 1<<30)
			for _, d := range drops {
				if d.Step > k.Step {
					continue
				}
				w.eachIn(d.Identity, d.Pass, d.Segment, d.Start, d.End, func(_ *segment, rec int32, _ int64) {
					if all[rec] && !listed[rec] {
						w.fail("%s was dropped at step %d, and cut %x of step %d does not list it", w.input.where(rec), d.Step, k.ID, k.Step)
					}
				})
			}
		}
	}
}

// hadRounds reports whether a generation has trained a round of a dataset. A master that has lost its disk
// counts generations from 1 again, so generations of an earlier master are left out.
func (w *World) hadRounds(dataset, generation uint32) bool {
	return slices.ContainsFunc(w.trainers, func(t *trainer) bool {
		return t.generation == generation && t.born >= w.emptied && slices.ContainsFunc(t.streams, func(r *reader) bool { return r.dataset == dataset && r.yielded > 0 })
	})
}

// inLastRound reports whether t has yielded the last round of every stream.
func (t *trainer) inLastRound() bool {
	return !slices.ContainsFunc(t.streams, func(r *reader) bool { return !r.last || r.yielded < r.through })
}

// endsUnstepped lets the program end, with success, with its last round in hand. Then no record of
// that round may be dropped.
func (t *trainer) endsUnstepped() {
	t.w.tracef(t.name, "ends, and has not stepped its last round")
	if t.l != nil && t.welcomed {
		t.flush()
		t.closes()
	}
	t.kill("it leaves")
}

// checkDropped checks that records which the core has just dropped are in no round that a rank of the
// generation has yielded. This master does not know of processes that ended before it began.
func (m *master) checkDropped(r *shardsvc.Report) {
	w := m.w
	out := make([]bool, w.records)
	all, _ := m.core.Dropped(r.Dataset, 1<<30)
	for _, x := range all {
		if x.Step == r.Step {
			w.eachIn(x.Identity, x.Pass, x.Segment, x.Start, x.End, func(_ *segment, rec int32, _ int64) { out[rec] = true })
		}
	}
	for _, t := range w.trainers {
		if t.generation != m.core.Job().Generation || !t.alive && t.died < m.born {
			continue
		}
		for _, from := range t.streams {
			for _, b := range from.batches {
				i := slices.IndexFunc(b.recs, func(rec int32) bool { return out[rec] })
				if i >= 0 && b.number <= from.yielded {
					w.fail("%s is dropped at step %d, and %s has it in round %d", w.input.where(b.recs[i]), r.Step, t.name, b.number)
				}
			}
		}
	}
}

// judgeFull checks that each round of a series with tail="drop" has all its rows on every rank.
func (t *trainer) judgeFull(r *reader) {
	if n := r.sizes[r.yielded-1]; t.w.plan.drops && n != uint64(r.rows) {
		t.w.fail("%s takes %d rows of round %d, and asked for %d", t.name, n, r.yielded, r.rows)
	}
}

package sim

import (
	"slices"

	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
)

// Rounds with tail="drop": what no full round has at the end of the data is in no model. The
// core lists it, and so does each cut that was frozen at that step or later.

// dropped are the records that the core lists as dropped, each once.
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
			w.fail("%d units of %s are dropped, and nobody reads full rounds only", units, d.Name)
		}
	}
	return out
}

// markDropped sets the records that a partition of a cut lists as dropped. as: to what.
func (w *World) markDropped(to []bool, as bool, d *cut.Dataset, q *cut.Partition) {
	p := w.input.part(q.Identity)
	for k := range q.Dropped {
		x := &q.Dropped[k]
		start, end := p.unfold(x.Piece.Segment, x.Piece.Start), p.unfold(x.Piece.Segment, x.Piece.End)
		w.mark(to, as, d, p, q.Identity, x.Pass, func(at cut.Place) bool { return !before(at, start) && before(at, end) })
	}
}

// droppedIn are the records that the cuts of some checkpoints list as dropped.
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

// checkDrops: each bound checkpoint of the last generation lists what was dropped at its step
// or before it. A dataset without a round is left out: what it drops has the step of another
// one, and a cut of that step may be older.
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

// hadRounds says whether a generation has trained a round of a dataset. A master that has lost
// its disk counts generations anew, so those of a master before that are left out.
func (w *World) hadRounds(dataset, generation uint32) bool {
	return slices.ContainsFunc(w.trainers, func(t *trainer) bool {
		return t.generation == generation && t.born >= w.emptied && slices.ContainsFunc(t.streams, func(r *reader) bool { return r.dataset == dataset && r.yielded > 0 })
	})
}

// inLastRound: t has yielded the last round of every stream.
func (t *trainer) inLastRound() bool {
	return !slices.ContainsFunc(t.streams, func(r *reader) bool { return !r.last || r.yielded < r.through })
}

// endsUnstepped: the program ends with its last round in hand, and well. So nothing of that
// round may be dropped.
func (t *trainer) endsUnstepped() {
	t.w.tracef(t.name, "ends, and has not stepped its last round")
	if t.l != nil && t.welcomed {
		t.flush()
		t.closes()
	}
	t.kill("it leaves")
}

// checkDropped: what the core has just dropped is in no round that a rank of the generation
// has yielded. A process that ended before this master began is not known to it.
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

// judgeFull: each round of a series that drops the rest has all its rows on every rank.
func (t *trainer) judgeFull(r *reader) {
	if n := r.sizes[r.yielded-1]; t.w.plan.drops && n != uint64(r.rows) {
		t.w.fail("%s takes %d rows of round %d, and asked for %d", t.name, n, r.yielded, r.rows)
	}
}

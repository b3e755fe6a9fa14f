package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
)

// Some live inputs have a history before them (backfill). In some, records that are too old are left out
// (catch_up.drop_older_than). Judged here: with in_order nothing of the source is granted while records
// of the history are pending, not planned or still to be listed; a record that the master knows to be
// too old is not granted; a record that is excluded for its age is that old. The rest is judged as for
// every input: each record is trained or excluded, once, and every cut lists it.

// historyKind is the kind of a history's partitions.
const historyKind = "h"

// drawCatchUp decides what the datasets of a seed are like, with dice of its own, so that the seed's
// other draws do not change. Pushed inputs are left out: a landing has no index of times, and its
// partitions hold only the transactions of the seed.
func (w *World) drawCatchUp(in *input) {
	if !w.plan.live || w.plan.exact > 0 || w.story.Seed%3 == 1 {
		return
	}
	dice, some := rand.New(rand.NewPCG(w.story.Seed, 0xca7c)), false
	for d := range in.datasets {
		o := &in.datasets[d].opt
		if o.Shuffle {
			continue
		}
		if dice.IntN(2) == 0 {
			most := int64(30 + dice.IntN(60))
			o.Backfill = shardsvc.Backfill{Kind: historyKind, Unit: "bytes", Initial: int64(3 + dice.IntN(20)), Min: int64(1 + dice.IntN(6)), Max: most, NewestFirst: dice.IntN(2) == 0}
			some = true
		}
		if dice.IntN(2) == 0 {
			o.DropOld, in.datasets[d].age = true, 3*second+dice.Int64N(12*second)
			some, w.ages = true, true
		}
	}
	for d := range in.datasets {
		if some {
			in.datasets[d].opt.Passes = 1 // all datasets have the same number of passes
		}
	}
}

// historyOf is the identity of a dataset's history.
func historyOf(d int) string { return fmt.Sprintf("%s:d%d", historyKind, d+1) }

// tooOld says whether a record is older than its dataset wants.
func (w *World) tooOld(rec int32) bool {
	i := int(rec) % w.input.total
	p, s := w.partOf(i), w.input.of[i]
	age := w.input.datasets[p.dataset].age
	return age > 0 && !p.history && w.now >= s.born(i-s.first)+age
}

// born is the time at which record k of s was written.
func (s *segment) born(k int) Time {
	if s.grows == 0 {
		return s.listed
	}
	return s.listed + Time(float64(k+1)/float64(len(s.begins))*float64(s.grows-s.listed))
}

// age tells the core again and again which records are too old, as discovery does.
func (m *master) age() {
	w := m.w
	if !w.ages {
		return
	}
	for i := range w.plan.datasets {
		if w.plan.datasets[i].age == 0 {
			continue
		}
		for _, info := range m.core.Partitions(shardsvc.DatasetID(i + 1)) {
			p := w.input.part(info.Identity)
			if p.history || w.oneIn(4) {
				continue
			}
			at := m.youngest(info.Number, p)
			m.young[info.Number] = at
			m.step(&shardsvc.Aged{Partition: info.Number, Segment: at.Segment, Offset: at.Offset, Reason: "as the master sees it", When: 1})
		}
	}
	m.checkExcluded()
}

// youngest is the place of the first listed record that is not too old.
func (m *master) youngest(no shardsvc.PartitionNo, p *part) (at cut.Place) {
	w := m.w
	for _, g := range m.core.Segments(no, -1, 0) {
		s := p.segment(g.ID)
		head := s.head(w.now)
		for k := s.from(g.Start); k < len(s.begins) && s.begins[k] < head; k++ {
			if !w.tooOld(int32(s.first + k)) {
				return cut.Place{Segment: g.ID, Offset: s.begins[k]}
			}
		}
		at = cut.Place{Segment: g.ID, Offset: max(g.Start, head)}
	}
	return at
}

// granted judges the grants of a Step.
func (m *master) granted(all []shardsvc.Reply) {
	w := m.w
	for i := range all {
		r := &all[i]
		if r.Kind != shardsvc.ReplyGrant {
			continue
		}
		d := &w.plan.datasets[r.Dataset-1]
		if d.age > 0 && !r.Backfill {
			young, told := m.young[r.Partition]
			if !told {
				w.fail("[%d, %d) of %s is granted before the master knows which records are too old", r.Start, r.End, r.Identity)
			}
			if at := (cut.Place{Segment: r.Segment, Offset: r.Start}); before(at, young) {
				w.fail("segment %d [%d, %d) of %s is granted, and records before segment %d offset %d are too old", r.Segment, r.Start, r.End, r.Identity, young.Segment, young.Offset)
			}
		}
		if d.opt.Backfill.Kind == "" {
			continue
		}
		if want := w.input.part(r.Identity).history; r.Backfill != want {
			w.fail("%s is granted, of the history: %v", r.Identity, r.Backfill)
		}
		if r.Backfill || d.opt.Backfill.NewestFirst {
			continue
		}
		w.seen.crossed++
		info, _ := m.core.Dataset(r.Dataset)
		old := m.core.Partitions(r.Dataset)
		k := slices.IndexFunc(old, func(p shardsvc.PartitionInfo) bool { return p.Identity == historyOf(int(r.Dataset)-1) })
		if n := info.Backfill; k < 0 || !old[k].Complete || n.Pending > 0 || n.Planned < n.Listed {
			w.fail("%s is granted before all of its history: listed %v, %+v", r.Identity, k >= 0 && old[k].Complete, n)
		}
	}
}

// waitsForHistory reports whether l is of the source and f still has leases of the history to read first.
func (f *feed) waitsForHistory(l *reading) bool {
	b := f.s.a.w.plan.datasets[f.dataset-1].opt.Backfill
	return b.Kind != "" && !b.NewestFirst && !l.grant.Backfill
}

package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
)

// Some live inputs have a history before them (backfill), and of some, records that are too old
// are left out (catch_up.drop_older_than). Judged: with in_order nothing of the source is granted
// while records of the history are listed late, pending or not planned; what is too old, as the
// master was told, is not granted; what is excluded for its age is that old. That each record is
// trained or excluded, once, and that every cut lists it, is judged as for every input.

// historyKind is the kind of the partitions of a history.
const historyKind = "h"

// drawCatchUp decides what the datasets of a seed are like, from dice of its own: a seed's other
// draws stay. Inputs that are pushed are not among them: a landing has no index of times, and the
// transactions of a seed are all of its partitions.
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
			in.datasets[d].opt.Passes = 1 // the same number for all
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

// born is when a record of s came.
func (s *segment) born(k int) Time {
	if s.grows == 0 {
		return s.listed
	}
	return s.listed + Time(float64(k+1)/float64(len(s.begins))*float64(s.grows-s.listed))
}

// age tells the core which records are too old, as discovery does, again and again.
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

// youngest is the place of the first record that is not too old, of those that are listed.
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
				w.fail("[%d, %d) of %s is granted, and the master does not know what is too old", r.Start, r.End, r.Identity)
			}
			if at := (cut.Place{Segment: r.Segment, Offset: r.Start}); before(at, young) {
				w.fail("segment %d [%d, %d) of %s is granted, and what is before segment %d offset %d is too old", r.Segment, r.Start, r.End, r.Identity, young.Segment, young.Offset)
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
			w.fail("%s is granted, and its history is not out: listed %v, %+v", r.Identity, k >= 0 && old[k].Complete, n)
		}
	}
}

// waitsForHistory: l is of the source, and is not read before all that f has of the history.
func (f *feed) waitsForHistory(l *reading) bool {
	b := f.s.a.w.plan.datasets[f.dataset-1].opt.Backfill
	return b.Kind != "" && !b.NewestFirst && !l.grant.Backfill
}

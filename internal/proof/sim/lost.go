package sim

import (
	"github.com/headrace/headrace/agent/hold"
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
)

// Sources delete the beginnings of segments, whether they were read or not. The books judge each deleted
// record: it is in a model, or it is excluded, durably. If it is excluded, every later cut lists it, and
// no trainer gets it any more.

// delete makes the source delete the beginning of a segment, as retention does, or a file, or also all
// before it.
func (w *World) delete() {
	if w.plan.exact > 0 {
		return // with bit_exact other batches would follow, so such a job stops for good
	}
	if 2*w.input.deleted() > w.input.total {
		return // the other half must be trained
	}
	p := pick(w.dice, w.input.parts)
	if p.log != nil {
		p.log.lose(p)
		return
	}
	k := w.of(0, len(p.segs)-1)
	if w.oneIn(2) {
		for _, s := range p.segs[:k] {
			w.deleteBelow(p, s, s.head(w.now))
		}
	}
	s := p.segs[k]
	n := s.from(s.low)
	if there := s.from(s.head(w.now)); n < there {
		n += w.of(1, max(1, (there-n)/2))
	}
	if n < len(s.begins) {
		w.deleteBelow(p, s, min(s.begins[n], s.head(w.now)))
	} else {
		w.deleteBelow(p, s, s.head(w.now))
	}
}

func (w *World) deleteBelow(p *part, s *segment, low int64) {
	if low > s.low && s.listed <= w.now {
		w.tracef("source", "%s segment %d begins at %d", p.identity, s.id, low)
		s.low, w.lossy = low, true
	}
}

// beginsAnew: after the loss of the disk, some inputs are listed from where they begin now.
func (w *World) beginsAnew() {
	for _, p := range w.input.parts {
		if w.input.datasets[p.dataset].opt.Shuffle || w.oneIn(2) {
			continue // the order of a shuffle is drawn from all blocks
		}
		for _, s := range p.segs {
			s.opens = s.low
			w.moved = w.moved || s.low > s.start
		}
	}
}

// met is what a reader met: the place in order space where it cannot go on, and what is lost or bad there.
type met struct {
	at   int64
	lost *pb.LostRange
	bad  *pb.BadRecord
}

// meets tells the core that l cannot be read after m, and that no record begins between tail and m.
func (f *feed) meets(l *reading, tail int64, m *met) {
	if m.bad != nil {
		strict := f.s.a.w.plan.datasets[f.dataset-1].opt.Strict
		f.s.a.do(&hold.Failed{Lease: l.id, At: m.at, Kind: m.bad.Kind, Message: m.bad.Reason, Bad: []*pb.BadRecord{m.bad}, Loose: !strict})
	} else {
		f.s.a.do(&hold.Failed{Lease: l.id, At: m.at, Permanent: true, Kind: "truncated", Message: "it was deleted", Lost: m.lost})
	}
	f.s.a.do(&hold.Exhausted{Lease: l.id, Tail: tail})
	if l.at == tail {
		l.dry = true
	}
}

// guard looks from time to time where the source begins, and tells the core, again and again.
func (m *master) guard() {
	w := m.w
	if !w.lossy {
		return
	}
	for i := range w.plan.datasets {
		for _, p := range m.core.Partitions(shardsvc.DatasetID(i + 1)) {
			for _, g := range m.core.Segments(p.Number, -1, 0) {
				if low := m.lowOf(w.input.part(p.Identity), g); low > g.Start && w.oneIn(3) {
					m.step(&shardsvc.Truncated{Partition: p.Number, Segment: g.ID, Start: g.Start, End: low, Reason: "as the master sees it", When: 1})
				}
			}
		}
	}
	m.checkExcluded()
	if w.oneIn(3) && w.disk.mine(m) { // a deposed master does not know what was settled since
		m.checkGone()
	}
}

// consent lets a dataset go on that has stopped at a loss, as a person would.
func (m *master) consent(i int, info *shardsvc.DatasetInfo) {
	d := &m.w.plan.datasets[i]
	if info.State == "failed" && m.w.lossy && !info.Options.GoOnAfterLoss {
		m.w.tracef("somebody", "has %s go on: %s", d.name, info.Reason)
		d.opt.GoOnAfterLoss = true
		m.step(&shardsvc.ApplyDataset{ID: info.ID, Name: d.name, Options: d.opt})
	}
}

// excludes judges what a Step has excluded.
func (m *master) excludes(r *shardsvc.Report) {
	w := m.w
	if d, _ := m.core.Dataset(r.Dataset); !r.Bad && !r.Old && !d.Options.GoOnAfterLoss {
		w.fail("%s pass %d segment %d [%d, %d) is excluded, but %s must stop at a loss", r.Label, r.Pass, r.Segment, r.Start, r.End, d.Name)
	}
	w.eachIn(r.Label, r.Pass, r.Segment, r.Start, r.End, func(s *segment, rec int32, begins int64) {
		switch {
		case r.Bad && !w.input.spoilt(rec) && !w.input.kills(rec):
			w.fail("%s is excluded as bad, and it is not", w.input.where(rec))
		case r.Old && !w.tooOld(rec):
			w.fail("%s is excluded as too old, and it is not", w.input.where(rec))
		case begins >= s.low && !w.input.spoilt(rec) && !w.input.kills(rec) && !r.Old:
			w.fail("%s is excluded, and the source has it", w.input.where(rec))
		case m.out[rec]:
			w.fail("%s is excluded for the second time", w.input.where(rec))
		}
		m.out[rec] = true
	})
}

// eachIn calls do for each record in a range of the source.
func (w *World) eachIn(identity string, pass uint32, segment, start, end int64, do func(s *segment, rec int32, begins int64)) {
	p := w.input.part(identity)
	for _, piece := range p.unfolded(segment, start, end) {
		s := p.segment(piece.Segment)
		for k := s.from(piece.Start); k < len(s.begins) && s.begins[k] < piece.End; k++ {
			do(s, int32(int(pass)*w.input.total+s.first+k), s.begins[k])
		}
	}
}

// exclude notes what a durable batch has excluded.
func (b *books) exclude(reports []shardsvc.Report) {
	w := b.w
	for i := range reports {
		r := &reports[i]
		if r.Kind == shardsvc.ReportReadmitted {
			w.eachIn(r.Label, r.Pass, r.Segment, r.Start, r.End, func(_ *segment, rec int32, _ int64) { b.out[rec] = 0 })
		}
		if r.Kind != shardsvc.ReportExcluded {
			continue
		}
		w.eachIn(r.Label, r.Pass, r.Segment, r.Start, r.End, func(_ *segment, rec int32, _ int64) {
			b.out[rec] = w.now
			w.seen.excluded++
			if r.Bad {
				w.seen.bad++
			}
			if r.Old {
				w.seen.old++
			}
			if w.plan.model != shared {
				return
			}
			for k := range b.recs[rec] {
				if why := b.has(&b.recs[rec][k]); why != "" {
					w.fail("%s is excluded, and %s %s", w.input.where(rec), b.recs[rec][k].t.name, why)
				}
			}
		})
	}
}

// deleted counts the records that the source has deleted.
func (in *input) deleted() (n int) {
	for _, p := range in.parts {
		for _, s := range p.segs {
			n += s.from(s.low)
		}
	}
	return n
}

// lost reports whether the source has deleted a record.
func (in *input) lost(rec int32) bool {
	i := int(rec) % in.total
	s := in.of[i]
	return s.begins[i-s.first] < s.low
}

// spoilt reports whether a record cannot be decoded.
func (in *input) spoilt(rec int32) bool {
	i := int(rec) % in.total
	s := in.of[i]
	return s.bad[i-s.first]
}

// checkExcluded checks that the core lists exactly what it has reported as excluded, each record once.
func (m *master) checkExcluded() {
	w := m.w
	listed := make([]bool, w.records)
	for i := range w.plan.datasets {
		d, ok := m.core.Dataset(shardsvc.DatasetID(i + 1))
		if !ok {
			continue
		}
		units := int64(0)
		all, _ := m.core.Excluded(d.ID, 0, 1<<30)
		for _, e := range all {
			units += e.End - e.Start
			w.eachIn(e.Identity, e.Pass, e.Segment, e.Start, e.End, func(_ *segment, rec int32, _ int64) {
				if listed[rec] {
					w.fail("%s is listed as excluded twice", w.input.where(rec))
				}
				listed[rec] = true
			})
		}
		if counted := d.Counts.Excluded + d.Backfill.Excluded; units != counted {
			w.fail("%d units of %s are listed as excluded, %d are counted", units, d.Name, counted)
		}
	}
	for r := range listed {
		if listed[r] != m.out[r] {
			w.fail("%s is listed as excluded: %v, it was reported as excluded: %v", w.input.where(int32(r)), listed[r], m.out[r])
		}
	}
}

// checkList checks that a cut lists what was excluded when it was frozen, each record once, and that it
// counts it.
func (b *books) checkList(t *trainer, body *cut.Cut) {
	w := b.w
	out := w.excludedIn(body)
	want, ok := w.frozenOut[uint64(body.ID)]
	for r := range out {
		if ok && out[r] != want[r] {
			w.fail("%s: cut %x lists %s as excluded: %v, and when it was frozen, excluded was %v", t.name, uint64(body.ID), w.input.where(int32(r)), out[r], want[r])
		}
	}
	if w.plan.model == private {
		return // no count of a rank's cut has records that are in no model
	}
	units := int64(0)
	for i := range body.Datasets {
		for j := range body.Datasets[i].Partitions {
			for _, e := range body.Datasets[i].Partitions[j].Excluded {
				units += e.Units
			}
		}
	}
	if n := body.Units().Excluded; n != units {
		w.fail("%s: cut %x counts %d units as excluded, and lists %d", t.name, uint64(body.ID), n, units)
	}
}

// excludedIn says for each record whether a cut lists it as excluded.
func (w *World) excludedIn(body *cut.Cut) []bool {
	out := make([]bool, w.records)
	for i := range body.Datasets {
		d := &body.Datasets[i]
		for j := range d.Partitions {
			w.markExcluded(out, d, &d.Partitions[j], true)
		}
	}
	return out
}

func (w *World) markExcluded(to []bool, d *cut.Dataset, q *cut.Partition, as bool) {
	p := w.input.part(q.Identity)
	for k := range q.Excluded {
		e := &q.Excluded[k]
		start, end := p.unfold(e.Piece.Segment, e.Piece.Start), p.unfold(e.Piece.Segment, e.Piece.End)
		w.mark(to, as, d, p, q.Identity, e.Pass, func(at cut.Place) bool { return !before(at, start) && before(at, end) })
	}
}

// checkAdopted checks that a restore has taken over what the cut excludes.
func (b *books) checkAdopted(body *cut.Cut) {
	if b.w.plan.model == private {
		return // other ranks may have it in their models
	}
	for r, out := range b.w.excludedIn(body) {
		if out && b.out[r] == 0 {
			b.w.fail("the job went back to cut %x, which excludes %s, and it is not excluded", uint64(body.ID), b.w.input.where(int32(r)))
		}
	}
}

// unlisted says for each record whether it is before the beginning of the master's listing.
func (m *master) unlisted() []bool {
	w := m.w
	out := make([]bool, w.records)
	for i := range w.plan.datasets {
		for _, p := range m.core.Partitions(shardsvc.DatasetID(i + 1)) {
			for _, g := range m.core.Segments(p.Number, -1, 0) {
				for pass := range w.plan.datasets[i].opt.Passes {
					w.eachIn(p.Identity, uint32(pass), g.ID, 0, g.Start, func(_ *segment, rec int32, _ int64) { out[rec] = true })
				}
			}
		}
	}
	return out
}

// checkGone: for each kept cut the core says what a restore would miss. This is compared with the
// records of the cut.
func (m *master) checkGone() {
	w := m.w
	var deleted []shardsvc.Deletion
	listed := make([]bool, w.records) // and deleted
	for i := range w.plan.datasets {
		for _, p := range m.core.Partitions(shardsvc.DatasetID(i + 1)) {
			for _, g := range m.core.Segments(p.Number, -1, 0) {
				low := w.input.part(p.Identity).segment(g.ID).low
				if low <= g.Start {
					continue
				}
				deleted = append(deleted, shardsvc.Deletion{Dataset: p.Dataset, Source: p.Source, Segment: g.ID, Low: low})
				for pass := range w.plan.datasets[i].opt.Passes {
					w.eachIn(p.Identity, uint32(pass), g.ID, g.Start, low, func(_ *segment, rec int32, _ int64) { listed[rec] = true })
				}
			}
		}
	}
	for _, k := range m.core.Cuts() {
		body, ok := m.core.CutBody(k.ID)
		if !ok || k.State != shardsvc.CutBound && !w.oneIn(4) {
			continue
		}
		w.seen.gone++
		m.checkGoneOf(body, m.core.GoneOf(k.ID, deleted), listed)
	}
}

func (m *master) checkGoneOf(body *cut.Cut, g shardsvc.Gone, listed []bool) {
	w := m.w
	told := make([]bool, w.records)
	for _, x := range g.Ranges {
		if d, _ := m.core.Dataset(x.Dataset); x.Stops == d.Options.GoOnAfterLoss {
			w.fail("cut %x: for the loss of %s segment %d [%d, %d) the core says that it stops its dataset: %v", uint64(body.ID), x.Label, x.Segment, x.Start, x.End, x.Stops)
		}
		for pass := range x.Passes {
			w.eachIn(x.Source, x.Pass+pass, x.Segment, x.Start, x.End, func(_ *segment, rec int32, _ int64) { told[rec] = true })
		}
	}
	in, drops := w.members(body), w.droppedIn([]*manifest{{cut: body}})
	for r := range told {
		open := listed[r] && !in[r] && !m.out[r] && !drops[r] // a restored job reads no record that the cut drops
		switch {
		case told[r] && !open:
			w.fail("cut %x is said to miss %s: the source has it (%v), or it is in the cut (%v), or excluded (%v)", uint64(body.ID), w.input.where(int32(r)), !listed[r], in[r], m.out[r])
		case g.More > 0 || told[r] || !open:
		case w.plan.model != private:
			w.fail("going back to cut %x would miss %s, and the core does not say so", uint64(body.ID), w.input.where(int32(r)))
		case m.ownsSurely(uint32(body.Rank), int32(r)):
			w.fail("going back to cut %x would miss %s, which rank %d has, and the core does not say so", uint64(body.ID), w.input.where(int32(r)), body.Rank)
		}
	}
}

// ownsSurely reports whether a process of a private rank, not given up, was told that a record is in its
// model durably.
func (m *master) ownsSurely(rank uint32, rec int32) bool {
	b := m.w.books
	t := m.w.slots[rank].cur
	e := b.entry(t, rec)
	return e != nil && e.is == durable && t.alive && !t.fenced && !t.givenUp && !t.stopped && t.born >= t.slot.rewound && e.at > t.slot.rewound && t.welcomed && !b.lostTouch(e)
}

// skipped reports whether the present listing begins after a record.
func (in *input) skipped(rec int32) bool {
	i := int(rec) % in.total
	s := in.of[i]
	return s.begins[i-s.first] < s.opens
}

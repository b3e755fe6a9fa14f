package sim

import (
	"fmt"
	"slices"

	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/sources"
)

// discover is the master's discovery: it lists what the source has now and the core does not know.
func (m *master) discover() {
	w := m.w
	m.needs = false
	for i := range w.input.datasets {
		d := &w.input.datasets[i]
		id := shardsvc.DatasetID(i + 1)
		info, ok := m.core.Dataset(id)
		if !ok {
			m.step(&shardsvc.ApplyDataset{ID: m.core.NextDataset(), Name: d.name, Options: d.opt})
		}
		for _, p := range w.input.parts {
			if p.dataset != i || w.now < m.lists || p.log != nil && !m.begins(p.log) {
				continue
			}
			for _, identity := range w.identities(p) {
				if m.number(id, identity) == 0 {
					m.step(&shardsvc.AddPartition{Dataset: id, Number: m.core.NextPartition(), Identity: identity})
				}
			}
		}
		if !info.PartitionsKnown && w.now >= m.lists && !w.awayFrom(i) {
			m.step(&shardsvc.PartitionsListed{Dataset: id})
		}
		m.consent(i, &info)
		if info.State == "failed" || info.State == "paused" && !w.pausing {
			m.step(&shardsvc.SetPaused{ID: id})
		}
		for _, p := range m.core.Partitions(id) {
			if !p.Complete && w.now >= m.lists {
				m.list(w.input.part(p.Identity), p)
			}
		}
	}
}

// poll looks at the source from time to time.
func (m *master) poll() {
	m.take(func() {
		m.discover()
		m.guard()
		m.age()
		m.clean()
		if len(m.w.pushes) > 0 && m.disk.mine(m) {
			m.checkPushed()
		}
		if m.w.plan.saves > 0 && m.disk.mine(m) {
			m.checkMarks()
		}
		m.tellLogs()
	})
	m.after(m.w.time(50*millisecond, 800*millisecond), m.poll)
}

func (m *master) number(id shardsvc.DatasetID, identity string) shardsvc.PartitionNo {
	for _, p := range m.core.Partitions(id) {
		if p.Identity == identity {
			return p.Number
		}
	}
	return 0
}

// list adds the segments after the newest known one.
func (m *master) list(p *part, known shardsvc.PartitionInfo) {
	w := m.w
	if len(w.pushes) > 0 {
		if w.now >= p.complete && w.allPushed(p.dataset) {
			m.step(&shardsvc.AddSegments{Partition: known.Number, Complete: true})
		}
		return
	}
	if p.log != nil {
		m.follow(p, known)
		return
	}
	ev := &shardsvc.AddSegments{Partition: known.Number, Complete: w.now >= p.complete && (!w.input.stands(p) || w.books.reached(p))}
	room := w.of(1, 3)
	last := place(known.LastSegment)
	for _, s := range p.segs {
		switch {
		case s.id <= last:
			if s.grows > 0 && s.id == last {
				m.step(&shardsvc.Heads{Heads: []shardsvc.Head{{Partition: known.Number, Segment: known.LastSegment, End: s.head(w.now), Sealed: s.sealed(w.now)}}})
			}
		case s.listed > w.now:
			ev.Complete = false
		case room == 0:
			ev.Complete = false
			m.needs = true
		default:
			room--
			ev.Segments = append(ev.Segments, sources.Segment{ID: lives*w.lives + s.id, Start: s.opens, End: max(s.opens, s.head(w.now)), Sealed: s.sealed(w.now),
				Name: fmt.Sprintf("%s/%d", p.identity, s.id)})
		}
	}
	if len(ev.Segments) > 0 || ev.Complete {
		m.step(ev)
	}
}

// sealed reports whether the source says that the segment's end is final.
func (s *segment) sealed(now Time) bool { return s.grows == 0 || s.rolls && now >= s.grows }

// stands reports whether p stands still: its last segment is sealed only when trainers have all of it, so
// if that never happens the job never ends. Where every round must be full, a record may wait for
// others to fill its batch; then it rightly waits.
func (in *input) stands(p *part) bool {
	return in.maxWait > 0 && !in.full && p.segs[len(p.segs)-1].grows > 0
}

// reached reports whether every record of p's first pass is in a model or in the hands of a trainer that runs.
func (b *books) reached(p *part) bool {
	models := b.w.models()
	last := p.segs[len(p.segs)-1]
	for r := p.first; r < last.first+len(last.begins); r++ {
		if !b.w.input.lost(int32(r)) && !b.w.input.spoilt(int32(r)) && b.out[r] == 0 && !slices.ContainsFunc(models, func(m *model) bool { return m.times[r] > 0 }) &&
			!slices.ContainsFunc(b.recs[r], func(e entry) bool { return e.t.alive && !e.t.fenced }) {
			return false
		}
	}
	return true
}

// models are the models that are being trained now.
func (w *World) models() (models []*model) {
	switch w.plan.model {
	case shared:
		return []*model{w.model}
	case replicated:
		if w.group != nil {
			models = append(models, w.group.model)
		}
	default:
		for _, s := range w.slots {
			if s.cur != nil {
				models = append(models, s.cur.model)
			}
		}
	}
	return models
}

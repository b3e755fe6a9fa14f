package sim

import (
	"context"

	"github.com/headrace/headrace/internal/proof/memsource"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/sources"
)

// What the master asks a live source, and what it tells it, as in package master (follow.go, roll.go,
// guard.go, commits.go).

// awayFrom reports whether the source of a dataset does not answer.
func (w *World) awayFrom(dataset int) bool {
	for _, l := range w.logs {
		if l.away && l.parts[0].dataset == dataset {
			return true
		}
	}
	return false
}

// answered reports whether a log has answered a request. Only a log that is away may fail to.
func (w *World) answered(l *inputLog, what string, err error) bool {
	if err != nil && !l.away {
		w.fail("%s of the log of %s: %v", what, l.parts[0].identity, err)
	}
	return err == nil
}

// begins makes a log keep its partitions from where reading begins, before any segment is listed.
func (m *master) begins(l *inputLog) bool {
	if m.logs[l] != nil {
		return true
	}
	var known []sources.Segment
	for _, p := range l.parts {
		if no := m.number(shardsvc.DatasetID(p.dataset+1), p.identity); no != 0 {
			known = append(known, m.core.Segments(no, -1, 0)...)
		}
	}
	src, ctx := l.log.Open(true, known), context.Background()
	ids, err := src.Partitions(ctx)
	if err == nil {
		err = src.Begin(ctx, ids)
	}
	if m.w.answered(l, "the partitions", err) {
		m.logs[l] = src
	}
	return err == nil
}

// follow tells the core how far a partition reaches, and lists the segments after the last known one.
func (m *master) follow(p *part, known shardsvc.PartitionInfo) {
	w, src := m.w, m.logs[p.log]
	if src == nil {
		return
	}
	if !known.Growing {
		m.listAfter(p, known, src, known.LastSegment, nil)
		return
	}
	all, err := src.Bounds(context.Background(), []sources.PartitionID{sources.PartitionID(p.identity)})
	if !w.answered(p.log, "the bounds", err) {
		return
	}
	at := all[0].Head
	switch {
	case at.Segment > known.LastSegment:
		m.listAfter(p, known, src, known.LastSegment-1, func(last sources.Segment) {
			if last.ID != known.LastSegment || !last.Sealed || last.End < known.Head {
				w.fail("%s has rolled over to segment %d, and lists %+v after segment %d, which was known to %d", p.identity, at.Segment, last, known.LastSegment, known.Head)
			}
			w.seen.sealed++
			m.step(&shardsvc.Heads{Heads: []shardsvc.Head{{Partition: known.Number, Segment: last.ID, End: last.End, Sealed: true}}})
		})
		return
	case at.Segment < known.LastSegment || at.Offset < known.Head:
		w.fail("%s reaches to %+v, and %d of segment %d was there before", p.identity, at, known.Head, known.LastSegment)
	case at.Offset > known.Head:
		m.step(&shardsvc.Heads{Heads: []shardsvc.Head{{Partition: known.Number, Segment: at.Segment, End: at.Offset}}})
	}
	m.complete(p, known.Number, known.LastSegment, nil)
}

// listAfter lists up to three segments. The first of them goes to sealed, if that is given.
func (m *master) listAfter(p *part, known shardsvc.PartitionInfo, src *memsource.Source, after int64, sealed func(sources.Segment)) {
	w := m.w
	most := w.of(1, 3)
	segs, err := src.Segments(context.Background(), sources.PartitionID(p.identity), after, most)
	if !w.answered(p.log, "the segments", err) {
		return
	}
	m.needs = m.needs || len(segs) == most && place(segs[most-1].ID) < int64(len(p.segs)-1)
	last := known.LastSegment
	if sealed != nil && len(segs) > 0 {
		sealed(segs[0])
		segs = segs[1:]
	}
	for _, g := range segs {
		if s := p.segment(g.ID); g.End > s.end || g.Sealed && g.End != s.end {
			w.fail("segment %d of %s is listed as %+v, and the produced records end at %d", g.ID, p.identity, g, s.end)
		}
		last = g.ID
	}
	m.complete(p, known.Number, last, segs)
}

// complete adds segments, or says that no record follows, or both. last is then the last known segment.
func (m *master) complete(p *part, no shardsvc.PartitionNo, last int64, segs []sources.Segment) {
	w := m.w
	ev := &shardsvc.AddSegments{Partition: no, Segments: segs,
		Complete: w.now >= p.complete && int(place(last)) == len(p.segs)-1 && (!w.input.stands(p) || w.books.reached(p))}
	if len(segs) == 0 && !ev.Complete {
		return
	}
	m.step(ev)
	m.cur.calls = append(m.cur.calls, func() {
		for _, g := range segs {
			p.segment(g.ID).known = true
		}
	})
}

// lowOf is the place in a known segment from which the source still has records.
func (m *master) lowOf(p *part, g sources.Segment) int64 {
	if p.log == nil {
		return p.segment(g.ID).low
	}
	src := m.logs[p.log]
	if src == nil {
		return g.Start
	}
	kept, err := src.Keeps(context.Background(), []sources.Mark{{Partition: sources.PartitionID(p.identity)}}, -1)
	if !m.w.answered(p.log, "what it keeps", err) || kept[0].Low.Segment <= g.ID {
		return g.Start
	}
	return g.End
}

// tellLogs tells logs what to keep and what was read, once that is durable.
func (m *master) tellLogs() {
	w := m.w
	for _, l := range w.logs {
		src, id := m.logs[l], shardsvc.DatasetID(l.parts[0].dataset+1)
		if src == nil || !m.disk.mine(m) || w.oneIn(2) {
			continue
		}
		m.noteNeeded(id)
		retain, commit := m.marks(m.core.RetainMarks(id), 0), m.marks(m.core.BoundMarks(id), 1)
		m.cur.events++
		m.cur.calls = append(m.cur.calls, func() {
			ctx := context.Background()
			if w.answered(l, "the retain marks", src.Retain(ctx, retain)) {
				m.noteTold(retain, 0)
			}
			if w.answered(l, "the commit", src.Commit(ctx, commit)) {
				m.noteTold(commit, 1)
			}
		})
	}
}

// noteNeeded notes from where on the core needs records now, and whether that has gone back. It goes back
// when a model does; records that were trimmed before stay deleted.
func (m *master) noteNeeded(id shardsvc.DatasetID) {
	for _, k := range m.core.RetainMarks(id) {
		p, needed := m.w.input.part(k.Identity), cut.Place{Segment: k.Segment, Offset: k.Offset}
		p.back = p.back || before(needed, p.needed)
		p.needed = needed
	}
}

// marks are the marks for partitions in a log that differ from the last ones of this kind, retain or commit.
func (m *master) marks(all []shardsvc.MarkInfo, kind int) (marks []sources.Mark) {
	for _, k := range all {
		if m.w.input.part(k.Identity).log == nil {
			continue
		}
		at := sources.Position{Segment: k.Segment, Offset: k.Offset}
		back := m.core.Job().Term > 1 // the master before may not have told of a rewind
		if old, any := m.told[sources.PartitionID(k.Identity)]; any {
			back = at.Compare(old[kind]) < 0
		}
		marks = append(marks, sources.Mark{Partition: sources.PartitionID(k.Identity), Position: at, Back: back})
	}
	return marks
}

func (m *master) noteTold(marks []sources.Mark, kind int) {
	for _, k := range marks {
		old := m.told[k.Partition]
		old[kind] = k.Position
		m.told[k.Partition] = old
	}
}

package sim

import (
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
)

// checkMarks judges what a broker is told. Everything before the commit mark must be in the newest bound
// checkpoints, and everything before the retain mark in the oldest kept ones, as they are on storage. And
// every bound checkpoint must be on storage.
func (m *master) checkMarks() {
	w := m.w
	unlisted := m.unlisted()
	var newest, oldest []*manifest // one of each rank, or of the group
	put := func(to *[]*manifest, x *manifest, replace bool) {
		for i, y := range *to {
			if int64(y.cut.Rank) == int64(x.cut.Rank) {
				if replace {
					(*to)[i] = x
				}
				return
			}
		}
		*to = append(*to, x)
	}
	for _, k := range m.core.Cuts() { // in order
		if k.State != shardsvc.CutBound {
			continue
		}
		x := w.storage.bound(k.Path, k.ID)
		if x == nil {
			w.fail("cut %x of step %d is bound, and there is no manifest of it", k.ID, k.Step)
		}
		put(&newest, x, true)
		put(&oldest, x, false)
	}
	if w.plan.model == shared && len(newest) == 0 {
		return // such a job commits what is acked, and cannot go back
	}
	for i := range w.plan.datasets {
		id := shardsvc.DatasetID(i + 1)
		m.checkBefore("committed", unlisted, m.core.BoundMarks(id), newest)
		m.checkBefore("let go", unlisted, m.core.RetainMarks(id), oldest)
		m.noteNeeded(id)
		m.checkBefore("trimmed", unlisted, w.trimmedBefore(i), oldest)
	}
}

// checkBefore checks that each record before the marks is in one of the models, dropped in one of their cuts,
// or excluded.
func (m *master) checkBefore(what string, unlisted []bool, marks []shardsvc.MarkInfo, in []*manifest) {
	w := m.w
	dropped := w.droppedIn(in)
	for _, k := range marks {
		if k.Shuffled {
			continue
		}
		at := w.input.part(k.Identity).unfold(k.Segment, k.Offset)
		for pass := range int(k.Pass) + 1 {
			for _, s := range w.input.part(k.Identity).segs {
				for i, begins := range s.begins {
					if pass == int(k.Pass) && !before(cut.Place{Segment: s.id, Offset: begins}, at) {
						break
					}
					r := pass*w.input.total + s.first + i
					if !held(in, r) && !dropped[r] && !m.out[r] && !unlisted[r] {
						w.fail("%s is %s, and in none of the checkpoints that it should be in", w.input.where(int32(r)), what)
					}
				}
			}
		}
	}
}

func held(in []*manifest, r int) bool {
	for _, x := range in {
		if x.model.times[r] > 0 {
			return true
		}
	}
	return false
}

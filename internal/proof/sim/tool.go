package sim

import (
	"fmt"
	"slices"

	"github.com/headrace/headrace/shardsvc"
)

// request is one call of a tool's, gRPC's unary kind: it may be lost on its way, or
// its answer may, or the master ends in between. Whoever asks cannot know which,
// and says the same again, to whoever is master by then.
type request struct {
	w    *World
	what string
	do   func(*master)
	done func() // what follows when it was answered; may be nil
	over bool
	left int // times that it is said
}

func (w *World) request(what string, do func(*master), done func()) {
	r := &request{w: w, what: what, do: do, done: done, left: w.of(1, 4)}
	r.say()
}

func (r *request) say() {
	w := r.w
	if r.over || r.left == 0 || w.calm > 0 {
		return
	}
	r.left--
	w.tracef("a tool", "asks: %s", r.what)
	if !w.oneIn(4) {
		w.at(w.now+w.time(0, w.plan.delay), r.arrive)
	}
	w.at(w.now+w.time(100*millisecond, 3*second), r.say)
}

func (r *request) arrive() {
	w, m := r.w, r.w.master
	if m == nil || w.calm > 0 {
		return
	}
	lost := w.oneIn(3)
	m.run(func() {
		m.take(func() {
			if w.calm > 0 {
				return
			}
			m.lenient = true // what has changed since it was said first is refused
			r.do(m)
			m.lenient = false
			m.cur.events++ // also one that changed nothing is answered behind what came before it
			m.cur.calls = append(m.cur.calls, func() {
				if lost {
					w.tracef("a tool", "gets no answer: %s", r.what)
					return
				}
				w.at(w.now+w.time(0, w.plan.delay), r.answered)
			})
		})
	})
}

func (r *request) answered() {
	if r.over {
		return
	}
	r.over = true
	r.w.tracef("a tool", "is answered: %s", r.what)
	if r.done != nil {
		r.done()
	}
}

// bindByTool tells the master of a checkpoint that is there, as a script may that
// watches the folder.
func (w *World) bindByTool() {
	k := w.storage.some(func(k *manifest) bool { return !k.carried && !k.leaves && k.verifies() })
	if k == nil {
		return
	}
	w.request("bind "+k.path, func(m *master) {
		if !k.leaves && k.verifies() {
			w.storage.sync(k.path)
			m.step(&shardsvc.BindCut{Cut: uint64(k.cut.ID), Path: k.path})
		}
	}, nil)
}

// removeByTool is headrace ckpt rm: forgotten by the master, then the manifest goes,
// then the data. The newest of each rank stays, and what is pinned.
func (w *World) removeByTool() {
	k := w.storage.some(func(k *manifest) bool { return !k.carried && k.there() })
	if k == nil {
		return
	}
	// What happens between its look and its call is not judged.
	stays := func(m *master) bool {
		var failed []uint64
		newest := w.storage.newest(int64(k.cut.Rank), &failed)
		bound := uint64(0)
		for _, x := range m.core.Cuts() {
			if x.State == shardsvc.CutBound && x.Rank == int64(k.cut.Rank) {
				bound = x.ID
			}
		}
		return k == newest || newest == nil || k.pinned || uint64(k.cut.ID) == bound
	}
	w.request("drop "+k.path, func(m *master) {
		if k.leaves || !stays(m) {
			k.leaves = true
			m.step(&shardsvc.DropCut{Cut: uint64(k.cut.ID), Reason: "its checkpoint is removed"})
		}
	}, func() {
		if !k.leaves {
			return
		}
		w.tracef("a tool", "removes the checkpoint of step %d: cut %x", k.cut.Step, uint64(k.cut.ID))
		n := w.someNode()
		w.storage.remove(k.self, n)
		w.storage.sync(k.path)
		for _, f := range k.needs {
			w.storage.remove(f, n)
		}
	})
}

// dropFrozen forgets a cut that was frozen and that nobody has bound: its save has
// failed, as far as somebody knows. What happens between the look and the call is not
// judged: headrace ckpt rm lets what is bound stay.
func (w *World) dropFrozen() {
	m := w.master
	if m == nil || !m.alive {
		return
	}
	for _, k := range m.core.Cuts() {
		if k.State == shardsvc.CutFrozen && w.storage.find(k.Path, k.ID) == nil {
			w.request("drop a frozen cut", func(m *master) {
				frozen := slices.ContainsFunc(m.core.Cuts(), func(x shardsvc.CutInfo) bool { return x.ID == k.ID && x.State == shardsvc.CutFrozen })
				if frozen && w.storage.find(k.Path, k.ID) == nil {
					m.step(&shardsvc.DropCut{Cut: k.ID, Reason: "its save is given up"})
				}
			}, nil)
			return
		}
	}
}

// reclaimByTool is headrace reclaim: what the process of a rank holds is taken back, without
// its help. It is about the process that the tool saw when it asked first. A rewind of
// that rank, or the end of its group, is what the others see of it.
func (w *World) reclaimByTool() {
	rank := uint32(w.of(0, w.plan.ranks-1))
	e := &shardsvc.Reclaim{Rank: rank}
	w.request(fmt.Sprintf("reclaim rank %d", rank), func(m *master) {
		plan := m.core.PlanReclaim(e)
		if plan.Refused != "" {
			return
		}
		if w.plan.model == shared {
			w.fail("rank %d of a shared model may be taken back while it runs", rank)
		}
		e.Incarnation = plan.Incarnation
		m.step(e)
		w.seen.reclaims++
		if w.plan.model == private {
			w.slots[rank].rewound = w.now
		}
		if again := m.core.PlanReclaim(e); again.Refused == "" {
			w.fail("rank %d was taken back, and still holds %d leases", rank, again.Leases)
		}
	}, nil)
}

// pause a dataset for a while.
func (w *World) pause() {
	if w.pausing {
		return
	}
	w.pausing = true
	id := shardsvc.DatasetID(w.of(1, len(w.plan.datasets)))
	w.request("pause", func(m *master) {
		if _, ok := m.core.Dataset(id); ok && w.pausing {
			m.step(&shardsvc.SetPaused{ID: id, Paused: true})
		}
	}, nil)
	w.at(w.now+w.time(100*millisecond, 3*second), func() { w.pausing = false })
}

// apply says the specs of all datasets again, as a script does that is run twice.
func (w *World) apply() {
	w.request("apply", func(m *master) {
		for i := range w.plan.datasets {
			d := &w.plan.datasets[i]
			if id := shardsvc.DatasetID(i + 1); m.core.NextDataset() > id {
				m.step(&shardsvc.ApplyDataset{ID: id, Name: d.name, Options: d.opt})
			}
		}
	}, nil)
}

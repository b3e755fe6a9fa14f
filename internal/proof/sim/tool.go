package sim

import (
	"fmt"
	"slices"

	"github.com/headrace/headrace/shardsvc"
)

// request is one call of a tool, a unary call of gRPC. The call or its answer may be lost, or the master may
// end in between. The tool cannot know which, so it repeats the call, to whatever process is master then.
type request struct {
	w    *World
	what string
	do   func(*master)
	done func() // called after the answer; may be nil
	over bool
	left int // how often it is still sent
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
			m.lenient = true // it may be refused because of what changed since it was first sent
			r.do(m)
			m.lenient = false
			m.cur.events++ // a call that changed nothing is answered after earlier events too
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

// bindByTool tells the master of a checkpoint on storage, as a script may do that watches the folder.
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

// removeByTool is `headrace ckpt rm`: the master drops the cut, then the manifest goes, then the data. Pinned
// checkpoints and the newest one of each rank stay.
func (w *World) removeByTool() {
	k := w.storage.some(func(k *manifest) bool { return !k.carried && k.there() })
	if k == nil {
		return
	}
	// Changes between its look and its call are not judged.
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

// dropFrozen drops a cut that is frozen and not bound, as if its save had failed. Changes between the
// look and the call are not judged: `headrace ckpt rm` leaves bound checkpoints alone.
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

// reclaimByTool is `headrace reclaim`: it takes back what the process of a rank holds, without its help. It is
// about the process that the tool saw first. The other processes see a rewind of that rank, or the end of its
// group.
func (w *World) reclaimByTool() {
	rank := uint32(w.of(0, w.plan.ranks-1))
	e := &shardsvc.Reclaim{Rank: rank}
	w.request(fmt.Sprintf("reclaim rank %d", rank), func(m *master) {
		plan := m.core.PlanReclaim(e)
		if plan.Refused != "" {
			return
		}
		if w.plan.model == shared {
			w.fail("rank %d of a shared model could be reclaimed while it runs", rank)
		}
		e.Incarnation = plan.Incarnation
		m.step(e)
		w.seen.reclaims++
		if w.plan.model == private {
			w.slots[rank].rewound = w.now
		}
		if again := m.core.PlanReclaim(e); again.Refused == "" {
			w.fail("rank %d was reclaimed, and still holds %d leases", rank, again.Leases)
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

// apply applies the specs of all datasets again, as a script does that is run twice.
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

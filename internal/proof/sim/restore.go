package sim

import (
	"fmt"
	"slices"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
)

// going is a trainer on its way back to a checkpoint.
type going struct {
	t      *trainer
	rank   int64
	failed []uint64
	better *manifest // a better one, which the master knows
	apart  []uint64  // checkpoints in memory that not every rank has
	bodies bool      // it has still to try a framework's files
}

// restore goes back to the newest checkpoint to which the master agrees: one with a manifest, or a framework's
// own file.
func (t *trainer) restore() {
	w := t.w
	if w.dawdles && w.calm == 0 { // as if a person looked at it in a debugger
		w.dawdles, w.dawdled = false, true
		w.tracef(t.name, "does not restore")
		t.after(dawdle, t.restore)
		return
	}
	if t.late {
		t.restoreLate()
		return
	}
	t.before = w.backs
	g := &going{t: t, rank: t.folder(), bodies: w.plan.carries > 0}
	g.offer()
}

// folder names the checkpoints that t saves and restores.
func (t *trainer) folder() int64 {
	if t.w.plan.model == private {
		return int64(t.rank)
	}
	return cut.Group
}

func (g *going) offer() {
	t, w := g.t, g.t.w
	t.fetch()
	c := &pb.Restore{Mode: pb.Restore_NEWEST}
	m := g.better
	newest := w.storage.newest(g.rank, &g.failed)
	if m == nil {
		m = newest
	}
	if g.bodies && g.better == nil {
		if x := w.storage.carried(g.rank, g.failed); x == nil || newest != nil && slices.Index(w.storage.all, newest) > slices.Index(w.storage.all, x) {
			g.bodies = false
		} else {
			m, c.Mode = x, pb.Restore_EXACT
		}
	}
	if x := t.newestInMemory(append(slices.Clone(g.failed), g.apart...)); x != nil && g.better == nil && (m == nil || x.cut.Order >= m.cut.Order) {
		m = x
	}
	if w.plan.model == shared { // others may still train, and the master has not missed them yet
		if c.Mode = pb.Restore_EXACT; m == nil {
			c.Mode = pb.Restore_START
		}
	}
	if t.fromStart() {
		m, c.Mode = nil, pb.Restore_START
	}
	c.Failed, c.After = slices.Clone(g.failed), t.highestOrder()
	if w.plan.memory {
		t.canRead = t.readable()
		c.Tells, c.Readable = true, t.canRead
	}
	if m == nil && w.plan.model == private && !w.plan.apart && c.Mode == pb.Restore_NEWEST {
		if x := w.storage.witness(g.rank); x != nil {
			c.Body = w.bodyOf(x.cut)
			w.tracef(t.name, "has none, and offers cut %x of rank %d as a witness", uint64(x.cut.ID), int64(x.cut.Rank))
		}
	}
	if m != nil {
		if c.Body = w.bodyOf(m.cut); !m.carried {
			c.Path = m.path
		}
		if c.Memory = m.memory; !m.memory {
			w.storage.sync(m.path) // it may be so new that it is not synced
		}
		w.tracef(t.name, "offers cut %x of step %d, carried %v, from memory %v", uint64(m.cut.ID), m.cut.Step, m.carried, m.memory)
	}
	t.callRestore(c, func(r *pb.CutReply) { g.answered(m, r) })
}

func (g *going) answered(m *manifest, r *pb.CutReply) {
	t, w := g.t, g.t.w
	w.tracef(t.name, "restore: %v cut %x step %d, %d units again, %s", r.Code, r.Cut, r.Step, r.Again, r.Reason)
	switch {
	case r.Code == pb.CutReply_OK:
		t.goneBack(r)
	case r.Code == pb.CutReply_REFUSED && r.Refusal == pb.CutReply_OTHERS_TRAIN:
		t.after(w.time(100*millisecond, second), g.offer)
	case r.Code == pb.CutReply_TRY && !slices.Contains(g.failed, r.Cut):
		if g.better = w.storage.find(r.Path, r.Cut); g.better == nil || !g.better.verifies() {
			g.failed = append(g.failed, r.Cut)
			g.better = nil
		}
		g.offer()
	case r.Code == pb.CutReply_REFUSED && m != nil && m.memory && r.Refusal == pb.CutReply_APART:
		g.apart = append(g.apart, uint64(m.cut.ID))
		g.offer()
	case r.Code == pb.CutReply_REFUSED && m != nil && (m.carried || r.Refusal == pb.CutReply_GIVEN_UP):
		g.failed = append(g.failed, uint64(m.cut.ID))
		g.better = nil
		g.offer()
	default:
		t.startOver(r)
	}
}

// startOver: the saved checkpoints do not verify any more. A person uses resume=start.
func (t *trainer) startOver(r *pb.CutReply) {
	var known bool
	switch r.Refusal {
	case pb.CutReply_UNVERIFIED, pb.CutReply_TAKEN:
		known = true
	case pb.CutReply_SEGMENTS:
		known = t.w.lives > 0 // others train with segments numbered differently
	case pb.CutReply_CHANGED:
		known = t.w.moved && t.w.plan.model == private // others train with a listing that begins later
	}
	switch {
	case !known:
		t.w.fail("%s cannot restore: %v %v, %s", t.name, r.Code, r.Refusal, r.Reason)
	case t.group != nil:
		t.w.groupStarts = true
	default:
		t.slot.starts = true
	}
	t.kill("it cannot restore: " + r.Reason)
}

func (t *trainer) fromStart() bool {
	if t.group != nil {
		return t.group.starts
	}
	return t.slot.starts
}

// goneBack: the master has chosen, and t loads that model.
func (t *trainer) goneBack(r *pb.CutReply) {
	w := t.w
	w.seen.restores++
	base := w.newModel()
	if r.Cut != 0 {
		m := t.ofCut(r.Cut)
		if m == nil {
			if w.storage.models[r.Cut] == nil {
				w.fail("%s is told to go back to cut %x, which never had a manifest", t.name, r.Cut)
			}
			if !slices.Contains(t.canRead, r.Cut) && !w.storage.ever(r.Cut) {
				w.fail("%s is told to go back to cut %x, which is only in memory, and which it has said it cannot read", t.name, r.Cut)
			}
			t.kill("the files of the checkpoint are not there any more")
			return
		}
		if base = m.model; m.memory {
			w.seen.fromMemory++
		}
		w.books.checkAdopted(m.cut)
		w.seen.wentBack++
	}
	t.step = r.Step
	switch g := t.group; {
	case w.plan.model == shared:
		// A process loads the model alone, before the others begin. While t waited for its answer, another
		// process may have gone back to this cut: then the model is there, and t joins.
		x := w.storage.ofCut(r.Cut)
		if joins := w.served && w.backs != t.before && w.loaded == x; !t.late && !joins {
			*w.model = *base.clone()
			w.books.forget()
		}
		w.served, w.loaded = true, x
		w.backs++
	case g == nil:
		t.base, t.model = base, base.clone()
		t.slot.starts = false
	case g.restored == nil:
		g.restored, g.choice, g.step, g.began = base, r.Cut, r.Step, t.generation
		*g.model = *base.clone()
		t.base = base
	case g.began == t.generation && g.choice != r.Cut: // otherwise the others are fenced off already
		w.fail("%s goes back to cut %x, and another rank of its group to %x", t.name, r.Cut, g.choice)
	default:
		t.base = base
	}
	t.ready = true
	t.openStreams()
	t.work()
}

// dawdle is longer than any rank waits until another has restored.
const dawdle = 700 * second

// restoreLate does what a script does that always restores the checkpoint with which the present model
// began. Others may train that model already.
func (t *trainer) restoreLate() {
	w := t.w
	if x := w.loaded; x == nil || x.leaves || !x.verifies() || !w.served {
		t.late, t.ready = false, true
		t.openStreams()
		t.work()
		return
	}
	x := w.loaded
	w.tracef(t.name, "goes back to cut %x too", uint64(x.cut.ID))
	c := &pb.Restore{Mode: pb.Restore_EXACT, Body: w.bodyOf(x.cut), Path: x.path, After: w.storage.order(t.folder())}
	if x.carried {
		c.Path = ""
	}
	t.callRestore(c, func(r *pb.CutReply) {
		w.tracef(t.name, "restore: %v cut %x, %d units again, %s", r.Code, r.Cut, r.Again, r.Reason)
		if r.Code == pb.CutReply_OK {
			t.goneBack(r)
			return
		}
		c := &pb.Restore{Mode: pb.Restore_NEWEST, After: w.storage.order(t.folder())}
		t.callRestore(c, func(r *pb.CutReply) {
			w.tracef(t.name, "restore of the newest: %v cut %x, %s", r.Code, r.Cut, r.Reason)
			if r.Code == pb.CutReply_OK && r.Cut == 0 {
				w.loaded = nil
			}
			t.after(w.time(100*millisecond, second), t.restoreLate)
		})
	})
}

// servedGoesBack: a restore that came late found no trainer at work, so the job goes back. The server of the
// model hears of it and loads the files before any trainer goes on.
func (w *World) servedGoesBack(reports []shardsvc.Report) {
	for i := range reports {
		if r := &reports[i]; r.Kind == shardsvc.ReportRestored && w.plan.model == shared && w.served {
			w.tracef("server", "loads cut %x", r.Cut)
			*w.model = *w.newModel()
			if r.Cut != 0 {
				*w.model = *w.storage.models[r.Cut].clone()
			}
			w.books.forget()
		}
	}
}

// settle looks for a manifest, as the master does after a process has gone.
func (m *master) settle(cut uint64, path string) {
	if m.w.calm == 0 && m.w.oneIn(10) {
		return // the storage cannot be reached, and the core gives up
	}
	m.after(m.w.time(millisecond, 300*millisecond), func() {
		x := m.w.storage.find(path, cut)
		if x != nil {
			m.w.storage.sync(path)
		}
		m.take(func() { m.step(&shardsvc.ResolveCut{Cut: cut, Found: x != nil && x.verifies()}) })
	})
}

// rewind is a person who goes back to some checkpoint.
func (w *World) rewind() {
	if len(w.storage.all) == 0 || w.plan.model == shared {
		return
	}
	to := pick(w.dice, w.storage.all)
	if to.carried || to.leaves || !to.verifies() {
		return
	}
	w.request(fmt.Sprintf("rewind to cut %x of step %d", uint64(to.cut.ID), to.cut.Step), func(m *master) {
		if to.leaves || !to.verifies() {
			return
		}
		w.storage.sync(to.path) // as headrace rewind does
		m.rewound = false
		m.step(&shardsvc.Rewind{Cut: to.cut, Path: to.path, After: w.storage.order(int64(to.cut.Rank))})
		if m.rewound && w.group != nil {
			w.group.rewound = w.group.rewound || slices.ContainsFunc(w.group.members, func(t *trainer) bool { return t.generation == m.core.Job().Generation })
		}
		if m.rewound && int64(to.cut.Rank) != cut.Group {
			w.slots[int64(to.cut.Rank)].rewound = w.now
			w.giveUp(uint32(int64(to.cut.Rank)))
		}
	}, nil)
}

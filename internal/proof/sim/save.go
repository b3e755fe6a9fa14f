package sim

import (
	"fmt"

	pb "github.com/headrace/headrace/api/headrace/v1"
)

// saving is one checkpoint that is being saved.
type saving struct {
	t       *trainer
	copied  *model
	writes  bool // it writes the manifest; else the rank only asks for the cut, or writes its share
	carried bool // a framework owns the file
	shards  int  // number of ranks that write shares; 0: one writes all
	until   Time
	m       *manifest
	own     []*file // files that it has written
	slot    *copied // in memory; nil: none
	stores  bool    // and it goes on to storage
}

// maySave saves from time to time.
func (t *trainer) maySave(m *model) {
	if w := t.w; w.plan.saves > 0 && !t.saving && !t.fenced && w.oneIn(w.plan.saves) {
		if w.plan.model == shared && w.oneIn(2) {
			t.saveExactly()
			return
		}
		t.save(&saving{copied: m.clone(), writes: true, carried: w.carries(), stores: w.stores()})
	}
}

// carries reports whether a framework does this save.
func (w *World) carries() bool { return w.plan.carries > 0 && !w.oneIn(w.plan.carries) }

// stores reports whether this save in memory goes on to storage.
func (w *World) stores() bool { return w.plan.memory && w.oneIn(3) }

// save asks for the cut of the last step, while the model of that step is copied, and writes the checkpoint
// during training.
func (t *trainer) save(s *saving) {
	w := t.w
	t.saving, s.t = true, t
	s.until = w.now + w.time(second, 20*second)
	step := t.step
	id := w.r.Uint64() | 1
	ask := &pb.CutAsk{Cut: id, Step: step, Path: fmt.Sprintf("/ckpt/%d-%x", step, id), DeadlineMs: uint32(w.of(500, 20000)), After: t.look()}
	if ask.Carried = s.carried; s.carried {
		ask.Path = ""
	}
	if w.plan.memory {
		ask.Memory, s.slot = true, t.copyInto()
	}
	w.tracef(t.name, "saves step %d: cut %x, carried %v, shares %d", step, id, s.carried, s.shards)
	t.call(&pb.CutCall{Call: &pb.CutCall_Ask{Ask: ask}}, func(r *pb.CutReply) {
		if r.Code != pb.CutReply_OK {
			w.tracef(t.name, "cut %x: %v %s", id, r.Code, r.Reason)
			t.saving = false
			return
		}
		if w.plan.model == shared { // it is copied after the cut, so it may hold more
			s.copied = t.model.clone()
		}
		cut := w.body(r.Body)
		t.order = max(t.order, cut.Order)
		w.seen.cuts++
		w.books.checkCut(t, cut, s.copied)
		if !s.writes && s.shards == 0 && s.slot == nil {
			t.saving = false
			return
		}
		s.m = &manifest{path: r.Path, cut: cut, model: s.copied, carried: s.carried, pinned: w.oneIn(20)}
		s.write()
	})
}

// inTurn does one thing after the other, each a moment later, until one gives false.
func (t *trainer) inTurn(todo ...func() bool) {
	if len(todo) > 0 {
		t.after(t.w.time(0, t.w.plan.write), func() {
			if todo[0]() {
				t.inTurn(todo[1:]...)
			}
		})
	}
}

// write does what docs/CHECKPOINTS.md says, in that order.
func (s *saving) write() {
	t, disk := s.t, &s.t.w.storage
	switch {
	case s.slot != nil:
		t.inTurn(s.complete)
	case s.carried:
		t.inTurn(s.writeFiles, s.syncFiles, s.appear, s.done)
	case s.shards > 0 && s.writes:
		t.inTurn(s.writeFiles, s.syncFiles, s.saysShare, s.syncFiles, s.gather)
	case s.shards > 0:
		t.inTurn(s.writeFiles, s.syncFiles, s.saysShare, s.syncFiles, s.done)
	default:
		s.m.needs = nil
		t.inTurn(s.writeFiles, s.syncFiles, s.manifest, s.appear, func() bool { disk.sync(s.m.path); return true }, s.bind)
	}
}

func (s *saving) writeFiles() bool {
	w := s.t.w
	if w.oneIn(8) { // writing the files fails
		if s.carried || !s.writes {
			return s.done()
		}
		return s.drop("no room")
	}
	for range w.of(1, 2) {
		s.own = append(s.own, w.storage.create(s.m.path, s.t.node))
	}
	return true
}

func (s *saving) syncFiles() bool {
	for _, f := range s.own {
		f.data = true
	}
	s.t.w.storage.sync(s.m.path)
	return true
}

// saysShare says that this rank's part of a sharded save is there.
func (s *saving) saysShare() bool {
	f := s.t.w.storage.create(s.m.path, s.t.node)
	f.data = true
	f.share = &share{s.t.rank, uint64(s.m.cut.ID), s.copied}
	s.own = append(s.own, f)
	return true
}

// gather waits until the deadline for the shares of all ranks.
func (s *saving) gather() bool {
	t, w := s.t, s.t.w
	have := map[uint32]bool{}
	s.m.needs = s.m.needs[:0]
	for _, f := range w.storage.files {
		if f.folder != s.m.path || f.gone {
			continue
		}
		if p := f.share; p != nil && p.cut == uint64(s.m.cut.ID) {
			if p.of.sum != s.copied.sum {
				w.fail("%s: rank %d's share of cut %x has another model", t.name, p.rank, p.cut)
			}
			have[p.rank] = true
		}
		s.m.needs = append(s.m.needs, f)
	}
	switch {
	case len(have) == s.shards:
		t.inTurn(s.manifest, s.appear, func() bool { w.storage.sync(s.m.path); return true }, s.bind)
	case w.now >= s.until:
		s.drop("not all ranks have written their shares")
	default:
		t.after(w.time(20*millisecond, 200*millisecond), func() { s.gather() })
	}
	return false
}

// manifest is written under another name, and synced.
func (s *saving) manifest() bool {
	if s.shards == 0 {
		s.m.needs = s.own
	}
	return true
}

func (s *saving) appear() bool {
	w := s.t.w
	w.tracef(s.t.name, "the manifest of step %d is on storage: cut %x", s.m.cut.Step, uint64(s.m.cut.ID))
	w.storage.appear(s.m, s.t.node)
	return true
}

// bind tells the master.
func (s *saving) bind() bool {
	t, w := s.t, s.t.w
	t.call(&pb.CutCall{Call: &pb.CutCall_Bind{Bind: &pb.CutBind{Cut: uint64(s.m.cut.ID), Path: s.m.path}}}, func(r *pb.CutReply) {
		w.tracef(t.name, "bind %x: %v %s", uint64(s.m.cut.ID), r.Code, r.Reason)
		if r.Code != pb.CutReply_OK {
			t.saving = false
			return
		}
		w.seen.bound++
		t.retain(s.m)
	})
	return true
}

func (s *saving) done() bool {
	s.t.saving = false
	return false
}

func (s *saving) drop(why string) bool {
	s.t.call(&pb.CutCall{Call: &pb.CutCall_Drop{Drop: &pb.CutDrop{Cut: uint64(s.m.cut.ID), Reason: why}}}, func(*pb.CutReply) { s.t.saving = false })
	return false
}

// retain removes old checkpoints: first the cut is dropped at the master, then the manifest goes, and when
// that is certainly gone, the data. Then the save ends.
func (t *trainer) retain(newest *manifest) {
	disk := &t.w.storage
	old := disk.removable(int64(newest.cut.Rank), t.w.plan.keep, newest)
	if len(old) == 0 {
		t.saving = false
		return
	}
	m := old[len(old)-1]
	m.leaves = true
	t.call(&pb.CutCall{Call: &pb.CutCall_Drop{Drop: &pb.CutDrop{Cut: uint64(m.cut.ID), Reason: "retention"}}}, func(r *pb.CutReply) {
		if r.Code != pb.CutReply_OK {
			t.saving = false
			return
		}
		t.w.tracef(t.name, "removes the checkpoint of step %d: cut %x", m.cut.Step, uint64(m.cut.ID))
		t.inTurn(
			func() bool { disk.remove(m.self, t.node); return true },
			func() bool { disk.sync(m.path); return true },
			func() bool {
				for _, f := range m.needs {
					disk.remove(f, t.node)
				}
				t.retain(newest)
				return true
			})
	})
}

package sim

import (
	"cmp"
	"slices"

	"github.com/headrace/headrace/shardsvc/cut"
)

// storage is the folder of checkpoints, which every node sees. It promises what a file system promises: a
// rename happens as a whole, and data that was not synced may be lost when the node that wrote it loses
// power.
type storage struct {
	w      *World
	files  []*file
	all    []*manifest       // in the order in which they appeared
	models map[uint64]*model // by cut that was ever saved: the model
}

// file is one name in a checkpoint's folder.
type file struct {
	folder string
	node   *node // the node that wrote or removed it last
	data   bool  // its bytes are synced
	entry  bool  // its folder is synced since it was created or removed
	gone   bool
	bad    bool // it does not verify
	share  *share
}

// share is what one rank of a sharded save says that it has written.
type share struct {
	rank uint32
	cut  uint64
	of   *model
}

// manifest is a checkpoint: the model, and the cut that should be in it. A framework's own file is one too,
// without a path: only the framework looks at it.
type manifest struct {
	path    string
	cut     *cut.Cut
	model   *model
	self    *file
	needs   []*file
	carried bool
	pinned  bool
	leaves  bool // it is about to be removed
	memory  bool // it is in the memory of a node
}

// create makes a file appear in the page cache of a node.
func (s *storage) create(folder string, n *node) *file {
	f := &file{folder: folder, node: n}
	s.files = append(s.files, f)
	return f
}

// sync is fsync of a folder: files created or removed in it stay so.
func (s *storage) sync(folder string) {
	for _, f := range s.files {
		if f.folder == folder {
			f.entry = true
		}
	}
	s.files = slices.DeleteFunc(s.files, func(f *file) bool { return f.gone && f.entry })
}

func (s *storage) remove(f *file, n *node) { f.gone, f.entry, f.node = true, false, n }

// powerLoss makes a node forget what it has not synced, or a part of that.
func (s *storage) powerLoss(n *node) {
	for _, f := range s.files {
		if f.node != n {
			continue
		}
		if !f.data && s.w.oneIn(2) {
			f.bad = true
		}
		if !f.entry && s.w.oneIn(2) {
			f.gone = !f.gone
		}
		f.data, f.entry = true, true // the rest is on the disk
	}
}

func (m *manifest) there() bool { return !m.self.gone && !m.self.bad }

// verifies reports whether everything that the manifest names is as it says.
func (m *manifest) verifies() bool {
	return m.there() && !slices.ContainsFunc(m.needs, func(f *file) bool { return f.gone || f.bad })
}

// appear puts a manifest into its folder, by a rename.
func (s *storage) appear(m *manifest, n *node) {
	m.self = s.create(m.path, n)
	m.self.data = true // it was synced as a temporary file
	s.all = append(s.all, m)
	s.models[uint64(m.cut.ID)] = m.model
}

func (s *storage) find(path string, cut uint64) *manifest {
	for _, m := range s.all {
		if m.path == path && uint64(m.cut.ID) == cut && m.there() {
			return m
		}
	}
	return nil
}

// bound finds a checkpoint that counts as bound. It may be damaged since. It may be a framework's file that
// was loaded.
func (s *storage) bound(path string, cut uint64) *manifest {
	for _, m := range s.all {
		if uint64(m.cut.ID) == cut && (m.carried || m.path == path && !m.self.gone) {
			return m
		}
	}
	return nil
}

// some gives a random checkpoint that is wanted; nil: there is none.
func (s *storage) some(wanted func(*manifest) bool) *manifest {
	var all []*manifest
	for _, m := range s.all {
		if wanted(m) {
			all = append(all, m)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return pick(s.w.dice, all)
}

// witness is the newest checkpoint of all ranks. A private rank without one offers it, to tell a master
// that has lost its disk about the job's past. nil: there is none, or it is the rank's own.
func (s *storage) witness(rank int64) (best *manifest) {
	for _, m := range s.all {
		if !m.carried && m.there() && (best == nil || m.cut.Order >= best.cut.Order) {
			best = m
		}
	}
	if best == nil || int64(best.cut.Rank) == rank {
		return nil
	}
	return best
}

func (s *storage) ofCut(cut uint64) *manifest {
	for _, m := range slices.Backward(s.all) {
		if uint64(m.cut.ID) == cut && m.verifies() {
			return m
		}
	}
	return nil
}

// newest is the newest checkpoint of a rank, or of the group, that verifies and is not in failed. Those that
// do not verify are added to failed.
func (s *storage) newest(rank int64, failed *[]uint64) (best *manifest) {
	for _, m := range s.all {
		if int64(m.cut.Rank) != rank || m.carried || !m.there() || slices.Contains(*failed, uint64(m.cut.ID)) {
			continue
		}
		if !m.verifies() {
			*failed = append(*failed, uint64(m.cut.ID))
			continue
		}
		if best == nil || m.cut.Order >= best.cut.Order {
			best = m
		}
	}
	return best
}

// carried is the newest framework's file of a rank, or of the group, that it can read.
func (s *storage) carried(rank int64, failed []uint64) *manifest {
	for _, m := range slices.Backward(s.all) {
		if int64(m.cut.Rank) == rank && m.carried && m.verifies() && !slices.Contains(failed, uint64(m.cut.ID)) {
			return m
		}
	}
	return nil
}

// order is the highest order of the checkpoints that a rank, or the group, finds. A master that has lost its
// disk must freeze cuts with a higher order.
func (s *storage) order(rank int64) (highest uint64) {
	for _, m := range s.all {
		if !m.carried && m.there() && (int64(m.cut.Rank) == rank || !s.w.plan.apart) {
			highest = max(highest, m.cut.Order)
		}
	}
	return highest
}

// look finds it once, as a Checkpointer does. It knows the cuts that it freezes itself.
func (t *trainer) look() uint64 {
	if !t.looked {
		t.looked = true
		t.order = max(t.order, t.highestOrder())
	}
	return t.order
}

// removable lists the checkpoints of a rank that may be removed. The `keep` newest, pinned ones and the one
// just written stay. A checkpoint whose step is not below the step of a later one does not count as one of
// the newest: the job went back behind it.
func (s *storage) removable(rank int64, keep int, newest *manifest) (old []*manifest) {
	var found []*manifest
	for _, m := range slices.Backward(s.all) {
		if int64(m.cut.Rank) == rank && !m.carried && m.there() {
			found = append(found, m)
		}
	}
	slices.SortStableFunc(found, func(a, b *manifest) int { return cmp.Compare(b.cut.Order, a.cut.Order) })
	kept, floor := 0, int64(1)<<62
	for _, m := range found {
		alive := m.cut.Step < floor || s.w.plan.model == shared // there each process counts its own steps
		floor = min(floor, m.cut.Step)
		if alive {
			kept++
		}
		if m != newest && !m.pinned && !(alive && kept <= keep) {
			old = append(old, m)
		}
	}
	return old
}

package sim

import (
	"cmp"
	"slices"

	"github.com/headrace/headrace/shardsvc/cut"
)

// storage is the folder of checkpoints, which every node sees. It promises what a
// file system does: a rename is there as a whole, and what was not synced may be
// gone when the node that wrote it loses its power.
type storage struct {
	w      *World
	files  []*file
	all    []*manifest       // as they are, in the order in which they appeared
	models map[uint64]*model // of each cut that was ever saved, what was in the model
}

// file is one name in a checkpoint's folder.
type file struct {
	folder string
	node   *node // which wrote or removed it last
	data   bool  // its bytes are synced
	entry  bool  // its folder is, since it came or went
	gone   bool
	bad    bool // it does not verify
	share  *share
}

// share is what one rank of a sharded save says it has written.
type share struct {
	rank uint32
	cut  uint64
	of   *model
}

// manifest is a checkpoint: the model, and the cut that is said to be in it. A
// framework's own file is one too, with no path: nobody but the framework looks.
type manifest struct {
	path    string
	cut     *cut.Cut
	model   *model
	self    *file
	needs   []*file
	carried bool
	pinned  bool
	leaves  bool // it is about to be removed
	memory  bool // it lies in the memory of a node
}

// create makes a file appear in the page cache of a node.
func (s *storage) create(folder string, n *node) *file {
	f := &file{folder: folder, node: n}
	s.files = append(s.files, f)
	return f
}

// sync is fsync of a folder: what came into it, or went, stays so.
func (s *storage) sync(folder string) {
	for _, f := range s.files {
		if f.folder == folder {
			f.entry = true
		}
	}
	s.files = slices.DeleteFunc(s.files, func(f *file) bool { return f.gone && f.entry })
}

func (s *storage) remove(f *file, n *node) { f.gone, f.entry, f.node = true, false, n }

// powerLoss: a node forgets what it has not synced, or a part of it.
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
		f.data, f.entry = true, true // what is left is on the disk
	}
}

func (m *manifest) there() bool { return !m.self.gone && !m.self.bad }

// verifies: all that the manifest names is as it says.
func (m *manifest) verifies() bool {
	return m.there() && !slices.ContainsFunc(m.needs, func(f *file) bool { return f.gone || f.bad })
}

// appear puts a manifest into its folder, by a rename.
func (s *storage) appear(m *manifest, n *node) {
	m.self = s.create(m.path, n)
	m.self.data = true // as a temporary file it was synced
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

// bound finds what counts as bound: what was damaged since was there, and so was a
// framework's file that somebody has loaded.
func (s *storage) bound(path string, cut uint64) *manifest {
	for _, m := range s.all {
		if uint64(m.cut.ID) == cut && (m.carried || m.path == path && !m.self.gone) {
			return m
		}
	}
	return nil
}

// some one of those that are wanted; nil: there is none.
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

// witness is the newest of all, which a private rank offers that has none: it tells a
// master that has lost its disk of the job's past. nil if it is the rank's own.
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

// newest is the newest one of a rank, or of the group, that verifies and has not
// failed before; those that do not verify are failed.
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

// carried is the framework's newest file of a rank, or the group, that it can read.
func (s *storage) carried(rank int64, failed []uint64) *manifest {
	for _, m := range slices.Backward(s.all) {
		if int64(m.cut.Rank) == rank && m.carried && m.verifies() && !slices.Contains(failed, uint64(m.cut.ID)) {
			return m
		}
	}
	return nil
}

// order is the highest of those that a rank, or the group, finds: what a master freezes
// that has lost its disk has to be newer.
func (s *storage) order(rank int64) (highest uint64) {
	for _, m := range s.all {
		if !m.carried && m.there() && (int64(m.cut.Rank) == rank || !s.w.plan.apart) {
			highest = max(highest, m.cut.Order)
		}
	}
	return highest
}

// look finds it once, as a Checkpointer does; what it freezes itself it knows.
func (t *trainer) look() uint64 {
	if !t.looked {
		t.looked = true
		t.order = max(t.order, t.highestOrder())
	}
	return t.order
}

// removable are the checkpoints of a rank that may go: the keep newest stay, and
// pinned ones, and the one that was just written. One before another with the same
// or a lower step is of a past that the job went back behind.
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

package sim

import (
	"fmt"
	"slices"

	"github.com/headrace/headrace/shardsvc"
)

// Checkpoints in memory (docs/FLASH.md). A rank of a replicated or private model copies its model into the
// memory of its node. That memory survives the trainer, the agent and the master, and is lost with the
// node.

// copied is one slot: a copy of a rank's model, with the cut that it belongs to.
type copied struct {
	rank  uint32
	m     *manifest
	whole bool // its end mark is written
	bad   bool // a bit has changed, so its checksum is wrong
}

// drawMemory decides which jobs save into memory. It uses no dice, so that the seed's other draws do not
// change.
func (p *plan) drawMemory(seed uint64) {
	p.memory = p.model != shared && p.saves > 0 && p.carries == 0 && seed%4 < 2
	p.replicas = p.memory && p.nodes > 1 && seed%8 != 0
}

// copyInto begins a copy of the model in a slot of t's node. A rank has two slots. One that
// is not complete is used first. If both are complete, the older one is used, so that the
// newest complete checkpoint is never written over.
func (t *trainer) copyInto() *copied {
	n := t.node
	var own []*copied
	for _, c := range n.memory {
		if c.rank == t.rank {
			own = append(own, c)
		}
	}
	if len(own) > 1 {
		n.memory = slices.DeleteFunc(n.memory, func(c *copied) bool {
			return c == slices.MinFunc(own, func(a, b *copied) int {
				switch {
				case a.whole != b.whole && b.whole:
					return -1
				case a.whole != b.whole:
					return 1
				case a.whole && a.m.cut.Order < b.m.cut.Order:
					return -1
				}
				return 0
			})
		})
	}
	c := &copied{rank: t.rank}
	n.memory = append(n.memory, c)
	return c
}

// complete writes the end mark. From here on the checkpoint survives any process. Few are damaged later.
func (s *saving) complete() bool {
	w, t := s.t.w, s.t
	c := s.slot
	c.m = &manifest{path: s.m.path, cut: s.m.cut, model: s.m.model, self: &file{}, memory: true}
	c.whole, c.bad = true, w.oneIn(20)
	w.storage.models[uint64(s.m.cut.ID)] = s.m.model
	w.seen.inMemory++
	w.tracef(t.name, "cut %x of step %d is in the memory of %s, damaged: %v", uint64(s.m.cut.ID), s.m.cut.Step, t.node.name, c.bad)
	if w.plan.replicas {
		t.node.replicate(w, c)
	}
	if !s.writes || !s.stores {
		return s.done()
	}
	s.m.needs = nil
	t.inTurn(s.writeFiles, s.syncFiles, s.manifest, s.appear, func() bool { w.storage.sync(s.m.path); return true }, s.bind)
	return false
}

// inMemory gives the complete checkpoints in t's slots whose checksums are right.
func (t *trainer) inMemory() (all []*manifest) {
	for _, c := range t.node.memory {
		if c.rank == t.rank && c.whole && !c.bad {
			all = append(all, c.m)
		}
	}
	return all
}

// newestInMemory gives the newest of them that was not refused.
func (t *trainer) newestInMemory(without []uint64) (best *manifest) {
	for _, m := range t.inMemory() {
		if !slices.Contains(without, uint64(m.cut.ID)) && (best == nil || m.cut.Order >= best.cut.Order) {
			best = m
		}
	}
	return best
}

// highestOrder is the highest order of all checkpoints that t finds, on storage and in memory.
func (t *trainer) highestOrder() uint64 {
	highest := t.w.storage.order(t.folder())
	for _, m := range t.inMemory() {
		highest = max(highest, m.cut.Order)
	}
	return highest
}

// readable lists the cuts that t can read from memory.
func (t *trainer) readable() (all []uint64) {
	for _, m := range t.inMemory() {
		all = append(all, uint64(m.cut.ID))
	}
	return all
}

// ever reports whether a manifest of the cut was ever on storage.
func (s *storage) ever(cut uint64) bool {
	return slices.ContainsFunc(s.all, func(m *manifest) bool { return uint64(m.cut.ID) == cut })
}

// ofCut finds the checkpoint that t must load for a cut: in its memory or on storage.
func (t *trainer) ofCut(cut uint64) *manifest {
	for _, m := range t.inMemory() {
		if uint64(m.cut.ID) == cut {
			return m
		}
	}
	return t.w.storage.ofCut(cut)
}

// persistLeft does what `headrace run` does after a trainer has failed: it writes the newest checkpoint that
// the trainer has left in memory to storage, and then tells the master.
func (t *trainer) persistLeft() {
	w := t.w
	if !w.plan.memory || t.group != nil && t.rank > 0 || !w.oneIn(2) {
		return
	}
	m := t.newestInMemory(nil)
	if m == nil || w.storage.find(m.path, uint64(m.cut.ID)) != nil {
		return
	}
	s := &manifest{path: m.path, cut: m.cut, model: m.model}
	f := w.storage.create(s.path, t.node)
	f.data = true
	s.needs = []*file{f}
	w.storage.sync(s.path)
	w.storage.appear(s, t.node)
	w.storage.sync(s.path)
	w.tracef("launcher", "writes cut %x of step %d from the memory of %s", uint64(m.cut.ID), m.cut.Step, t.node.name)
	w.request(fmt.Sprintf("bind cut %x", uint64(m.cut.ID)), func(m *master) {
		if s.verifies() && !s.leaves {
			m.step(&shardsvc.BindCut{Cut: uint64(s.cut.ID), Path: s.path})
		}
	}, nil)
}

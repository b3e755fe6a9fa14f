package sim

import (
	"bytes"
	"maps"
	"slices"

	"github.com/headrace/headrace/internal/planted"
	"github.com/headrace/headrace/shardsvc"
)

// disk is the master's store as internal/store promises it: a batch becomes
// durable as a whole or not at all, after an error nobody knows which, and one
// process has it open.
type disk struct {
	data  map[string][]byte
	owner *master
}

// locked: another living master has the folder.
func (d *disk) locked(m *master) bool {
	return d.owner != nil && d.owner != m && d.owner.alive
}

// depose takes the disk away from the master that lives, as when a volume is
// attached to another node: the next one opens it, and the old one has not noticed.
// What it commits fails, and it ends of that, as it does of any write that fails;
// what needs no commit (grants, standings, echoes) leaves it as before, to the agents
// that are with it. Whoever takes the volume away sees to it that the process ends,
// at the latest when agents that trusted it until then have stopped to before the
// next master gives away what they hold.
func (w *World) depose() {
	m := w.master
	if m == nil || !m.alive || w.disk.owner != m {
		return
	}
	w.tracef(m.name, "is deposed: its disk is another's")
	w.disk.owner = nil
	w.at(w.now+w.time(0, 2*second), func() {
		w.startMaster()
		if planted.On && planted.Is(planted.DeposedGrants) {
			return
		}
		w.at(w.now+w.time(0, w.plan.ttl/25), func() { m.kill("it was deposed long ago") })
	})
}

// mine: m may write. A master that was deposed never may again.
func (d *disk) mine(m *master) bool {
	return d.owner == m
}

func (d *disk) apply(puts []shardsvc.Put) {
	for _, p := range puts {
		switch p.Op {
		case shardsvc.Set:
			d.data[string(p.Key)] = bytes.Clone(p.Value)
		case shardsvc.Delete:
			delete(d.data, string(p.Key))
		case shardsvc.DeleteRange:
			for k := range d.data {
				if k >= string(p.Key) && k < string(p.Value) {
					delete(d.data, k)
				}
			}
		}
	}
}

func (d *disk) load(c *shardsvc.Core) error {
	for _, k := range slices.Sorted(maps.Keys(d.data)) {
		if err := c.Load([]byte(k), d.data[k]); err != nil {
			return err
		}
	}
	return c.Loaded()
}

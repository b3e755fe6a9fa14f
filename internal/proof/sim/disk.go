package sim

import (
	"bytes"
	"maps"
	"slices"

	"github.com/headrace/headrace/shardsvc"
)

// disk is the master's store, with the promises of internal/store: a batch becomes durable as a whole or
// not at all; after an error it is not known which; only one process has the store open.
type disk struct {
	data  map[string][]byte
	owner *master
}

// locked reports whether another living master has the folder.
func (d *disk) locked(m *master) bool {
	return d.owner != nil && d.owner != m && d.owner.alive
}

// depose takes the disk away from the living master, as if its volume was attached to another node. The
// next master opens it. The old one does not notice, and may stand still meanwhile. Its next commit
// fails, and it ends, as after any failed write. Until then it may send its agents messages that need
// no commit: grants, standings, echoes.
func (w *World) depose() {
	if w.oneIn(3) {
		w.takeDisk(0, w.time(0, 2*second))
		return
	}
	w.takeDisk(w.time(10*millisecond, 3*w.plan.ttl), w.time(0, 2*second))
}

// splitBrain deposes a master that keeps a connection to only one node. All trainers there wait, so nothing
// they say has to be stored. The other nodes start again with the next master.
func (w *World) splitBrain() {
	some, ttl := w.someTrainer(), w.plan.ttl
	if some == nil {
		return
	}
	for _, t := range w.trainers {
		t.stop(3*ttl + w.time(0, ttl))
	}
	quiet := w.time(ttl/5, ttl/2)
	w.at(w.now+quiet, func() { w.takeDisk(w.time(0, ttl/10), w.time(0, ttl/4)) })
	w.at(w.now+quiet+w.time(ttl/2, ttl), func() {
		for _, n := range w.nodes {
			if n != some.node && w.calm == 0 {
				w.killNode(n)
			}
		}
	})
}

// takeDisk takes the disk away from the living master, which stands still for a while. The next master
// starts after d.
func (w *World) takeDisk(still, d Time) {
	m := w.master
	if w.calm > 0 || m == nil || !m.alive || w.disk.owner != m {
		return
	}
	w.tracef(m.name, "is deposed: another master has its disk")
	w.disk.owner = nil
	if still > 0 {
		m.stop(still)
	}
	w.at(w.now+d, w.startMaster)
}

// mine reports whether m may write. A deposed master never may again.
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

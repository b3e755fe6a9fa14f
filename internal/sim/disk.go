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
	if planted.On && planted.Is(planted.DeposedGrants) {
		return false
	}
	return d.owner != nil && d.owner != m && d.owner.alive
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

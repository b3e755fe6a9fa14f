package shardsvc

import (
	"fmt"
)

// CheckInvariants checks everything that must hold after each Step. For each (partition,
// pass):
//
//	committed <= bound <= acked <= leased <= planned <= head
//
// Every planned unit is in exactly one of pending, leased and settled, and every count
// agrees with what it counts. It walks over everything, so it is for tests.
func (c *Core) CheckInvariants() error {
	for _, d := range c.datasets {
		if d == nil {
			continue
		}
		if err := c.checkDataset(d); err != nil {
			return fmt.Errorf("dataset %d %q: %w", d.id, d.name, err)
		}
	}
	for _, w := range c.workers {
		n := 0
		for l := w.leases; l != nil; l = l.wnext {
			n++
			if l.w != &w.holder || c.leases.slots[l.slot].l != l {
				return fmt.Errorf("rank %d lists a lease that is not its own or closed", w.rank.no)
			}
		}
		if n != w.leaseCount || w.gone() {
			return fmt.Errorf("rank %d: %d leases, counted %d, gone %v", w.rank.no, n, w.leaseCount, w.gone())
		}
	}
	for i := range c.leases.slots {
		if l := c.leases.slots[i].l; l != nil && c.find(l.token) != &c.leases.slots[i] {
			return fmt.Errorf("token %v does not find its lease", l.token)
		}
	}
	for k, at := range c.leases.older {
		if s := &c.leases.slots[at]; k.Term >= c.term || s.token != k || s.l == nil && s.w == nil {
			return fmt.Errorf("token %v of an older term names slot %d, which has %v", k, at, s.token)
		}
	}
	return c.checkPause()
}

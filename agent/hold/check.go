package hold

import (
	"fmt"
	"strings"
)

// Check says which invariant of a lease or stream does not hold, for tests.
func (c *Core) Check() error {
	for _, w := range c.workers {
		if w.pausedDue && w.pause == 0 || w.pauseStale && c.whole {
			return fmt.Errorf("worker %d: paused for cut %x, due %v, stale %v", w.join.Worker, w.pause, w.pausedDue, w.pauseStale)
		}
		last := uint64(0)
		for _, k := range w.calls {
			if k.Id <= last || k.Id > w.lastCall || w.state == fenced || w.state == gone {
				return fmt.Errorf("worker %d in state %d: call %d behind %d of %d", w.join.Worker, w.state, k.Id, last, w.lastCall)
			}
			last = k.Id
		}
		for _, s := range w.streams {
			if s.durable > s.stepped || s.stepped > s.delivered {
				return fmt.Errorf("stream %v: durable %d <= stepped %d <= delivered %d does not hold", s.id, s.durable, s.stepped, s.delivered)
			}
			if n := int(s.delivered - s.durable); s.batches.len() != n {
				return fmt.Errorf("stream %v: %d batches in the books, not %d", s.id, s.batches.len(), n)
			}
			for _, l := range s.leases {
				if l.durable > l.stepped || l.stepped > l.frontier || l.frontier > l.end {
					return fmt.Errorf("lease %d: durable %d <= stepped %d <= frontier %d <= end %d does not hold", l.id, l.durable, l.stepped, l.frontier, l.end)
				}
				for i, a := range l.acks {
					if a.prefix <= a.from || i > 0 && a.from != l.acks[i-1].prefix {
						return fmt.Errorf("lease %d: unanswered acks %v do not follow each other", l.id, l.acks)
					}
				}
				if l.dead || c.byLease[l.id] != l || c.byToken[l.token] != l {
					return fmt.Errorf("lease %d is in the stream's list and not in the maps", l.id)
				}
				if n := len(l.acks); l.sent > l.said || l.said > n || (n > 0 && l.acks[n-1].prefix != l.stepped) || (n == 0 && l.stepped != l.durable) {
					return fmt.Errorf("lease %d: stepped %d, durable %d, unanswered %v (%d sent)", l.id, l.stepped, l.durable, l.acks, l.sent)
				}
			}
		}
	}
	return nil
}

// Dump is the state for people.
func (c *Core) Dump() string {
	var b strings.Builder
	fmt.Fprintf(&b, "up=%v greeted=%v trust=%d now=%d\n", c.up, c.greeted, c.trustUntil, c.now)
	for _, w := range c.workers {
		fmt.Fprintf(&b, "worker %d state=%d step=%d\n", w.join.Worker, w.state, w.lastStep)
		for _, k := range w.calls {
			fmt.Fprintf(&b, "  call %d sent=%v\n", k.Id, k.sent)
		}
		for _, s := range w.streams {
			fmt.Fprintf(&b, "  stream %d delivered=%d stepped=%d durable=%d hungry=%v requests=%v closed=%v over=%v rate=%.1f\n",
				s.id.Number, s.delivered, s.stepped, s.durable, s.hungry, s.requests, s.closed, s.over, s.rate.units[ofSource])
			for _, l := range s.leases {
				fmt.Fprintf(&b, "    lease %d %v durable=%d stepped=%d frontier=%d end=%d acks=%v sent=%d\n", l.id, l.token, l.durable, l.stepped, l.frontier, l.end, l.acks, l.sent)
			}
		}
	}
	return b.String()
}

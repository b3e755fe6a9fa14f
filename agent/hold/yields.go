package hold

import (
	"slices"

	pb "github.com/headrace/headrace/api/headrace/v1"
)

// Yields that are held while a shared model is saved (docs/CUTS.md). The master
// says on and off; the trainer waits, and says when all that it was given is
// stepped. While no master is there a held trainer stays held: the master counts on
// that until its TTL. A new session begins with none: the master says it again.

// Hold is what a trainer is told: hand out no further batch (On) until it ends.
type Hold struct {
	Worker uint32
	Cut    uint64
	On     bool
	Why    string
}

// holdYields passes on what the master says.
func (c *Core) holdYields(h *pb.HoldYields) {
	w := c.byNumber[h.Worker]
	switch {
	case w == nil || w.state == gone:
		return
	case h.On:
		w.hold, w.holdStale, w.heldDue = h.Cut, false, false
		c.fx.Holds = append(c.fx.Holds, Hold{Worker: h.Worker, Cut: h.Cut, On: true, Why: h.Reason})
		c.tellUntracked(w)
	case w.hold == h.Cut:
		c.letGo(w, h.Reason)
	}
}

func (c *Core) letGo(w *worker, why string) {
	c.fx.Holds = append(c.fx.Holds, Hold{Worker: w.join.Worker, Cut: w.hold, Why: why})
	w.hold, w.holdStale, w.heldDue = 0, false, false
}

// dropStale lets those go whom the master has taken in again without saying that
// they are held.
func (c *Core) dropStale() {
	for _, w := range c.workers {
		if w.holdStale {
			c.letGo(w, "the master knows of no hold any more")
		}
	}
}

// held: a trainer yields nothing, and all that it was given is stepped.
func (c *Core) held(ev *Held) {
	w := c.byNumber[ev.Worker]
	if w == nil || w.state != joined || w.hold == 0 || w.hold != ev.Cut {
		return
	}
	w.heldDue = true
	if !slices.Contains(c.holders, w) {
		c.holders = append(c.holders, w)
	}
}

// sendHeld says it to the master, in the message of the acks before it or behind.
func (c *Core) sendHeld() {
	for _, w := range c.holders {
		if w.heldDue && w.state == joined {
			w.heldDue = false
			m := c.message()
			m.YieldsHeld = append(m.YieldsHeld, &pb.YieldsHeld{Worker: w.join.Worker, Cut: w.hold})
		}
	}
	clear(c.holders)
	c.holders = c.holders[:0]
}

// tellUntracked: who reads without steps can not be held in step.
func (c *Core) tellUntracked(w *worker) {
	i := slices.IndexFunc(w.streams, func(s *stream) bool { return !s.tracked && !s.closed && !s.over })
	if i < 0 || w.hold == 0 || !c.talking() {
		return
	}
	m := c.message()
	m.YieldsHeld = append(m.YieldsHeld, &pb.YieldsHeld{Worker: w.join.Worker, Cut: w.hold, Untracked: w.streams[i].dataset})
}

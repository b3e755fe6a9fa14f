package hold

import (
	"slices"

	pb "github.com/headrace/headrace/api/headrace/v1"
)

// The yields of trainers are paused while a shared model is saved (docs/CUTS.md).
// The master says when a pause begins and ends. The trainer waits, and says when all
// that it was given is stepped. While the master is away a paused trainer stays
// paused, because the master counts on that until the TTL. In a new session the
// master says again which trainers are paused.

// PauseYields tells a trainer to hand out no further batch (On), or to go on.
type PauseYields struct {
	Worker uint32
	Cut    uint64
	On     bool
	Why    string
}

// pauseYields passes on what the master says.
func (c *Core) pauseYields(h *pb.PauseYields) {
	w := c.byNumber[h.Worker]
	switch {
	case w == nil || w.state == gone:
		return
	case h.On:
		w.pause, w.pauseStale, w.pausedDue = h.Cut, false, false
		c.fx.Pauses = append(c.fx.Pauses, PauseYields{Worker: h.Worker, Cut: h.Cut, On: true, Why: h.Reason})
		c.tellUntracked(w)
	case w.pause == h.Cut:
		c.letGo(w, h.Reason)
	}
}

func (c *Core) letGo(w *worker, why string) {
	c.fx.Pauses = append(c.fx.Pauses, PauseYields{Worker: w.join.Worker, Cut: w.pause, Why: why})
	w.pause, w.pauseStale, w.pausedDue = 0, false, false
}

// dropStale lets those workers go on that the master has taken in again without
// saying that they are paused.
func (c *Core) dropStale() {
	for _, w := range c.workers {
		if w.pauseStale {
			c.letGo(w, "the master knows of no pause any more")
		}
	}
}

// yieldsPaused: a trainer yields nothing, and all that it was given is stepped.
func (c *Core) yieldsPaused(ev *YieldsPaused) {
	w := c.byNumber[ev.Worker]
	if w == nil || w.state != joined || w.pause == 0 || w.pause != ev.Cut {
		return
	}
	w.pausedDue = true
	if !slices.Contains(c.paused, w) {
		c.paused = append(c.paused, w)
	}
}

// sendPaused tells the master, in the message of the acks before it or a later one.
func (c *Core) sendPaused() {
	for _, w := range c.paused {
		if w.pausedDue && w.state == joined {
			w.pausedDue = false
			m := c.message()
			m.YieldsPaused = append(m.YieldsPaused, &pb.YieldsPaused{Worker: w.join.Worker, Cut: w.pause})
		}
	}
	clear(c.paused)
	c.paused = c.paused[:0]
}

// tellUntracked tells the master that w reads without steps: its yields cannot be
// paused at a step.
func (c *Core) tellUntracked(w *worker) {
	i := slices.IndexFunc(w.streams, func(s *stream) bool { return !s.tracked && !s.closed && !s.over })
	if i < 0 || w.pause == 0 || !c.talking() {
		return
	}
	m := c.message()
	m.YieldsPaused = append(m.YieldsPaused, &pb.YieldsPaused{Worker: w.join.Worker, Cut: w.pause, Untracked: w.streams[i].dataset})
}

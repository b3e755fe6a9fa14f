package supervise

import "time"

// wait is a start that waits for its backoff.
type wait struct {
	timer *time.Timer
	end   End // why it is started again
}

// soon: if a worker has run this long, its earlier failures do not count any more.
const soon = 10 * time.Second

func backoff(n int) time.Duration {
	if n < 2 {
		return 0
	}
	return min(30*time.Second, time.Second<<min(n-2, 10))
}

// failures counts the failures in a row of a local rank, or of the group (-1). A trainer that was
// killed by a signal did not fail: its next start needs no pause.
func (g *group) failures(local int, w *worker) {
	if time.Since(w.started) >= soon || w.end.Signal != 0 {
		g.quick[local] = 0
	}
	if w.end.Signal == 0 {
		g.quick[local]++
	}
}

// later calls start now, or after the backoff of a worker (or group) that has failed repeatedly.
func (g *group) later(local int, end End, start func() error) error {
	pause := g.cfg.Backoff(g.quick[local])
	if pause <= 0 {
		return start()
	}
	g.cfg.Logger.Warn("it starts again after a pause, because it has failed several times in a row", "task", end.Task, "pause", pause)
	w := &wait{end: end}
	w.timer = time.AfterFunc(pause, func() {
		g.due <- func() error {
			if g.waiting[local] != w {
				return nil // it was stopped meanwhile
			}
			delete(g.waiting, local)
			return start()
		}
	})
	g.waiting[local] = w
	return nil
}

// stopWaiting gives up the starts that wait for their backoff. These workers count as failed.
func (g *group) stopWaiting() {
	for rank, w := range g.waiting {
		w.timer.Stop()
		delete(g.waiting, rank)
		g.failed = append(g.failed, w.end)
	}
}

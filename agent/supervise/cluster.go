package supervise

import (
	"fmt"
	"slices"
	"syscall"
	"time"
)

// How long tasks may go on when nothing is left to train.
const (
	// workersWithin is for workers, after the chief has ended well.
	workersWithin = time.Minute
	// evaluatorWithin is for the evaluator, after all that train have ended well.
	evaluatorWithin = 2 * time.Minute
)

// cluster is the part of a group's state that only Roles need.
type cluster struct {
	hosts     map[string][]string // role -> addresses
	chiefDone bool                // the chief has ended well: nothing is left to train
	over      bool                // all that train have ended well
	late      *time.Timer
	lateDo    func() // when late fires
}

// event tells people what happened to a task.
func (g *group) event(format string, args ...any) { g.cfg.Event(fmt.Sprintf(format, args...)) }

// taskEnded decides what to do after a task of Roles has ended by itself.
func (g *group) taskEnded(w *worker) error {
	c := &g.cluster
	switch {
	case c.over:
		g.event("%s has ended (%s)", w.name, w.end.Status())
	case w.role == PS:
		return g.serverEnded(w)
	case !w.end.Bad():
		g.endedWell(w)
	case w.rank >= 0 && c.chiefDone:
		g.event("%s: %s; the chief has ended well, so nothing is left to train and it is not started again", w.name, w.end.Status())
		g.endIfNothingTrains()
	case w.end.Final:
		g.giveUp(w, "a new start would meet the same error of a checkpoint")
	case g.restarts >= g.cfg.MaxRestarts:
		g.giveUp(w, g.budget())
	case w.rank >= 0 && g.cfg.Model == Replicated:
		g.event("%s: %s; all trainers start again together, restart %s", w.name, w.end.Status(), g.nextRestart())
		return g.restartGroup(w)
	default:
		g.event("%s: %s; it starts again alone, restart %s", w.name, w.end.Status(), g.nextRestart())
		return g.restart(w)
	}
	return nil
}

func (g *group) nextRestart() string { return fmt.Sprintf("%d of %d", g.restarts+1, g.cfg.MaxRestarts) }

func (g *group) budget() string {
	return fmt.Sprintf("all %d restarts are used (max_restarts)", g.cfg.MaxRestarts)
}

func (g *group) giveUp(w *worker, why string) {
	g.event("%s: %s; %s: the job stops", w.name, w.end.Status(), why)
	g.failed = append(g.failed, w.end)
	g.stop(syscall.SIGTERM)
}

// serverEnded starts all trainers again at the newest checkpoint, because the model, or a part of
// it, was in the server's memory.
func (g *group) serverEnded(w *worker) error {
	switch {
	case g.cluster.chiefDone:
		g.event("%s has ended (%s)", w.name, w.end.Status())
		return nil
	case g.restarts >= g.cfg.MaxRestarts:
		g.giveUp(w, g.budget())
		return nil
	}
	g.event("%s: %s; the model is lost with it, so all trainers start again at the newest checkpoint, restart %s",
		w.name, w.end.Status(), g.nextRestart())
	return g.restartGroup(w)
}

func (g *group) endedWell(w *worker) {
	g.event("%s has ended well", w.name)
	if w.role == Chief {
		g.cluster.chiefDone = true
		g.within(workersWithin, func() {
			g.event("workers still run %v after the chief has ended well: they are ended", workersWithin)
			g.end(func(t *task) bool { return t.rank >= 0 })
		})
	}
	if w.rank >= 0 {
		g.endIfNothingTrains()
	}
}

// endIfNothingTrains ends the servers at once, and the evaluator when it has had time to
// look at the last checkpoint.
func (g *group) endIfNothingTrains() {
	if g.runs(func(t *task) bool { return t.rank >= 0 }) {
		return
	}
	g.cluster.over = true
	for local, w := range g.waiting { // an evaluator that would start later
		w.timer.Stop()
		delete(g.waiting, local)
	}
	g.end(func(t *task) bool { return t.role == PS })
	if !g.runs(func(t *task) bool { return t.role == Evaluator }) {
		return
	}
	servers := g.cluster.lateDo
	g.within(g.cfg.Grace, func() {
		servers()
		g.within(evaluatorWithin, func() {
			g.event("the evaluator still runs %v after the job: it is ended", evaluatorWithin)
			g.end(func(*task) bool { return true })
		})
	})
}

// end asks tasks to end, and kills them after Grace.
func (g *group) end(which func(*task) bool) {
	send := func(s syscall.Signal) {
		for _, w := range g.workers {
			if w != nil && which(&w.task) {
				w.tell(s)
			}
		}
	}
	send(syscall.SIGTERM)
	g.within(g.cfg.Grace, func() { send(syscall.SIGKILL) })
}

// runs reports whether a task runs or will start again.
func (g *group) runs(which func(*task) bool) bool {
	return slices.ContainsFunc(g.tasks, func(t task) bool {
		return which(&t) && (g.workers[t.local] != nil || g.waiting[t.local] != nil)
	})
}

// groupRuns reports whether a process runs that must end before the group starts again. An
// evaluator need not: it has nothing of the model.
func (g *group) groupRuns() bool {
	return slices.ContainsFunc(g.workers, func(w *worker) bool { return w != nil && w.role != Evaluator })
}

// within calls do after d. It replaces the call that an earlier within has planned.
func (g *group) within(d time.Duration, do func()) {
	g.cluster.lateDo = do
	g.cluster.late.Reset(d)
}

func (g *group) tooLate() {
	if do := g.cluster.lateDo; do != nil {
		g.cluster.lateDo = nil
		do()
	}
}

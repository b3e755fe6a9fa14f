package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Models, as the master's job says them.
const (
	Shared     = "shared"
	Replicated = "replicated"
	Private    = "private"
)

// defaultGrace is between the forwarded signal and SIGKILL.
const defaultGrace = 10 * time.Second

// Config says what to run. Zero values mean the defaults.
type Config struct {
	Cmd []string // program and arguments
	Dir string   // working folder; default: ours
	Env []string // default: os.Environ(); ours are added to it

	// Roles make the processes the tasks of a TensorFlow cluster; see role.go. Then
	// NProcPerNode is not read, and NNodes is 1.
	Roles []Role
	// Event gets one line for people about each start and end of a task of Roles.
	Event func(line string)

	NProcPerNode int // default 1
	NNodes       int // default 1
	NodeRank     int // this node's number, from 0
	// Backoff is how long a worker, or the group, waits before its next start. It has failed
	// n times in a row, each time soon after its start. Default: no wait after the first
	// failure, then 1 s, twice as long each time, at most 30 s.
	Backoff func(n int) time.Duration

	MaxRestarts int    // restarts of workers (shared, private) or of the group (replicated), in all
	Model       string // Shared, Replicated or Private; default Replicated

	FirstEnv []string // of the first attempt only, over Env

	Job        string // HEADRACE_JOB, if set
	Socket     string // HEADRACE_AGENT
	MasterAddr string // MASTER_ADDR; default 127.0.0.1
	MasterPort int    // MASTER_PORT; default: a free one, chosen anew for each generation of a group

	// Ended is called, if it is set, after workers have ended: before the worker of one rank
	// starts again, before the group starts again (rank -1), and at the end.
	Ended func(rank int, again bool)

	// Reaped is called, if it is set, when a worker has ended: with its process group, and
	// whether it crashed by itself, before it got a signal from here.
	Reaped func(group int, crash bool)

	Out, Err io.Writer     // default: os.Stdout, os.Stderr
	Grace    time.Duration // default defaultGrace
	Logger   *slog.Logger

	// Signals: the first is forwarded to the workers and Grace begins, the
	// second kills. Default: SIGINT and SIGTERM of this process. The end of ctx
	// counts as SIGTERM.
	Signals <-chan os.Signal
}

func (c Config) withDefaults() (Config, error) {
	if err := c.checkCommand(); err != nil {
		return c, err
	}
	c.NProcPerNode, c.NNodes = max(c.NProcPerNode, 1), max(c.NNodes, 1)
	if len(c.Roles) > 0 {
		c.NProcPerNode = tasksOf(c.Roles)
	}
	if c.Model == "" {
		c.Model = Replicated
	}
	switch {
	case c.Model != Shared && c.Model != Replicated && c.Model != Private:
		return c, fmt.Errorf("run: model %q is none of %s, %s, %s", c.Model, Shared, Replicated, Private)
	case c.MaxRestarts < 0:
		return c, fmt.Errorf("run: --max-restarts %d is below 0", c.MaxRestarts)
	case c.NodeRank < 0 || c.NodeRank >= c.NNodes:
		return c, fmt.Errorf("run: --node-rank %d of %d nodes: they count from 0", c.NodeRank, c.NNodes)
	case c.NNodes > 1 && len(c.Roles) > 0:
		return c, fmt.Errorf("run: --nnodes %d: roles run on one machine", c.NNodes)
	case c.NNodes > 1 && (c.MasterAddr == "" || c.MasterPort == 0):
		return c, fmt.Errorf("run: %d nodes need --master-addr and --master-port, the same on all of them", c.NNodes)
	case c.MasterPort < 0 || c.MasterPort > 65535:
		return c, fmt.Errorf("run: --master-port %d is no port", c.MasterPort)
	}
	if c.Env == nil {
		c.Env = os.Environ()
	}
	if c.MasterAddr == "" {
		c.MasterAddr = "127.0.0.1"
	}
	if c.Out == nil {
		c.Out = os.Stdout
	}
	if c.Err == nil {
		c.Err = os.Stderr
	}
	if c.Backoff == nil {
		c.Backoff = backoff
	}
	if c.Grace == 0 {
		c.Grace = defaultGrace
	}
	if c.Event == nil {
		c.Event = func(string) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

func (c *Config) checkCommand() error {
	missing := len(c.Cmd) == 0 || c.Cmd[0] == ""
	for _, r := range c.Roles {
		if len(r.Cmd) == 0 && missing {
			return fmt.Errorf("run: role %s has no command", r.Name)
		}
	}
	if missing && len(c.Roles) == 0 {
		return errors.New("run: no command: headrace run -- python train.py")
	}
	return nil
}

// Run starts the workers and returns when all have ended: nil if every rank
// exited with 0, else a *Failed that names each rank's end. No process of theirs
// is left behind. Errors before a worker runs name what could not be started.
func Run(ctx context.Context, cfg Config) error {
	if !runsHere {
		return errors.New("run: trainers do not run on this system yet: use a container or a virtual machine with Linux")
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	if cfg.Signals == nil {
		signals := make(chan os.Signal, 2)
		signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
		defer signal.Stop(signals)
		cfg.Signals = signals
	}
	g := newGroup(cfg)
	signal.Notify(g.users, userSignals...)
	defer signal.Stop(g.users)
	g.spawner, g.oom = newSpawner(), newMemoryKills("/")
	defer g.spawner.stop()
	defer g.waits.Wait()
	return g.run(ctx)
}

// group is the workers of this node. The goroutine of run owns it.
type group struct {
	cfg      Config
	spawner  *spawner
	out, err *output
	written  atomic.Int64 // lines of all workers
	alike    alike
	ends     chan *worker
	waits    sync.WaitGroup

	tasks    []task    // by local rank
	workers  []*worker // by local rank; nil: ended for good
	running  int
	attempt  int // of the group
	restarts int // used of the budget
	port     int
	failed   []End
	stopping bool        // signals were sent; nothing is started any more
	again    bool        // replicated: the group is being stopped to start again
	kill     *time.Timer // runs from stop to the end of Grace
	users    chan os.Signal

	oom     *memoryKills
	notes   string      // folder in which workers say why they end
	quick   map[int]int // by local rank: how often in a row a worker failed soon after its start; -1: the whole group
	due     chan func() error
	waiting map[int]*wait // workers whose next start waits, by local rank

	cluster cluster // of Roles
}

// userSignals mean what a user wants, for example "save, your time is nearly over" of Slurm. They
// go to the workers, and nothing else happens.
var userSignals = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2}

func newGroup(cfg Config) *group {
	g := &group{
		users: make(chan os.Signal, 8),
		cfg:   cfg, out: &output{w: cfg.Out}, err: &output{w: cfg.Err}, kill: idleTimer(), cluster: cluster{late: idleTimer()},
		tasks: cfg.makeTasks(), workers: make([]*worker, cfg.NProcPerNode), ends: make(chan *worker, cfg.NProcPerNode),
		quick: map[int]int{}, waiting: map[int]*wait{}, due: make(chan func() error, cfg.NProcPerNode+1),
	}
	g.out.written, g.err.written = &g.written, &g.written
	return g
}

// idleTimer returns a timer that does not fire until it is reset.
func idleTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

func (g *group) run(ctx context.Context) error {
	defer g.kill.Stop()
	defer g.cluster.late.Stop()
	if notes, err := os.MkdirTemp("", "headrace-run-"); err == nil { // without it all failures are alike
		g.notes = notes
		defer os.RemoveAll(notes)
	}
	if err := g.startAll(); err != nil {
		return err
	}
	done := ctx.Done()
	var by os.Signal // the signal that ended us
	var broken error // why a task could not start again
	for g.running > 0 || len(g.waiting) > 0 {
		select {
		case start := <-g.due:
			broken = g.endIfBroken(start(), broken)
		case w := <-g.ends:
			broken = g.endIfBroken(g.ended(w), broken)
		case s := <-g.cfg.Signals:
			if by != nil {
				g.signal(syscall.SIGKILL)
				continue
			}
			by = s
			g.again = false
			g.stop(s.(syscall.Signal))
		case s := <-g.users:
			for _, w := range g.workers {
				if w != nil {
					w.pass(s.(syscall.Signal))
				}
			}
		case <-done:
			done = nil
			by = syscall.SIGTERM
			g.again = false
			g.stop(syscall.SIGTERM)
		case <-g.cluster.late.C:
			g.tooLate()
		case <-g.kill.C:
			g.cfg.Logger.Warn("workers did not end in time", "grace", g.cfg.Grace)
			g.signal(syscall.SIGKILL)
		}
	}
	g.tell(-1, false)
	if broken != nil {
		return broken
	}
	if len(g.failed) == 0 {
		return nil
	}
	first := &g.failed[0]
	first.seen = g.written.Load()-first.until <= keptLines
	return &Failed{Ends: g.failed, Signal: by, Restarts: g.restarts, Budget: g.cfg.MaxRestarts}
}

// endIfBroken ends the others after a task could not start again. Signals still count
// meanwhile.
func (g *group) endIfBroken(err, before error) error {
	if err == nil || before != nil {
		return before
	}
	g.again = false
	g.stop(syscall.SIGTERM)
	return err
}

// startAll starts a generation of the group: all that does not run.
func (g *group) startAll() error {
	if g.port = g.cfg.MasterPort; g.port == 0 {
		port, err := freePort()
		if err != nil {
			return fmt.Errorf("run: MASTER_PORT: %w", err)
		}
		g.port = port
	}
	if err := g.makeCluster(); err != nil {
		return err
	}
	for local := range g.workers {
		if g.workers[local] != nil {
			continue
		}
		if err := g.start(local, g.attempt); err != nil {
			g.stop(syscall.SIGKILL)
			for g.running > 0 {
				<-g.ends
				g.running--
			}
			return err
		}
	}
	return nil
}

func (g *group) start(local, attempt int) error {
	w, err := g.startWorker(local, attempt)
	if err != nil {
		return err
	}
	g.workers[local] = w
	g.running++
	if w.role != "" {
		g.event("%s runs, pid %d", w.name, w.cmd.Process.Pid)
	}
	g.cfg.Logger.Info("worker started", "task", w.name, "pid", w.cmd.Process.Pid, "attempt", attempt)
	g.waits.Go(func() {
		w.wait()
		crash := w.crashed(g.oom)
		if g.cfg.Reaped != nil {
			g.cfg.Reaped(w.end.PID, crash)
		}
		g.ends <- w
	})
	return nil
}

// ended decides what to do after one worker has ended.
func (g *group) ended(w *worker) error {
	g.running--
	g.workers[w.local] = nil
	g.cfg.Logger.Info("worker ended", "task", w.name, "pid", w.cmd.Process.Pid, "status", w.end.Status())
	switch {
	case g.again:
		if !g.groupRuns() {
			return g.startAgain()
		}
	case g.stopping:
		if w.end.Bad() && !g.cluster.over {
			g.failed = append(g.failed, w.end)
		}
	case len(g.cfg.Roles) > 0:
		return g.taskEnded(w)
	case !w.end.Bad():
	case w.end.Final:
		g.failed = append(g.failed, w.end)
		g.stop(syscall.SIGTERM)
	case g.restarts >= g.cfg.MaxRestarts:
		g.failed = append(g.failed, w.end)
		g.stop(syscall.SIGTERM)
	case g.cfg.Model == Replicated:
		g.cfg.Logger.Warn("restarting the whole group", "because", w.end.String(), "restart", g.restarts+1, "of", g.cfg.MaxRestarts)
		return g.restartGroup(w)
	default:
		g.cfg.Logger.Warn("restarting a worker", "because", w.end.String(), "restart", g.restarts+1, "of", g.cfg.MaxRestarts)
		return g.restart(w)
	}
	return nil
}

// restart starts one worker again.
func (g *group) restart(w *worker) error {
	g.restarts++
	if w.rank >= 0 {
		g.tell(w.rank, true)
	}
	g.failures(w.local, w)
	return g.later(w.local, w.end, func() error {
		if g.workers[w.local] != nil { // it has started with the group
			return nil
		}
		return g.start(w.local, w.attempt+1)
	})
}

// restartGroup ends the group, because of w, and starts it again.
func (g *group) restartGroup(w *worker) error {
	g.restarts++
	g.failed = append(g.failed, w.end) // until the group runs again
	g.again = true
	g.stop(syscall.SIGTERM)
	g.failures(-1, w)
	if !g.groupRuns() {
		return g.startAgain()
	}
	return nil
}

// tell calls Ended. Signals wait meanwhile.
func (g *group) tell(rank int, again bool) {
	if g.cfg.Ended != nil {
		g.cfg.Ended(rank, again)
	}
}

// startAgain begins the next generation of a replicated group.
func (g *group) startAgain() error {
	g.tell(-1, true)
	first := g.failed[0]
	g.again, g.stopping, g.failed = false, false, nil
	g.kill.Stop()
	g.attempt++
	return g.later(-1, first, g.startAll)
}

// stop asks all workers to end, and kills them after Grace.
func (g *group) stop(s syscall.Signal) {
	g.stopping, g.cluster.lateDo = true, nil
	g.stopWaiting()
	g.signal(s)
	g.kill.Reset(g.cfg.Grace)
}

func (g *group) signal(s syscall.Signal) {
	for _, w := range g.workers {
		if w != nil && !(g.again && w.role == Evaluator) {
			w.tell(s)
		}
	}
}

package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Models, as the master's job says them.
const (
	Shared     = "shared"
	Replicated = "replicated"
	Private    = "private"
)

// DefaultGrace is between the forwarded signal and SIGKILL.
const DefaultGrace = 10 * time.Second

// Config says what to run. Zero values mean the defaults.
type Config struct {
	Cmd []string // program and arguments
	Dir string   // working folder; default: ours
	Env []string // default: os.Environ(); ours are added to it

	NProcPerNode int // default 1
	NNodes       int // default 1
	NodeRank     int // this node's number, from 0
	// Backoff is how long a worker, or the group, waits before its next start, after it has
	// failed n times in a row, each time soon after its start. Default: not after the first
	// failure, then 1 s, twice as long each time, at most 30 s.
	Backoff func(n int) time.Duration

	MaxRestarts int    // restarts of workers (shared, private) or of the group (replicated), in all
	Model       string // Shared, Replicated or Private; default Replicated

	FirstEnv []string // of the first attempt only, over Env

	Job        string // HEADRACE_JOB, if set
	Socket     string // HEADRACE_AGENT
	MasterAddr string // MASTER_ADDR; default 127.0.0.1
	MasterPort int    // MASTER_PORT; default: a free one, chosen anew for each generation of a group

	// Ended is called, if it is set, after workers have ended: before the worker of one
	// rank is started again, before the group is (rank -1), and at the end.
	Ended func(rank int, again bool)

	Out, Err io.Writer     // default: os.Stdout, os.Stderr
	Grace    time.Duration // default DefaultGrace
	Logger   *slog.Logger

	// Signals: the first is forwarded to the workers and Grace begins, the
	// second kills. Default: SIGINT and SIGTERM of this process. The end of ctx
	// counts as SIGTERM.
	Signals <-chan os.Signal
}

func (c Config) withDefaults() (Config, error) {
	if len(c.Cmd) == 0 || c.Cmd[0] == "" {
		return c, errors.New("run: no command: headrace run -- python train.py")
	}
	c.NProcPerNode, c.NNodes = max(c.NProcPerNode, 1), max(c.NNodes, 1)
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
		c.Grace = DefaultGrace
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// Run starts the workers and returns when all have ended: nil if every rank
// exited with 0, else a *Failed that names each rank's end. No process of theirs
// is left behind. Errors before a worker runs name what could not be started.
func Run(ctx context.Context, cfg Config) error {
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
	g := &group{cfg: cfg, ends: make(chan *worker, cfg.NProcPerNode), out: &output{w: cfg.Out}, err: &output{w: cfg.Err}}
	g.spawner = newSpawner()
	defer g.spawner.stop()
	defer g.waits.Wait()
	return g.run(ctx)
}

// group is the workers of this node. The goroutine of run owns it.
type group struct {
	cfg      Config
	spawner  *spawner
	out, err *output
	ends     chan *worker
	waits    sync.WaitGroup

	workers  []*worker // by local rank; nil: ended for good
	running  int
	attempt  int // of the group
	restarts int // used of the budget
	port     int
	failed   []End
	stopping bool // signals were sent; nothing is started any more
	again    bool // replicated: the group is being stopped to start again
	kill     *time.Timer

	notes   string      // folder in which workers say why they end
	quick   map[int]int // by rank, -1 of the group: failures in a row, each soon after its start
	due     chan func() error
	waiting map[int]*wait // starts that wait, by rank
}

func (g *group) run(ctx context.Context) error {
	g.kill = time.NewTimer(time.Hour)
	defer g.kill.Stop()
	g.quick, g.waiting, g.due = map[int]int{}, map[int]*wait{}, make(chan func() error, g.cfg.NProcPerNode+1)
	if notes, err := os.MkdirTemp("", "headrace-run-"); err == nil { // without it all failures are alike
		g.notes = notes
		defer os.RemoveAll(notes)
	}
	g.workers = make([]*worker, g.cfg.NProcPerNode)
	if err := g.startAll(); err != nil {
		return err
	}
	done := ctx.Done()
	var by os.Signal // the signal that ended us
	for g.running > 0 || len(g.waiting) > 0 {
		select {
		case start := <-g.due:
			if err := start(); err != nil {
				return err
			}
		case w := <-g.ends:
			if err := g.ended(w); err != nil {
				return err
			}
		case s := <-g.cfg.Signals:
			if by != nil {
				g.signal(syscall.SIGKILL)
				continue
			}
			by = s
			g.again = false
			g.stop(s.(syscall.Signal))
		case <-done:
			done = nil
			by = syscall.SIGTERM
			g.again = false
			g.stop(syscall.SIGTERM)
		case <-g.kill.C:
			g.cfg.Logger.Warn("workers did not end in time", "grace", g.cfg.Grace)
			g.signal(syscall.SIGKILL)
		}
	}
	g.tell(-1, false)
	if len(g.failed) == 0 {
		return nil
	}
	return &Failed{Ends: g.failed, Signal: by, Restarts: g.restarts, Budget: g.cfg.MaxRestarts}
}

// startAll starts a generation of the group.
func (g *group) startAll() error {
	if g.port = g.cfg.MasterPort; g.port == 0 {
		port, err := freePort()
		if err != nil {
			return fmt.Errorf("run: MASTER_PORT: %w", err)
		}
		g.port = port
	}
	for local := range g.workers {
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
	g.cfg.Logger.Info("worker started", "rank", w.rank, "pid", w.cmd.Process.Pid, "attempt", attempt)
	g.waits.Go(func() {
		w.wait()
		g.ends <- w
	})
	return nil
}

// ended decides what to do after one worker has ended.
func (g *group) ended(w *worker) error {
	g.running--
	g.workers[w.local] = nil
	g.cfg.Logger.Info("worker ended", "rank", w.rank, "pid", w.cmd.Process.Pid, "status", w.end.Status())
	switch {
	case g.again:
		if g.running == 0 {
			return g.startAgain()
		}
	case g.stopping:
		if w.end.Bad() {
			g.failed = append(g.failed, w.end)
		}
	case !w.end.Bad():
	case w.end.Final:
		g.failed = append(g.failed, w.end)
		g.stop(syscall.SIGTERM)
	case g.restarts >= g.cfg.MaxRestarts:
		g.failed = append(g.failed, w.end)
		g.stop(syscall.SIGTERM)
	case g.cfg.Model == Replicated:
		g.restarts++
		g.cfg.Logger.Warn("restarting the whole group", "because", w.end.String(), "restart", g.restarts, "of", g.cfg.MaxRestarts)
		g.failed = append(g.failed, w.end) // until the group runs again
		g.again = true
		g.stop(syscall.SIGTERM)
		g.failures(-1, w)
		if g.running == 0 {
			return g.startAgain()
		}
	default:
		g.restarts++
		g.cfg.Logger.Warn("restarting a worker", "because", w.end.String(), "restart", g.restarts, "of", g.cfg.MaxRestarts)
		g.tell(w.rank, true)
		g.failures(w.rank, w)
		return g.later(w.rank, w.end, func() error { return g.start(w.local, w.attempt+1) })
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
	g.kill.Reset(time.Hour)
	g.attempt++
	return g.later(-1, first, g.startAll)
}

// stop asks all workers to end, and kills them after Grace.
func (g *group) stop(s syscall.Signal) {
	g.stopping = true
	g.stopWaiting()
	g.signal(s)
	g.kill.Reset(g.cfg.Grace)
}

func (g *group) signal(s syscall.Signal) {
	for _, w := range g.workers {
		if w != nil {
			w.signal(s)
		}
	}
}

// environment of one worker: torchrun's names and ours over cfg.Env.
func (g *group) environment(local, attempt int) []string {
	c := &g.cfg
	set := map[string]string{
		"RANK":             strconv.Itoa(c.NodeRank*c.NProcPerNode + local),
		"LOCAL_RANK":       strconv.Itoa(local),
		"GROUP_RANK":       strconv.Itoa(c.NodeRank),
		"WORLD_SIZE":       strconv.Itoa(c.NNodes * c.NProcPerNode),
		"LOCAL_WORLD_SIZE": strconv.Itoa(c.NProcPerNode),
		"MASTER_ADDR":      c.MasterAddr,
		"MASTER_PORT":      strconv.Itoa(g.port),
		"HEADRACE_ATTEMPT": strconv.Itoa(attempt),
	}
	if g.notes != "" {
		set[noteVariable] = g.note(c.NodeRank*c.NProcPerNode + local)
	}
	if c.Socket != "" {
		set["HEADRACE_AGENT"] = c.Socket
	}
	if c.Job != "" {
		set["HEADRACE_JOB"] = c.Job
	}
	if attempt == 0 {
		for _, kv := range c.FirstEnv {
			name, value, _ := strings.Cut(kv, "=")
			set[name] = value
		}
	}
	env := make([]string, 0, len(c.Env)+len(set)+1)
	buffered := true
	for _, kv := range c.Env {
		name, _, _ := strings.Cut(kv, "=")
		if _, ours := set[name]; !ours {
			env = append(env, kv)
		}
		buffered = buffered && name != "PYTHONUNBUFFERED"
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		env = append(env, name+"="+set[name])
	}
	if buffered { // into a pipe Python would hold lines back for kilobytes
		env = append(env, "PYTHONUNBUFFERED=1")
	}
	return env
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

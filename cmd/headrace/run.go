package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headrace/headrace/agent/supervise"
	"github.com/headrace/headrace/flashckpt/memory"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/config"
	"github.com/headrace/headrace/internal/jobfile"
	"github.com/headrace/headrace/internal/link"
	"github.com/headrace/headrace/internal/suggest"
	"github.com/headrace/headrace/master"
	"github.com/spf13/cobra"
)

// trainersFirst are the defaults of run: those of up, and logs that leave the
// terminal to the trainers.
var trainersFirst = map[string]string{"listen": oneMachine["listen"], "http": oneMachine["http"], "allow_root": ".", "log_level": "warn"}

// runFlags are run's own.
type runFlags struct {
	files        []string
	resumeFailed bool
	fresh        bool
	perNode      int
	nodes        int
	nodeRank     int
	maxRestarts  int
	masterAddr   string
	masterPort   int

	job *jobfile.Job // of `run FILE`
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [JOB.yaml] [-f FILE] [--nproc-per-node N] [--max-restarts K] -- CMD [ARG...]",
		Short: "Start trainers, as torchrun does, with their data",
		Long: `Starts N processes of CMD with RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT, restarts what fails (one worker; with --model replicated the whole
group) at most K times in all, prefixes their output, and stops cleanly.

Without a master (none named, none alive in the state folder) it starts one and
an agent in this process, and ends them with the trainers; the state stays, so
the same command goes on where it stopped.

JOB.yaml names the tasks of a TensorFlow cluster (roles: ps, chief, worker,
evaluator), their command and the specs of their datasets. Each task gets its
TF_CONFIG; what fails starts again, at most max_restarts times (100).`,
		Example: `  headrace run -f clicks.yaml --nproc-per-node 4 -- python train.py
  headrace run job.yaml
  headrace run --max-restarts 3 -- python train.py`,
		Args: func(cmd *cobra.Command, args []string) error {
			if isJobFile(cmd, args) {
				return meant(args[1:])
			}
			if len(args) == 0 {
				return errors.New("no command: write it after --, as in `headrace run -- python train.py`")
			}
			return meant(args)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.run(cmd, &f, args) },
	}
	fs := cmd.Flags()
	specFlag(cmd, &f.files)
	resumeFlag(cmd, &f.resumeFailed)
	fs.BoolVar(&f.fresh, "fresh", false, "start from the beginning: forget the progress of the datasets of -f, and restore no checkpoint")
	fs.IntVar(&f.perNode, "nproc-per-node", 1, "trainers on this machine")
	fs.IntVar(&f.nodes, "nnodes", 1, "machines that run this command")
	fs.IntVar(&f.nodeRank, "node-rank", 0, "number of this machine, from 0")
	fs.IntVar(&f.maxRestarts, "max-restarts", 0, "restarts in all before giving up")
	fs.StringVar(&f.masterAddr, "master-addr", "", "MASTER_ADDR of the trainers (default 127.0.0.1)")
	fs.IntVar(&f.masterPort, "master-port", 0, "MASTER_PORT of the trainers (default: a free one)")
	config.AddFlags(fs, trainersFirst, slices.Concat(ofMaster, ofAgent)...)
	completeFolders(cmd)
	return cmd
}

// meant refuses commands that cannot be what the user means: a spec, a program without
// its interpreter, a program that is not there.
func meant(args []string) error {
	switch {
	case len(args) == 0: // of a job's file
		return nil
	case isData(args[0]):
		return isNoSpec(args[0])
	case isYAML(args):
		return advice.Usage.Errorf("`headrace run -f "+args[0]+" -- python train.py`", "%s is no program; the file of a spec is named with -f", args[0])
	case strings.HasSuffix(args[0], ".py") && !strings.Contains(args[0], "/"):
		return advice.Usage.Errorf("`headrace run -- python "+strings.Join(args, " ")+"`", "%s is no program", args[0])
	}
	if err := isProgram(args[0]); err != nil {
		return err
	}
	switch {
	case !strings.HasPrefix(filepath.Base(args[0]), "python") || len(args) < 2 || !strings.HasSuffix(args[1], ".py"):
		return nil
	}
	if _, err := os.Stat(args[1]); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	there, err := filepath.Glob(filepath.Join(filepath.Dir(args[1]), "*.py"))
	if err != nil {
		return err
	}
	return advice.NotFound.Errorf(suggest.Hint(args[1], there, "programs here"), "there is no program %s", args[1])
}

func (f *runFlags) check() error {
	for _, n := range []struct {
		flag      string
		value     int
		low, high int
	}{
		{"--nproc-per-node", f.perNode, 1, 10_000}, {"--nnodes", f.nodes, 1, 10_000}, {"--node-rank", f.nodeRank, 0, f.nodes - 1},
		{"--max-restarts", f.maxRestarts, 0, 1 << 30}, {"--master-port", f.masterPort, 0, 65535},
	} {
		if n.value < n.low || n.value > n.high {
			return advice.Usage.Errorf("", "%s: %d: must be from %d to %d", n.flag, n.value, n.low, n.high)
		}
	}
	return nil
}

func (a *app) run(cmd *cobra.Command, f *runFlags, args []string) error {
	// The first signal goes to the trainers, the second kills them, the third ends this
	// process at once.
	a.stops.patience.Store(3)
	outliveReaders()
	defaults := trainersFirst
	if isJobFile(cmd, args) {
		var err error
		if defaults, args, err = f.readJob(cmd, args); err != nil {
			return err
		}
	}
	docs, err := a.loadUp(cmd, f.files, defaults)
	if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	log, at := a.logger(), atStart{docs: docs, resumeFailed: f.resumeFailed, fresh: f.fresh}
	trainers, err := own(a.cfg.Job, a.cfg.Socket, f.nodeRank)
	if err != nil {
		return err
	}
	defer trainers.release()
	if a.cfg.From("master") != "" || a.masterAlive() {
		return a.runBesides(cmd.Context(), f, args, at, log)
	}
	if f.nodes > 1 {
		return advice.Usage.Errorf("start `headrace master` on one of them and give --master to all", "--nnodes %d: several machines need one master", f.nodes)
	}
	begun := false
	err = a.up(cmd.Context(), log, at, func(ctx context.Context, m *master.Master) error {
		begun = true
		a.say("job %s is up in this process, state in %s; watch it with `headrace top`", a.cfg.Job, a.cfg.State)
		return a.supervise(ctx, f, args, jobOfGroup{a.cfg.Job, a.cfg.Model, m.Addr()}, log)
	})
	if err == nil && !begun {
		return cmd.Context().Err() // interrupted before the first trainer
	}
	return err
}

// say writes one line among the trainers' output.
func (a *app) say(format string, args ...any) {
	fmt.Fprintf(a.err, "[headrace] "+format+"\n", args...)
}

// runBesides runs trainers with a master and an agent that live elsewhere.
func (a *app) runBesides(ctx context.Context, f *runFlags, args []string, at atStart, log *slog.Logger) error {
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.close()
	if err := a.applyAtStart(ctx, c, at); err != nil {
		return err
	}
	v, err := a.job(ctx, c)
	if err != nil {
		return advice.FromMaster(err, c.target)
	}
	conn, err := net.DialTimeout("unix", a.cfg.Socket, 2*time.Second)
	if err != nil {
		return advice.Unreachable.Errorf("start one with `headrace agent`, or name its socket with --socket or HEADRACE_AGENT",
			"no agent of this machine answers at %s: %w", a.cfg.Socket, err)
	}
	_ = conn.Close()
	return a.supervise(ctx, f, args, jobOfGroup{v.Job, v.Model, c.target.String()}, log)
}

// masterAlive reports whether a master has left its address in the state folder and
// listens there.
func (a *app) masterAlive() bool {
	addr, err := link.ReadAddress(a.cfg.State)
	if err != nil {
		return false
	}
	if link.Loopback(addr) && !master.Lives(a.cfg.State) {
		return false // it was killed, and its port may be another process's by now
	}
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// jobOfGroup is what the trainers' group must know about the job.
type jobOfGroup struct{ name, model, master string }

func (a *app) supervise(ctx context.Context, f *runFlags, args []string, job jobOfGroup, log *slog.Logger) error {
	// A trainer, or a program that it starts, may call the master: it finds the token here.
	env := append(os.Environ(), "HEADRACE_MASTER="+job.master)
	if path := a.cfg.Target().TokenPath(); a.cfg.Token == "" && readable(path) {
		env = append(env, "HEADRACE_TOKEN_FILE="+path)
	}
	// This name tells the checkpoints that they leave in memory from those of other runs.
	left := memory.Left{Job: job.name, Run: rand.Text()}
	env = append(env, "HEADRACE_RUN="+left.Run)
	// Trainers get a signal once, through Signals. So this context does not end with the
	// same signal; it ends when the master or the agent has failed.
	own, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	stop := context.AfterFunc(ctx, func() {
		if context.Cause(ctx) != context.Canceled {
			end()
		}
	})
	defer stop()
	var first []string
	if f.fresh {
		first = []string{"HEADRACE_RESUME=start"} // a trainer that is started again goes on
	}
	log.Debug("trainers start", "command", args, "count", strconv.Itoa(f.perNode))
	return supervise.Run(own, supervise.Config{
		Cmd: args, Dir: f.dir(), Env: append(env, f.env()...), Roles: f.roles(), Event: func(line string) { a.say("%s", line) }, NProcPerNode: f.perNode, NNodes: f.nodes, NodeRank: f.nodeRank, MaxRestarts: f.maxRestarts, Model: job.model,
		FirstEnv: first, Job: job.name, Socket: a.cfg.Socket, MasterAddr: f.masterAddr, MasterPort: f.masterPort,
		Out: a.out, Err: a.err, Logger: log, Signals: a.stops.seen,
		Reaped: a.tellEnded,
		Ended: func(rank int, again bool) {
			left, within := left, saveWithin
			if rank >= 0 {
				left.Ranks = []uint32{uint32(rank)}
			}
			if !again {
				within = saveAtEndWithin
			}
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
			defer cancel()
			a.saveMemory(ctx, left, a.cfg.TargetAt(job.master), log)
		},
	})
}

func readable(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	return f.Close() == nil
}

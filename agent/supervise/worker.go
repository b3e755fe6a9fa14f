package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pipeWait is how long output may still come after a worker's end, from children that it
// left running. They are killed, so the output ends.
const pipeWait = 2 * time.Second

// worker is one process and its group.
type worker struct {
	task
	attempt  int
	cmd      *exec.Cmd
	out, err *prefixed
	end      End
	started  time.Time
	note     string // a file in which it may say why it ends
	kills    int64  // the count of memoryKills before it started

	mu     sync.Mutex
	reaped bool // from then on its pid may be given to another process
	told   bool // it was asked to end, or another signal was passed on to it
}

func (g *group) startWorker(local, attempt int) (*worker, error) {
	w := &worker{task: g.tasks[local], attempt: attempt}
	w.out, w.err = newPrefixed(g.out, w.prefix, 0), newPrefixed(g.err, w.prefix, keptLines)
	w.err.trace = &tracer{alike: &g.alike, worker: w.name}
	w.cmd = exec.Command(w.command[0], w.command[1:]...)
	w.cmd.Dir, w.cmd.Env = g.cfg.Dir, g.environment(local, attempt)
	w.cmd.Stdout, w.cmd.Stderr = w.out, w.err
	w.cmd.WaitDelay = pipeWait
	w.cmd.SysProcAttr = ownGroup()
	w.started = time.Now()
	if g.notes != "" {
		w.note = g.note(local)
		_ = os.Remove(w.note) // of the attempt before
	}
	w.kills = g.oom.count()
	if err := g.spawner.start(w.cmd); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return nil, fmt.Errorf("run: there is no program %q on PATH: %w", w.command[0], err)
		}
		return nil, fmt.Errorf("run: start %s: %w", w.name, err)
	}
	return w, nil
}

// wait returns when the process has ended and nothing of its group is left.
func (w *worker) wait() {
	pid := w.cmd.Process.Pid
	awaitEnd(pid)
	w.signal(unix.SIGKILL) // its children
	w.mu.Lock()
	w.reaped = true
	w.mu.Unlock()
	_ = w.cmd.Wait() // its error is in ProcessState
	w.out.flush()
	w.err.flush()
	w.end = End{Task: w.name, Rank: w.rank, Attempt: w.attempt, PID: pid, Final: w.isFinal(), Stderr: w.err.last(), until: w.err.until}
	if st, ok := w.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		w.end.Signal = st.Signal()
	} else {
		w.end.Code = w.cmd.ProcessState.ExitCode()
	}
}

// noteVariable names the file in which a trainer says that it ended by an error which a
// new start would only meet again: a checkpoint that cannot be restored or written. The
// Python package writes it.
const noteVariable = "HEADRACE_ENDED_BY"

func (g *group) note(local int) string { return filepath.Join(g.notes, fmt.Sprintf("task-%d", local)) }

func (w *worker) isFinal() bool {
	if w.note == "" {
		return false
	}
	text, err := os.ReadFile(w.note)
	return err == nil && strings.HasPrefix(string(text), "CheckpointError")
}

// tell passes a signal on. How the worker ends after that says nothing about its records.
func (w *worker) tell(s syscall.Signal) {
	w.mu.Lock()
	w.told = true
	w.mu.Unlock()
	w.signal(s)
}

// crashed says whether the worker, which has ended, crashed by itself. If the kernel killed it for
// want of memory, crashed notes that in w.end.
func (w *worker) crashed(oom *memoryKills) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.told {
		return false
	}
	w.end.Memory = w.end.killed() && oom.one(w.kills)
	return w.end.Memory || w.end.Crashed()
}

// pass gives a user's signal to the process alone: its children, such as the workers of a
// DataLoader, would end by it.
func (w *worker) pass(s syscall.Signal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.reaped {
		_ = unix.Kill(w.cmd.Process.Pid, s) // ESRCH: it has ended
	}
}

// signal goes to the process and all of its group.
func (w *worker) signal(s syscall.Signal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.reaped {
		_ = unix.Kill(-w.cmd.Process.Pid, s) // ESRCH: nothing is left of it
	}
}

// spawner starts processes on one thread that lives as long as they should:
// Pdeathsig fires at the death of the thread that started a process, not of us.
type spawner struct {
	starts chan *exec.Cmd
	errs   chan error
	done   chan struct{}
}

func newSpawner() *spawner {
	s := &spawner{starts: make(chan *exec.Cmd), errs: make(chan error), done: make(chan struct{})}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(s.done)
		for cmd := range s.starts {
			s.errs <- cmd.Start()
		}
	}()
	return s
}

func (s *spawner) start(cmd *exec.Cmd) error {
	s.starts <- cmd
	return <-s.errs
}

func (s *spawner) stop() {
	close(s.starts)
	<-s.done
}

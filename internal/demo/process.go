package demo

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is one process of the job, leader of its own group. It dies with us
// whatever happens to us (parent death signal).
type process struct {
	name string // "trainer 1"
	kind string // trainer | agent | master
	log  string // file of its output
	from int64  // where in log its own output begins
	cmd  *exec.Cmd

	done chan struct{} // closed when it has ended and err is set
	err  error
}

// processes keeps all that were ever started, to end and to bill them.
type processes struct {
	mu  sync.Mutex
	all []*process
	dir string // of the outputs
}

// start runs argv with env added to ours. Output is appended to <name>.log.
func (ps *processes) start(kind, name string, env []string, argv ...string) (*process, error) {
	p := &process{name: name, kind: kind, log: filepath.Join(ps.dir, name+".log"), done: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	if before, err := out.Stat(); err == nil {
		p.from = before.Size()
	}
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Dir = ps.dir // where no settings file of the user's lies
	p.cmd.Env = append(environment(), env...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() { // ends with the process
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	ps.mu.Lock()
	ps.all = append(ps.all, p)
	ps.mu.Unlock()
	return p, nil
}

// environment is ours without settings: a job of the user's is not this one's.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "HEADRACE_") })
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill sends SIGKILL to the process and returns the moment.
func (p *process) kill() (at int64, err error) {
	at = monotonic()
	if err = p.cmd.Process.Kill(); errors.Is(err, os.ErrProcessDone) {
		err = nil // it was a moment faster
	}
	<-p.done
	return at, err
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// died is an error that shows how p ended and the end of its output.
func (p *process) died() error {
	text, _ := os.ReadFile(p.log)
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	if len(lines) > 12 {
		lines = lines[len(lines)-12:]
	}
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("%s ended by itself (%s); the end of its output:\n    %s", p.name, how, bytes.Join(lines, []byte("\n    ")))
}

// givenUp matches what a trainer says that was right to end: its own watchdog or
// its agent ended it, or it was told that its rows are with others.
var givenUp = regexp.MustCompile(`(?m)^(?:headrace: (the agent .+)|headrace\S*\.Fenced: (.+))$`)

// gaveUp is why p, which has ended by itself, had to; "": it had not.
func (p *process) gaveUp() string {
	text, _ := os.ReadFile(p.log)
	all := givenUp.FindAllSubmatch(text[min(p.from, int64(len(text))):], -1)
	if p.err == nil || len(all) == 0 {
		return ""
	}
	last := all[len(all)-1]
	return string(last[1]) + string(last[2])
}

// stop asks every process of a kind that still runs to end, and kills the group
// of what has not ended within grace.
func (ps *processes) stop(kind string, grace time.Duration) (late []string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	deadline := time.After(grace)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		for _, p := range ps.all {
			if p.kind == kind && !p.ended() {
				_ = syscall.Kill(-p.pid(), signal)
				if signal == syscall.SIGKILL {
					late = append(late, p.name)
				}
			}
		}
		for _, p := range ps.all {
			if p.kind != kind || p.ended() {
				continue
			}
			if signal == syscall.SIGKILL {
				<-p.done
				continue
			}
			select {
			case <-p.done:
			case <-deadline:
				deadline = closed
			}
		}
	}
	return late
}

var closed = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// cpu is the CPU time of the ended processes of a kind.
func (ps *processes) cpu(kind string) (used time.Duration) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.all {
		if p.kind == kind && p.ended() {
			used += p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
		}
	}
	return used
}

// monotonic is CLOCK_MONOTONIC in ns: what Python's time.monotonic_ns() is too.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Errorf("this system has no monotonic clock: %w", err)) // not on Linux
	}
	return ts.Nano()
}

// checkPython finds the interpreter, and says what to do when it can not run the
// trainers.
func checkPython(python string) (path, version string, err error) {
	path, err = exec.LookPath(python)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", "", fmt.Errorf("there is no Python at %s (%w); name one with --python or HEADRACE_PYTHON", python, err)
	}
	out, err := exec.Command(path, "-c",
		"import sys, numpy, headrace; print('Python %d.%d.%d, numpy %s' % (*sys.version_info[:3], numpy.__version__))").CombinedOutput()
	if err == nil {
		return path, string(bytes.TrimSpace(out)), nil
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	return "", "", fmt.Errorf("%s can not run the trainers: %s; install the package into it (pip install headrace), or name another interpreter with --python or HEADRACE_PYTHON",
		path, lines[len(lines)-1])
}

package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is one process, leader of its own group. It dies with us whatever
// happens to us (parent death signal).
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and the rest is set
	err  error
	at   int64 // when it ended
}

// mark in the environment of every process of a run tells left.go what is ours.
const mark = "CHAOS_RUN="

func start(dir, name, run string, env []string, argv ...string) (*process, error) {
	p := &process{name: name, done: make(chan struct{})}
	out, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	_, _ = fmt.Fprintf(out, "--- %d\n", monotonic()/1e6)
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Dir = dir // where no settings file of the user's lies
	ours := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "HEADRACE_") })
	p.cmd.Env = append(append(ours, env...), mark+run)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() { // ends with the process
		p.err = p.cmd.Wait()
		p.at = monotonic()
		close(p.done)
	}()
	return p, nil
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// status is the exit status, or -1 with how it was ended.
func (p *process) status() (int, string) {
	if p.err == nil {
		return 0, "exit status 0"
	}
	return p.cmd.ProcessState.ExitCode(), p.err.Error()
}

// stop asks p to end and kills it after grace; false: it had to.
func (p *process) stop(grace time.Duration) bool {
	p.signal(syscall.SIGCONT)
	p.signal(syscall.SIGTERM)
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-p.done:
		return true
	case <-t.C:
		p.signal(syscall.SIGKILL)
		<-p.done
		return false
	}
}

// monotonic is CLOCK_MONOTONIC in ns: what Python's time.monotonic_ns() is too.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Errorf("this system has no monotonic clock: %w", err)) // not on Linux
	}
	return ts.Nano()
}

// Package child starts processes that a tool watches and kills: the demo's and the
// chaos test's. Each leads a group of its own, ends with us whatever happens to us
// (parent death signal), and has a file for its output. It never starts one again:
// that is for who knows why it ended.
package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is one that was started.
type Process struct {
	Name string
	Log  string // file of its output, which those of this name before it wrote to as well
	From int64  // where in Log its own output begins
	Cmd  *exec.Cmd

	Done chan struct{} // closed when it has ended and the rest is set
	Err  error
	At   int64 // when it ended, by Monotonic; of one that we killed, when its SIGKILL had been sent

	killed atomic.Int64 // when that was; 0: we have not
	asked  atomic.Bool  // to end, with SIGTERM
}

// Start runs argv in dir, where no settings file of the user's lies. env is added to
// Environment.
func Start(dir, name string, env []string, argv ...string) (*Process, error) {
	p := &Process{Name: name, Log: filepath.Join(dir, name+".log"), Done: make(chan struct{})}
	out, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	if before, err := out.Stat(); err == nil {
		p.From = before.Size()
	}
	p.Cmd = exec.Command(argv[0], argv[1:]...)
	p.Cmd.Dir, p.Cmd.Env = dir, Environment(env...)
	p.Cmd.Stdout, p.Cmd.Stderr = out, out
	p.Cmd.SysProcAttr = ownGroup()
	if err := p.Cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() { // ends with the process
		p.Err = p.Cmd.Wait()
		p.At = Monotonic()
		if at := p.killed.Load(); at != 0 { // on a busy machine we hear of its end later than others do
			p.At = min(p.At, at)
		}
		close(p.Done)
	}()
	return p, nil
}

// Environment is ours without settings (a job of the user's is not this one's), and
// with more.
func Environment(more ...string) []string {
	ours := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "HEADRACE_") })
	return append(ours, more...)
}

func (p *Process) Pid() int { return p.Cmd.Process.Pid }

// Signal sends one; a process that has ended does not mind.
func (p *Process) Signal(s syscall.Signal) {
	if err := p.Cmd.Process.Signal(s); err == nil && s == syscall.SIGKILL {
		p.killed.CompareAndSwap(0, Monotonic())
	}
}

// Kill sends SIGKILL, waits for the end, and returns the moment of the signal.
func (p *Process) Kill() (at int64, err error) {
	at = Monotonic()
	if err = p.Cmd.Process.Kill(); errors.Is(err, os.ErrProcessDone) {
		err = nil // it was a moment faster
	}
	<-p.Done
	return at, err
}

// Ended says whether it has.
func (p *Process) Ended() bool {
	select {
	case <-p.Done:
		return true
	default:
		return false
	}
}

// Status is the exit status of a process that has ended, or -1 with how it was ended.
func (p *Process) Status() (int, string) {
	if p.Err == nil {
		return 0, "exit status 0"
	}
	return p.Cmd.ProcessState.ExitCode(), p.Err.Error()
}

// Ask sends SIGTERM, once: a second one means "at once, in no order", and a busy
// machine may need long for an orderly end. False: it was asked before.
func (p *Process) Ask() bool {
	if !p.asked.CompareAndSwap(false, true) {
		return false
	}
	p.Signal(syscall.SIGTERM)
	return true
}

// Stop asks it to end and kills it after grace; false: it had to.
func (p *Process) Stop(grace time.Duration) bool {
	p.Signal(syscall.SIGCONT)
	p.Ask()
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-p.Done:
		return true
	case <-t.C:
		p.Signal(syscall.SIGKILL)
		<-p.Done
		return false
	}
}

// Monotonic is CLOCK_MONOTONIC in ns: what Python's time.monotonic_ns() is too.
func Monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Errorf("this system has no monotonic clock: %w", err)) // not on Linux
	}
	return ts.Nano()
}

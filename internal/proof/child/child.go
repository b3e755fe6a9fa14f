// Package child starts processes that a tool watches and kills, for the demo and the chaos test. Each
// process leads a group of its own and writes its output to a file. On Linux the kernel ends it when
// this process dies. The package never starts a process again: only its caller knows why it ended.
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

// Process is a process that was started.
type Process struct {
	Name string
	Log  string // file of its output; earlier processes of the same name wrote to it as well
	From int64  // its own output begins at this offset of Log
	Cmd  *exec.Cmd

	Done chan struct{} // closed when the process has ended and Err and At are set
	Err  error
	At   int64 // time of its end, by Monotonic; if we killed it, the time at which SIGKILL had been sent

	killed atomic.Int64 // time of our SIGKILL; 0: we sent none
	asked  atomic.Bool  // we sent SIGTERM
}

// Start runs argv in dir, which must not hold a settings file of the user. env is added to Environment.
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
	go func() { // ends when the process does
		p.Err = p.Cmd.Wait()
		p.At = Monotonic()
		if at := p.killed.Load(); at != 0 { // on a busy machine this goroutine may learn of the end later than others do
			p.At = min(p.At, at)
		}
		close(p.Done)
	}()
	return p, nil
}

// Environment is our environment without HEADRACE settings, which belong to a job of the user, plus more.
func Environment(more ...string) []string {
	ours := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "HEADRACE_") })
	return append(ours, more...)
}

func (p *Process) Pid() int { return p.Cmd.Process.Pid }

// Signal sends a signal. It does nothing if the process has ended.
func (p *Process) Signal(s syscall.Signal) {
	if err := p.Cmd.Process.Signal(s); err == nil && s == syscall.SIGKILL {
		p.killed.CompareAndSwap(0, Monotonic())
	}
}

// Kill sends SIGKILL, waits for the end, and returns the time of the signal.
func (p *Process) Kill() (at int64, err error) {
	at = Monotonic()
	if err = p.Cmd.Process.Kill(); errors.Is(err, os.ErrProcessDone) {
		err = nil // it had already ended
	}
	<-p.Done
	return at, err
}

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.Done:
		return true
	default:
		return false
	}
}

// Status is the exit status of a process that has ended by itself, or -1, and in words how it ended.
func (p *Process) Status() (int, string) {
	if p.Err == nil {
		return 0, "exit status 0"
	}
	return p.Cmd.ProcessState.ExitCode(), p.Err.Error()
}

// Ask sends SIGTERM, but only once: a second SIGTERM tells a process to stop at once, without an orderly
// end, and on a busy machine the orderly end may take long. False: it was asked before.
func (p *Process) Ask() bool {
	if !p.asked.CompareAndSwap(false, true) {
		return false
	}
	p.Signal(syscall.SIGTERM)
	return true
}

// Stop asks the process to end, and kills it after grace. False: it had to be killed.
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

// Monotonic is CLOCK_MONOTONIC in ns, the clock of Python's time.monotonic_ns().
func Monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Errorf("this system has no monotonic clock: %w", err)) // not on Linux
	}
	return ts.Nano()
}

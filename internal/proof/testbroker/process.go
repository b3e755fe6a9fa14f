package testbroker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	startWithin = 300 * time.Second // on a very busy machine
	stopWithin  = 20 * time.Second  // from SIGTERM to SIGKILL
	pollEvery   = 50 * time.Millisecond
)

// process is one Java process with its own folder. Its methods are called by one goroutine.
type process struct {
	what string // for example "Kafka"
	dir  string

	pid    int
	exited chan struct{}
}

func newProcess(what string) (process, error) {
	dir, err := os.MkdirTemp("", "headrace-"+strings.ToLower(what)+"-")
	return process{what: what, dir: dir}, err
}

// start starts cmd and waits until answers returns nil. The output of the process goes to log, or to a file
// in its folder.
func (p *process) start(ctx context.Context, cmd *exec.Cmd, log io.Writer, answers func(context.Context) error) error {
	if p.exited != nil {
		return errors.New("the broker runs already")
	}
	if log == nil {
		f, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		log = f
	}
	cmd.Stdout, cmd.Stderr = log, log
	endsWithUs(cmd)
	started, exited := make(chan error, 1), make(chan struct{})
	go func() {
		// The kernel ends such a process when the thread that started it ends, so keep that thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	p.pid, p.exited = cmd.Process.Pid, exited
	if err := p.ready(ctx, answers); err != nil {
		said, _ := os.ReadFile(p.logFile())
		return fmt.Errorf("%w\nthe end of its output:\n%s", errors.Join(err, p.Kill()), said[max(0, len(said)-4000):])
	}
	return nil
}

func (p *process) ready(ctx context.Context, answers func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	var last error
	for {
		if last = answers(ctx); last == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("the %s broker ended while it was starting", p.what)
		case <-ctx.Done():
			return fmt.Errorf("the %s broker is not ready: %w (%w)", p.what, last, ctx.Err())
		case <-time.After(pollEvery):
		}
	}
}

// Stop ends the broker in order, with SIGTERM. Start may follow.
func (p *process) Stop() error { return p.end(syscall.SIGTERM, stopWithin) }

// Kill ends the broker with SIGKILL. Start may follow.
func (p *process) Kill() error { return p.end(syscall.SIGKILL, stopWithin) }

// Freeze stops the process with SIGSTOP. Thaw lets it go on.
func (p *process) Freeze() error { return syscall.Kill(p.pid, syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (p *process) Thaw() error { return syscall.Kill(p.pid, syscall.SIGCONT) }

func (p *process) end(sig syscall.Signal, within time.Duration) error {
	if p.exited == nil {
		return nil
	}
	if err := syscall.Kill(p.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	wait := time.NewTimer(within)
	defer wait.Stop()
	select {
	case <-p.exited:
	case <-wait.C:
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
		<-p.exited
	}
	p.exited, p.pid = nil, 0
	return nil
}

// Close ends the process and removes its folder.
func (p *process) Close() error {
	err := p.Kill()
	if p.dir != "" {
		err = errors.Join(err, os.RemoveAll(p.dir))
	}
	return err
}

// PID is the process id of the running broker, or 0.
func (p *process) PID() int { return p.pid }

// Exited is closed when the running broker has ended.
func (p *process) Exited() <-chan struct{} { return p.exited }

// Dir is the broker's folder.
func (p *process) Dir() string { return p.dir }

func (p *process) logFile() string { return filepath.Join(p.dir, "broker.log") }

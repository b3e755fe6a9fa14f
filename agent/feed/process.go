package feed

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// process is a trainer's process, held by a pidfd. While we hold it, a signal cannot reach
// another process that got the same number.
type process struct {
	pid    int
	fd     *os.File
	exited chan struct{} // closed when it has ended
	at     time.Time     // set before that: when that was seen
	close  func()
}

var errNoProcess = errors.New("the agent cannot see the process")

// watch holds the process that has the number pid now. The caller closes it.
func watch(pid int) (*process, error) {
	if pid <= 0 {
		return nil, fmt.Errorf("%w: its pid namespace is another one", errNoProcess)
	}
	if pid == os.Getpid() {
		return nil, fmt.Errorf("%w: it is the agent's own", errNoProcess) // and never to be killed
	}
	p := &process{pid: pid, exited: make(chan struct{})}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		p.at = time.Now()
		close(p.exited)
		p.close = func() {}
		return p, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: pidfd_open(%d): %w", errNoProcess, pid, err)
	}
	p.fd = os.NewFile(uintptr(fd), fmt.Sprintf("pidfd:%d", pid))
	raw, err := p.fd.SyscallConn()
	if err != nil {
		_ = p.fd.Close()
		return nil, fmt.Errorf("%w: %w", errNoProcess, err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		// The runtime's poller wakes us when the pidfd is readable: it has ended.
		err := raw.Read(readable)
		if err == nil {
			p.at = time.Now()
			close(p.exited)
		}
	})
	p.close = sync.OnceFunc(func() {
		_ = p.fd.Close()
		wg.Wait()
	})
	return p, nil
}

// readable says whether the process of a pidfd has ended.
func readable(fd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return n > 0 || (err != nil && !errors.Is(err, unix.EINTR))
}

// gone reports whether the process has ended. It asks the kernel: exited is closed a moment
// after the end.
func (p *process) gone() (ended bool) {
	select {
	case <-p.exited:
		return true
	default:
	}
	if p.fd == nil {
		return false
	}
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) { ended = readable(fd) })
	return ended
}

// endedBefore says whether p has ended, and before o, which has.
func (p *process) endedBefore(o *process) bool {
	select {
	case <-p.exited:
		return p.at.Before(o.at)
	default:
		return false
	}
}

// kill sends SIGKILL; exited is closed when the process has ended.
func (p *process) kill() error {
	if p.fd == nil || p.gone() {
		return nil
	}
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return err
	}
	var killErr error
	if err := raw.Control(func(fd uintptr) { killErr = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) }); err != nil {
		return err
	}
	if errors.Is(killErr, unix.ESRCH) {
		return nil
	}
	return killErr
}

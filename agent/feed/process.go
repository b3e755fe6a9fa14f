package feed

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// process is a trainer's process, held by a pidfd. While we hold it, a signal cannot reach
// another process that got the same number.
type process struct {
	pid    int
	fd     *os.File
	exited chan struct{} // closed when it has ended
	order  uint64        // its number among those that have ended; 0: not known yet. exits guards it
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
		ends.hasEnded(p)
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
	ends.add(p, fd)
	var wg sync.WaitGroup
	wg.Go(func() {
		// The runtime's poller wakes us when the pidfd is readable: it has ended.
		err := raw.Read(readable)
		if err == nil {
			ends.seen(p, fd)
			close(p.exited)
		}
	})
	p.close = sync.OnceFunc(func() {
		ends.remove(fd)
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

// endedBefore says whether p has ended before o. The caller knows that o has ended.
func (p *process) endedBefore(o *process) bool {
	ends.mu.Lock()
	defer ends.mu.Unlock()
	return p.order != 0 && p.order < o.order
}

// exits numbers processes in the order in which they end. On a busy machine we look when
// several have ended, and the runtime's poller does not tell which one was the first. The list
// of an epoll instance of ours does: the kernel appends each process at its end.
type exits struct {
	mu    sync.Mutex
	epoll int                // only while some process is watched
	of    map[int32]*process // by pidfd; those that are watched and have no number yet
	last  uint64
}

var ends exits

// add has the kernel note the end of p. If it cannot, as without a free file descriptor, p gets
// its number when its end is seen.
func (x *exits) add(p *process, fd int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.of) == 0 {
		epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			return
		}
		x.epoll, x.of = epoll, map[int32]*process{}
	}
	x.of[int32(fd)] = p
	if err := unix.EpollCtl(x.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
		x.drop(int32(fd))
	}
}

func (x *exits) remove(fd int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.drop(int32(fd))
}

// drop ends the watch of a pidfd. x.mu is held.
func (x *exits) drop(fd int32) {
	if x.of[fd] == nil {
		return
	}
	_ = unix.EpollCtl(x.epoll, unix.EPOLL_CTL_DEL, int(fd), nil)
	if delete(x.of, fd); len(x.of) == 0 {
		_ = unix.Close(x.epoll)
	}
}

// hasEnded numbers a process that had ended before it could be watched.
func (x *exits) hasEnded(p *process) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.number(p)
}

func (x *exits) number(p *process) {
	x.last++
	p.order = x.last
}

// seen numbers all that have ended up to p, whose end was just seen.
func (x *exits) seen(p *process, fd int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	// The kernel tells the runtime's poller and ours one after the other, so it may take a moment.
	for tries := 0; tries < 1000 && x.of[int32(fd)] == p; tries++ {
		var some [16]unix.EpollEvent
		n, err := unix.EpollWait(x.epoll, some[:], 0)
		if err != nil && !errors.Is(err, unix.EINTR) {
			break
		}
		for _, e := range some[:max(n, 0)] {
			x.number(x.of[e.Fd])
			x.drop(e.Fd)
		}
	}
	if p.order == 0 { // the kernel does not tell, or the watch of p has ended
		x.number(p)
		if x.of[int32(fd)] == p { // or another process has the pidfd now
			x.drop(int32(fd)) // it must not get another number
		}
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

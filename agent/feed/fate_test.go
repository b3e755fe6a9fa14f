package feed

import (
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/agent/hold"
	"github.com/headrace/headrace/internal/frame"
)

// departures is a Desk that notes which trainers have left, and whether they crashed.
type departures struct {
	Desk
	said []hold.Gone
}

func (d *departures) Do(ev hold.Event) Answer {
	d.said = append(d.said, *ev.(*hold.Gone))
	return Answer{}
}

// Trainer 2 ends before trainer 1, but the report of how trainer 1 ended comes first. The master
// must hear of them in the order in which they ended.
func TestTheMasterHearsOfATrainersEndAfterThoseOfEarlierOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &departures{}
		srv := &Server{cfg: Config{Desk: d}, trainers: map[uint32]*trainer{}, stopped: t.Context()}
		ended := func(number uint32) *trainer {
			p := &process{exited: make(chan struct{})}
			ends.hasEnded(p)
			close(p.exited)
			k := &trainer{srv: srv, number: number, group: int(number), proc: p, cred: &unix.Ucred{}, left: make(chan struct{})}
			k.isolates.Store(true)
			srv.trainers[number] = k
			return k
		}
		for _, k := range []*trainer{ended(2), ended(1)} {
			go func() {
				k.depart(false)
				close(k.left)
			}()
		}
		srv.fates.say(1, true)
		synctest.Wait()
		if len(d.said) > 0 {
			t.Fatalf("the master was told %+v before it is known how trainer 2 ended", d.said)
		}
		srv.fates.say(2, true)
		synctest.Wait()
		order := slices.Collect(func(yield func(uint32) bool) {
			for _, g := range d.said {
				if g.Crash && !yield(g.Worker) {
					return
				}
			}
		})
		if !slices.Equal(order, []uint32{2, 1}) {
			t.Errorf("crashes were told in the order %v, want 2 and 1", order)
		}
	})
}

// Five processes end one after the other before this process can look at any of them, because all
// its other goroutines stand still meanwhile. The order of their ends is known all the same.
func TestTheOrderInWhichProcessesEndedIsKnownHoweverLateSomebodyLooks(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const count = 5
	var all []*process
	for range count {
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p, err := watch(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			p.close()
		})
		all = append(all, p)
	}
	for _, p := range all {
		if _, _, errno := unix.RawSyscall(unix.SYS_KILL, uintptr(p.pid), uintptr(unix.SIGKILL), 0); errno != 0 {
			t.Fatal(errno)
		}
		if _, _, errno := unix.RawSyscall6(unix.SYS_WAITID, unix.P_PID, uintptr(p.pid), 0, unix.WEXITED|unix.WNOWAIT, 0, 0); errno != 0 {
			t.Fatal(errno)
		}
	}
	for _, p := range []int{3, 0, 4, 2, 1} { // the order in which we look does not matter
		<-all[p].exited
	}
	for i, p := range all {
		for k, o := range all {
			if got := p.endedBefore(o); got != (i < k) {
				t.Errorf("process %d has ended before process %d: %v, want %v", i, k, got, i < k)
			}
		}
	}
}

// The kernel may report an end after the process has got its number in the order of ends. The
// process keeps this number.
func TestAnEndThatHasItsNumberGetsNoOther(t *testing.T) {
	var x exits
	watched := func() (*process, int) {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		p := &process{}
		x.add(p, fd)
		return p, fd
	}
	ended := func(fd int) {
		if _, err := unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
			t.Fatal(err)
		}
	}
	first, a := watched()
	second, b := watched()
	x.seen(first, a) // epoll has not reported its end yet
	ended(a)
	ended(b)
	x.seen(second, b)
	if first.order != 1 || second.order != 2 {
		t.Errorf("the first process has the number %d and the second one %d, want 1 and 2", first.order, second.order)
	}
	other, c := watched()
	x.seen(&process{}, c) // a process whose watch has ended; its file descriptor belongs to other now
	if x.of[int32(c)] != other {
		t.Error("the watch of another process with the same file descriptor has ended")
	}
	x.remove(c)
}

// Without an epoll descriptor the order of ends is not known, but each end is seen all the same.
func TestAnEndIsSeenAlsoWhereTheKernelDoesNotNoteTheOrder(t *testing.T) {
	ends.mu.Lock()
	epoll, of := ends.epoll, ends.of
	ends.epoll, ends.of = -1, map[int32]*process{-1: {}} // no process can be added
	ends.mu.Unlock()
	defer func() {
		ends.mu.Lock()
		ends.epoll, ends.of = epoll, of
		ends.mu.Unlock()
	}()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	p, err := watch(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if err := p.kill(); err != nil {
		t.Fatal(err)
	}
	<-p.exited
	earlier := &process{order: 1}
	if later := (&process{order: 1 << 62}); !p.endedBefore(later) || p.endedBefore(earlier) {
		t.Error("the process that has ended has no place in the order of ends")
	}
}

// refusing is a Desk that refuses every trainer as soon as the test lets it answer.
type refusing struct {
	Desk
	asked, answer chan struct{}
}

func (d *refusing) NextWorker() uint32 { return 1 }

func (d *refusing) Do(hold.Event) Answer {
	close(d.asked)
	<-d.answer
	return Answer{Invalid: "no such stream"}
}

// Two trainers have ended. The later one waits for the report of the first, which is being
// refused. Nobody will ever report how a refused trainer left, so the later one must stop waiting.
func TestATrainersEndDoesNotWaitForOneThatWasRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &refusing{asked: make(chan struct{}), answer: make(chan struct{})}
		srv := &Server{cfg: Config{Desk: d}, trainers: map[uint32]*trainer{}, stopped: t.Context()}
		srv.stepFiles = stepFiles{srv: srv, known: map[frame.Incarnation]uint32{}}
		ended := func() *trainer {
			p := &process{exited: make(chan struct{})}
			ends.hasEnded(p)
			close(p.exited)
			return &trainer{srv: srv, proc: p, left: make(chan struct{})}
		}
		refused, later := ended(), ended()
		go srv.join(refused, nil)
		<-d.asked
		told := make(chan struct{})
		go func() {
			later.afterThoseBefore()
			close(told)
		}()
		synctest.Wait() // the later trainer waits for the first one
		close(d.answer)
		synctest.Wait()
		select {
		case <-told:
		default:
			t.Error("the later trainer still waits for one that was refused")
		}
	})
}

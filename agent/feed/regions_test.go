package feed

import (
	"bytes"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/headrace/headrace/internal/frame"
)

// Agent and trainer never use a region at the same time, whatever the trainer says and in whatever
// order. All regions together never take more memory than the limit.
func TestARegionIsInOneHandAtATime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const least = 100_000
		need := least
		rs := newRegions(2 << 20)
		defer rs.close()
		var ours []*region
		theirs := map[uint32]frame.Use{}
		var said []frame.Use // all releases so far; the trainer may repeat them
		t.Repeat(map[string]func(*rapid.T){
			"offer": func(t *rapid.T) {
				r, fd, err := rs.offer(rapid.IntRange(0, 300_000).Draw(t, "frame"), need)
				if err != nil {
					t.Fatal(err)
				}
				if r == nil {
					return
				}
				if err := unix.Close(fd); err != nil {
					t.Fatal(err)
				}
				theirs[r.use.Region] = r.use
			},
			"take": func(t *rapid.T) {
				r := rs.take(need)
				if r == nil {
					return
				}
				if len(r.memory) < need {
					t.Fatalf("the region has %d bytes, but %d are needed", len(r.memory), need)
				}
				if _, lent := theirs[r.use.Region]; lent || slices.Contains(ours, r) {
					t.Fatalf("region %d was taken while the trainer still has it", r.use.Region)
				}
				r.memory[0], r.memory[len(r.memory)-1] = 1, 2 // crashes if the region is not mapped
				ours = append(ours, r)
			},
			"send or drop": func(t *rapid.T) {
				if len(ours) == 0 {
					t.Skip("we have none")
				}
				i := rapid.IntRange(0, len(ours)-1).Draw(t, "which")
				r := ours[i]
				ours = slices.Delete(ours, i, i+1)
				if rapid.Bool().Draw(t, "send") {
					theirs[r.use.Region] = rs.lend(r)
				} else {
					rs.back(r)
				}
			},
			"release": func(t *rapid.T) {
				var uses []frame.Use
				for _, n := range sortedKeys(theirs) {
					if rapid.Bool().Draw(t, "it") {
						uses = append(uses, theirs[n])
						delete(theirs, n)
					}
				}
				if len(said) > 0 {
					uses = append(uses, said[rapid.IntRange(0, len(said)-1).Draw(t, "again")])
				}
				said = append(said, uses...)
				if err := rs.released(uses, rapid.IntRange(0, 5).Draw(t, "forget") == 0); err != nil {
					t.Fatal(err)
				}
			},
			"builders have grown": func(t *rapid.T) {
				need = max(need, rapid.IntRange(0, 2*least).Draw(t, "need"))
			},
			"": func(t *rapid.T) {
				sum := 0
				for _, r := range rs.all {
					sum += len(r.memory)
				}
				if sum != rs.bytes || sum > rs.limit || len(rs.all) > mostRegions {
					t.Fatalf("the regions have %d bytes, %d are counted, the limit is %d", sum, rs.bytes, rs.limit)
				}
			},
		})
		if err := rs.released([]frame.Use{{Region: rs.last + 1}}, false); !errors.Is(err, frame.ErrProtocol) {
			t.Fatalf("the release of a region that never existed got %v", err)
		}
	})
}

func sortedKeys(m map[uint32]frame.Use) []uint32 {
	var all []uint32
	for n := range m {
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}

func TestATrainerThatCannotMapARegionIsOfferedNoMore(t *testing.T) {
	rs := newRegions(1 << 20)
	defer rs.close()
	for n := range 3 {
		r, fd, err := rs.offer(1<<16, 1<<16)
		if err != nil {
			t.Fatal(err)
		}
		if (r != nil) != (n < 2) {
			t.Fatalf("offer %d gave a region: %v, want %v", n, r != nil, r == nil)
		}
		if r == nil {
			break
		}
		if err := unix.Close(fd); err != nil {
			t.Fatal(err)
		}
		use := r.use
		if n == 0 { // released once, so the trainer could map it; forgotten later, as if a child has a frame of it
			if err := rs.released([]frame.Use{use}, false); err != nil {
				t.Fatal(err)
			}
			use = rs.lend(rs.take(1 << 16))
		}
		if err := rs.released([]frame.Use{use}, true); err != nil {
			t.Fatal(err)
		}
	}
}

// Go's runtime sends itself signals, and many kernels then end fallocate with EINTR. That is no lack
// of memory.
func TestSharedMemoryIsMadeWhileSignalsCome(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread, stop, over := unix.Gettid(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for range 1000 { // an end: a machine that is slower than the signals would never make a region
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				_ = unix.Tgkill(unix.Getpid(), thread, unix.SIGURG)
			}
		}
	}()
	defer func() { close(stop); <-over }()
	for range 50 {
		memory, fd, err := share(2 << 20)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(unix.Munmap(memory), unix.Close(fd)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSharedMemoryIsOneForBothAndKeepsItsSize(t *testing.T) {
	memory, fd, err := share(8192)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	theirs, err := unix.Mmap(fd, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	copy(memory[4000:], "headrace")
	if !bytes.Equal(theirs[4000:4008], []byte("headrace")) {
		t.Error("the other side does not see what was written")
	}
	for _, size := range []int64{0, 4096, 1 << 20} {
		if err := unix.Ftruncate(fd, size); !errors.Is(err, unix.EPERM) {
			t.Errorf("the size of the region could be changed to %d: %v", size, err)
		}
	}
	if err := errors.Join(unix.Munmap(memory), unix.Munmap(theirs)); err != nil {
		t.Error(err)
	}
}

// If frames are small, there are regions for all frames that may wait. If they are large, there are
// a few.
func TestASlowTrainersFramesFindRegions(t *testing.T) {
	for _, c := range []struct{ size, want int }{
		{64 << 10, mostRegions},
		{2 << 20, regionBytes / (2<<20 + 2<<20/8 + 4096)},
		{16 << 20, fewRegions},
	} {
		rs := newRegions(1 << 30)
		for {
			r, fd, err := rs.offer(c.size, c.size)
			if err != nil {
				t.Fatal(err)
			}
			if r == nil {
				break
			}
			if err := unix.Close(fd); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(rs.all); n != c.want {
			t.Errorf("there are %d regions for frames of %d bytes, want %d", n, c.size, c.want)
		}
		if c.size == 2<<20 && rs.bytes < streamBytes {
			t.Errorf("the regions have %d bytes, but frames of %d bytes may wait", rs.bytes, streamBytes)
		}
		rs.close()
	}
}

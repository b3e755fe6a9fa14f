package feed

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/internal/frame"
)

// mostRegions of one data connection: as many as are of use to a trainer that is
// faster than its input.
const mostRegions = 12

// regions are the shared memory that the frames of one data connection are made in.
//
// A region is in one hand at a time: the trainer's from when it is told of it, and
// while anything there refers to its frame; ours from a RELEASE on, until its next
// frame has left. Where none is free, a frame is made in memory of our own and goes
// over the socket, so nobody ever waits for a region. They end with the connection;
// what the trainer still has of them then stays, and is written by nobody.
type regions struct {
	limit int // bytes of all of them

	mu    sync.Mutex
	vain  bool // the trainer could not map one: it is offered no more
	usual int  // bytes of frames that found no room
	last  uint32
	bytes int
	all   map[uint32]*region
	free  []*region // the last one released is taken first: its memory is warm
	gone  []uint32  // the trainer is to be told
}

// region is a piece of shared memory.
type region struct {
	use    frame.Use
	memory []byte
	lent   bool // in the trainer's hand
}

func newRegions(limit int) *regions {
	return &regions{limit: limit, all: map[uint32]*region{}}
}

// offer makes another region, which the trainer releases when it has mapped it, after
// a frame of size bytes for which there was none; nil if there are enough. need: what
// take will ask for. The caller closes fd.
func (rs *regions) offer(size, need int) (r *region, fd int, err error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.usual = max(rs.usual, need); size > rs.usual {
		rs.usual += (size - rs.usual + 3) / 4 // one large frame among many is not followed
	}
	need = rs.usual
	page := unix.Getpagesize()
	need = (need + need/8 + page) &^ (page - 1) // frames of strings are not all alike
	if rs.vain || len(rs.all) >= mostRegions || rs.bytes+need > rs.limit {
		return nil, -1, nil
	}
	size = need
	memory, fd, err := share(size)
	if err != nil {
		rs.limit = 0 // not here
		return nil, -1, err
	}
	rs.last++
	rs.bytes += size
	r = &region{use: frame.Use{Region: rs.last}, memory: memory, lent: true}
	rs.all[rs.last] = r
	return r, fd, nil
}

// share makes memory that another process can map, and that neither can make shorter
// under the other.
func share(size int) (memory []byte, fd int, err error) {
	fd, err = unix.MemfdCreate("headrace", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, -1, fmt.Errorf("memfd_create: %w", err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	// All of it now: a lack of memory is an error here, and a signal later.
	for err = unix.EINTR; errors.Is(err, unix.EINTR); { // any signal may end it, fallocate(2) says
		err = unix.Fallocate(fd, 0, 0, int64(size))
	}
	if err != nil {
		return nil, -1, fmt.Errorf("%d bytes of shared memory: %w", size, err)
	}
	if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return nil, -1, fmt.Errorf("seal shared memory: %w", err)
	}
	memory, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, -1, fmt.Errorf("map %d bytes of shared memory: %w", size, err)
	}
	return memory, fd, nil
}

// take gives a region of at least need bytes that nobody has, or nil. Those that have
// become too small go.
func (rs *regions) take(need int) *region {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	need = max(need, rs.usual)
	for len(rs.free) > 0 {
		r := rs.free[len(rs.free)-1]
		rs.free = rs.free[:len(rs.free)-1]
		if len(r.memory) >= need {
			return r
		}
		rs.gone = append(rs.gone, r.use.Region)
		rs.unmap(r)
	}
	return nil
}

// back: no frame was sent from it.
func (rs *regions) back(r *region) {
	rs.mu.Lock()
	rs.free = append(rs.free, r)
	rs.mu.Unlock()
}

// lend gives r to the trainer.
func (rs *regions) lend(r *region) frame.Use {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r.use.Count++
	r.lent = true
	return r.use
}

// released: the trainer has nothing of these uses any more. forget: and somebody else
// may have, so that they are filled never again. What is said twice counts once.
func (rs *regions) released(uses []frame.Use, forget bool) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, u := range uses {
		if u.Region > rs.last {
			return fmt.Errorf("%w: region %d is released, and there were only %d", frame.ErrProtocol, u.Region, rs.last)
		}
		r := rs.all[u.Region]
		if r == nil || !r.lent || r.use != u {
			continue
		}
		if r.lent = false; forget {
			rs.vain = rs.vain || u.Count == 0
			rs.unmap(r)
		} else {
			rs.free = append(rs.free, r)
		}
	}
	return nil
}

// unmap: the caller holds mu, and nobody has a builder in it.
func (rs *regions) unmap(r *region) {
	delete(rs.all, r.use.Region)
	rs.bytes -= len(r.memory)
	if err := unix.Munmap(r.memory); err != nil { // a slice that Mmap gave
		panic("feed: munmap: " + err.Error())
	}
	r.memory = nil
}

// news is what the trainer was not told yet: regions that it can forget.
func (rs *regions) news(into []uint32) []uint32 {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	into = append(into[:0], rs.gone...)
	rs.gone = rs.gone[:0]
	return into
}

// close ends all of them. No builder is in any.
func (rs *regions) close() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.all {
		rs.unmap(r)
	}
	rs.free, rs.limit = nil, 0
}

package feed

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/internal/frame"
)

// A data connection has up to fewRegions regions of any size. It has more, up to mostRegions, as
// long as they have no more than regionBytes. A trainer that is slower than its input leaves
// frames waiting, up to streamBytes, and those are made in regions too. With fewRegions only,
// most frames of such a trainer would go over the socket, and it is the one that has no time
// for a copy.
const (
	fewRegions  = 12
	mostRegions = 64
	regionBytes = streamBytes + streamBytes/2
)

// regions are the shared memory that the frames of one data connection are made in.
//
// A region has one holder at a time. The trainer holds it from the moment it is told of
// it, and while anything in the trainer refers to its frame. The agent holds it from the
// trainer's RELEASE until its next frame has left. If no region is free, the frame is made
// in the agent's own memory and goes over the socket, so nothing waits for a region.
// Regions end with the connection. Memory that the trainer still maps then stays valid,
// and nothing writes to it.
type regions struct {
	limit int // bytes of all of them

	mu    sync.Mutex
	vain  bool // the trainer could not map one, so none is offered any more
	usual int  // bytes of frames that found no room
	last  uint32
	bytes int
	all   map[uint32]*region
	free  []*region // the last one released is taken first: its memory is warm
	gone  []uint32  // regions that the trainer must be told to forget
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

// offer makes another region after a frame of size bytes found none; nil if there are
// enough. need is the size that take will ask for. The trainer releases the region once it
// has mapped it. The caller closes fd.
func (rs *regions) offer(size, need int) (r *region, fd int, err error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.usual = max(rs.usual, need); size > rs.usual {
		rs.usual += (size - rs.usual + 3) / 4 // one large frame among many is not followed
	}
	need = rs.usual
	page := unix.Getpagesize()
	need = (need + need/8 + page) &^ (page - 1) // frames of strings are not all alike
	n := len(rs.all)
	if rs.vain || n >= mostRegions || n >= fewRegions && rs.bytes+need > regionBytes || rs.bytes+need > rs.limit {
		return nil, -1, nil
	}
	size = need
	memory, fd, err := share(size)
	if err != nil {
		rs.limit = 0 // this system gives no shared memory: do not try again
		return nil, -1, err
	}
	rs.last++
	rs.bytes += size
	r = &region{use: frame.Use{Region: rs.last}, memory: memory, lent: true}
	rs.all[rs.last] = r
	return r, fd, nil
}

// share makes memory that another process can map. It is sealed: neither process can
// shrink it while the other one uses it.
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
	// Allocate all of it now: a lack of memory is an error here, and a SIGBUS later.
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

// take gives a free region of at least need bytes, or nil. It drops free regions that
// have become too small.
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

// back returns a region from which no frame was sent.
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

// released takes regions back that the trainer does not use any more. With forget, another
// process (a child after a fork) may still use them, so they are never filled again. A
// release that is repeated counts once.
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

// unmap frees a region. The caller holds mu, and no builder lies in the region.
func (rs *regions) unmap(r *region) {
	delete(rs.all, r.use.Region)
	rs.bytes -= len(r.memory)
	if err := unix.Munmap(r.memory); err != nil { // a slice that Mmap gave
		panic("feed: munmap: " + err.Error())
	}
	r.memory = nil
}

// news lists the regions that the trainer can forget and was not told of yet.
func (rs *regions) news(into []uint32) []uint32 {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	into = append(into[:0], rs.gone...)
	rs.gone = rs.gone[:0]
	return into
}

// close frees all regions. No builder lies in one.
func (rs *regions) close() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.all {
		rs.unmap(r)
	}
	rs.free, rs.limit = nil, 0
}

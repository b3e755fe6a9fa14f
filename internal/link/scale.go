package link

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/headrace/headrace/internal/access"
)

// Limits of the messages that callers send. gRPC has a message in memory twice, encoded and
// decoded, so a few callers with large messages could take all of a master's memory.
const (
	// A message of largeMessage or more is read only after it has got room: its size out of
	// largeRoom, which all callers share. A message that is larger than largeRoom takes all
	// of it.
	largeMessage = 1 << 20
	largeRoom    = 64 << 20
	// After a message that is larger than this the garbage collector runs before the next
	// one is read. Such messages are rare, and the garbage of a few would double the heap.
	hugeMessage = 16 << 20
	// roomWithin is how long a caller waits for room. Then its connection is closed; agents
	// and tools connect again. It is shorter than the time after which an unread connection
	// is taken for dead.
	roomWithin = 5 * time.Second
	// roomFor is how long a message that has come whole keeps its room if the caller sends
	// nothing more. A session's stream may be silent for long.
	roomFor = 10 * time.Second
	// wholeWithin is how long a large message may take to come.
	wholeWithin = time.Minute
	// maxOpen bounds the streams that a scale remembers: gRPC refuses more than a few.
	maxOpen = 1024
)

// PusherMessage is the largest message of a caller whose only role is pusher. Clients that push
// keep to it whatever their role is.
const PusherMessage = 65 << 20

// maxMessage is the largest message of a caller with these roles. Cuts are in messages of
// agents and operators, chunks of records in those of pushers.
func maxMessage(r access.Roles) int64 {
	switch {
	case r&(access.Agent|access.Operator) != 0:
		return MaxMessage
	case r&access.Pusher != 0:
		return PusherMessage
	}
	return 1 << 20
}

// A scale watches both directions of one gRPC connection. It learns the size of each message
// before gRPC reads it, and changes no byte.
//
// It parses HTTP/2 frames (RFC 9113, 4.1) and the 5 bytes before each gRPC message: a flag and
// the length. A large message takes room when its length is known. It gives the room back as
// soon as one of these is true: its call has been answered; its stream begins another message;
// roomFor has passed since the message came whole; the connection has ended.
type scale struct {
	room *semaphore.Weighted
	max  int64
	hang func() // ends the connection
	in   frames // what the caller sends
	out  frames // what it is answered

	mu    sync.Mutex
	last  uint32 // the newest stream; numbers only grow
	open  map[uint32]*weighed
	ended bool
}

// weighed is one stream of the caller's.
type weighed struct {
	head [5]byte
	have int   // bytes of head that have come
	left int64 // bytes of the message that are still to come; only received uses it
	took *taken
}

// taken is the room of one message.
type taken struct {
	room  *semaphore.Weighted
	bytes int64
	once  sync.Once
	slow  *time.Timer // ends the connection if the message does not come whole
}

func (t *taken) back() {
	if t != nil {
		t.once.Do(func() { t.slow.Stop(); t.room.Release(t.bytes) })
	}
}

// frames splits a byte stream into HTTP/2 frames.
type frames struct {
	head   [9]byte
	have   int
	left   int // of the payload
	pad    int // bytes of padding at the end of the payload
	padded bool
}

const (
	frameData    = 0x0
	frameHeaders = 0x1
	frameReset   = 0x3

	flagEndStream = 0x1
	flagPadded    = 0x8

	preface = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
)

func (f *frames) kind() byte     { return f.head[3] }
func (f *frames) flags() byte    { return f.head[4] }
func (f *frames) stream() uint32 { return binary.BigEndian.Uint32(f.head[5:]) &^ (1 << 31) }

// next returns the part of the current frame's payload with which b begins, and the rest of b.
// begun is true in the first call for a frame, ended in the last.
func (f *frames) next(b []byte) (payload, rest []byte, begun, ended bool) {
	if f.have < len(f.head) {
		n := copy(f.head[f.have:], b)
		f.have += n
		if b = b[n:]; f.have < len(f.head) {
			return nil, b, false, false
		}
		f.left = int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
		f.padded, f.pad = f.kind() == frameData && f.flags()&flagPadded != 0, 0
		begun = true
	}
	n := min(len(b), f.left)
	payload, rest = b[:n], b[n:]
	if f.padded && n > 0 { // the first byte is the number of padding bytes at the end
		f.pad, f.padded = int(payload[0]), false
		payload = payload[1:]
		f.left--
		n--
	}
	// The part of b before the padding.
	real := max(0, min(len(payload), f.left-f.pad))
	f.left -= n
	if ended = f.left == 0; ended {
		f.have = 0
	}
	return payload[:real], rest, begun, ended
}

func newScale(room *semaphore.Weighted, roles access.Roles, hang func()) *scale {
	return &scale{room: room, max: maxMessage(roles), hang: hang, open: map[uint32]*weighed{},
		// The connection's preface is not a frame. It is skipped like a payload.
		in: frames{have: 9, head: [9]byte{3: 0xff}, left: preface}}
}

// received looks at bytes from the caller. If a large message begins, it waits for room.
func (s *scale) received(b []byte) error {
	for len(b) > 0 {
		var payload []byte
		var begun, ended bool
		payload, b, begun, ended = s.in.next(b)
		switch {
		case begun && s.in.kind() == frameReset:
			s.closed(s.in.stream())
		case begun && s.in.kind() == frameHeaders:
			if err := s.begins(s.in.stream()); err != nil {
				return err
			}
		case s.in.kind() == frameData && (len(payload) > 0 || ended):
			if err := s.payload(payload, ended && s.in.flags()&flagEndStream != 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// payload handles bytes of a stream; last is true if the stream ends with them. Nothing is locked
// while a large message waits for room: other calls of this connection may end and give room back.
func (s *scale) payload(b []byte, last bool) error {
	id := s.in.stream()
	for {
		large, rest, err := s.data(id, b, last)
		if err != nil || large == nil {
			return err
		}
		room, err := s.acquire(large.left)
		if err != nil {
			return err
		}
		if err := s.admit(id, large, room); err != nil {
			return err
		}
		b = rest
	}
}

// answered looks at bytes to the caller.
func (s *scale) answered(b []byte) {
	for len(b) > 0 {
		var begun bool
		_, b, begun, _ = s.out.next(b)
		if begun && (s.out.kind() == frameReset || s.out.kind() == frameHeaders && s.out.flags()&flagEndStream != 0) {
			s.closed(s.out.stream())
		}
	}
}

// begins remembers a new stream. Further bytes of a stream that was answered are skipped.
func (s *scale) begins(id uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id <= s.last {
		return nil // trailers
	}
	if len(s.open) >= maxOpen {
		return fmt.Errorf("it has more than %d streams open", maxOpen)
	}
	s.last, s.open[id] = id, &weighed{}
	return nil
}

// data handles the bytes of a stream. If a message is so large that it must wait for room, data
// stops before it. It returns the stream and the bytes that it has not handled, and the caller
// handles them when there is room.
func (s *scale) data(id uint32, b []byte, last bool) (large *weighed, rest []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.open[id]
	if w == nil {
		return nil, nil, nil
	}
	for len(b) > 0 {
		if n := min(w.left, int64(len(b))); n > 0 {
			w.left, b = w.left-n, b[n:]
			if w.left == 0 && w.took != nil {
				w.took.slow.Stop()
				time.AfterFunc(roomFor, w.took.back)
			}
			continue
		}
		w.took.back() // another message begins
		w.took = nil
		n := copy(w.head[w.have:], b)
		w.have, b = w.have+n, b[n:]
		if w.have < len(w.head) {
			break
		}
		w.have, w.left = 0, int64(binary.BigEndian.Uint32(w.head[1:]))
		if w.left > s.max {
			return nil, nil, fmt.Errorf("it sends a message of %d bytes; its roles allow %d", w.left, s.max)
		}
		if w.left >= largeMessage {
			return w, b, nil
		}
	}
	if last && w.took == nil {
		delete(s.open, id)
	}
	return nil, nil, nil
}

// acquire waits for the room of a message of size bytes, and returns how much it has got.
func (s *scale) acquire(size int64) (int64, error) {
	room := min(size, largeRoom)
	ctx, cancel := context.WithTimeout(context.Background(), roomWithin)
	defer cancel()
	if s.room.Acquire(ctx, room) != nil {
		return 0, fmt.Errorf("it sends a message of %d bytes while others of together %d MiB are read, and none of them ended within %s", size, largeRoom>>20, roomWithin)
	}
	if room >= hugeMessage {
		runtime.GC()
	}
	return room, nil
}

// admit gives a stream's message its room. If the stream or the connection has ended meanwhile, the
// room goes back; further bytes of the stream are skipped.
func (s *scale) admit(id uint32, w *weighed, room int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		s.room.Release(room)
		return net.ErrClosed
	case s.open[id] != w: // its call was answered
		s.room.Release(room)
		return nil
	}
	w.took = &taken{room: s.room, bytes: room, slow: time.AfterFunc(wholeWithin, s.hang)}
	return nil
}

// closed forgets a stream that has ended.
func (s *scale) closed(id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.open[id]; w != nil {
		w.took.back()
		delete(s.open, id)
	}
}

// end gives everything back.
func (s *scale) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for id, w := range s.open {
		w.took.back()
		delete(s.open, id)
	}
}

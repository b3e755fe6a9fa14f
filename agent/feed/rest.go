package feed

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// inherited is how long after its process a connection may stay open. It ends with the
// process unless a child has inherited the socket.
const inherited = 100 * time.Millisecond

// rest reads a control connection. After the read deadline it still returns bytes that lie
// in the socket: steps that the process sent before it ended.
type rest struct {
	*net.UnixConn
	left int // bytes that lie in the socket; -1: the deadline has not passed yet
}

func (r *rest) Read(p []byte) (int, error) {
	if r.left < 0 {
		n, err := r.UnixConn.Read(p)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
	raw, err := r.SyscallConn()
	if err != nil {
		return 0, err
	}
	var n int
	var readErr error
	err = raw.Control(func(fd uintptr) { // does not look at the deadline
		if r.left < 0 {
			// Counted once, so that a child that goes on writing cannot keep us here.
			r.left, readErr = unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		}
		if readErr == nil && r.left > 0 {
			n, readErr = unix.Read(int(fd), p[:min(len(p), r.left)])
		}
	})
	switch {
	case err != nil:
		return 0, err
	case n > 0:
		r.left -= n
		return n, nil
	case readErr != nil && !errors.Is(readErr, unix.EAGAIN):
		return 0, readErr
	}
	return 0, io.EOF
}

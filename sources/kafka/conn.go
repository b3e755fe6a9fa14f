package kafka

import (
	"context"
	"net"

	"golang.org/x/sys/unix"
)

// A large answer comes through a socket in pieces of a few KiB to 64 KiB. A reader that
// is woken for each spends as much on that as on the bytes, and keeps the sender from
// sending; so it sleeps until readPiece is there (SO_RCVLOWAT, tcp(7)). The end of a
// connection, and a full window, wake it in any case.

const (
	readPiece = 256 << 10 // fits in a core's own cache, also beside what becomes of it
	// Who reads more than this at once wants all of it: exchange. bufio, kafka-go and TLS
	// read less, and want what is there.
	largeRead = 64 << 10
)

// conn waits for pieces. It is read by one goroutine at a time.
type conn struct {
	*net.TCPConn
	low int // bytes that wake it
}

// dial is kafka-go's, but for what is read through it.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: dialOne}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if t, ok := c.(*net.TCPConn); ok {
		return &conn{TCPConn: t, low: 1}, nil
	}
	return c, nil
}

func (c *conn) Read(b []byte) (int, error) {
	low := 1
	if len(b) > largeRead {
		low = min(len(b), readPiece)
	}
	if low != c.low {
		c.wakeAt(low)
	}
	return c.TCPConn.Read(b)
}

// wakeAt: where the kernel does not take it, reads are as they always were.
func (c *conn) wakeAt(low int) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	err = raw.Control(func(fd uintptr) {
		if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, low) == nil {
			c.low = low
		}
	})
	if err != nil {
		c.low = 1 // closed: Read says so
	}
}

package kafka

import (
	"context"
	"net"

	"golang.org/x/sys/unix"
)

// A large answer comes through a socket in pieces of a few KiB to 64 KiB. Waking the reader
// for each piece costs as much CPU as reading the bytes, and keeps the sender from sending.
// So the reader sleeps until readPiece bytes are there (SO_RCVLOWAT, tcp(7)). The end of
// the connection and a full window wake it in any case.

const (
	readPiece = 256 << 10 // fits in the cache of one core together with its decoded rows
	// A Read of more than largeRead bytes waits for all of them. Only exchange reads so much;
	// bufio, kafka-go and TLS read less, and want what is there.
	largeRead = 64 << 10
)

// conn is a connection whose large reads wait for whole pieces. One goroutine reads it at a
// time.
type conn struct {
	*net.TCPConn
	low int // bytes that wake it
}

// dial dials like kafka-go and returns a conn.
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

// wakeAt sets SO_RCVLOWAT. If the kernel refuses, reads return what is there, as usual.
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
		c.low = 1 // the connection is closed; Read returns the error
	}
}

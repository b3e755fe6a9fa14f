package s3

import (
	"context"
	"net"
	"time"
)

// conn gives up when no byte moves for a while. The time limits of net/http end with an
// answer's headers. Without conn, a reader would wait for ever if a service or a proxy stops in
// the middle of a body.
type conn struct {
	net.Conn
	within time.Duration
}

// silentWithin is longer than answerWithin, which ends the wait for headers. Tests shorten it.
var silentWithin = 45 * time.Second

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: connectWithin, KeepAlive: 15 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return conn{c, silentWithin}, nil
}

func (c conn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.within)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write moves the limit of a Read too, because a Read waits for the answer while the request
// goes out.
func (c conn) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.within)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

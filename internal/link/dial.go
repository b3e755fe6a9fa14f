package link

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// Target says where a master is: at an address, or in a local state folder. The folder's
// address file is read again at each connect, so a master that comes back on another
// port is found.
type Target struct {
	Address string
	State   string // used when Address is empty; the token lies there too

	Token     string // instead of the one in State
	TokenFile string // or a file whose first line is it
}

// String names the target for people.
func (t Target) String() string {
	if t.Address != "" {
		return t.Address
	}
	if addr, err := ReadAddress(t.State); err == nil {
		return addr
	}
	return DefaultMaster
}

// Dial prepares a connection to the target; it connects on first use. Without
// TLS only loopback can be dialed.
func Dial(t Target, tls TLS) (*grpc.ClientConn, error) {
	if t.Address != "" {
		if err := CheckAddress(t.Address, false); err != nil {
			return nil, fmt.Errorf("--master: %w", err)
		}
		if !Loopback(t.Address) && !tls.Enabled() {
			return nil, fmt.Errorf("--master %s: it is on another machine, and nothing would prove who it is; "+
				"give --tls-cert, --tls-key and --tls-ca", t.Address)
		}
	}
	creds, err := t.Credentials(tls)
	if err != nil {
		return nil, err
	}
	// A master that was killed is back in well under a second; the session's TTL is 5 s.
	// gRPC's own backoff (1 s, growing to 2 min) would lose sessions.
	target, opts := "passthrough:///"+t.Address, append(dialOptions(creds), grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
		MinConnectTimeout: 2 * time.Second,
	}))
	if t.Address == "" {
		target = "passthrough:///" + DefaultMaster
		opts = append(opts, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", t.String())
		}))
	}
	return grpc.NewClient(target, opts...)
}

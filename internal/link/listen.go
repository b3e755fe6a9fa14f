package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// Listen opens a TCP port. For errors, what names the service ("gRPC") and flag names the
// setting that moves it ("--listen"). An address that is not on loopback needs mutual TLS.
func Listen(ctx context.Context, what, flag, addr string, tls TLS) (net.Listener, error) {
	if err := CheckAddress(addr, true); err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if !Loopback(addr) && !tls.Enabled() {
		return nil, fmt.Errorf("%s %s: %s is reachable from other machines and would be open to anybody there; "+
			"listen on 127.0.0.1, or give --tls-cert, --tls-key and --tls-ca", flag, addr, what)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s %s: another process listens there already (is a master running? `headrace top` shows it); "+
			"stop it or choose another port with %s, 127.0.0.1:0 for any free one: %w", flag, addr, flag, err)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s %s: this user may not listen there; ports below 1024 need root: %w", flag, addr, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("%s %s: this machine has no such address: %w", flag, addr, err)
	case err != nil:
		return nil, fmt.Errorf("%s %s: %w", flag, addr, err)
	}
	return l, nil
}

package link

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/headrace/headrace/internal/access"
)

// DialPeer prepares a connection from one agent to another. addr is where the other one listens,
// as the master says. Both ends prove what an agent and its master prove to each other. If the
// ends have only certificates, the other one's must have the role agent, too: otherwise any
// process with a certificate could get a model.
func DialPeer(addr string, t Target, files TLS, book *access.Book) (*grpc.ClientConn, error) {
	if err := CheckAddress(addr, false); err != nil {
		return nil, fmt.Errorf("the address of an agent: %w", err)
	}
	if !Loopback(addr) && !files.Enabled() {
		return nil, fmt.Errorf("the agent at %s is on another machine, and nothing would prove who it is; give --tls-cert, --tls-key and --tls-ca", addr)
	}
	t.Address = addr
	creds, err := t.Credentials(files)
	if err != nil {
		return nil, err
	}
	return grpc.NewClient("passthrough:///"+addr, dialOptions(peer{creds, t, book})...)
}

// peer adds to what an agent asks of a master that the other end is an agent.
type peer struct {
	credentials.TransportCredentials
	target Target
	book   *access.Book
}

func (p peer) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := p.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return c, info, err
	}
	token, err := p.target.token()
	if session, ok := info.(credentials.TLSInfo); err == nil && ok && token == "" {
		err = p.isAgent(session.State)
	}
	if err != nil {
		_ = c.Close()
		return nil, nil, err
	}
	return c, info, nil
}

func (p peer) isAgent(s tls.ConnectionState) error {
	if who := p.book.ByCertificate(s.PeerCertificates[0]); who.Roles&access.Agent == 0 {
		return fmt.Errorf("%w: %s listens there, and has %s here; give agents the role with --role agent=NAME", ErrStranger, who.Name, who.Roles)
	}
	return nil
}

func (p peer) Clone() credentials.TransportCredentials {
	return peer{p.TransportCredentials.Clone(), p.target, p.book}
}

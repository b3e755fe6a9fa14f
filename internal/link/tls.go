package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// TLS names the three files of mutual TLS: our certificate and key, and the
// authority that has signed the other side's. All empty: no TLS. The files are read again for
// each connection, so they can be renewed while the process runs.
type TLS struct{ Cert, Key, CA string }

// Enabled reports whether TLS is asked for.
func (t TLS) Enabled() bool { return t != TLS{} }

// Check says what is missing.
func (t TLS) Check() error {
	if t.Enabled() && (t.Cert == "" || t.Key == "" || t.CA == "") {
		return errors.New("TLS needs all three of --tls-cert, --tls-key and --tls-ca: both sides prove who they are")
	}
	return nil
}

// identity is what the files hold: who we are, and whom we believe.
type identity struct {
	cert tls.Certificate
	ca   *x509.CertPool
}

func (t TLS) load() (*identity, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	cert, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", t.Cert, t.Key, err)
	}
	pem, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, fmt.Errorf("--tls-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--tls-ca %s: no PEM certificate in it", t.CA)
	}
	return &identity{cert, pool}, nil
}

// renewed gives the identity of each new connection.
type renewed struct {
	files TLS

	mu   sync.Mutex
	last *identity
}

func (t TLS) renewed() (*renewed, error) {
	first, err := t.load()
	return &renewed{files: t, last: first}, err
}

// now reads the files. While somebody replaces them, one may be missing, or a certificate may not
// belong to its key. Then the identity before that is used, as long as its certificate is valid.
func (r *renewed) now() (*identity, error) {
	id, err := r.files.load()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.last = id
	} else if time.Now().After(r.last.cert.Leaf.NotAfter) {
		return nil, err
	}
	return r.last, nil
}

// ServerConfig is the listening side, of a Door and of net/http. auth says whether clients must
// present a certificate; one that is presented must be signed by the CA.
func (t TLS) ServerConfig(auth tls.ClientAuthType, protocols ...string) (*tls.Config, error) {
	r, err := t.renewed()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// A session that is resumed would keep the authority of its first connection.
		SessionTicketsDisabled: true,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			id, err := r.now()
			if err != nil {
				return nil, err
			}
			return &tls.Config{
				Certificates:           []tls.Certificate{id.cert},
				ClientCAs:              id.ca,
				ClientAuth:             auth,
				NextProtos:             protocols,
				MinVersion:             tls.VersionTLS13,
				SessionTicketsDisabled: true,
			}, nil
		},
	}, nil
}

// Client gives the credentials of a dialing side.
func (t TLS) Client() (credentials.TransportCredentials, error) {
	if !t.Enabled() {
		return insecure.NewCredentials(), nil
	}
	r, err := t.renewed()
	if err != nil {
		return nil, err
	}
	return dialing{credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13}), r}, nil
}

// dialing are TLS credentials whose handshakes use the files as they are then.
type dialing struct {
	credentials.TransportCredentials
	of *renewed
}

func (d dialing) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	id, err := d.of.now()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{id.cert},
		RootCAs:      id.ca,
		MinVersion:   tls.VersionTLS13,
	}).ClientHandshake(ctx, authority, raw)
}

func (d dialing) Clone() credentials.TransportCredentials {
	return dialing{d.TransportCredentials.Clone(), d.of}
}

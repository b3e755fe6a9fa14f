package link

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// TLS names the three files of mutual TLS: our certificate and key, and the
// authority that has signed the other side's. All empty: no TLS.
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

func (t TLS) load() (tls.Certificate, *x509.CertPool, error) {
	if err := t.Check(); err != nil {
		return tls.Certificate{}, nil, err
	}
	cert, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", t.Cert, t.Key, err)
	}
	pem, err := os.ReadFile(t.CA)
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("--tls-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return tls.Certificate{}, nil, fmt.Errorf("--tls-ca %s: no PEM certificate in it", t.CA)
	}
	return cert, pool, nil
}

// ServerConfig is the listening side, of a Door and of net/http: clients must present a
// certificate that the CA has signed.
func (t TLS) ServerConfig() (*tls.Config, error) {
	cert, pool, err := t.load()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		Certificates: []tls.Certificate{cert},
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		MinVersion:   tls.VersionTLS13,
	}, nil
}

// Client gives the credentials of a dialing side.
func (t TLS) Client() (credentials.TransportCredentials, error) {
	if !t.Enabled() {
		return insecure.NewCredentials(), nil
	}
	cert, pool, err := t.load()
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{cert},
		RootCAs:      pool,
		MinVersion:   tls.VersionTLS13,
	}), nil
}

package secret

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/dataset"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	a := &authority{t: t}
	_, a.cert, a.key = a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) sign(c *x509.Certificate) (pair tls.Certificate, leaf *x509.Certificate, key *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), by)
	if err == nil {
		leaf, err = x509.ParseCertificate(der)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, leaf, key
}

// client writes a client's certificate and its key.
func (a *authority) client(name, cert, key string) {
	a.t.Helper()
	pair, _, _ := a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	der, err := x509.MarshalECPrivateKey(pair.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		a.t.Fatal(err)
	}
	write(a.t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}))
	write(a.t, key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A client's certificate is renewed in its files while a source is open. Each connection shows the newest one. While
// the files are being written, it shows the last one. A server of another authority is shown none.
func TestAClientsCertificateMayBeRenewed(t *testing.T) {
	ca, other, folder := newAuthority(t, "ca"), newAuthority(t, "other"), t.TempDir()
	spec := dataset.TLS{CA: filepath.Join(folder, "ca.pem"), Cert: filepath.Join(folder, "cert.pem"), Key: filepath.Join(folder, "key.pem"), ServerName: "broker"}
	write(t, spec.CA, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw}))
	ca.client("first", spec.Cert, spec.Key)
	config, err := TLS("kafka.tls", &spec)
	if err != nil {
		t.Fatal(err)
	}
	server, _, _ := ca.sign(&x509.Certificate{DNSNames: []string{"broker"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	// shown returns the name in the certificate that a server sees, whose clients must come from an authority.
	shown := func(from *authority) string {
		t.Helper()
		accepts := x509.NewCertPool()
		accepts.AddCert(from.cert)
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		at := tls.Server(far, &tls.Config{Certificates: []tls.Certificate{server}, ClientAuth: tls.RequestClientCert, ClientCAs: accepts})
		ended := make(chan error, 1)
		go func() { ended <- at.HandshakeContext(t.Context()) }()
		client := tls.Client(near, config.Clone())
		err := client.HandshakeContext(t.Context())
		if e := <-ended; err == nil {
			err = e
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range at.ConnectionState().PeerCertificates {
			return c.Subject.CommonName
		}
		return ""
	}
	for _, one := range []struct {
		what   string
		change func()
		from   *authority
		want   string
	}{
		{"at first", func() {}, ca, "first"},
		{"to another authority's server", func() {}, other, ""},
		{"when it was renewed", func() { ca.client("second", spec.Cert, spec.Key) }, ca, "second"},
		{"while its file is being written", func() { write(t, spec.Cert, []byte("-----BEGIN CERT")) }, ca, "second"},
		{"when the file is gone", func() { _ = os.Remove(spec.Cert) }, ca, "second"},
		{"when it was renewed again", func() { ca.client("third", spec.Cert, spec.Key) }, ca, "third"},
	} {
		one.change()
		if got := shown(one.from); got != one.want {
			t.Errorf("%s: the server sees the certificate of %q, want %q", one.what, got, one.want)
		}
	}
}

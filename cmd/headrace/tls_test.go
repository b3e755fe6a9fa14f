package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/link"
)

func TestOffLoopbackEverybodyShowsACertificate(t *testing.T) {
	w := newWorld(t)
	w.clicks(100)
	tls := w.certificate("job")
	// The master listens on all addresses of this machine, not only on loopback.
	m := w.start(append([]string{"up", "--listen", "0.0.0.0:0", "--http", "127.0.0.1:0", "-f", "clicks.yaml"}, tls...)...)
	m.until("trainers can come", func() bool { return strings.Contains(m.err.String(), "trainers can come") })

	if out := w.ok(append([]string{"list"}, tls...)...); !strings.Contains(out, "clicks") {
		t.Errorf("list with a certificate says %q, want the dataset clicks", out)
	}
	if out := w.ok(append([]string{"status"}, tls...)...); !strings.Contains(out, "\nhttps://127.0.0.1:") {
		t.Errorf("status with a certificate says %q, want the address of the pages with https", out)
	}
	if r := w.run("list"); r.code != exitFailed || !strings.Contains(r.err, "--tls-cert") {
		t.Errorf("list without a certificate: %+v, want an error that names --tls-cert", r)
	}
	stranger := w.certificate("stranger")
	stranger[5] = tls[5] // the caller trusts the authority of our job, but its certificate is not signed by it
	if r := w.run(append([]string{"list"}, stranger...)...); r.code != exitFailed {
		t.Errorf("list with a certificate that another authority signed: %+v, want exit code %d", r, exitFailed)
	}
	r := w.run(append(append([]string{"run"}, tls...), "--", w.self(""))...)
	if rows, _ := read(t, r.out); r.code != exitOK || rows != 100 {
		t.Errorf("run with a certificate: %+v, want 100 rows", r)
	}
	m.stop()
	w.nothingLeft()
}

// certificate writes a key and a self-signed certificate for 127.0.0.1, and returns the flags
// --tls-cert, --tls-key and --tls-ca for them.
func (w *world) certificate(name string) []string {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		w.t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		w.t.Fatal(err)
	}
	crt := w.write(name+".pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	private := w.write(name+".key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})))
	return []string{"--tls-cert", crt, "--tls-key", private, "--tls-ca", crt}
}

func TestACertificateWithoutARoleMayDoNothing(t *testing.T) {
	w := newWorld(t)
	tls := w.certificate("job")
	start := func(roles ...string) *proc {
		m := w.start(append(append([]string{"master", "--listen", "127.0.0.1:0", "--http", "off", "--allow-root", w.dir}, tls...), roles...)...)
		m.until("address", w.masterThere)
		return m
	}
	list := func() result {
		at, err := link.ReadAddress(w.state())
		if err != nil {
			t.Fatal(err)
		}
		// With another state folder, in which there is no token, only the certificate counts.
		return w.run(append([]string{"list", "--master", at, "--state", w.path("elsewhere")}, tls...)...)
	}
	m := start()
	if r := list(); r.code != exitFailed || !strings.Contains(r.err, "certificate job has no role here") || !strings.Contains(r.err, "--role") {
		t.Errorf("list with a certificate without a role: %+v, want an error that names the certificate and --role", r)
	}
	m.stop()
	m = start("--role", "viewer=j*")
	if r := list(); r.code != exitOK {
		t.Errorf("list with a certificate that has the role viewer: %+v, want exit code 0", r)
	}
	m.stop()
}

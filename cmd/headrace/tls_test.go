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
	// All addresses of this machine, which loopback belongs to.
	m := w.start(append([]string{"up", "--listen", "0.0.0.0:0", "--http", "off", "-f", "clicks.yaml"}, tls...)...)
	m.until("trainers can come", func() bool { return strings.Contains(m.err.String(), "trainers can come") })

	if out := w.ok(append([]string{"list"}, tls...)...); !strings.Contains(out, "clicks") {
		t.Error(out)
	}
	if r := w.run("list"); r.code != exitFailed || !strings.Contains(r.err, "--tls-cert") {
		t.Errorf("without a certificate: %+v", r)
	}
	stranger := w.certificate("stranger")
	stranger[5] = tls[5] // it trusts our authority, but is not signed by it
	if r := w.run(append([]string{"list"}, stranger...)...); r.code != exitFailed {
		t.Errorf("with a stranger's certificate: %+v", r)
	}
	r := w.run(append(append([]string{"run"}, tls...), "--", w.self(""))...)
	if rows, _ := read(t, r.out); r.code != exitOK || rows != 100 {
		t.Errorf("%+v", r)
	}
	m.stop()
	w.nothingLeft()
}

// certificate writes a key and a certificate for 127.0.0.1 that signs itself, and
// gives the flags that use them: cert, key, ca.
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
		// A state folder of its own: there is no token in it.
		return w.run(append([]string{"list", "--master", at, "--state", w.path("elsewhere")}, tls...)...)
	}
	m := start()
	if r := list(); r.code != exitFailed || !strings.Contains(r.err, "certificate job has no role here") || !strings.Contains(r.err, "--role") {
		t.Errorf("%+v", r)
	}
	m.stop()
	m = start("--role", "viewer=j*")
	if r := list(); r.code != exitOK {
		t.Errorf("%+v", r)
	}
	m.stop()
}

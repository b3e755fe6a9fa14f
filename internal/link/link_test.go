package link

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

func TestAddressesAreCheckedBeforeUse(t *testing.T) {
	for _, tc := range []struct {
		addr   string
		listen bool
		want   string // the error; "": none
	}{
		{"127.0.0.1:7070", false, ""},
		{"[::1]:7070", false, ""},
		{"127.0.0.1:0", true, ""},
		{":7070", true, ""},
		{"127.0.0.1:0", false, "no port to connect to"},
		{":7070", false, "has no host"},
		{"7070", true, "is not host:port"},
		{"a:70707", false, "not a number from 0 to 65535"},
		{"a:http", false, "not a number"},
	} {
		err := CheckAddress(tc.addr, tc.listen)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("CheckAddress(%q, %v) = %v, want %q", tc.addr, tc.listen, err, tc.want)
		}
	}
}

func TestOnlyAddressesOfThisMachineAreLoopback(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "localhost:1": true,
		"0.0.0.0:1": false, ":1": false, "[::]:1": false, "10.0.0.1:1": false, "localhost.evil.org:1": false, "bad": false,
	} {
		if Loopback(addr) != want {
			t.Errorf("Loopback(%q) = %v", addr, !want)
		}
	}
}

func TestListenOffLoopbackWithoutTLSIsRefused(t *testing.T) {
	_, err := Listen(t.Context(), "gRPC", "--listen", "0.0.0.0:0", TLS{})
	if err == nil || !strings.Contains(err.Error(), "--listen 0.0.0.0:0") || !strings.Contains(err.Error(), "--tls-cert") {
		t.Fatal(err)
	}
}

func TestDialOffLoopbackWithoutTLSIsRefused(t *testing.T) {
	_, err := Dial(Target{Address: "10.0.0.1:7070"}, TLS{})
	if err == nil || !strings.Contains(err.Error(), "--tls-ca") {
		t.Fatalf("got the error %v, want one with %q", err, "--tls-ca")
	}
}

func TestAPortInUseNamesThePortAndTheFlag(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr := l.Addr().String()
	_, err = Listen(t.Context(), "gRPC", "--listen", addr, TLS{})
	if err == nil || !strings.Contains(err.Error(), "--listen "+addr+": another process listens there already") {
		t.Fatalf("got the error %v, want one with %q", err, "--listen "+addr+": another process listens there already")
	}
}

func TestTheAddressFileIsFoundAndTakenAwayByItsOwnerOnly(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadAddress(dir); !errors.Is(err, ErrNoMaster) {
		t.Fatalf("got the error %v, want %v", err, ErrNoMaster)
	}
	if got := (Target{State: dir}).String(); got != DefaultMaster {
		t.Fatalf("got %v, want %v", got, DefaultMaster)
	}
	if err := WriteAddress(dir, "127.0.0.1:1234"); err != nil {
		t.Fatal(err)
	}
	RemoveAddress(dir, "127.0.0.1:9999")
	if got := (Target{State: dir}).String(); got != "127.0.0.1:1234" {
		t.Fatalf("got %v, want %v", got, "127.0.0.1:1234")
	}
	if got := (Target{State: dir, Address: "h:1"}).String(); got != "h:1" {
		t.Fatalf("got %v, want %v", got, "h:1")
	}
	RemoveAddress(dir, "127.0.0.1:1234")
	if _, err := ReadAddress(dir); !errors.Is(err, ErrNoMaster) {
		t.Fatalf("got the error %v, want %v", err, ErrNoMaster)
	}
	if err := os.WriteFile(filepath.Join(dir, AddressFile), []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadAddress(dir); err == nil || !strings.Contains(err.Error(), AddressFile) {
		t.Fatalf("got the error %v, want one with %q", err, AddressFile)
	}
}

func TestDialFollowsAMasterThatComesBackOnAnotherPort(t *testing.T) {
	dir := t.TempDir()
	conn, err := Dial(Target{State: dir}, TLS{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 2 {
		addr, stop := served(t, dir)
		if err := WriteAddress(dir, addr); err != nil {
			t.Fatal(err)
		}
		if err := check(t, conn); err != nil {
			t.Fatal(err)
		}
		stop()
		// A call on a connection that is just breaking may fail. This test is about the next call.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		for conn.GetState() == connectivity.Ready && conn.WaitForStateChange(ctx, connectivity.Ready) {
		}
		cancel()
	}
}

func TestMutualTLSLetsInOnlyWhoShowsASignedCertificate(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := authority(t, dir, "ours"), authority(t, dir, "theirs")
	addr, state := guarded(t, ours, nil)

	conn, err := Dial(Target{Address: addr, State: state}, ours)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := check(t, conn); err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string]TLS{"no TLS": {}, "another authority": {Cert: theirs.Cert, Key: theirs.Key, CA: ours.CA}} {
		bad, err := Dial(Target{Address: addr, State: state}, files)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := healthpb.NewHealthClient(bad).Check(t.Context(), &healthpb.HealthCheckRequest{}); err == nil {
			t.Error(name, "was accepted as a caller")
		}
		bad.Close()
	}
	if _, err := (TLS{Cert: ours.Cert}).ServerConfig(tls.RequireAndVerifyClientCert); err == nil {
		t.Error("a certificate without its key, or the other way round, was accepted")
	}
	if _, err := (TLS{Cert: ours.Key, Key: ours.Key, CA: ours.CA}).Client(); err == nil || !strings.Contains(err.Error(), ours.Key) {
		t.Errorf("got the error %v, want one with %q", err, ours.Key)
	}
	if _, err := (TLS{Cert: ours.Cert, Key: ours.Key, CA: ours.Key}).Client(); err == nil || !strings.Contains(err.Error(), "no PEM certificate") {
		t.Errorf("got the error %v, want one with %q", err, "no PEM certificate")
	}
}

// Certificates are renewed while processes run, also by another authority.
func TestARenewedCertificateIsUsedByProcessesThatRun(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	files := authority(t, dir, "job")
	early, stop := behindDoor(t, state, files, nil)
	conn, err := Dial(Target{State: state}, files) // it connects later
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	authority(t, dir, "job")
	if err := asks(t, Target{Address: early, State: state}, files); err != nil {
		t.Errorf("a process that has begun since, and a master from before: %v", err)
	}
	stop()
	late, stop := behindDoor(t, state, files, nil)
	defer stop()
	if err := WriteAddress(state, late); err != nil {
		t.Fatal(err)
	}
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("a process from before, and a master that has begun since: %v", err)
	}

	// The key of the next certificate is not there yet.
	next := authority(t, t.TempDir(), "next")
	text, err := os.ReadFile(next.Cert)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files.Cert, text, 0o600); err != nil {
		t.Fatal(err)
	}
	half, err := files.load()
	if err == nil {
		t.Fatalf("a certificate without its key is loaded: %v", half)
	}
	r := renewed{files: files, last: &identity{cert: tls.Certificate{Leaf: &x509.Certificate{NotAfter: time.Now().Add(time.Hour)}}}}
	if id, err := r.now(); err != nil || id != r.last {
		t.Errorf("while the files are replaced, the identity is %v (%v), want the one before", id, err)
	}
	r.last.cert.Leaf.NotAfter = time.Now().Add(-time.Hour)
	if _, err := r.now(); err == nil || !strings.Contains(err.Error(), files.Key) {
		t.Errorf("when the certificate before has expired, the error is %v, want one with %q", err, files.Key)
	}
}

func TestASocketPathIsShortEnoughForLinux(t *testing.T) {
	if err := CheckSocketPath("/" + strings.Repeat("a", 106)); err != nil {
		t.Error(err)
	}
	if err := CheckSocketPath("/" + strings.Repeat("a", 107)); err == nil || !strings.Contains(err.Error(), "107") {
		t.Errorf("got the error %v, want one with %q", err, "107")
	}
	t.Setenv("HEADRACE_AGENT", "")
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/7")
	if got := SocketPath("ctr"); got != "/run/user/7/headrace/ctr.sock" {
		t.Errorf("got %v, want %v", got, "/run/user/7/headrace/ctr.sock")
	}
	t.Setenv("XDG_RUNTIME_DIR", "")
	if got := SocketPath("ctr"); !strings.HasPrefix(got, "/tmp/headrace-") || !strings.HasSuffix(got, "/ctr.sock") {
		t.Error(got)
	}
	t.Setenv("HEADRACE_AGENT", "/x.sock")
	if got := SocketPath("ctr"); got != "/x.sock" {
		t.Errorf("got %v, want %v", got, "/x.sock")
	}
}

func check(t *testing.T, conn *grpc.ClientConn) error {
	_, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
	return err
}

// authority makes a certificate that signs itself and serves both sides.
func authority(t *testing.T, dir, name string) TLS {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
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
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	out := TLS{Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+".key"), CA: filepath.Join(dir, name+".pem")}
	write := func(path, kind string, b []byte) {
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(out.Cert, "CERTIFICATE", der)
	write(out.Key, "PRIVATE KEY", pkcs8)
	return out
}

package link

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/headrace/headrace/internal/access"
)

// guarded serves gRPC through a door. It returns the address, and the state folder with the token.
func guarded(t *testing.T, files TLS, change func(*Door, *access.Book)) (addr, state string) {
	t.Helper()
	state = t.TempDir()
	addr, _ = behindDoor(t, state, files, change)
	return addr, state
}

func served(t *testing.T, state string) (addr string, stop func()) {
	return behindDoor(t, state, TLS{}, nil)
}

func behindDoor(t *testing.T, state string, files TLS, change func(*Door, *access.Book)) (addr string, stop func()) {
	t.Helper()
	if err := access.Keep(state); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	book := &access.Book{State: state}
	door, err := newDoor(l, files, book, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(door, book)
	}
	door.open()
	srv := grpc.NewServer(grpc.Creds(door.Credentials()))
	healthpb.RegisterHealthServer(srv, health.NewServer())
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(door) }()
	stop = func() { srv.Stop(); <-done; _ = door.Close() }
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

// asks makes one call. It does not wait if no master is there.
func asks(t *testing.T, target Target, files TLS) error {
	t.Helper()
	conn, err := Dial(target, files)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	return err
}

func TestACallerWithTheTokenOfTheStateFolderIsLetIn(t *testing.T) {
	addr, state := guarded(t, TLS{}, nil)
	tokens, err := access.Lines(filepath.Join(state, access.OwnerFile))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "mounted")
	if err := os.WriteFile(file, []byte(tokens[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]Target{
		"state folder": {Address: addr, State: state}, "file": {Address: addr, TokenFile: file}, "value": {Address: addr, Token: tokens[0]},
		"viewer": {Address: addr, TokenFile: filepath.Join(state, access.ViewerFile)},
	} {
		if err := asks(t, target, TLS{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, target := range map[string]Target{
		"no token": {Address: addr}, "a folder without one": {Address: addr, State: t.TempDir()}, "a wrong one": {Address: addr, Token: "0123456789abcdef0123"},
	} {
		err := asks(t, target, TLS{})
		if err == nil || !strings.Contains(err.Error(), filepath.Join(state, "token")+" of user ") || !strings.Contains(err.Error(), "--token-file") {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), tokens[0]) {
			t.Errorf("%s: the error shows the token", name)
		}
	}
}

func TestATokenIsReplacedWithoutAGap(t *testing.T) {
	addr, state := guarded(t, TLS{}, nil)
	path := filepath.Join(state, access.OwnerFile)
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, after := Target{Address: addr, Token: strings.TrimSpace(string(old))}, Target{Address: addr, State: state}
	if err := os.WriteFile(path, append([]byte("a-new-token-of-this-job\n"), old...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(asks(t, before, TLS{}), asks(t, after, TLS{})); err != nil {
		t.Errorf("while both tokens are valid: %v", err)
	}
	if err := os.WriteFile(path, []byte("a-new-token-of-this-job\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := asks(t, after, TLS{}); err != nil {
		t.Error(err)
	}
	if err := asks(t, before, TLS{}); err == nil {
		t.Error("the old token is still accepted")
	}
}

// Another user's process listens at the master's address. It learns nothing that it could use.
func TestAProcessThatPassesForTheMasterLearnsNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const token = "the-token-that-nobody-else-knows"
	heard := make(chan []byte, 1)
	go func() { // ends with the connection
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		hello := make([]byte, helloBytes)
		_, _ = io.ReadFull(c, hello)
		_, _ = c.Write(make([]byte, 1+nonceBytes+proofBytes)) // claims to know the token, with a wrong proof
		rest, _ := io.ReadAll(c)
		heard <- append(hello, rest...)
	}()
	err = asks(t, Target{Address: l.Addr().String(), Token: token}, TLS{})
	if err == nil || !strings.Contains(err.Error(), "this is not our master") {
		t.Errorf("got the error %v, want one with %q", err, "this is not our master")
	}
	if got := <-heard; len(got) != helloBytes || bytes.Contains(got, []byte(token)) {
		t.Errorf("the process got %d bytes: %q", len(got), got)
	}
}

// Another user's process listens, and relays the proofs to the real master.
func TestAProofCannotBeRelayed(t *testing.T) {
	addr, state := guarded(t, TLS{}, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", addr)
			if err != nil {
				_ = c.Close()
				return
			}
			go func() { _, _ = io.Copy(to, c); _ = to.Close() }()
			go func() { _, _ = io.Copy(c, to); _ = c.Close() }()
		}
	}()
	if err := asks(t, Target{Address: l.Addr().String(), State: state}, TLS{}); err == nil || !strings.Contains(err.Error(), "this is not our master") {
		t.Errorf("got the error %v, want one with %q", err, "this is not our master")
	}
}

func TestTheTokenGoesWithTLSToo(t *testing.T) {
	ours := authority(t, t.TempDir(), "job")
	addr, state := guarded(t, ours, func(_ *Door, b *access.Book) { b.Names = []access.Entry{{Roles: access.Viewer, Value: "job"}} })
	for name, target := range map[string]Target{"certificate alone": {Address: addr}, "with the token": {Address: addr, State: state}} {
		if err := asks(t, target, ours); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := asks(t, Target{Address: addr, Token: "0123456789abcdef0123"}, ours); err == nil {
		t.Error("a wrong token was accepted with a certificate")
	}
}

func TestAProcessThatOnlySpeaksGRPCIsNotLetIn(t *testing.T) {
	addr, _ := guarded(t, TLS{}, nil)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestStrangersMakeRoomForThoseThatCome(t *testing.T) {
	addr, state := guarded(t, TLS{}, func(d *Door, _ *access.Book) { d.strangers = 3 })
	for range 50 { // connections that send nothing
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if err := asks(t, Target{Address: addr, State: state}, TLS{}); err != nil {
		t.Error(err)
	}
}

func TestOneCallerHasOnlySoManyConnections(t *testing.T) {
	addr, state := guarded(t, TLS{}, func(d *Door, _ *access.Book) { d.perCaller = 1 })
	conn, err := Dial(Target{Address: addr, State: state}, TLS{})
	if err != nil {
		t.Fatal(err)
	}
	if err := check(t, conn); err != nil {
		t.Fatal(err)
	}
	if err := asks(t, Target{Address: addr, State: state}, TLS{}); err == nil {
		t.Error("a second connection of the same caller was accepted")
	}
	if err := asks(t, Target{Address: addr, TokenFile: filepath.Join(state, access.ViewerFile)}, TLS{}); err != nil {
		t.Errorf("another caller: %v", err)
	}
	_ = conn.Close()
	for err = io.EOF; err != nil; { // the master notices the end a moment later
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
		err = asks(t, Target{Address: addr, State: state}, TLS{})
	}
}

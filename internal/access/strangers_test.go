package access

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Anybody on the machine can connect to the port of pages. Such callers must not take the
// connections that a process may have, and a request that never ends must not keep one for ever.
func TestCallersOfPagesThatShowNothingAreBounded(t *testing.T) {
	dir := t.TempDir()
	if err := Keep(dir); err != nil {
		t.Fatal(err)
	}
	tokens, err := Private(filepath.Join(dir, ViewerFile))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const most = 3
	srv := &http.Server{ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute}
	(&Book{State: dir}).guard(srv, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "in") }), most, 50*time.Millisecond)
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	defer func() { _ = srv.Close(); <-done }()
	connect := func(text string) net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		return c
	}
	ends := func(what string, c net.Conn) {
		t.Helper()
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the connection does not end", what)
		}
	}
	ask := func(c net.Conn, r *bufio.Reader, head string) int {
		t.Helper()
		if _, err := io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: m\r\n"+head+"\r\n"); err != nil {
			t.Fatal(err)
		}
		reply, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, reply.Body)
		return reply.StatusCode
	}
	known := connect("")
	answers := bufio.NewReader(known)
	if code := ask(known, answers, "Authorization: Bearer "+tokens[0]+"\r\n"); code != http.StatusOK {
		t.Fatalf("a viewer gets %d, want 200", code)
	}
	for _, request := range []string{
		"GET /healthz HTTP/1.1\r\nHost: m\r\n\r\n",
		"GET /metrics HTTP/1.1\r\nHost: m\r\n\r\n",
		"GET /healthz HTTP/1.1\r\nHost: m\r\nContent-Length: 10\r\n\r\n", // its body never comes
		"GET /metrics HTTP/1.1\r\nHost: m\r\nContent-Length: 10\r\n\r\n",
	} {
		ends(request, connect(request))
	}
	var waiting []net.Conn
	for range 2 * most {
		waiting = append(waiting, connect(""))
	}
	for _, c := range waiting[:most] {
		ends("one of too many", c)
	}
	if code := ask(known, answers, "Authorization: Bearer "+tokens[0]+"\r\n"); code != http.StatusOK {
		t.Errorf("a viewer that was connected before gets %d, want 200", code)
	}
	if code := ask(waiting[2*most-1], bufio.NewReader(waiting[2*most-1]), ""); code != http.StatusUnauthorized {
		t.Errorf("the newest caller gets %d, want 401", code)
	}
}

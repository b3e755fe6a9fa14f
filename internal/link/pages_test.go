package link

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/headrace/headrace/internal/access"
)

// knock connects, proves a token and sends text.
func knock(t *testing.T, addr, token, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if token != "" {
		if err := prove(t.Context(), c, nil, token); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

// One port serves gRPC and pages. A page is answered only if the caller has proven a role that may see it.
func TestACallerThatHasProvenItselfMaySpeakHTTP(t *testing.T) {
	const ask = "GET /v1/datasets/x/layout HTTP/1.1\r\nHost: m\r\n\r\n"
	var hs *http.Server
	addr, state := guarded(t, TLS{}, func(d *Door, book *access.Book) {
		hs = &http.Server{ConnContext: WithCaller, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
			Handler: book.Pages(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "in") }))}
		pages, done := d.Pages(), make(chan struct{})
		go func() { defer close(done); _ = hs.Serve(pages) }()
		t.Cleanup(func() { <-done })
	})
	tokens := map[string]string{}
	for _, name := range []string{access.OwnerFile, access.ViewerFile} {
		all, err := access.Private(state + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		tokens[name] = all[0]
	}
	for name, code := range map[string]int{access.OwnerFile: http.StatusOK, access.ViewerFile: http.StatusForbidden} {
		reply, err := http.ReadResponse(bufio.NewReader(knock(t, addr, tokens[name], ask)), nil)
		if err != nil || reply.StatusCode != code {
			t.Errorf("%s: %v, %v", name, reply, err)
		}
	}
	// Without a proof nothing is answered. gRPC works on the same port as the pages.
	if _, err := http.ReadResponse(bufio.NewReader(knock(t, addr, "", ask)), nil); err == nil {
		t.Error("a page was answered without a proof")
	}
	if err := asks(t, Target{Address: addr, State: state}, TLS{}); err != nil {
		t.Error(err)
	}
	// The server of the pages ends, and the door stays open for gRPC.
	if err := hs.Close(); err != nil {
		t.Fatal(err)
	}
	c := knock(t, addr, tokens[access.OwnerFile], ask)
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Errorf("a door without pages: %v", err)
	}
}

package pulsar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// withIssuer opens a dataset that gets its tokens from an issuer.
func withIssuer(t *testing.T, admin, address string) *Source {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key.json")
	if err := os.WriteFile(key, []byte(`{"client_id": "trainers", "client_secret": "secret"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Options{Dataset: "test", Service: "pulsar://127.0.0.1:1", Admin: admin, Topics: []string{"t"}, Start: End{At: brokers.Earliest}, End: End{At: brokers.Latest}, MaxRecord: 1 << 20}
	if err := o.secure(&Spec{Auth: &Auth{OAuth2: &OAuth2{Issuer: address, KeyFile: key}}}, []string{filepath.Dir(key)}); err != nil {
		t.Fatal(err)
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// An issuer accepts connections and never answers. A request still ends with its context, after its own
// time, and with Close.
func TestAnIssuerThatNeverAnswersHoldsNothingUp(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan net.Conn, 100)
	go func() { // ends with the listener
		defer close(asked)
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			asked <- nc
		}
	}()
	defer func() {
		_ = l.Close()
		for nc := range asked {
			_ = nc.Close()
		}
	}()
	address := "http://" + l.Addr().String()
	within := func(what string, ended <-chan error) error {
		t.Helper()
		select {
		case err := <-ended:
			return err
		case <-time.After(5 * time.Minute):
			t.Fatal(what + " has not ended after five minutes")
			return nil
		}
	}
	for what, act := range map[string]func(context.Context, *Source) error{
		"the admin API": func(ctx context.Context, s *Source) error { _, err := s.Partitions(ctx); return err },
		"the connection that reads": func(ctx context.Context, s *Source) error {
			_, err := s.open(ctx, partition{"public/default/t", 1}, 5, 0)
			return err
		},
	} {
		s := withIssuer(t, newFakeAdmin(t).url, address)
		if what != "the admin API" {
			broker := newFakeBroker(t, 5, nil)
			s.o.Service = broker.service()
		}
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- act(ctx, s) }()
		defer func(nc net.Conn) { _ = nc.Close() }(<-asked)
		cancel()
		if err := within(what, ended); !errors.Is(err, context.Canceled) {
			t.Errorf("%s, whose context has ended: %v", what, err)
		}
		go func() { ended <- act(t.Context(), s) }() // waits for the same answer
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		if err := within("Close", closed); err != nil {
			t.Error(err)
		}
		if err := within(what, ended); err == nil {
			t.Errorf("%s succeeds without a token", what)
		}
	}
	s := withIssuer(t, newFakeAdmin(t).url, address)
	s.o.login.within = time.Millisecond
	_, err = s.Partitions(t.Context())
	if e, ok := errors.AsType[*sources.Temporary](err); !ok || !e.Away || !strings.Contains(err.Error(), "issuer "+address) || !strings.Contains(err.Error(), "pulsar.auth.oauth2") {
		t.Errorf("after the issuer's time to answer: %v", err)
	}
}

// A token is asked for once, and again when it was refused or expires.
func TestATokenIsUsedUntilItExpiresOrIsRefused(t *testing.T) {
	var given, refuse atomic.Int64
	var refuseAll atomic.Bool
	var lives atomic.Int64
	lives.Store(3600)
	var server *httptest.Server
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"token_endpoint": server.URL + "/token"})
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": fmt.Sprint("token", given.Add(1)), "expires_in": lives.Load()})
	})
	server = httptest.NewServer(mux)
	defer server.Close()
	a := newFakeAdmin(t)
	a.topic("t", "", [2]int64{5, 1})
	a.serves = func(w http.ResponseWriter, r *http.Request, _ string) bool {
		if r.Header.Get("Authorization") != fmt.Sprint("Bearer token", given.Load()) || given.Load() == refuse.Load() || refuseAll.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		return false
	}
	s := withIssuer(t, a.url, server.URL)
	ask := func(want int64) {
		t.Helper()
		if _, err := s.Partitions(t.Context()); err != nil || given.Load() != want {
			t.Errorf("%v; %d tokens were given, want %d", err, given.Load(), want)
		}
	}
	ask(1)
	ask(1)
	refuse.Store(1) // the first token is refused, and the second one is not
	ask(2)
	refuseAll.Store(true)
	if _, err := s.Partitions(t.Context()); err == nil || !strings.Contains(err.Error(), "pulsar.auth") {
		t.Errorf("got the error %v, want one with %q", err, "pulsar.auth")
	}
	refuseAll.Store(false)
	if given.Load() != 3 {
		t.Errorf("%d tokens were given, want one more for the request that was refused for good", given.Load())
	}
	ask(4)
	lives.Store(int64(tokenEarly/time.Second) - 1) // a token counts as expired at once
	s.o.login.refused(s.o.login.token)
	ask(6) // two more tokens: one request asks for the partitions, one for the topic
}

// A request with a body is tried again with its whole body.
func TestARequestWhoseTokenWasRefusedIsSentAgainAsAWhole(t *testing.T) {
	var given atomic.Int64
	var server *httptest.Server
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"token_endpoint": server.URL + "/token"})
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": fmt.Sprint("token", given.Add(1)), "expires_in": 3600})
	})
	server = httptest.NewServer(mux)
	defer server.Close()
	a := newFakeAdmin(t)
	a.serves = func(w http.ResponseWriter, r *http.Request, _ string) bool {
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("Authorization") == "Bearer token1" || string(body) != `{"ledgerId":5,"entryId":7,"partitionIndex":-1}` {
			w.WriteHeader(http.StatusUnauthorized)
		}
		return true
	}
	s := withIssuer(t, a.url, server.URL)
	if err := s.admin.call(t.Context(), http.MethodPost, "t/subscription/x/resetcursor", messageAt{5, 7, -1}, nil); err != nil || given.Load() != 2 {
		t.Errorf("%v; %d tokens were given, want 2", err, given.Load())
	}
}

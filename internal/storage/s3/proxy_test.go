//go:build s3

package s3

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/storage"
)

// chunked sends an answer without its length.
func chunked(r *http.Response) error {
	if r.Request.Method == http.MethodGet && r.Request.URL.RawQuery == "" {
		r.Header.Del("Content-Length")
		r.ContentLength = -1
	}
	return nil
}

func TestAnAnswerWithoutALengthIsReadToItsEnd(t *testing.T) {
	c := config()
	c.Endpoint = between(t, func(*http.Request) int { return 0 }, chunked)
	b, data := open(t, c), bytes.Repeat([]byte("treasure"), 1<<16)
	if err := b.Put(t.Context(), "k", data); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Get(t.Context(), "k", 0, -1); err != nil || !bytes.Equal(got, data) {
		t.Errorf("all: %d bytes of %d, %v", len(got), len(data), err)
	}
	if got, err := b.Get(t.Context(), "k", 8, 4); err != nil || string(got) != "trea" {
		t.Errorf("a range: %q, %v", got, err)
	}
	p := make([]byte, 4)
	if err := b.ReadAt(t.Context(), "k", tagOf(t, b, "k"), p, 4); err != nil || string(p) != "sure" {
		t.Errorf("ReadAt: %q, %v", p, err)
	}
}

func tagOf(t *testing.T, b *Bucket, key string) string {
	t.Helper()
	o, err := b.Head(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return o.Tag
}

func TestAProxyThatDropsTheRangeGivesNoWrongBytes(t *testing.T) {
	const content = "0123456789"
	c := config()
	c.Endpoint = between(t, func(*http.Request) int { return 0 }, func(r *http.Response) error {
		if r.StatusCode == http.StatusPartialContent { // answer like a cache that keeps whole objects
			r.Header.Del("Content-Range")
			r.Header.Set("Content-Length", strconv.Itoa(len(content)))
			r.StatusCode, r.ContentLength, r.Body = http.StatusOK, int64(len(content)), io.NopCloser(strings.NewReader(content))
		}
		return nil
	})
	b := open(t, c)
	if err := b.Put(t.Context(), "k", []byte(content)); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 3)
	if err := b.ReadAt(t.Context(), "k", tagOf(t, b, "k"), p, 5); err == nil || !strings.Contains(err.Error(), "/k: the service gave other bytes") {
		t.Errorf("the bytes at 5 are %q, %v", p, err)
	}
	if got, err := b.Get(t.Context(), "k", 5, 3); err == nil || !strings.Contains(err.Error(), "/k: the service gave other bytes") {
		t.Errorf("Get gives %q, %v", got, err)
	}
}

func TestAConnectionThatFallsSilentIsGivenUp(t *testing.T) {
	ours, theirs := net.Pipe()
	defer func() { _ = theirs.Close() }()
	c := conn{ours, 50 * time.Millisecond}
	for name, call := range map[string]func([]byte) (int, error){"read": c.Read, "write": c.Write} {
		if _, err := call(make([]byte, 8)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The first answers stop after a quarter of the object.
func TestAServiceThatStopsInTheMiddleIsAskedAgain(t *testing.T) {
	hang, data := make(chan struct{}), bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	var stalled atomic.Int32
	c := config()
	c.Endpoint = between(t, func(*http.Request) int { return 0 }, func(r *http.Response) error {
		if r.Request.Method == http.MethodGet && stalled.Add(1) <= 2 {
			r.Body = io.NopCloser(io.MultiReader(io.LimitReader(r.Body, int64(len(data)/4)), waiting(hang)))
		}
		return nil
	})
	place := fmt.Sprintf("s3://test/p%d", prefixes.Add(1))
	first, err := Open(c, place) // with the usual patience: a busy machine may need it to write
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	if err := first.Put(t.Context(), "k", data); err != nil {
		t.Fatal(err)
	}
	old := silentWithin
	silentWithin = 3 * time.Second
	defer func() { silentWithin = old }()
	b, err := Open(c, place)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	t.Cleanup(func() { close(hang) }) // runs before the hanging server is closed
	p := make([]byte, len(data))
	if err := b.ReadAt(t.Context(), "k", tagOf(t, b, "k"), p, 0); err != nil || !bytes.Equal(p, data) {
		t.Error(err)
	}
	stalled.Store(0)
	if got, err := b.Get(t.Context(), "k", 0, -1); err != nil || !bytes.Equal(got, data) {
		t.Error(len(got), err)
	}
	if _, err := b.Get(t.Context(), "none", 0, -1); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("got the error %v, want %v", err, storage.ErrNotFound)
	}
}

type waiting chan struct{}

func (w waiting) Read([]byte) (int, error) { <-w; return 0, io.ErrUnexpectedEOF }

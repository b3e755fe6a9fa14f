//go:build s3

package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"go.uber.org/goleak"

	"github.com/headrace/headrace/internal/proof/leaks"
	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/internal/storage/storagetest"
)

var server *testbroker.S3

func TestMain(m *testing.M) {
	var err error
	if server, err = testbroker.StartS3(context.Background(), nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := server.Bucket("test"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := server.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func config() Config {
	return Config{Endpoint: server.Endpoint(), Region: "us-east-1", AccessKey: server.AccessKey, SecretKey: server.SecretKey}
}

var prefixes atomic.Int32

func open(t *testing.T, c Config) *Bucket {
	t.Helper()
	b, err := Open(c, fmt.Sprintf("s3://test/p%d", prefixes.Add(1)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func TestABucketPassesTheSuite(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Store { return open(t, config()) })
}

func TestAStreamOfUnknownLengthIsPutInParts(t *testing.T) {
	b, ctx := open(t, config()), t.Context()
	data := bytes.Repeat([]byte("0123456789abcdef"), 20<<20/16)
	for _, size := range []int64{int64(len(data)), -1} {
		key := fmt.Sprintf("stream%d", size)
		// A reader that is no ReaderAt, so it can be read only once.
		if err := b.PutFrom(ctx, key, io.MultiReader(bytes.NewReader(data)), size, true); err != nil {
			t.Fatal(err)
		}
		if err := b.PutFrom(ctx, key, io.MultiReader(bytes.NewReader(data)), size, true); !errors.Is(err, storage.ErrExists) {
			t.Errorf("size %d, again: %v", size, err)
		}
		if got, err := b.Get(ctx, key, 0, -1); err != nil || !bytes.Equal(got, data) {
			t.Errorf("size %d: %d bytes, %v", size, len(got), err)
		}
	}
}

func TestBytesOfAnotherObjectAreNeverRead(t *testing.T) {
	b, ctx := open(t, config()), t.Context()
	if err := b.Put(ctx, "f", []byte("first state")); err != nil {
		t.Fatal(err)
	}
	was, err := b.Head(ctx, "f")
	if err != nil || was.Tag == "" || time.Since(was.Modified) > time.Hour {
		t.Fatalf("%+v, %v", was, err)
	}
	p := make([]byte, 5)
	if err := b.ReadAt(ctx, "f", was.Tag, p, 6); err != nil || string(p) != "state" {
		t.Fatalf("%q, %v", p, err)
	}
	if err := b.Put(ctx, "f", []byte("other state")); err != nil {
		t.Fatal(err)
	}
	if err := b.ReadAt(ctx, "f", was.Tag, p, 6); !errors.Is(err, storage.ErrChanged) || !strings.Contains(err.Error(), "/f: another object") {
		t.Errorf("replaced: %v", err)
	}
	if err := b.Delete(ctx, "f"); err != nil {
		t.Fatal(err)
	}
	if err := b.ReadAt(ctx, "f", was.Tag, p, 6); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("deleted: %v", err)
	}
}

func TestPagesListEveryKeyOnce(t *testing.T) {
	b, ctx := open(t, config()), t.Context()
	keys := []string{"a b/x=1,y/ä.csv", "a b/z+%.csv", "plain", "ünder/ß"}
	for _, k := range keys {
		if err := b.put(ctx, k, strings.NewReader("x"), 1, false); err != nil {
			t.Fatal(err)
		}
	}
	page, err := b.Page(ctx, "", "")
	if err != nil || len(page) != len(keys) {
		t.Fatalf("%v, %v", page, err)
	}
	for i, o := range page {
		if o.Key != keys[i] || o.Tag == "" || o.Size != 1 || o.Modified.IsZero() {
			t.Errorf("%+v, want %s", o, keys[i])
		}
		if err := b.ReadAt(ctx, o.Key, o.Tag, make([]byte, 1), 0); err != nil {
			t.Error(err)
		}
	}
	if page, err := b.Page(ctx, "a b/", keys[0]); err != nil || len(page) != 1 || page[0].Key != keys[1] {
		t.Errorf("%v, %v", page, err)
	}
	if page, err := b.Page(ctx, "", "ünder/ß"); err != nil || len(page) != 0 {
		t.Errorf("after the last: %v, %v", page, err)
	}
}

// between starts a proxy between a Bucket and the server.
func between(t *testing.T, change func(r *http.Request) (answer int), after func(*http.Response) error) string {
	to, err := url.Parse(server.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host
	}, ModifyResponse: after, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { panic(http.ErrAbortHandler) }}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status := change(r); status != 0 {
			w.WriteHeader(status)
			return
		}
		proxy.ServeHTTP(w, r)
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	return "http://" + l.Addr().String()
}

func TestABusyServiceIsAskedAgainAFewTimes(t *testing.T) {
	var asked atomic.Int32
	busy := int32(2)
	c := config()
	c.Endpoint = between(t, func(*http.Request) int {
		if asked.Add(1) <= busy {
			return http.StatusServiceUnavailable
		}
		return 0
	}, nil)
	b := open(t, c)
	if err := b.PutNew(t.Context(), "k", []byte("x")); err != nil || asked.Load() != 3 {
		t.Fatalf("%v after %d tries", err, asked.Load())
	}
	busy = 1000
	asked.Store(0)
	_, err := b.Head(t.Context(), "k")
	if !errors.Is(err, storage.ErrAway) || !errors.Is(err, storage.ErrPassing) || asked.Load() != tries {
		t.Fatalf("%v after %d tries", err, asked.Load())
	}
}

// A service counts as away only if nobody answers, or only a proxy. Then nothing is known of the object, and a
// dataset waits for ever.
func TestABusyServiceIsNotAway(t *testing.T) {
	c := config()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.Endpoint = "http://" + l.Addr().String()
	if err := l.Close(); err != nil { // from now on nobody answers
		t.Fatal(err)
	}
	b := open(t, c)
	if _, err := b.Head(t.Context(), "k"); !errors.Is(err, storage.ErrAway) {
		t.Errorf("with nobody answering: %v", err)
	}
	for _, e := range []struct {
		err  error
		away bool
	}{
		{minio.ErrorResponse{StatusCode: 503, Code: "SlowDown"}, false},
		{minio.ErrorResponse{StatusCode: 503, Code: "ServiceUnavailable"}, false},
		{minio.ErrorResponse{StatusCode: 503, Code: "503 Service Unavailable"}, true},
		{minio.ErrorResponse{StatusCode: 502}, true},
		{minio.ErrorResponse{StatusCode: 504}, true},
		{minio.ErrorResponse{StatusCode: 500, Code: "InternalError"}, false},
		{io.ErrUnexpectedEOF, false}, // an answer that breaks off
	} {
		if err := b.failed(t.Context(), "k", e.err); errors.Is(err, storage.ErrAway) != e.away || !errors.Is(err, storage.ErrPassing) {
			t.Errorf("%v: %v, away %v", e.err, err, !e.away)
		}
	}
}

func TestANewObjectWhoseFirstAnswerWasLostIsOurs(t *testing.T) {
	var lost atomic.Bool
	c := config()
	c.Endpoint = between(t, func(*http.Request) int { return 0 }, func(r *http.Response) error {
		if r.Request.Method == http.MethodPut && !lost.Swap(true) {
			return errors.New("the answer is lost")
		}
		return nil
	})
	b := open(t, c)
	if err := b.PutNew(t.Context(), "k", []byte("x")); err != nil || !lost.Load() {
		t.Fatal(err)
	}
	if err := b.PutNew(t.Context(), "k", []byte("x")); !errors.Is(err, storage.ErrExists) {
		t.Fatalf("got the error %v, want %v", err, storage.ErrExists)
	}
}

func TestBytesThatChangeOnTheirWayAreRefused(t *testing.T) {
	c := config()
	c.Endpoint = between(t, func(r *http.Request) int {
		if r.Method == http.MethodPut && r.ContentLength > 0 {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(bytes.Replace(body, []byte("treasure"), []byte("trash..."), 1)))
		}
		return 0
	}, nil)
	b := open(t, c)
	if err := b.Put(t.Context(), "k", []byte("my treasure")); err == nil {
		t.Fatal("the server accepted bytes that differ from those that we sent")
	} else {
		t.Log(err)
	}
	if _, err := b.Stat(t.Context(), "k"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("an object was stored: %v", err)
	}
}

func TestACallEndsWithItsContextAndLeavesNothingRunning(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { leaks.None(t, ignore) }) // runs after the hanging server has been closed
	hang := make(chan struct{})
	c := config()
	reached := make(chan struct{}, 100)
	c.Endpoint = between(t, func(*http.Request) int {
		reached <- struct{}{}
		<-hang
		return http.StatusServiceUnavailable
	}, nil)
	b, err := Open(c, "s3://test/hang")
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(context.Context) error{
		"put":    func(ctx context.Context) error { return b.Put(ctx, "k", make([]byte, 40<<20)) },
		"get":    func(ctx context.Context) error { _, err := b.Get(ctx, "k", 0, -1); return err },
		"list":   func(ctx context.Context) error { _, err := b.List(ctx, "", "", 0); return err },
		"delete": func(ctx context.Context) error { return b.Delete(ctx, "k", "l") },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-reached; cancel() }()
		if err := call(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	close(hang)
	_ = b.Close()
}

func TestWhatPeopleMeetIsSaidInOneSentence(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*Config)
		url  string
		want string
	}{
		{"no bucket", func(*Config) {}, "s3://nowhere/x", "there is no bucket nowhere at 127.0.0.1:"},
		{"access key", func(c *Config) { c.AccessKey = "AKnobody" }, "s3://test", "does not know the access key"},
		{"secret key", func(c *Config) { c.SecretKey = "wrongwrongwrong" }, "s3://test", "the secret key does not fit"},
		{"region", func(c *Config) { c.Region = "eu-west-1" }, "s3://test", "is in another region than eu-west-1"},
		{"nobody there", func(c *Config) { c.Endpoint = "http://127.0.0.1:1" }, "s3://test", "127.0.0.1:1 does not answer: "},
		{"no credentials", func(c *Config) { c.AccessKey, c.SecretKey = "", "" }, "s3://test", "no credentials for S3 were found"},
		{"no such profile", func(c *Config) { c.AccessKey, c.SecretKey, c.Profile = "", "", "lake" }, "s3://test", "profile lake"},
		{"anonymous", func(c *Config) { c.AccessKey, c.SecretKey, c.Anonymous = "", "", true }, "s3://test", "access is denied"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
			t.Setenv("AWS_CONFIG_FILE", "/dev/null")
			t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
			conf := config()
			c.edit(&conf)
			b, err := Open(conf, c.url)
			if err != nil {
				t.Fatal(err)
			}
			_, err = b.List(t.Context(), "", "", 0)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), server.SecretKey) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v\nwant: %s", err, c.want)
			}
			t.Log(err)
		})
	}
}

func TestTheEnvironmentIsEnough(t *testing.T) {
	for _, v := range server.Environment() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	b := open(t, Config{})
	if err := b.Put(t.Context(), "k", []byte("x")); err != nil {
		t.Fatal(err)
	}
}

func TestAProfileIsEnough(t *testing.T) {
	file := t.TempDir() + "/credentials"
	text := fmt.Sprintf("[lake]\naws_access_key_id = %s\naws_secret_access_key = %s\n", server.AccessKey, server.SecretKey)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	b := open(t, Config{Endpoint: server.Endpoint(), Profile: "lake"})
	if err := b.Put(t.Context(), "k", []byte("x")); err != nil {
		t.Fatal(err)
	}
}

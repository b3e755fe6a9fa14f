package s3

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/storage"
)

// answering is a bucket whose service answers as h does.
func answering(t *testing.T, h http.HandlerFunc) *Bucket {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	b, err := Open(Config{Endpoint: srv.URL, Region: "us-east-1", AccessKey: "a", SecretKey: "b"}, "s3://models/clicks")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// refuse answers with an error of S3.
func refuse(w http.ResponseWriter, r *http.Request, status int, code string) {
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>a message</Message></Error>`, code)
	}
}

// While its service is away, a proxy may answer 404 by itself. That says nothing about the object, nor
// about the bucket. A 404 of the service is an error in XML.
func TestA404OfAProxySaysNothingAboutTheObject(t *testing.T) {
	for _, c := range []struct {
		who    string
		answer http.HandlerFunc
		want   error
	}{
		{"a proxy", func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "default backend - 404", http.StatusNotFound)
		}, storage.ErrAway},
		{"the service", func(w http.ResponseWriter, r *http.Request) { refuse(w, r, http.StatusNotFound, "NoSuchKey") }, storage.ErrNotFound},
		{"the service, without the bucket", func(w http.ResponseWriter, r *http.Request) { refuse(w, r, http.StatusNotFound, "NoSuchBucket") }, nil},
	} {
		b := answering(t, c.answer)
		_, get := b.Get(t.Context(), "chunk", 0, -1)
		_, head := b.Head(t.Context(), "file")
		_, _, sum := b.Sum(t.Context(), "file")
		for call, err := range map[string]error{"Get": get, "Head": head, "Sum": sum, "ReadAt": b.ReadAt(t.Context(), "file", "etag", make([]byte, 10), 0)} {
			switch {
			case c.want == nil && (errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrPassing) || !strings.Contains(err.Error(), "there is no bucket models")),
				c.want != nil && !errors.Is(err, c.want),
				errors.Is(err, storage.ErrNotFound) && errors.Is(err, storage.ErrPassing):
				t.Errorf("%s answers 404: %s: %v", c.who, call, err)
			}
		}
		if _, err := b.List(t.Context(), "", "", 0); c.want == storage.ErrAway && !errors.Is(err, storage.ErrAway) {
			t.Errorf("%s answers 404: List: %v", c.who, err)
		}
		if err := b.Delete(t.Context(), "chunk"); c.want == storage.ErrAway && !errors.Is(err, storage.ErrAway) {
			t.Errorf("%s answers 404: Delete: %v", c.who, err)
		}
	}
}

package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

// Of two writers of a checkpoint, one asks for a file while the other one puts it.
func TestAnObjectThatIsPutWhileItIsAskedForIsThere(t *testing.T) {
	missed := map[string]bool{}
	b := answering(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead && !missed[r.URL.Path] {
			missed[r.URL.Path] = true
			refuse(w, r, http.StatusNotFound, "")
			return
		}
		w.Header().Set("ETag", `"tag"`)
		w.Header().Set("Last-Modified", "Sun, 29 Nov 2026 12:00:00 GMT")
		fmt.Fprint(w, "four")
	})
	if o, err := b.Head(t.Context(), "file"); err != nil || o.Size != 4 {
		t.Errorf("Head: %+v, %v", o, err)
	}
	if size, _, err := b.Sum(t.Context(), "other"); err != nil || size != 4 {
		t.Errorf("Sum: %d, %v", size, err)
	}
}

// S3 answers a conditional put with 409 ConditionalRequestConflict while another one of the key is under
// way: https://docs.aws.amazon.com/AmazonS3/latest/API/API_PutObject.html (If-None-Match).
func TestAConditionalPutThatMeetsAnotherIsTriedAgain(t *testing.T) {
	var puts atomic.Int32
	b := answering(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut && puts.Add(1) == 1:
			refuse(w, r, http.StatusConflict, "ConditionalRequestConflict")
		case r.Method == http.MethodPut: // the other one has ended, and was first
			refuse(w, r, http.StatusPreconditionFailed, "PreconditionFailed")
		default:
			w.WriteHeader(http.StatusOK) // HEAD: somebody else's object
		}
	})
	if err := b.PutNew(t.Context(), "headrace-memory-id", []byte("x")); !errors.Is(err, storage.ErrExists) || puts.Load() != 2 {
		t.Errorf("after %d puts PutNew returns %v, want 2 and ErrExists", puts.Load(), err)
	}
	puts.Store(0)
	err := b.PutFrom(t.Context(), "headrace-memory-id", struct{ *strings.Reader }{strings.NewReader("x")}, 1, true)
	if !errors.Is(err, storage.ErrExists) {
		t.Errorf("a put from a reader that can go back: %v", err)
	}
	puts.Store(0)
	type only interface{ Read([]byte) (int, error) }
	err = b.PutFrom(t.Context(), "headrace-memory-id", struct{ only }{strings.NewReader("x")}, 1, true)
	if !errors.Is(err, storage.ErrPassing) || puts.Load() != 1 {
		t.Errorf("a put from a reader that cannot go back made %d puts: %v, want one and ErrPassing", puts.Load(), err)
	}
}

// An upload in parts is begun anew if its end meets another conditional request.
func TestAnUploadInPartsThatMeetsAnotherBeginsAnew(t *testing.T) {
	var begun, parts, ended atomic.Int32
	b := answering(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		switch {
		case r.Method == http.MethodPost && q.Has("uploads"):
			fmt.Fprintf(w, `<InitiateMultipartUploadResult><Bucket>models</Bucket><Key>k</Key><UploadId>u%d</UploadId></InitiateMultipartUploadResult>`, begun.Add(1))
		case r.Method == http.MethodPut:
			parts.Add(1)
			w.Header().Set("ETag", `"e"`)
		case r.Method == http.MethodPost && ended.Add(1) == 1:
			refuse(w, r, http.StatusConflict, "ConditionalRequestConflict")
		case r.Method == http.MethodPost:
			fmt.Fprint(w, `<CompleteMultipartUploadResult><Bucket>models</Bucket><Key>k</Key><ETag>"e"</ETag></CompleteMultipartUploadResult>`)
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		default:
			refuse(w, r, http.StatusNotFound, "NoSuchKey")
		}
	})
	err := b.PutNew(t.Context(), "k", make([]byte, partSize+1))
	if err != nil || begun.Load() != 2 || parts.Load() != 4 || ended.Load() != 2 {
		t.Errorf("%v; %d uploads were begun, %d parts sent, %d ends asked for; want 2, 4, 2", err, begun.Load(), parts.Load(), ended.Load())
	}
}

// EndUploads stops at the first upload that it cannot give up. Nothing of it runs after that.
func TestAnUploadThatCannotBeGivenUpLeavesNoGoroutine(t *testing.T) {
	b := answering(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			refuse(w, r, http.StatusForbidden, "AccessDenied")
			return
		}
		var all strings.Builder
		for i := range 10 {
			fmt.Fprintf(&all, "<Upload><Key>clicks/step/%d</Key><UploadId>u%d</UploadId><Initiated>2020-01-01T00:00:00.000Z</Initiated></Upload>", i, i)
		}
		fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><ListMultipartUploadsResult><Bucket>models</Bucket><IsTruncated>false</IsTruncated>%s</ListMultipartUploadsResult>`, all.String())
	})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := b.EndUploads(ctx, time.Now(), func(string) bool { return true })
	cancel()
	if err == nil {
		t.Fatal("no error")
	}
	stacks := make([]byte, 1<<20)
	for late := time.Now().Add(5 * time.Minute); strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "listIncompleteUploads"); runtime.Gosched() {
		if time.Now().After(late) {
			t.Fatalf("a goroutine of the listing is left:\n%s", stacks)
		}
	}
}

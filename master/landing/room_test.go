package landing

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/storage"
)

// read counts what is read of a body.
type read struct {
	io.Reader
	bytes int
}

func (r *read) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.bytes += n
	return n, err
}

// leaves is a store whose caller goes away when it has found its stream: it then waits for room.
type leaves struct {
	storage.Store
	leave func()
}

func (l leaves) Get(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	b, err := l.Store.Get(ctx, key, offset, length)
	l.leave()
	return b, err
}

// A chunk waits for room before it is unpacked, and over HTTP before it is read. All room is
// given back, whatever becomes of the chunk.
func TestChunksWaitForRoom(t *testing.T) {
	s := start(t)
	data := lines(strings.Repeat("a", 10_000))
	const path = "/v1/datasets/clicks/transactions/t"
	post := func(ctx context.Context, path, body string) (int, int, answer) {
		r := &read{Reader: strings.NewReader(body)}
		code, a := s.serve(t, httptest.NewRequestWithContext(ctx, http.MethodPost, path, r))
		return code, r.bytes, a
	}

	if err := s.room.Acquire(t.Context(), roomMost); err != nil {
		t.Fatal(err)
	}
	const says = "all memory for them is in use"
	store := s.store
	ctx, leave := context.WithCancel(t.Context())
	s.store = leaves{store, leave}
	if _, err := s.Stage(ctx, "clicks", "t", 0, data); !errors.Is(err, ErrNotReady) || !strings.Contains(err.Error(), says) {
		t.Errorf("without room: %v", err)
	}
	ctx, leave = context.WithCancel(t.Context())
	s.store = leaves{store, leave}
	if code, n, a := post(ctx, path+"/chunks?partition=0", string(data)); code != http.StatusServiceUnavailable || n > chunk.HeaderSize || !strings.Contains(a.Error, says) {
		t.Errorf("without room: %d bytes were read, %d %+v", n, code, a)
	}
	if code, n, a := post(ctx, path+"/commit", `{"locators": []}`); code != http.StatusServiceUnavailable || n > 0 || !strings.Contains(a.Error, says) {
		t.Errorf("without room: %d bytes were read, %d %+v", n, code, a)
	}
	s.room.Release(roomMost)
	s.store = store

	s.staged(t, "t", 0, data)
	for _, c := range []struct {
		path, body string
		code       int
	}{
		{"/chunks?partition=0", string(data), http.StatusOK},
		{"/chunks?partition=0", string(data[:len(data)-1]), http.StatusBadRequest},
		{"/chunks?partition=0", string(data) + "x", http.StatusBadRequest},
		{"/chunks?partition=0", "x", http.StatusBadRequest},
		{"/commit", "x", http.StatusBadRequest},
	} {
		if code, _, a := post(t.Context(), path+c.path, c.body); code != c.code {
			t.Errorf("%s of %d bytes: %d %+v", c.path, len(c.body), code, a)
		}
	}
	if !s.room.TryAcquire(roomMost) {
		t.Error("room was not given back")
	}
}

// timed notes the deadlines of a connection.
type timed struct {
	*httptest.ResponseRecorder
	deadlines []time.Time
}

func (w *timed) SetReadDeadline(at time.Time) error {
	w.deadlines = append(w.deadlines, at)
	return nil
}

// A slow link makes progress: the more of a body has come, the later its deadline.
func TestTheDeadlineOfABodyFollowsWhatHasCome(t *testing.T) {
	w := &timed{ResponseRecorder: httptest.NewRecorder()}
	text := strings.Repeat("x", 3*bodyRate+100)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", io.MultiReader(strings.NewReader(text[:bodyRate+1]), strings.NewReader(text[bodyRate+1:])))
	r = r.WithContext(context.WithValue(r.Context(), controlKey{}, http.NewResponseController(w)))
	data, err := body(r, make([]byte, 0, len(text)+1))
	if err != nil || string(data) != text {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	var more []time.Duration
	for _, at := range w.deadlines[:len(w.deadlines)-1] {
		more = append(more, at.Sub(w.deadlines[0]))
	}
	if !slices.Equal(more, []time.Duration{0, time.Second, 3 * time.Second}) || !w.deadlines[len(w.deadlines)-1].IsZero() {
		t.Errorf("after the first one: %v", more)
	}
}

// A body that holds room has a deadline. The work after the body has none, because a large commit
// takes longer.
func TestABodyThatHoldsRoomHasADeadline(t *testing.T) {
	s := start(t)
	for _, page := range []string{"chunks?partition=0", "commit"} {
		body := string(lines("a"))
		if page == "commit" {
			body = `{"locators": []}`
		}
		m := http.NewServeMux()
		for pattern, h := range s.Pages() {
			m.Handle(pattern, h)
		}
		w := &timed{ResponseRecorder: httptest.NewRecorder()}
		m.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/datasets/clicks/transactions/t/"+page, strings.NewReader(body)))
		if len(w.deadlines) != 2 || w.deadlines[0].IsZero() || !w.deadlines[1].IsZero() {
			t.Errorf("%s: %d %s: deadlines %v", page, w.Code, w.Body, w.deadlines)
		}
	}
}

// puts is a store that says when something is put.
type puts struct {
	storage.Store
	put func()
}

func (p puts) Put(ctx context.Context, key string, data []byte) error {
	p.put()
	return p.Store.Put(ctx, key, data)
}

// The chunks of a call hold room until the last one has come, so they have one deadline. When they
// are stored there is none.
func TestTheChunksOfACallHaveOneDeadline(t *testing.T) {
	s := start(t)
	var last []NewChunk
	for range 3 {
		last = append(last, NewChunk{0, lines(noise(100))}) // more than bodyRate each
	}
	path, text := oneCall(t, "t", nil, last...)
	m := http.NewServeMux()
	for pattern, h := range s.Pages() {
		m.Handle(pattern, h)
	}
	w := &timed{ResponseRecorder: httptest.NewRecorder()}
	s.store = puts{s.store, func() {
		if !w.deadlines[len(w.deadlines)-1].IsZero() {
			t.Error("a chunk is stored while the body has a deadline")
		}
	}}
	m.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(text)))
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	bodies := w.deadlines[2:] // after those of the JSON
	came := 0
	for _, c := range last {
		came += len(c.Data) - chunk.HeaderSize
	}
	if most, want := bodies[len(bodies)-2].Sub(bodies[0]), time.Duration(came/bodyRate)*time.Second; most != want || !w.deadlines[1].IsZero() || !bodies[len(bodies)-1].IsZero() {
		t.Errorf("%v after the first one, and %d bytes have come: want %v. All: %v", most, came, want, w.deadlines)
	}
}

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

// read counts the bytes that are read of a body.
type read struct {
	io.Reader
	bytes int
}

func (r *read) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.bytes += n
	return n, err
}

// leaves is a store whose caller goes away as soon as the call has read its stream's name. The call
// waits for room then.
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
		t.Errorf("without room, Stage got %v", err)
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
			t.Errorf("%s with a body of %d bytes answered %d %+v, want %d", c.path, len(c.body), code, a, c.code)
		}
	}
	if !s.room.TryAcquire(roomMost) {
		t.Error("the calls have ended, but not all room was given back")
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

// A body over a slow link is not cut off: the more of it has come, the later its deadline is.
func TestTheDeadlineOfABodyFollowsWhatHasCome(t *testing.T) {
	w := &timed{ResponseRecorder: httptest.NewRecorder()}
	text := strings.Repeat("x", 3*bodyRate+100)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", io.MultiReader(strings.NewReader(text[:bodyRate+1]), strings.NewReader(text[bodyRate+1:])))
	r = r.WithContext(context.WithValue(r.Context(), controlKey{}, http.NewResponseController(w)))
	data, err := body(r, make([]byte, 0, len(text)+1))
	if err != nil || string(data) != text {
		t.Fatalf("%d of %d bytes were read: %v", len(data), len(text), err)
	}
	var more []time.Duration
	for _, at := range w.deadlines[:len(w.deadlines)-1] {
		more = append(more, at.Sub(w.deadlines[0]))
	}
	if !slices.Equal(more, []time.Duration{0, time.Second, 3 * time.Second}) || !w.deadlines[len(w.deadlines)-1].IsZero() {
		t.Errorf("after the first deadline the others come by %v, want 0, 1s, 3s, and then none", more)
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
			t.Errorf("%s answered %d %s with the deadlines %v, want one and then none", page, w.Code, w.Body, w.deadlines)
		}
	}
}

// A body of lines may take any time, but it may not stop for long: each read has a deadline of its own.
func TestABodyOfLinesMayNotStop(t *testing.T) {
	s := start(t)
	m := http.NewServeMux()
	for pattern, h := range s.Pages() {
		m.Handle(pattern, h)
	}
	w := &timed{ResponseRecorder: httptest.NewRecorder()}
	body := io.MultiReader(strings.NewReader("a\n"), strings.NewReader("b\n"))
	m.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/datasets/clicks/transactions/t/records", body))
	if w.Code != http.StatusOK || len(w.deadlines) < 4 {
		t.Fatalf("the answer is %d %s, after the deadlines %v", w.Code, w.Body, w.deadlines)
	}
	for i, at := range w.deadlines {
		if at.IsZero() != (i%2 == 1) {
			t.Errorf("the deadlines are %v, want one for each read and none after it", w.deadlines)
		}
	}
}

// puts is a store that calls put before each put.
type puts struct {
	storage.Store
	put func()
}

func (p puts) Put(ctx context.Context, key string, data []byte) error {
	p.put()
	return p.Store.Put(ctx, key, data)
}

// The chunks of a call hold room until the last one has come, so they have one common deadline. While
// they are stored, there is no deadline.
func TestTheChunksOfACallHaveOneDeadline(t *testing.T) {
	s := start(t)
	var last []NewChunk
	for range 3 {
		last = append(last, NewChunk{0, lines(noise(100))}) // each has more than bodyRate bytes
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
	bodies := w.deadlines[2:] // the first two are those of the JSON
	came := 0
	for _, c := range last {
		came += len(c.Data) - chunk.HeaderSize
	}
	if most, want := bodies[len(bodies)-2].Sub(bodies[0]), time.Duration(came/bodyRate)*time.Second; most != want || !w.deadlines[1].IsZero() || !bodies[len(bodies)-1].IsZero() {
		t.Errorf("%d bytes have come, and the last deadline is %v after the first one, want %v; all deadlines are %v", came, most, want, w.deadlines)
	}
}

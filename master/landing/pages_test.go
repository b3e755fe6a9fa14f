package landing

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/internal/store/memstore"
)

func (s *Service) post(t *testing.T, path, key, body string) (int, answer) {
	t.Helper()
	return s.request(t, http.MethodPost, path, key, body)
}

func (s *Service) request(t *testing.T, method, path, key, body string) (int, answer) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	return s.serve(t, r)
}

func (s *Service) serve(t *testing.T, r *http.Request) (int, answer) {
	t.Helper()
	m := http.NewServeMux()
	for pattern, h := range s.Pages() {
		m.Handle(pattern, h)
	}
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	var a answer
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
		t.Fatalf("%s answered %d with a body that is not JSON: %q", r.URL, w.Code, w.Body)
	}
	return w.Code, a
}

// A program that sends a file before anything was written to it sends the whole file later.
func TestARequestWithoutRecordsTakesNoKey(t *testing.T) {
	s := start(t)
	for _, empty := range []string{"", "\n\r\n"} {
		if code, a := s.post(t, "/v1/datasets/clicks/records", "k", empty); code != http.StatusOK || a.Records != 0 || a.Already {
			t.Fatalf("%q: %d %+v", empty, code, a)
		}
	}
	if code, a := s.post(t, "/v1/datasets/clicks/records", "k", "a\nb"); code != http.StatusOK || a.Records != 2 || a.Already {
		t.Fatalf("%d %+v", code, a)
	}
}

func TestARequestWithTheSameKeyLandsOnce(t *testing.T) {
	s := start(t)
	for again := range 3 {
		code, a := s.post(t, "/v1/datasets/clicks/records", "k", "a\nb\r\n\nc")
		if code != http.StatusOK || a.Records != 3 || a.Already != (again > 0) {
			t.Fatalf("%d %+v", code, a)
		}
	}
	if n := s.held(t); n != 1 {
		t.Errorf("%d chunks are stored, want 1", n)
	}
	for _, c := range []struct {
		path, key string
		code      int
	}{
		{"/v1/datasets/clicks/records", "", http.StatusBadRequest},
		{"/v1/datasets/nothere/records", "k", http.StatusNotFound},
		{"/v1/datasets/clicks/end", "", http.StatusConflict},
	} {
		if code, a := s.post(t, c.path, c.key, "x"); code != c.code || a.Error == "" {
			t.Errorf("the request %+v got %d %+v", c, code, a)
		}
	}
}

// A caller that sends all of its body before it reads gets an answer, also if the body is not needed.
func TestACallerThatSendsAllBeforeItReadsGetsItsAnswer(t *testing.T) {
	s := start(t)
	if code, a := s.post(t, "/v1/datasets/clicks/records", "k", "a"); code != http.StatusOK {
		t.Fatalf("%d %+v", code, a)
	}
	m := http.NewServeMux()
	for pattern, h := range s.Pages() {
		m.Handle(pattern, h)
	}
	server := httptest.NewServer(m)
	defer server.Close()
	body := bytes.Repeat([]byte("a line\n"), 32<<20/7) // more than a connection holds
	for _, c := range []struct {
		path    string
		code    int
		already bool
	}{
		{"/v1/datasets/clicks/records", http.StatusOK, true},
		{"/v1/datasets/nothere/records", http.StatusNotFound, false},
		{"/v1/datasets/clicks/transactions/t/chunks?partition=99", http.StatusBadRequest, false},
	} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: master\r\nIdempotency-Key: k\r\nContent-Length: %d\r\n\r\n", c.path, len(body))
		if _, err := conn.Write(body); err != nil {
			t.Errorf("%s: the connection was ended while the body was sent: %v", c.path, err)
			continue
		}
		reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		var a answer
		if err := json.NewDecoder(reply.Body).Decode(&a); err != nil {
			t.Fatal(err)
		}
		if reply.StatusCode != c.code || a.Already != c.already || reply.Close {
			t.Errorf("%s answered %d %+v, and the connection ends: %t", c.path, reply.StatusCode, a, reply.Close)
		}
	}
}

// look is a part of a body that has no bytes. Its function is called when it is read.
type look func()

func (l look) Read([]byte) (int, error) { l(); return 0, io.EOF }

func TestLinesThatWaitForTheirChunksTakeBoundedMemory(t *testing.T) {
	s := start(t)
	s.gather = 1000 // bytes; a chunk has a MiB
	for _, c := range []struct {
		others int64 // bodies that are being read at the same time
		chunks int
	}{{0, 2}, {1, 4}, {9, 20}} {
		s.bodies.Store(c.others)
		before, stored := s.held(t), 0
		lines := strings.Repeat(strings.Repeat("x", 99)+"\n", 20) // a line is a record of 101 bytes
		body := io.MultiReader(strings.NewReader(lines), look(func() { stored = s.held(t) - before }))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/datasets/clicks/records", body)
		r.Header.Set("Idempotency-Key", fmt.Sprint(c.others))
		if code, a := s.serve(t, r); code != http.StatusOK || a.Records != 20 {
			t.Fatalf("%d %+v", code, a)
		}
		if stored != c.chunks {
			t.Errorf("beside %d other bodies, %d chunks were stored before the body ended, want %d", c.others, stored, c.chunks)
		}
		if n := s.bodies.Load(); n != c.others {
			t.Errorf("%d bodies are counted after the request, want %d", n, c.others)
		}
	}
}

func TestABodyThatIsNotPlainLinesIsRefused(t *testing.T) {
	s := start(t)
	for _, page := range []string{"records", "transactions/t/records"} {
		for _, c := range []struct {
			header, value string
			code          int
		}{
			{"Content-Encoding", "gzip", http.StatusBadRequest},
			{"Content-Type", "multipart/form-data; boundary=x", http.StatusBadRequest},
			{"Content-Encoding", "Identity", http.StatusOK},
			{"Content-Type", "application/x-www-form-urlencoded", http.StatusOK}, // curl --data-binary
		} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/datasets/clicks/"+page, strings.NewReader("a\nb"))
			r.Header.Set("Idempotency-Key", c.value)
			r.Header.Set(c.header, c.value)
			before := s.held(t)
			code, a := s.serve(t, r)
			if code != c.code || (code == http.StatusOK) != (s.held(t) > before) || code != http.StatusOK && !strings.Contains(a.Error, c.value) {
				t.Errorf("%s with %s: %s: %d %+v", page, c.header, c.value, code, a)
			}
		}
	}
}

func TestATransactionOfSeveralRequestsLandsWithItsCommit(t *testing.T) {
	s := start(t)
	var all []string
	for range 2 {
		code, a := s.post(t, "/v1/datasets/clicks/transactions/t1/records", "", "a\nb")
		if code != http.StatusOK || len(a.Locators) != 1 || a.Records != 2 {
			t.Fatalf("%d %+v", code, a)
		}
		all = append(all, a.Locators...)
	}
	body, err := json.Marshal(map[string]any{"locators": all})
	if err != nil {
		t.Fatal(err)
	}
	for again := range 2 {
		code, a := s.post(t, "/v1/datasets/clicks/transactions/t1/commit", "", string(body))
		if code != http.StatusOK || a.Records != 4 || a.Already != (again > 0) {
			t.Fatalf("%d %+v", code, a)
		}
	}
	if code, a := s.post(t, "/v1/datasets/clicks/transactions/t2/commit", "", string(body)); code != http.StatusConflict {
		t.Errorf("the commit by another transaction got %d %+v, want a refusal", code, a)
	}
}

func TestAChunkOfAnotherLanguageLandsOverHTTP(t *testing.T) {
	s := start(t)
	var b chunk.Builder
	b.Add(chunk.Record{Key: []byte("k"), Value: []byte("v")})
	const path = "/v1/datasets/clicks/transactions/a%2F1"
	code, a := s.post(t, path+"/chunks?partition=0", "", string(b.Chunk()))
	if code != http.StatusOK || a.Records != 1 || len(a.Locators) != 1 || a.Transaction != "a/1" {
		t.Fatalf("%d %+v", code, a)
	}
	if code, a := s.request(t, http.MethodGet, path, "", ""); code != http.StatusOK || a.Already {
		t.Errorf("before the commit, the transaction's page answered %d %+v", code, a)
	}
	body, err := json.Marshal(map[string]any{"locators": a.Locators})
	if err != nil {
		t.Fatal(err)
	}
	if code, a := s.post(t, path+"/commit", "", string(body)); code != http.StatusOK || a.Already || a.Records != 1 {
		t.Errorf("%d %+v", code, a)
	}
	if code, a := s.request(t, http.MethodGet, path, "", ""); code != http.StatusOK || !a.Already || a.Records != 1 {
		t.Errorf("after the commit, the transaction's page answered %d %+v", code, a)
	}
	if code, a := s.request(t, http.MethodGet, "/v1/datasets/clicks/layout", "", ""); code != http.StatusOK || a.Layout == nil || a.Layout.Partitions < 1 || a.Layout.ChunkBytes < 1 || a.Layout.MaxRecord < 1 {
		t.Errorf("the layout page answered %d %+v", code, a)
	}
	damaged := b.Chunk()
	damaged[len(damaged)-1] ^= 1
	for _, c := range []struct {
		path, body string
		code       int
	}{
		{path + "/chunks", string(b.Chunk()), http.StatusBadRequest},
		{path + "/chunks?partition=99", string(b.Chunk()), http.StatusBadRequest},
		{path + "/chunks?partition=0", string(damaged), http.StatusBadRequest},
		{"/v1/datasets/clicks/transactions/" + strings.Repeat("x", 201) + "/chunks?partition=0", string(b.Chunk()), http.StatusBadRequest},
		{"/v1/datasets/nothere/transactions/a/chunks?partition=0", string(b.Chunk()), http.StatusNotFound},
	} {
		if code, a := s.post(t, c.path, "", c.body); code != c.code || a.Error == "" {
			t.Errorf("%.60s answered %d %+v, want %d", c.path, code, a, c.code)
		}
	}
}

// noise returns lines that cannot be compressed.
func noise(lines int) string {
	var b strings.Builder
	for range lines {
		for range 40 {
			b.WriteString(rand.Text())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// A request that fails leaves no chunks. So a producer that sends it again and again does not fill the
// dataset.
func TestARequestThatFailsLeavesNoChunks(t *testing.T) {
	text := strings.Replace(spec, "max_bytes: 1MiB", "max_bytes: 1MiB, chunk: 64KiB, max_record: 100KiB", 1)
	some, much := noise(300), noise(3000)
	as := func(s storage.Store) storage.Store { return s }
	busy := func(s storage.Store) storage.Store {
		return &failing{Store: s, times: 1, err: fmt.Errorf("%w: 503", storage.ErrPassing)}
	}
	lost := func(s storage.Store) storage.Store { return &unheard{Store: s, times: 1} }
	const records, stage = "/v1/datasets/clicks/records", "/v1/datasets/clicks/transactions/k/records"
	for _, c := range []struct {
		what, path, body string
		end              error // the body ends with it
		store            func(storage.Store) storage.Store
		code             int
	}{
		{"too much", records, much, io.EOF, as, http.StatusTooManyRequests},
		{"too much", stage, much, io.EOF, as, http.StatusTooManyRequests},
		{"a long line", records, some + strings.Repeat("x", 200<<10), io.EOF, as, http.StatusBadRequest},
		{"a body cut off", stage, some, io.ErrUnexpectedEOF, as, http.StatusServiceUnavailable},
		{"a commit that fails", records, some, io.EOF, busy, http.StatusServiceUnavailable},
		{"a deletion that fails", records, much, io.EOF, lost, http.StatusTooManyRequests},
	} {
		s, _ := life(t, memstore.New(), c.store(folder(t)), text)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, c.path, io.MultiReader(strings.NewReader(c.body), iotest.ErrReader(c.end)))
		r.Header.Set("Idempotency-Key", "k")
		if code, a := s.serve(t, r); code != c.code {
			t.Fatalf("%s: got %d %+v, want %d", c.what, code, a, c.code)
		}
		if err := s.clean(t.Context()); err != nil { // deletes the chunks that the request could not delete
			t.Fatal(err)
		}
		if l, err := s.Layout(t.Context(), "clicks"); err != nil || l.Stored != 0 || s.held(t) != 0 {
			t.Errorf("%s: %d chunks are left, %d bytes are counted, %v", c.what, s.held(t), l.Stored, err)
		}
	}
}

// leftThenBusy is a store whose caller goes away while the commit looks at a chunk. When the test lets
// the look go on, the store says that it is busy.
type leftThenBusy struct {
	storage.Store
	leave func()
	let   chan struct{}
}

func (b leftThenBusy) Stat(context.Context, string) (storage.Object, error) {
	b.leave()
	<-b.let
	return storage.Object{}, storage.ErrPassing
}

// The caller of a request goes away during the commit, and then the commit fails. No chunks are left.
func TestARequestThatFailsAfterItsCallerHasGoneLeavesNoChunks(t *testing.T) {
	s := start(t)
	plain, let := s.store, make(chan struct{})
	ctx, leave := context.WithCancel(t.Context())
	s.store = leftThenBusy{plain, leave, let}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/datasets/clicks/records", strings.NewReader("a\nb"))
	r.Header.Set("Idempotency-Key", "k")
	if code, a := s.serve(t, r); code != http.StatusServiceUnavailable || s.held(t) != 1 {
		t.Fatalf("the request whose caller went away got %d %+v, and %d chunks are stored, want 503 and 1", code, a, s.held(t))
	}
	close(let)
	p, err := s.place(t.Context(), "clicks")
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.account(t.Context(), p.stream)
	if err != nil {
		t.Fatal(err)
	}
	ended, err := s.turn(t.Context(), a, "k") // waits until the commit of k has ended
	if err != nil {
		t.Fatal(err)
	}
	ended()
	if l, err := s.Layout(t.Context(), "clicks"); err != nil || l.Stored != 0 || s.held(t) != 0 {
		t.Errorf("%d chunks are left, %d bytes are counted, %v", s.held(t), l.Stored, err)
	}
}

func TestAnIDThatIsNoTextIsRefused(t *testing.T) {
	s := start(t)
	for _, c := range []struct{ path, key string }{
		{"/v1/datasets/clicks/records", "id-\xff"},
		{"/v1/datasets/clicks/transactions/id-%ff/records", ""},
		{"/v1/datasets/clicks/transactions/id-%ff/commit", ""},
	} {
		if code, a := s.post(t, c.path, c.key, `{"locators": []}`); code != http.StatusBadRequest || !strings.Contains(a.Error, `"id-\xff" is not UTF-8`) {
			t.Errorf("the request %+v got %d %+v", c, code, a)
		}
	}
	if code, a := s.post(t, "/v1/datasets/clicks/records", "заказ-1", "a"); code != http.StatusOK {
		t.Errorf("%d %+v", code, a)
	}
}

package registry

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headrace/headrace/sources"
)

// shelf is a registry with Confluent's HTTP interface.
type shelf struct {
	asked   atomic.Int64
	answers map[string]any // by path
	status  int            // the status of every answer, if it is set
	login   string
	hold    chan struct{} // if set, answers wait until it is closed
}

func (s *shelf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked.Add(1)
	if s.hold != nil {
		<-s.hold
	}
	w.Header().Set("Content-Type", "application/vnd.schemaregistry.v1+json")
	if s.login != "" && r.Header.Get("Authorization") != s.login {
		w.WriteHeader(http.StatusUnauthorized)
		_ = json.NewEncoder(w).Encode(map[string]any{"error_code": 40101, "message": "Unauthorized"})
		return
	}
	a, ok := s.answers[r.URL.Path]
	switch {
	case s.status != 0:
		w.WriteHeader(s.status)
	case !ok:
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(map[string]any{"error_code": 40403, "message": "Schema not found"})
	default:
		_ = json.NewEncoder(w).Encode(a)
	}
}

func open(t *testing.T, s *shelf, c Config) *Registry {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	c.URL = server.URL
	return New(c, slog.New(slog.DiscardHandler))
}

func TestEachIDIsAskedForOnceInAProcess(t *testing.T) {
	s := &shelf{answers: map[string]any{"/schemas/ids/7": map[string]any{"schema": `"string"`}}, hold: make(chan struct{})}
	r := open(t, s, Config{})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := r.Learn(t.Context(), 7); err != nil {
				t.Error(err)
			}
		})
	}
	close(s.hold)
	all.Wait()
	if err := r.Learn(t.Context(), 7); err != nil {
		t.Error(err)
	}
	if n := s.asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	if got, err := r.Schema(7); err != nil || got.Avro == nil {
		t.Error(got, err)
	}
}

// Two callers look for the same id. The second one begins when the first one already has its answer.
func TestWhoComesWhenTheAnswerIsThereDoesNotAskAgain(t *testing.T) {
	s := &shelf{answers: map[string]any{"/schemas/ids/7": map[string]any{"schema": `"string"`}}}
	r := open(t, s, Config{})
	for range 2 {
		if _, err := r.ask(t.Context(), 7); err != nil {
			t.Error(err)
		}
	}
	if n := s.asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func TestWhoLeavesDoesNotTakeTheAnswerFromOthers(t *testing.T) {
	s := &shelf{answers: map[string]any{"/schemas/ids/7": map[string]any{"schema": `"string"`}}, hold: make(chan struct{})}
	r := open(t, s, Config{})
	leaving, leave := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- r.Learn(leaving, 7) }()
	leave()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("got the error %v, want %v", err, context.Canceled)
	}
	go func() { second <- r.Learn(t.Context(), 7) }()
	close(s.hold)
	if err := <-second; err != nil {
		t.Error(err)
	}
}

func TestAnswersOfARegistry(t *testing.T) {
	avro := map[string]any{"schema": `{"type":"record","name":"A","fields":[{"name":"x","type":"B"}]}`,
		"references": []any{map[string]any{"name": "B", "subject": "b value", "version": 3}}}
	s := &shelf{answers: map[string]any{
		"/schemas/ids/1": avro, "/subjects/b value/versions/3": map[string]any{"schema": `{"type":"enum","name":"B","symbols":["X"]}`},
		"/schemas/ids/2": map[string]any{"schema": "{}", "schemaType": "JSON"},
		"/schemas/ids/3": map[string]any{"schema": "not json"},
		"/schemas/ids/4": map[string]any{"hello": "world"},
		"/schemas/ids/5": map[string]any{"schema": `"B"`, "references": []any{map[string]any{"name": "B", "subject": "gone", "version": 1}}},
	}}
	r := open(t, s, Config{})
	for id, want := range map[uint32]string{1: "", 2: "only Avro and Protobuf are read", 3: "is not JSON", 5: "it refers to B: is not in the registry", 6: "is not in the registry: schema registry http"} {
		if err := r.Learn(t.Context(), id); err != nil {
			t.Errorf("%d: %v", id, err)
			continue
		}
		got, err := r.Schema(id)
		if want == "" && (err != nil || got.Avro.Fields[0].Type.Symbols[0] != "X") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d: %v, %v", id, got, err)
		}
	}
	if err := r.Learn(t.Context(), 4); err == nil || !strings.Contains(err.Error(), "is this the address of a registry") {
		t.Errorf("got the error %v, want one with %q", err, "is this the address of a registry")
	}
}

func TestARegistryThatIsAwayIsTemporaryAndOneThatRefusesIsNot(t *testing.T) {
	for status, temporary := range map[int]bool{500: true, 503: true, 429: true, 403: false, 401: false, 302: false, 400: false, 404: false} {
		s := &shelf{status: status}
		r := open(t, s, Config{})
		for range 3 {
			err := r.Learn(t.Context(), 1)
			got, ok := errors.AsType[*sources.Temporary](err)
			if err == nil || ok != temporary || !strings.Contains(err.Error(), fmt.Sprintf("answers %d to schemas/ids/1", status)) {
				t.Errorf("%d: %v", status, err)
			}
			if ok && got.Backoff <= 0 {
				t.Errorf("%d: the registry is asked again at once", status)
			}
		}
		if s.asked.Load() != 3 {
			t.Errorf("%d: asked %d times", status, s.asked.Load())
		}
		s.status, s.answers = 0, map[string]any{"/schemas/ids/1": map[string]any{"schema": `"string"`}}
		if err := r.Learn(t.Context(), 1); err != nil {
			t.Errorf("after %d: %v", status, err)
		}
	}
	r := open(t, &shelf{}, Config{})
	server := r.client.config.URL
	r.client.config.URL = "http://127.0.0.1:1"
	err := r.Learn(t.Context(), 1)
	if _, ok := errors.AsType[*sources.Temporary](err); !ok || !strings.Contains(err.Error(), "http://127.0.0.1:1 does not answer") {
		t.Error(server, err)
	}
}

func TestALoginIsSentAndNeverShown(t *testing.T) {
	s := &shelf{login: "Bearer very secret"}
	secret := func() (string, error) { return "very secret", nil }
	r := open(t, s, Config{Token: secret})
	if err := r.Learn(t.Context(), 1); err != nil {
		t.Error(err)
	}
	s.login = "another"
	r = open(t, s, Config{User: "trainer", Password: secret})
	err := r.Learn(t.Context(), 1)
	if err == nil || strings.Contains(err.Error(), "very secret") || !strings.Contains(err.Error(), "answers 401") || !strings.Contains(err.Error(), "Give its connection a login") {
		t.Error(err)
	}
}

func TestALoginIsReadAgainForEachRequest(t *testing.T) {
	s := &shelf{login: "Bearer first"}
	token, missing := "first", error(nil)
	r := open(t, s, Config{Token: func() (string, error) { return token, missing }})
	if err := r.Learn(t.Context(), 1); err != nil {
		t.Error(err)
	}
	s.login, missing = "Bearer second", errors.New("no such file")
	if _, ok := errors.AsType[*sources.Temporary](r.Learn(t.Context(), 2)); !ok {
		t.Error("while the token is replaced, records do not wait")
	}
	token, missing = "second", nil
	if err := r.Learn(t.Context(), 2); err != nil {
		t.Error(err)
	}
}

func TestWhatIsKeptIsBounded(t *testing.T) {
	r := New(Config{}, slog.New(slog.DiscardHandler))
	r.mu.Lock()
	for id := range uint32(maxKnown + 10) {
		r.keep(id, &known{size: 1})
		r.use(r.known[0]) // id 0 is used again and again, so it stays
	}
	n, first, second := len(r.known), r.known[0], r.known[1]
	r.keep(9_999_999, &known{size: maxBytes})
	bytes := r.bytes
	r.mu.Unlock()
	if n != maxKnown || first == nil || second != nil || bytes > maxBytes {
		t.Errorf("%d known, %v, %v, %d bytes", n, first, second, bytes)
	}
	if _, err := r.Schema(1); err == nil {
		t.Error("a forgotten schema is still known")
	} else if _, ok := errors.AsType[*sources.Temporary](err); !ok {
		t.Error(err)
	}
}

// given is a source with one batch.
type given struct {
	sources.Source
	batch sources.Batch
	opens int
}

func (g *given) Open(context.Context, sources.Range, sources.Position, []byte) (sources.Cursor, error) {
	g.opens++
	return &once{batch: &g.batch}, nil
}

type once struct {
	batch *sources.Batch
	done  bool
}

func (o *once) Next(_ context.Context, b *sources.Batch) error {
	if o.done {
		return io.EOF
	}
	o.done = true
	*b = *o.batch
	return nil
}

func (o *once) Close() error { return nil }

func TestABatchComesOnlyWithItsSchemas(t *testing.T) {
	s := &shelf{status: 503, answers: map[string]any{"/schemas/ids/1": map[string]any{"schema": `"string"`}, "/schemas/ids/258": map[string]any{"schema": `"long"`}}}
	r := open(t, s, Config{})
	src := &given{batch: sources.Batch{Arena: []byte("\x00\x00\x00\x00\x01a\x00\x00\x00\x01\x02b\x05junk!\x00"), Recs: []sources.Record{
		{Value: [2]int32{0, 6}}, {Value: [2]int32{6, 12}}, {Value: [2]int32{12, 18}}, {Value: [2]int32{18, 19}}}}}
	read := Reading(src, r)
	next := func() error {
		c, err := read.Open(t.Context(), sources.Range{}, sources.Position{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return c.Next(t.Context(), &sources.Batch{})
	}
	if _, ok := errors.AsType[*sources.Temporary](next()); !ok {
		t.Error("a batch came before its schemas")
	}
	s.status = 0
	if err := next(); err != nil {
		t.Fatal(err)
	}
	for _, id := range []uint32{1, 258} {
		if _, err := r.Schema(id); err != nil {
			t.Error(id, err)
		}
	}
	if s.asked.Load() != 3 {
		t.Errorf("asked %d times", s.asked.Load())
	}
}

// naming reads a source with one batch, whose records name these ids, part by part.
func naming(t *testing.T, r *Registry, ids []uint32, part func(b *sources.Batch)) {
	t.Helper()
	src := &given{}
	for i, id := range ids {
		at := int32(len(src.batch.Arena))
		src.batch.Arena = binary.BigEndian.AppendUint32(append(src.batch.Arena, 0), id)
		src.batch.Recs = append(src.batch.Recs, sources.Record{Offset: int64(i), Next: int64(i) + 1, Value: [2]int32{at, at + 5}})
	}
	src.batch.End = int64(len(ids)) + 100
	c, err := Reading(src, r).Open(t.Context(), sources.Range{}, sources.Position{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	at, end := 0, int64(0)
	var b sources.Batch
	for {
		if err := c.Next(t.Context(), &b); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for i, rec := range b.Recs {
			if int(rec.Offset) != at || binary.BigEndian.Uint32(b.Arena[rec.Value[0]+1:]) != ids[at] {
				t.Fatalf("record %d of a part has offset %d, want %d", i, rec.Offset, at)
			}
			at++
		}
		if end = b.End; at < len(ids) && end != int64(at) {
			t.Fatalf("a part ends at %d, but its records end at %d", end, at)
		}
		part(&b)
	}
	if at != len(ids) || end != src.batch.End {
		t.Fatalf("%d records of %d", at, len(ids))
	}
}

// When an agent starts, records with many unknown ids may come before the first record with a known schema. Each
// id was asked for before its record comes.
func TestNoRecordComesBeforeItsIDWasAskedFor(t *testing.T) {
	s := &shelf{answers: map[string]any{"/schemas/ids/7": map[string]any{"schema": `"string"`}}}
	r := open(t, s, Config{})
	var ids []uint32
	for i := range uint32(maxUnknown) {
		ids = append(ids, 1_000_000+i)
	}
	for i := range uint32(3 * maxUnknown) {
		ids = append(ids, 7, 7, 2_000_000+i)
	}
	asked := int64(0)
	naming(t, r, ids, func(b *sources.Batch) {
		if n := s.asked.Load() - asked; n > maxUnknown+1 {
			t.Errorf("%d requests for one part", n)
		}
		asked = s.asked.Load()
		for _, rec := range b.Recs {
			id := ids[rec.Offset]
			_, err := r.Schema(id)
			if id == 7 && err != nil || id != 7 && (err == nil || !strings.Contains(err.Error(), "is not in the registry")) {
				t.Fatalf("record %d: id %d: %v", rec.Offset, id, err)
			}
		}
	})
	if asked != 1+4*maxUnknown {
		t.Errorf("asked %d times", asked)
	}
}

// Values that begin with a byte 0, but are not in the wire format, seem to name any number of ids. Ids that the
// registry does not know do not take the place of schemas, and do not fill the memory.
func TestIDsThatAreNotKnownAreBounded(t *testing.T) {
	s := &shelf{answers: map[string]any{"/schemas/ids/1": map[string]any{"schema": `"string"`}}}
	r := open(t, s, Config{})
	if err := r.Learn(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	for id := range uint32(maxMissing + 5000) {
		r.miss(1_000_000+id, missing{err: errors.New("unknown"), until: time.Now().Add(askAgainIn)})
	}
	r.mu.Unlock()
	if len(r.missing) != maxMissing || len(r.known) != 1 {
		t.Errorf("%d missing, %d known", len(r.missing), len(r.known))
	}
	if err := r.Learn(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Schema(7); err == nil || !strings.Contains(err.Error(), "is not in the registry") {
		t.Errorf("got the error %v, want one with %q", err, "is not in the registry")
	}
	_, err := r.Schema(9) // nobody has asked for it
	if _, ok := errors.AsType[*sources.Temporary](err); !ok {
		t.Error(err)
	}
}

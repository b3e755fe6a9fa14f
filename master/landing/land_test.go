package landing

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/internal/store/memstore"
	"github.com/headrace/headrace/shardsvc/serve"
)

// oneCall returns the path and body of a call over HTTP that lands a whole transaction.
func oneCall(t *testing.T, transaction string, locators []string, last ...NewChunk) (path, body string) {
	t.Helper()
	parts, heads, bodies := []int{}, "", ""
	for _, c := range last {
		parts = append(parts, c.Partition)
		heads += string(c.Data[:chunk.HeaderSize])
		bodies += string(c.Data[chunk.HeaderSize:])
	}
	text, err := json.Marshal(map[string]any{"locators": locators, "partitions": parts})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("/v1/datasets/clicks/transactions/%s/land?head=%d", transaction, len(text)), string(text) + heads + bodies
}

// shown returns the values of all visible records of a partition, in order.
func (s *Service) shown(t *testing.T, partition int) (values []string) {
	t.Helper()
	_, all, err := s.Visible(t.Context(), "clicks", partition, -1, mostListed)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range all {
		l, _, err := chunk.ParseLocator(string(g.Locator))
		if err != nil {
			t.Fatal(err)
		}
		b, err := s.store.Get(t.Context(), l.Key, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		o, err := chunk.Open(b)
		if err != nil {
			t.Fatal(err)
		}
		for i := range o.Records {
			values = append(values, string(o.Record(i).Value))
		}
	}
	return values
}

// The chunks of the call follow those that were staged before. A repeated call stores nothing.
func TestATransactionLandsInOneCall(t *testing.T) {
	for _, way := range []string{"gRPC", "HTTP"} {
		t.Run(way, func(t *testing.T) {
			s := start(t)
			land := func(transaction string, locators []string, last ...NewChunk) (already bool, records int64) {
				t.Helper()
				if way == "HTTP" {
					path, body := oneCall(t, transaction, locators, last...)
					code, a := s.post(t, path, "", body)
					if code != http.StatusOK {
						t.Fatalf("the call of transaction %s got %d %+v", transaction, code, a)
					}
					return a.Already, a.Records
				}
				req := &headracev1.LandRequest{Dataset: "clicks", Transaction: transaction, Locators: locators}
				for _, c := range last {
					req.Chunks = append(req.Chunks, &headracev1.NewChunk{Partition: uint32(c.Partition), Chunk: c.Data})
				}
				reply, err := (&calls{s: s}).Land(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				return reply.Already, reply.Records
			}
			first := s.staged(t, "t", 1, lines("1", "2"))
			for again := range 3 {
				already, records := land("t", []string{first}, NewChunk{0, lines("a")}, NewChunk{1, lines("3", "4", "5")})
				if already != (again > 0) || records != 6 {
					t.Fatalf("call %d: already %v, %d records; want %v, 6", again, already, records, again > 0)
				}
			}
			if already, records := land("alone", nil, NewChunk{1, lines("6")}); already || records != 1 {
				t.Errorf("the call without locators: already %v, %d records; want false, 1", already, records)
			}
			if got := fmt.Sprint(s.shown(t, 0), s.shown(t, 1), s.held(t)); got != "[a] [1 2 3 4 5 6] 4" {
				t.Errorf("visible records by partition, and the number of chunks: %s", got)
			}
			if done, err := s.Commit(t.Context(), "clicks", "alone", nil); err != nil || !done.Already || done.Records != 1 {
				t.Errorf("a commit of the landed transaction got %+v (%v), want already", done, err)
			}
		})
	}
}

// A call that fails leaves no chunk of its own. The chunks that its locators name stay staged.
func TestACallThatCannotLandLeavesNoChunks(t *testing.T) {
	s := start(t)
	good, damaged := lines("a"), lines("b")
	damaged[len(damaged)-1] ^= 1
	forged := strings.Replace(s.staged(t, "t", 0, lines("x")), " 1 ", " 2 ", 1)
	long := "x" + noise(400) // four chunks of it are more than max_bytes
	for _, c := range []struct {
		what, path, body string
		locators         []string
		last             []NewChunk
		code             int
	}{
		{what: "a damaged chunk", last: []NewChunk{{0, good}, {1, damaged}}, code: http.StatusBadRequest},
		{what: "no such partition", last: []NewChunk{{0, good}, {2, good}}, code: http.StatusBadRequest},
		{what: "a forged locator", locators: []string{forged}, last: []NewChunk{{0, good}, {1, good}}, code: http.StatusConflict},
		{what: "too much", last: []NewChunk{{0, lines(long)}, {0, lines(long)}, {1, lines(long)}, {1, lines(long)}}, code: http.StatusTooManyRequests},
		{what: "bytes that are no chunk", last: []NewChunk{{0, make([]byte, 50)}}, code: http.StatusBadRequest},
	} {
		path, body := oneCall(t, "t", c.locators, c.last...)
		if code, a := s.post(t, path, "", body); code != c.code || a.Error == "" {
			t.Errorf("%s: %d %+v", c.what, code, a)
		}
		if l, err := s.Layout(t.Context(), "clicks"); err != nil || s.held(t) != 1 || l.Stored != int64(len(lines("x"))) {
			t.Errorf("%s: %d chunks are stored and %d bytes are counted (%v), want only the chunk that was staged before", c.what, s.held(t), l.Stored, err)
		}
	}
	path, body := oneCall(t, "t", nil, NewChunk{0, good})
	at := strings.Index(path, "=")
	for what, c := range map[string]struct{ path, body string }{
		"no size": {path[:at-5], body}, "too large a head": {path[:at+1] + "99999999", body}, "a cut head": {path[:at+1] + "5", body},
		"a cut header": {path, body[:len(body)-len(good)+3]}, "a cut body": {path, body[:len(body)-1]}, "a longer body": {path, body + "x"},
		"no dataset": {strings.Replace(path, "clicks", "nothere", 1), body},
	} {
		if code, a := s.post(t, c.path, "", c.body); code == http.StatusOK || a.Error == "" {
			t.Errorf("%s: %d %+v", what, code, a)
		}
	}
	if got := fmt.Sprint(s.shown(t, 0), s.shown(t, 1), s.held(t)); got != "[] [] 1" {
		t.Errorf("visible, and chunks: %s", got)
	}
	if code, a := s.post(t, path, "", body); code != http.StatusOK || a.Already || a.Records != 1 {
		t.Errorf("the good call got %d %+v, want 1 record", code, a)
	}
}

// A call that is too large is refused before its chunks are unpacked. Over HTTP the chunks are not even
// read if their caller waits until it may send them. The error names the limit.
func TestTheChunksOfACallAreBounded(t *testing.T) {
	s := start(t)
	half := lines(strings.Repeat("x", landMost/2))
	hundred := lines(strings.Repeat("x", 100<<20))
	// Bodies that are larger than their records. No compression makes them, but they would take memory.
	swollen := lines("x")
	binary.LittleEndian.PutUint32(swollen[16:], landMost/2+1000)
	binary.LittleEndian.PutUint32(swollen[24:], crc32.ChecksumIEEE(swollen[:24]))
	for _, c := range []struct {
		what, says string
		last       []NewChunk
	}{
		{"records", "more than 16777216 bytes of records (land_bytes of the layout)", []NewChunk{{0, half}, {1, half}}},
		{"bodies", "more than 16777216 bytes of records (land_bytes of the layout)", []NewChunk{{0, swollen}, {1, swollen}}},
		{"a record of 100 MB", "at most 67108864 bytes", []NewChunk{{0, lines("a")}, {0, hundred}}},
		{"nothing", "the call names no chunk and has none", nil},
	} {
		if _, err := s.Land(t.Context(), "clicks", "t", nil, c.last); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.what, err)
		}
		path, text := oneCall(t, "t", nil, c.last...)
		r := &read{Reader: strings.NewReader(text)}
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, r)
		request.Header.Set("Expect", "100-continue")
		code, a := s.serve(t, request)
		head := strings.Index(text, "}") + 1 + len(c.last)*chunk.HeaderSize
		if code != http.StatusBadRequest || !strings.Contains(a.Error, c.says) || r.bytes > head {
			t.Errorf("%s: got %d %+v after %d bytes were read; the JSON and the headers have %d", c.what, code, a, r.bytes, head)
		}
	}
	if landed, _, err := s.Landed(t.Context(), "clicks", "t"); err != nil || landed || s.held(t) != 0 {
		t.Errorf("the refused transaction is visible: %v (%v), %d chunks are stored", landed, err, s.held(t))
	}
	if !s.room.TryAcquire(roomMost) {
		t.Error("the calls have ended, but not all memory for chunks was given back")
	}
}

// A record above max_record is refused with that limit, whether it is alone in a call or not.
func TestACallWithARecordThatIsTooLargeIsRefusedWithTheLimit(t *testing.T) {
	s, _ := life(t, memstore.New(), folder(t), strings.Replace(spec, "max_bytes: 1MiB", "max_bytes: 1MiB, max_record: 1KiB", 1))
	last := []NewChunk{{0, lines("a")}, {1, lines("b", strings.Repeat("x", 1025))}}
	const says = `record 1 of a chunk of transaction "t" has 1025 bytes, and landing.max_record is 1024`
	if _, err := (&calls{s: s}).Land(t.Context(), &headracev1.LandRequest{Dataset: "clicks", Transaction: "t", Chunks: []*headracev1.NewChunk{{Chunk: last[0].Data}, {Partition: 1, Chunk: last[1].Data}}}); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), says) {
		t.Error(err)
	}
	path, text := oneCall(t, "t", nil, last...)
	if code, a := s.post(t, path, "", text); code != http.StatusBadRequest || !strings.Contains(a.Error, says) {
		t.Errorf("%d %+v", code, a)
	}
	if l, err := s.Layout(t.Context(), "clicks"); err != nil || l.Stored != 0 || s.held(t) != 0 {
		t.Errorf("%d chunks are stored, %d bytes are counted, %v", s.held(t), l.Stored, err)
	}
}

// dying is a store and a ledger whose process ends at a step of a transaction. The later steps do not
// happen, and the answer is lost.
type dying struct {
	storage.Store
	Ledger
	steps atomic.Int32
	at    int32 // so many steps happen; the process ends at the next one
}

var errDied = errors.New("its process has died")

func (d *dying) step() error {
	if d.steps.Add(1) > d.at {
		return errDied
	}
	return nil
}

func (d *dying) Put(ctx context.Context, key string, data []byte) error {
	if err := d.step(); err != nil {
		return err
	}
	return d.Store.Put(ctx, key, data)
}

func (d *dying) Delete(ctx context.Context, keys ...string) error {
	if d.steps.Load() > d.at {
		return errDied
	}
	return d.Store.Delete(ctx, keys...)
}

func (d *dying) Land(ctx context.Context, dataset uint32, tx serve.Transaction) (bool, int64, error) {
	if err := d.step(); err != nil {
		return false, 0, err
	}
	already, records, err := d.Ledger.Land(ctx, dataset, tx)
	return already, records, errors.Join(err, d.step())
}

// "The records of a transaction come once or not at all." The master dies before, between and after the
// steps of a call. The producer sends the same call to the next master.
func TestACallThatDiesAtAnyStepLandsOnceWhenItIsRepeated(t *testing.T) {
	for at := int32(0); ; at++ {
		store, place := memstore.New(), folder(t)
		s, _ := life(t, store, place, spec)
		d := &dying{Store: s.store, Ledger: s.srv, at: at}
		s.store, s.srv = d, d
		last := []NewChunk{{0, lines("a", "b")}, {1, lines("c")}, {1, lines("d")}}
		_, err := s.Land(t.Context(), "clicks", "t", nil, last)
		if answered := at == 6; (err == nil) != answered { // step 6, the last one, is the note of the commit
			t.Fatalf("the master died after step %d, and the call got %v", at, err)
		}
		s, _ = life(t, store, place, spec)
		landed, _, err := s.Landed(t.Context(), "clicks", "t")
		if err != nil || landed != (at >= 4) { // steps 1 to 3 are puts, step 4 is the commit
			t.Errorf("the master died after step %d, and the transaction is visible: %v (%v), want %v", at, landed, err, at >= 4)
		}
		for again := range 2 {
			done, err := s.Land(t.Context(), "clicks", "t", nil, last)
			if err != nil || done.Records != 4 || done.Already != (landed || again > 0) {
				t.Errorf("the master died after step %d, and call %d to the next one got %+v (%v), want 4 records", at, again, done, err)
			}
		}
		if got := fmt.Sprint(s.shown(t, 0), s.shown(t, 1)); got != "[a b] [c d]" && got != "[a b] [d c]" {
			t.Errorf("the master died after step %d, and the visible records are %s", at, got)
		}
		if at == 6 {
			break
		}
	}
}

// waiting is a store whose puts wait for let. It sends each key to at before.
type waiting struct {
	storage.Store
	at, let chan string
}

func (w *waiting) Put(ctx context.Context, key string, data []byte) error {
	if !strings.HasPrefix(key, "visible/") {
		w.at <- key
		<-w.let
	}
	return w.Store.Put(ctx, key, data)
}

// A producer goes away during its call. Its transaction lands all the same, and the same call, sent
// again, waits for that.
func TestACallGoesOnWhenItsCallerGivesUp(t *testing.T) {
	s := start(t)
	store := &waiting{Store: s.store, at: make(chan string), let: make(chan string)}
	s.store = store
	ctx, cancel := context.WithCancel(t.Context())
	last := []NewChunk{{0, lines("a")}}
	first := make(chan error, 1)
	go func() {
		_, err := s.Land(ctx, "clicks", "t", nil, last)
		first <- err
	}()
	<-store.at
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Fatalf("the call whose caller went away returned %v", err)
	}
	second := make(chan Committed, 1)
	go func() {
		done, err := s.Land(t.Context(), "clicks", "t", nil, last)
		if err != nil {
			t.Error(err)
		}
		second <- done
	}()
	store.let <- ""
	if done := <-second; !done.Already || done.Records != 1 || s.held(t) != 1 {
		t.Errorf("the second call got %+v, and %d chunks are stored; want already, 1 record, 1 chunk", done, s.held(t))
	}
}

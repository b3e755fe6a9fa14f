package landing

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/internal/store/memstore"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
	adapter "github.com/headrace/headrace/sources/landing"
	"google.golang.org/grpc"
)

const spec = `
name: clicks
landing: {partitions: 2, stage_ttl: 1h, remember: 1h, retain: 0s, max_bytes: 1MiB}
decode:
  format: lines
  columns: [{name: line, path: $value, dtype: bytes}]
`

// registrar keeps the services of a server, so that a test can call them without a network.
type registrar map[string]any

func (r registrar) RegisterService(d *grpc.ServiceDesc, impl any) { r[d.ServiceName] = impl }

// start runs a real shard service with one dataset, and a landing.
func start(t *testing.T) *Service {
	t.Helper()
	dataset.Register(adapter.Kind)
	srv, err := serve.New(serve.Config{Store: memstore.New()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	r := registrar{}
	srv.Register(r)
	if _, err := r["headrace.v1.Datasets"].(headracev1.DatasetsServer).Apply(t.Context(), &headracev1.ApplyRequest{Yaml: spec}); err != nil {
		t.Fatal(err)
	}
	folder, err := storage.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = folder.Close() })
	stream, err := streamOf(t.Context(), folder, "clicks")
	if err != nil {
		t.Fatal(err)
	}
	parts := []serve.NewPartition{{ID: sources.PartitionID(chunk.PartitionID(stream, 0))}, {ID: sources.PartitionID(chunk.PartitionID(stream, 1))}}
	if _, err := srv.AddPartitions(t.Context(), 1, parts, false); err != nil {
		t.Fatal(err)
	}
	return New(srv, folder, slog.New(slog.DiscardHandler))
}

func lines(all ...string) []byte {
	var b chunk.Builder
	for _, l := range all {
		b.Add(chunk.Record{Value: []byte(l)})
	}
	return b.Chunk()
}

func (s *Service) staged(t *testing.T, transaction string, partition int, data []byte) string {
	t.Helper()
	l, err := s.Stage(t.Context(), "clicks", transaction, partition, data)
	if err != nil {
		t.Fatal(err)
	}
	return l.String()
}

func (s *Service) held(t *testing.T) int {
	t.Helper()
	all, err := s.store.List(t.Context(), "", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, o := range all {
		if _, err := chunk.ParseKey(o.Key); err == nil {
			n++
		}
	}
	return n
}

// storedAndGone is a store whose callers go away as soon as it has stored a chunk.
type storedAndGone struct {
	storage.Store
	leave func()
}

func (g storedAndGone) Put(ctx context.Context, key string, data []byte) error {
	err := g.Store.Put(ctx, key, data)
	g.leave()
	return err
}

// If the caller goes away, nobody has the locator of its chunk. So the chunk must not stay and fill the
// dataset.
func TestAChunkWhoseCallerHasGoneDoesNotStay(t *testing.T) {
	s := start(t)
	ctx, leave := context.WithCancel(t.Context())
	s.store = storedAndGone{s.store, leave}
	if _, err := s.Stage(ctx, "clicks", "t", 0, lines("a")); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if l, err := s.Layout(t.Context(), "clicks"); err != nil || l.Stored != 0 || s.held(t) != 0 {
		t.Errorf("%d chunks are left, %d bytes are counted, %v", s.held(t), l.Stored, err)
	}
}

func TestATransactionCannotCommitWhatWasNotStagedForIt(t *testing.T) {
	s := start(t)
	mine, others := s.staged(t, "mine", 0, lines("a")), s.staged(t, "others", 1, lines("b"))
	forged := strings.Replace(mine, " 1 ", " 2 ", 1)
	elsewhere := "1 other/" + strings.SplitN(strings.TrimPrefix(mine, "1 "), "/", 2)[1]
	for what, locators := range map[string][]string{
		"not staged for transaction": {mine, others}, "named twice": {mine, mine}, "another dataset": {elsewhere},
		"not the locator": {"x"}, "it has 1 records": {forged},
	} {
		if _, err := s.Commit(t.Context(), "clicks", "mine", locators); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("a commit that must fail with %q got %v", what, err)
		}
	}
	for range 2 {
		if _, err := s.Commit(t.Context(), "clicks", "mine", []string{mine}); err != nil {
			t.Fatal(err)
		}
	}
	if done, err := s.Commit(t.Context(), "clicks", "mine", nil); err != nil || !done.Already || done.Records != 1 {
		t.Errorf("the repeated commit got %+v (%v), want already, 1 record", done, err)
	}
}

func TestWhatCannotBeTakenIsRefusedWithItsReason(t *testing.T) {
	s := start(t)
	good := lines("a")
	for _, c := range []struct {
		dataset, transaction string
		partition            int
		data                 []byte
		code                 codes.Code
		says                 string
	}{
		{"nothere", "t", 0, good, codes.NotFound, "no dataset"},
		{"clicks", "", 0, good, codes.InvalidArgument, "transaction's id"},
		{"clicks", strings.Repeat("x", 201), 0, good, codes.InvalidArgument, "200 bytes"},
		{"clicks", "t", 2, good, codes.InvalidArgument, "no partition 2"},
		{"clicks", "t", 0, good[:len(good)-1], codes.InvalidArgument, "chunk"},
		{"clicks", "t", 0, nil, codes.InvalidArgument, "chunk"},
	} {
		_, err := (&calls{s: s}).Stage(t.Context(), &headracev1.StageRequest{Dataset: c.dataset, Transaction: c.transaction, Partition: uint32(c.partition), Chunk: c.data})
		if status.Code(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("the call %+v got %v", c, err)
		}
	}
	if err := s.End(t.Context(), "clicks"); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "end: pushed") {
		t.Errorf("End of a dataset that is not end: pushed got %v", err)
	}
	if n := s.held(t); n > 0 {
		t.Errorf("%d chunks of refused calls are stored, want none", n)
	}
}

func TestStagedChunksAreDeletedAfterTheirTimeAndCommittedOnesAreNot(t *testing.T) {
	s := start(t)
	kept := s.staged(t, "kept", 0, lines("a", "b"))
	if _, err := s.Commit(t.Context(), "clicks", "kept", []string{kept}); err != nil {
		t.Fatal(err)
	}
	late := s.staged(t, "late", 0, lines("c"))
	if err := s.clean(t.Context()); err != nil || s.held(t) != 2 {
		t.Fatalf("before stage_ttl there are %d chunks (%v), want 2", s.held(t), err)
	}
	s.now = func() time.Time { return time.Now().Add(61 * time.Minute) }
	if _, err := s.Commit(t.Context(), "clicks", "late", []string{late}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "stage_ttl") {
		t.Errorf("a commit after stage_ttl got %v", err)
	}
	if err := s.clean(t.Context()); err != nil || s.held(t) != 1 {
		t.Fatalf("%d chunks are left (%v), want the committed one, because it was not trained on", s.held(t), err)
	}
	if l, err := s.Layout(t.Context(), "clicks"); err != nil || l.Stored != int64(len(lines("a", "b"))) {
		t.Errorf("%d bytes are counted (%v), want those of the committed chunk", l.Stored, err)
	}
}

func TestAFullDatasetTellsToWaitAndLosesNothing(t *testing.T) {
	s := start(t)
	noise := make([]byte, 300<<10)
	_, _ = rand.Read(noise)
	data := lines(string(noise))
	n := 0
	var err error
	for err == nil {
		if n++; n > 10 {
			t.Fatal("the dataset is not full after 10 chunks")
		}
		_, err = (&calls{s: s}).Stage(t.Context(), &headracev1.StageRequest{Dataset: "clicks", Transaction: "t", Chunk: data})
	}
	if status.Code(err) != codes.ResourceExhausted || n != 4 || s.held(t) != 3 {
		t.Fatalf("chunk %d got %v with %d chunks stored, want that chunk 4 finds the dataset full", n, err, s.held(t))
	}
	wait := time.Duration(0)
	for _, d := range status.Convert(err).Details() {
		if full, ok := d.(*headracev1.LandingFull); ok {
			wait = time.Duration(full.RetryAfterMs) * time.Millisecond
		}
	}
	if wait <= 0 {
		t.Errorf("the error does not say how long to wait: %v", err)
	}
	s.now = func() time.Time { return time.Now().Add(61 * time.Minute) }
	if err := s.clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.staged(t, "t2", 0, data) // there is room again
}

func TestStreamsWithoutADatasetAreDeleted(t *testing.T) {
	s := start(t)
	s.staged(t, "t", 0, lines("a"))
	if err := s.store.Put(t.Context(), chunk.NewKey("sgone", 0, "t", time.Now()).String(), lines("b")); err != nil {
		t.Fatal(err)
	}
	if err := s.orphans(t.Context()); err != nil || s.held(t) != 1 {
		t.Errorf("%d chunks are left (%v), want the one of the dataset that exists", s.held(t), err)
	}
}

func TestWhatNeverFitsIsRefusedOrNamed(t *testing.T) {
	s := start(t)
	chunkOf := func(size int) []byte {
		b := make([]byte, size)
		_, _ = rand.Read(b)
		return lines(string(b))
	}
	if _, err := s.Stage(t.Context(), "clicks", "t", 0, chunkOf(2<<20)); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "landing.max_bytes is 1048576") {
		t.Errorf("a chunk above max_bytes got %v", err)
	}
	if err := s.clean(t.Context()); err != nil { // after it, the service knows which chunks are not committed
		t.Fatal(err)
	}
	data := chunkOf(300 << 10)
	wait := func(id string) string {
		t.Helper()
		_, err := s.Stage(t.Context(), "clicks", id, 0, data)
		if _, full := errors.AsType[*Full](err); !full {
			t.Fatal(err)
		}
		return err.Error()
	}
	all := []string{s.staged(t, "t", 0, data), s.staged(t, "t", 0, data), s.staged(t, "t", 0, data)}
	if says := wait("t"); !strings.Contains(says, fmt.Sprint(3*len(data), " bytes of them are staged and not committed")) {
		t.Errorf("a transaction that does not fit was told %s", says)
	}
	if _, err := s.Commit(t.Context(), "clicks", "t", all); err != nil {
		t.Fatal(err)
	}
	if says := wait("t2"); !strings.Contains(says, "when they are trained on") {
		t.Errorf("all chunks are committed, and a producer was told %s", says)
	}
	// Now a writer puts the chunks into the storage itself.
	p, err := s.place(t.Context(), "clicks")
	if err != nil {
		t.Fatal(err)
	}
	all = nil
	for range 4 {
		l := chunk.Locator{Key: chunk.NewKey(p.stream, 0, "big", time.Now()).String(), Size: int64(len(data)), Records: 1}
		if err := s.store.Put(t.Context(), l.Key, data); err != nil {
			t.Fatal(err)
		}
		h, err := chunk.ReadHeader(data)
		if err != nil {
			t.Fatal(err)
		}
		l.Sum = h.Sum
		all = append(all, l.String())
	}
	if _, err := s.Commit(t.Context(), "clicks", "big", all); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "never fits") {
		t.Errorf("the commit of an uploaded transaction above max_bytes got %v", err)
	}
}

// forgetful is a ledger that forgets at once the transactions that landed before.
type forgetful struct{ Ledger }

func (l forgetful) Land(ctx context.Context, dataset uint32, t serve.Transaction) (bool, int64, error) {
	t.Remember = -time.Hour
	return l.Ledger.Land(ctx, dataset, t)
}

func TestACommitOfAForgottenTransactionIsRefused(t *testing.T) {
	s := start(t)
	ledger := s.srv
	first, early := s.pushed(t, "first", 0), s.staged(t, "early", 1, lines("early"))
	s.srv = forgetful{ledger}
	s.pushed(t, "second", 0)
	s.srv = ledger
	if landed, _, err := s.Landed(t.Context(), "clicks", "first"); err != nil || landed {
		t.Fatalf("transaction first is still remembered (%v)", err)
	}
	if _, err := s.Commit(t.Context(), "clicks", "first", []string{first}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "is visible already") {
		t.Errorf("the commit of a forgotten transaction got %v, want a refusal", err)
	}
	if done, err := s.Commit(t.Context(), "clicks", "early", []string{early}); err != nil || done.Already {
		t.Errorf("the commit of a transaction that has never landed got %+v (%v)", done, err)
	}
	if n := len(s.visible(t)); n != 3 {
		t.Errorf("%d chunks are visible, want 3", n)
	}
}

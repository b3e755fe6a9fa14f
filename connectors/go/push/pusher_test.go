package push

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/chunk"
)

// shy answers the first calls with "later".
type shy struct {
	grpc.ClientConnInterface
	later int
}

func (s *shy) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	if s.later--; s.later >= 0 {
		return status.Error(codes.Unavailable, "a chunk could not be stored: no space left on device")
	}
	return nil
}

func TestACallerIsToldWhyAPusherWaits(t *testing.T) {
	var told []string
	if _, err := Open(t.Context(), &shy{later: 2}, "clicks", OnWait(func(reason error) { told = append(told, status.Convert(reason).Message()) })); err != nil {
		t.Fatal(err)
	}
	if len(told) != 2 || told[0] != "a chunk could not be stored: no space left on device" {
		t.Errorf("%q", told)
	}
	if _, err := Open(t.Context(), &shy{later: 1}, "clicks"); err != nil {
		t.Error(err)
	}
}

// roomy answers the layout of a dataset whose records may have 16 MiB.
type roomy struct{ grpc.ClientConnInterface }

func (roomy) Invoke(_ context.Context, _ string, _, reply any, _ ...grpc.CallOption) error {
	if l, ok := reply.(*headracev1.LayoutReply); ok {
		l.Partitions, l.ChunkBytes, l.MaxRecord = 1, 1<<20, 16<<20
	}
	return nil
}

func TestARecordOfAHundredMegabytesIsRefusedWithWhatToDo(t *testing.T) {
	p, err := Open(t.Context(), roomy{}, "clicks")
	if err != nil {
		t.Fatal(err)
	}
	tx := p.Begin("big")
	err = tx.Push(t.Context(), Record{Value: make([]byte, 100<<20)})
	if err == nil || !strings.Contains(err.Error(), "record 0 of transaction \"big\" has 104857600 bytes") || !strings.Contains(err.Error(), "max_record of dataset clicks is 16777216: raise it") {
		t.Error(err)
	}
	if err := tx.Push(t.Context(), Record{Value: []byte("small")}); err != nil || tx.Records() != 1 {
		t.Errorf("a smaller record after it: %v, %d records", err, tx.Records())
	}
}

// raised is a master of a dataset whose max_record is a byte larger at each question.
type raised struct {
	grpc.ClientConnInterface
	asked int64
}

func (r *raised) Invoke(_ context.Context, _ string, _, reply any, _ ...grpc.CallOption) error {
	if l, ok := reply.(*headracev1.LayoutReply); ok {
		r.asked++
		l.Partitions, l.ChunkBytes, l.MaxRecord = 1, 1<<20, r.asked
	}
	return nil
}

func TestALimitThatWasRaisedHoldsForTheNextTransaction(t *testing.T) {
	master := &raised{}
	p, err := Open(t.Context(), master, "clicks")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Begin("large").Push(t.Context(), Record{Value: []byte("xy")}); err == nil || !strings.Contains(err.Error(), "max_record of dataset clicks is 1") {
		t.Errorf("a record of 2 bytes: %v", err)
	}
	for _, id := range []string{"large", "another"} { // only the first one asks
		if err := p.Begin(id).Push(t.Context(), Record{Value: []byte("xy")}); err != nil || master.asked != 2 {
			t.Errorf("after the limit was raised: %v; the master was asked %d times, want 2", err, master.asked)
		}
	}
	if _, err := p.Commit(t.Context(), "many", make([]string, mostChunks+1)); err == nil || !strings.Contains(err.Error(), "make landing.chunk in the spec larger") {
		t.Errorf("too many chunks: %v", err)
	}
	if err := p.Begin("many").Push(t.Context(), Record{Value: []byte("xyz")}); err != nil || master.asked != 3 {
		t.Errorf("after chunks were made larger: %v; the master was asked %d times, want 3", err, master.asked)
	}
}

// bucketed is a master whose chunks lie in its state folder; with a URL they lie in a
// bucket.
type bucketed struct {
	grpc.ClientConnInterface
	url    string
	staged int
}

func (b *bucketed) Invoke(_ context.Context, method string, _, reply any, _ ...grpc.CallOption) error {
	switch r := reply.(type) {
	case *headracev1.LayoutReply:
		r.Partitions, r.ChunkBytes, r.MaxRecord = 2, 1<<20, 1<<20
		if b.url != "" {
			r.Upload = &headracev1.Upload{Url: b.url, Stream: "s1", NowMs: 1_700_000_000_000}
		}
	case *headracev1.StageReply:
		b.staged++
	}
	return nil
}

type later struct{}

func (later) Error() string   { return "slow down" }
func (later) Temporary() bool { return true }

// flaky refuses some puts.
type flaky struct {
	errs []error
	keys []string
}

func (f *flaky) PutNew(_ context.Context, key string, _ []byte) error {
	if f.keys = append(f.keys, key); len(f.errs) > 0 {
		err := f.errs[0]
		f.errs = f.errs[1:]
		return err
	}
	return nil
}

func TestChunksArePutIntoTheBucketAndNotSentToTheMaster(t *testing.T) {
	master, f := &bucketed{url: "s3://lake/p"}, &flaky{errs: []error{fmt.Errorf("put: %w", later{}), later{}}}
	asked, waits := "", 0
	p, err := Open(t.Context(), master, "clicks", OnWait(func(error) { waits++ }), Upload(func(url string) (Putter, error) { asked = url; return f, nil }))
	if err != nil {
		t.Fatal(err)
	}
	tx := p.Begin("t1")
	if err := tx.Push(t.Context(), Record{Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	locators, err := tx.Stage(t.Context())
	if err != nil || len(locators) != 1 {
		t.Fatal(locators, err)
	}
	l, key, err := chunk.ParseLocator(locators[0])
	if err != nil || key.Stream != "s1" || key.Transaction != chunk.TransactionSum("t1") || l.Records != 1 || key.At.UnixMilli() < 1_700_000_000_000 {
		t.Errorf("%+v, %+v, %v", l, key, err)
	}
	if asked != "s3://lake/p" || master.staged != 0 || waits != 2 || len(f.keys) != 3 || f.keys[2] != l.Key || f.keys[0] == f.keys[1] {
		t.Errorf("opened %q, %d chunks at the master, %d waits, keys %q", asked, master.staged, waits, f.keys)
	}
	f.errs = []error{errors.New("access denied")}
	tx = p.Begin("t2")
	if err := tx.Push(t.Context(), Record{Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Stage(t.Context()); err == nil || !strings.Contains(err.Error(), `"t2" could not be put: access denied`) {
		t.Errorf("refused: %v", err)
	}
	if _, err := Open(t.Context(), &bucketed{}, "clicks", Upload(func(string) (Putter, error) { return f, nil })); err == nil || !strings.Contains(err.Error(), "only the master can write") {
		t.Errorf("no bucket: %v", err)
	}
}

// applied is a master whose dataset may be deleted and applied again. Then it refuses what was
// staged for the one before.
type applied struct {
	grpc.ClientConnInterface
	url, stream string
	partitions  uint32
	asked       int
}

func (a *applied) Invoke(_ context.Context, _ string, args, reply any, _ ...grpc.CallOption) error {
	switch r := reply.(type) {
	case *headracev1.LayoutReply:
		a.asked++
		r.Partitions, r.ChunkBytes, r.MaxRecord = a.partitions, 1<<20, 1<<20
		r.Upload = &headracev1.Upload{Url: a.url, Stream: a.stream, NowMs: 1_700_000_000_000}
	case *headracev1.CommitReply:
		for _, l := range args.(*headracev1.CommitRequest).Locators {
			if _, key, err := chunk.ParseLocator(l); err != nil || key.Stream != a.stream {
				return status.Error(codes.FailedPrecondition, "a chunk was staged before the dataset was deleted and applied again")
			}
		}
	}
	return nil
}

func TestAPusherAsksAgainAfterItWasRefused(t *testing.T) {
	master, buckets := &applied{url: "s3://lake/p", stream: "s1", partitions: 3}, map[string]*flaky{}
	p, err := Open(t.Context(), master, "clicks", Upload(func(url string) (Putter, error) {
		if buckets[url] != nil {
			t.Errorf("%s is opened twice", url)
		}
		buckets[url] = &flaky{}
		return buckets[url], nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	pushed := func() error {
		tx := p.Begin("")
		if err := tx.Push(t.Context(), Record{Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
		_, err := tx.Commit(t.Context())
		return err
	}
	for range 2 {
		if err := pushed(); err != nil {
			t.Fatal(err)
		}
	}
	if master.asked != 1 {
		t.Errorf("asked %d times while all was well", master.asked)
	}
	master.stream, master.partitions = "s2", 1
	if err := pushed(); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("for the dataset that is gone: %v", err)
	}
	if err := pushed(); err != nil {
		t.Errorf("the next transaction: %v", err)
	}
	master.url, master.stream = "s3://pool/q", "s3"
	_ = pushed()
	if err := pushed(); err != nil || len(buckets) != 2 || len(buckets["s3://pool/q"].keys) != 1 {
		t.Errorf("after its chunks were moved: %v, buckets %v", err, buckets)
	}
}

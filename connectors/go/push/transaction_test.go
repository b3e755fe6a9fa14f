package push

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/chunk"
)

// kept is a master that keeps what it is sent. While it is away, a call waits until its
// context ends.
type kept struct {
	grpc.ClientConnInterface
	mu        sync.Mutex
	back      chan struct{} // closed: it is not away
	asked     chan struct{} // gets a value from each call that finds it away
	chunks    []string      // values of the records, a space after each
	committed []string      // of all chunks that the last commit named
	commits   int
	lost      int   // answers of commits that are lost
	chunk     int64 // bytes of one, at least; 0: one for each record
	land      int64 // bytes that it takes with a commit
	old       bool  // it is of a version that knows no Land
}

func newKept() *kept {
	k := &kept{back: make(chan struct{}), asked: make(chan struct{}, 1000)}
	close(k.back)
	return k
}

func (k *kept) away()  { k.mu.Lock(); defer k.mu.Unlock(); k.back = make(chan struct{}) }
func (k *kept) there() { k.mu.Lock(); defer k.mu.Unlock(); close(k.back) }

func (k *kept) Invoke(ctx context.Context, _ string, args, reply any, _ ...grpc.CallOption) error {
	k.mu.Lock()
	back := k.back
	k.mu.Unlock()
	select {
	case <-back:
	default:
		k.asked <- struct{}{}
		select {
		case <-back:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, land := args.(*headracev1.LandRequest); land && k.old {
		return status.Error(codes.Unimplemented, "unknown method Land for service headrace.v1.Landing")
	}
	switch r := reply.(type) {
	case *headracev1.LayoutReply:
		r.Partitions, r.ChunkBytes, r.MaxRecord = 1, max(1, k.chunk), 1<<20
		if !k.old {
			r.LandBytes = k.land
		}
	case *headracev1.StageReply:
		values, err := valuesOf(args.(*headracev1.StageRequest).Chunk)
		if err != nil {
			return err
		}
		r.Locator = fmt.Sprint(len(k.chunks))
		k.chunks = append(k.chunks, values)
	case *headracev1.CommitReply:
		var last []*headracev1.NewChunk
		if l, ok := args.(*headracev1.LandRequest); ok {
			last = l.Chunks
		}
		if r.Already = k.commits > 0; !r.Already {
			for _, l := range args.(interface{ GetLocators() []string }).GetLocators() {
				var at int
				if _, err := fmt.Sscan(l, &at); err != nil {
					return status.Errorf(codes.InvalidArgument, "%q is not the locator of a chunk", l)
				}
				k.committed = append(k.committed, strings.Fields(k.chunks[at])...)
			}
			for _, c := range last {
				values, err := valuesOf(c.Chunk)
				if err != nil {
					return err
				}
				k.committed = append(k.committed, strings.Fields(values)...)
			}
			k.commits++
		}
		r.Records = int64(len(k.committed))
		if k.lost > 0 {
			k.lost--
			return status.Error(codes.Canceled, "the answer is lost")
		}
	}
	return nil
}

func valuesOf(data []byte) (string, error) {
	o, err := chunk.Open(data)
	if err != nil {
		return "", status.Error(codes.InvalidArgument, err.Error())
	}
	var all strings.Builder
	for i := range o.Records {
		all.Write(o.Record(i).Value)
		all.WriteByte(' ')
	}
	return all.String(), nil
}

func begun(t *testing.T, k *kept) *Transaction {
	t.Helper()
	p, err := Open(t.Context(), k, "clicks")
	if err != nil {
		t.Fatal(err)
	}
	return p.Begin("t1")
}

func value(i int) Record { return Record{Value: fmt.Append(nil, "v", i)} }

// Accepted records are committed once, and in their order, whenever contexts end.
func TestNothingIsLostWhenAContextEnds(t *testing.T) {
	k := newKept()
	tx := begun(t, k)
	n := 0
	k.away()
	ctx, cancel := context.WithCancel(t.Context())
	for ; n < staging; n++ { // fills all slots
		if err := tx.Push(ctx, value(n)); err != nil {
			t.Fatal(err)
		}
	}
	for range staging {
		<-k.asked
	}
	cancel()
	// Accepted, though there is no slot for its chunk.
	if err := tx.Push(ctx, value(n)); err != nil {
		t.Fatal(err)
	}
	n++
	// There is no room for the next one.
	if err := tx.Push(ctx, value(-1)); err != context.Canceled || tx.Records() != int64(n) {
		t.Fatalf("a record without room: %v, %d records", err, tx.Records())
	}
	if _, err := tx.Commit(ctx); err != context.Canceled {
		t.Fatalf("commit while the master is away: %v", err)
	}
	// Another context, that ends too.
	ctx, cancel = context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() { _, err := tx.Commit(ctx); failed <- err }()
	for range staging { // it has sent the stopped chunks again
		<-k.asked
	}
	cancel()
	if err := <-failed; err != context.Canceled {
		t.Fatalf("the second commit: %v", err)
	}
	k.there()
	// Nothing was named, so there may be more records.
	if err := tx.Push(t.Context(), value(n)); err != nil {
		t.Fatal(err)
	}
	n++
	done, err := tx.Commit(t.Context())
	if err != nil || done.Already || done.Records != int64(n) {
		t.Fatalf("%+v, %v, %d records pushed", done, err, n)
	}
	for i, v := range k.committed {
		if v != fmt.Sprint("v", i) {
			t.Fatalf("committed %q", k.committed)
		}
	}
}

func TestAFailureStays(t *testing.T) {
	master := &applied{stream: "s1", partitions: 1, url: "s3://lake/p"}
	f := &flaky{errs: []error{fmt.Errorf("access denied")}}
	p, err := Open(t.Context(), master, "clicks", Upload(func(string) (Putter, error) { return f, nil }))
	if err != nil {
		t.Fatal(err)
	}
	tx := p.Begin("t1")
	if err := tx.Push(t.Context(), value(0)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := tx.Commit(t.Context()); err == nil || !strings.Contains(err.Error(), "access denied") {
			t.Errorf("commit: %v", err)
		}
		if err := tx.Push(t.Context(), value(1)); err == nil || !strings.Contains(err.Error(), "access denied") {
			t.Errorf("push: %v", err)
		}
	}
}

func TestNothingIsPushedAfterACommitWasTried(t *testing.T) {
	k := newKept()
	k.lost = 1
	tx := begun(t, k)
	if err := tx.Push(t.Context(), value(0)); err != nil {
		t.Fatal(err)
	}
	refused := func(when string) {
		t.Helper()
		if err := tx.Push(t.Context(), value(1)); err == nil || !strings.Contains(err.Error(), `transaction "t1" was staged or committed`) {
			t.Errorf("%s: %v", when, err)
		}
	}
	if _, err := tx.Commit(t.Context()); status.Code(err) != codes.Canceled {
		t.Fatal(err)
	}
	refused("after a commit whose answer is lost")
	if done, err := tx.Commit(t.Context()); err != nil || !done.Already || done.Records != 1 {
		t.Fatalf("the same commit again: %+v, %v", done, err)
	}
	refused("after a commit")

	// Anybody may commit the staged chunks.
	k = newKept()
	tx = begun(t, k)
	if err := tx.Push(t.Context(), value(0)); err != nil {
		t.Fatal(err)
	}
	first, err := tx.Stage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	refused("after Stage")
	if again, err := tx.Stage(t.Context()); err != nil || fmt.Sprint(again) != fmt.Sprint(first) {
		t.Errorf("staged %q, then %q, %v", first, again, err)
	}
}

// What is not sent yet goes with the commit, if the master takes so much.
func TestTheRestGoesWithTheCommit(t *testing.T) {
	pushed := func(k *kept) *Transaction {
		t.Helper()
		tx := begun(t, k)
		for i := range 5 { // a record takes 4 bytes, so two are a chunk
			if err := tx.Push(t.Context(), value(i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	for _, c := range []struct {
		land   int64
		chunks int // that were staged before
	}{{1 << 20, 2}, {4, 2}, {3, 3}, {0, 3}} {
		k := newKept()
		k.chunk, k.land = 8, c.land
		tx := pushed(k)
		for again := range 2 {
			if done, err := tx.Commit(t.Context()); err != nil || done.Records != 5 || done.Already != (again > 0) {
				t.Fatalf("%+v: %+v, %v", c, done, err)
			}
		}
		if got := fmt.Sprint(k.committed, len(k.chunks)); got != fmt.Sprint([]string{"v0", "v1", "v2", "v3", "v4"}, c.chunks) {
			t.Errorf("%+v: %s chunks", c, got)
		}
	}
	// After a lost answer the rest may be staged, and anybody may commit it.
	k := newKept()
	k.chunk, k.land, k.lost = 8, 100, 1
	tx := pushed(k)
	if _, err := tx.Commit(t.Context()); status.Code(err) != codes.Canceled {
		t.Fatal(err)
	}
	if err := tx.Push(t.Context(), value(5)); err == nil || !strings.Contains(err.Error(), "was staged or committed") {
		t.Errorf("a record after it: %v", err)
	}
	locators, err := tx.Stage(t.Context())
	if err != nil || len(locators) != 3 {
		t.Fatalf("%q, %v", locators, err)
	}
	if done, err := tx.Commit(t.Context()); err != nil || !done.Already || done.Records != 5 {
		t.Errorf("%+v, %v", done, err)
	}
	// While a chunk is on its way, the rest is staged beside it.
	k = newKept()
	k.chunk, k.land = 8, 100
	tx = begun(t, k)
	k.away()
	for i := range 3 {
		if err := tx.Push(t.Context(), value(i)); err != nil {
			t.Fatal(err)
		}
	}
	<-k.asked
	answered := make(chan error, 1)
	go func() { _, err := tx.Commit(t.Context()); answered <- err }()
	<-k.asked
	k.there()
	if err := <-answered; err != nil || len(k.chunks) != 2 || len(k.committed) != 3 {
		t.Errorf("%d chunks, committed %q, %v", len(k.chunks), k.committed, err)
	}
	// Too many chunks.
	k = newKept()
	k.chunk, k.land = 8, 100
	tx = pushed(k)
	tx.p.chunks = 2
	if _, err := tx.Commit(t.Context()); err == nil || !strings.Contains(err.Error(), `transaction "t1" has 3 chunks`) || k.commits > 0 {
		t.Error(err)
	}
}

// The master is replaced by one of an older version, which does not take chunks with a commit,
// before or after it has landed a transaction whose answer is lost.
func TestATransactionGoesOnWithAMasterOfAnOlderVersion(t *testing.T) {
	for _, landed := range []bool{false, true} {
		k := newKept()
		k.chunk, k.land = 8, 100
		tx := begun(t, k)
		for i := range 5 {
			if err := tx.Push(t.Context(), value(i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.settle(t.Context()); err != nil { // else the rest does not go in one call
			t.Fatal(err)
		}
		if landed {
			k.lost = 1
			if _, err := tx.Commit(t.Context()); status.Code(err) != codes.Canceled {
				t.Fatal(err)
			}
		}
		k.mu.Lock()
		k.old = true
		k.mu.Unlock()
		// Its first chunk waits until the context ends.
		k.away()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { _, err := tx.Commit(ctx); ended <- err }()
		<-k.asked
		cancel()
		if err := <-ended; err == nil {
			t.Fatal("it was committed without a master")
		}
		k.there()
		for again := range 2 {
			if done, err := tx.Commit(t.Context()); err != nil || done.Records != 5 || done.Already != (landed || again > 0) {
				t.Fatalf("landed before: %v; commit %d: %+v, %v", landed, again, done, err)
			}
		}
		if got := fmt.Sprint(k.committed, k.commits); got != "[v0 v1 v2 v3 v4] 1" {
			t.Errorf("landed before: %v; committed, and commits: %s", landed, got)
		}
		// The next transaction asks the master what it takes.
		next, err := tx.p.now(t.Context())
		if err != nil || next.layout.LandBytes != 0 {
			t.Errorf("%v, %v", next.layout, err)
		}
	}
}

func TestTheChunkThatMakesACommitTooLargeIsRefused(t *testing.T) {
	five := &headracev1.CommitRequest{Dataset: "clicks", Transaction: "t1", Locators: []string{"0", "1", "2", "3", "4"}}
	t.Run("bytes", func(t *testing.T) { tooLarge(t, five, func(p *Pusher) { p.most = proto.Size(five) }) })
	t.Run("chunks", func(t *testing.T) { tooLarge(t, five, func(p *Pusher) { p.chunks = 5 }) })
}

func tooLarge(t *testing.T, five *headracev1.CommitRequest, limit func(*Pusher)) {
	tx := begun(t, newKept())
	limit(tx.p)
	for i := range 5 {
		if err := tx.Push(t.Context(), value(i)); err != nil {
			t.Fatal(err)
		}
	}
	if done, err := tx.Commit(t.Context()); err != nil || done.Records != 5 {
		t.Fatal(done, err)
	}
	refused := func(err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), `transaction "t1" has 6 chunks`) || !strings.Contains(err.Error(), "make landing.chunk in the spec larger") {
			t.Error(err)
		}
	}
	k := newKept()
	tx = begun(t, k)
	limit(tx.p)
	var err error
	for i := 0; err == nil && i < 100; i++ {
		err = tx.Push(t.Context(), value(i))
	}
	refused(err)
	if n := tx.Records(); n > 6+staging+1 {
		t.Errorf("refused after %d records", n)
	}
	_, err = tx.Commit(t.Context())
	refused(err)

	// Of several processes: their chunks together.
	p := tx.p
	if _, err := p.Commit(t.Context(), "t1", five.Locators); err != nil {
		t.Error(err)
	}
	_, err = p.Commit(t.Context(), "t1", append(five.Locators, "5"))
	refused(err)
}

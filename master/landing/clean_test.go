package landing

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/sources"
)

// settled is a real shard service that says that the first segments of each partition are trained on.
type settled struct {
	Ledger
	segments int64
	trimmed  []int64
}

func (l *settled) RetainMarks(ctx context.Context, dataset uint32) ([]sources.Mark, error) {
	all, err := l.Datasets(ctx)
	var marks []sources.Mark
	for _, p := range all[0].Partitions {
		marks = append(marks, sources.Mark{Partition: p.Source, Position: sources.Position{Segment: l.segments}})
	}
	return marks, err
}

func (l *settled) Trim(ctx context.Context, partition uint32, before int64) error {
	l.trimmed = append(l.trimmed, before)
	return l.Ledger.Trim(ctx, partition, before)
}

// counted counts the calls of a storage.
type counted struct {
	storage.Store
	lists, stats, deletes int
}

func (c *counted) List(ctx context.Context, prefix, after string, most int) ([]storage.Object, error) {
	c.lists++
	return c.Store.List(ctx, prefix, after, most)
}

func (c *counted) Stat(ctx context.Context, key string) (storage.Object, error) {
	c.stats++
	return c.Store.Stat(ctx, key)
}

func (c *counted) Delete(ctx context.Context, keys ...string) error {
	c.deletes++
	return c.Store.Delete(ctx, keys...)
}

func TestWhatIsAskedOfTheStorageFollowsWhatIsToBeDeleted(t *testing.T) {
	s := start(t)
	l, store := &settled{Ledger: s.srv}, &counted{Store: s.store}
	s.srv, s.store = l, store
	for i := range 20 {
		id := fmt.Sprint("t", i)
		if _, err := s.Commit(t.Context(), "clicks", id, []string{s.staged(t, id, 0, lines("a", "b"))}); err != nil {
			t.Fatal(err)
		}
	}
	clean := func() {
		t.Helper()
		if err := s.clean(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	clean()
	if s.held(t) != 20 {
		t.Fatalf("%d of 20 chunks are left, but none is trained on", s.held(t))
	}
	*store = counted{Store: store.Store}
	for range 5 {
		clean()
	}
	if store.lists+store.stats+store.deletes != 0 {
		t.Errorf("nothing was to be deleted, but the storage got %d lists, %d stats, %d deletions", store.lists, store.stats, store.deletes)
	}
	l.segments = 7
	clean()
	if store.lists != 0 || store.stats != 0 || store.deletes != 7 {
		t.Errorf("7 chunks were to be deleted, and the storage got %d lists, %d stats, %d deletions; want 0, 0, 7", store.lists, store.stats, store.deletes)
	}
	if s.held(t) != 13 {
		t.Errorf("%d chunks are left of 20, but 7 are trained on, want 13", s.held(t))
	}
	before := len(l.trimmed)
	if before == 0 || l.trimmed[before-1] != 7 {
		t.Errorf("the segments were trimmed before %v, want 7 last", l.trimmed)
	}
}

func TestBytesAreThoseThatLieThere(t *testing.T) {
	s := start(t)
	l := &settled{Ledger: s.srv}
	s.srv = l
	for i := range 9 {
		id := fmt.Sprint("t", i)
		if _, err := s.Commit(t.Context(), "clicks", id, []string{s.staged(t, id, i%2, lines("a", fmt.Sprint("b", i)))}); err != nil {
			t.Fatal(err)
		}
	}
	s.staged(t, "never", 0, lines("x"))
	check := func(when string) {
		t.Helper()
		all, err := s.store.List(t.Context(), "", "", 0)
		if err != nil {
			t.Fatal(err)
		}
		var lie int64
		for _, o := range all {
			if _, err := chunk.ParseKey(o.Key); err == nil {
				lie += o.Size
			}
		}
		if got, err := s.Layout(t.Context(), "clicks"); err != nil || got.Stored != lie {
			t.Errorf("%s: %d bytes are counted (%v), but the storage has %d", when, got.Stored, err, lie)
		}
		for _, a := range s.stored {
			var staged int64
			for _, size := range a.staged {
				staged += size
			}
			if a.uncommitted != staged {
				t.Errorf("%s: %d bytes are counted as staged, but the staged chunks have %d", when, a.uncommitted, staged)
			}
		}
	}
	check("staged and committed")
	l.segments = 2
	if err := s.clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("after a deletion")
	s.stored = map[string]*stored{} // as in a new process
	l.segments = 3
	if err := s.clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("in a new process")
	s.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	if err := s.clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("after stage_ttl")
	if s.held(t) != 9-6 {
		t.Errorf("%d chunks are left, want 3", s.held(t))
	}
}

// A writer that puts its chunks into the bucket itself may die before its commit. Then the master has
// never heard of these chunks, and still must delete them.
func TestChunksThatOnlyTheirWriterKnowsAreDeletedAfterTheirTime(t *testing.T) {
	s := start(t)
	if err := s.clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := s.place(t.Context(), "clicks")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	put := func(id string, at time.Time) string {
		t.Helper()
		data, key := lines(id), chunk.NewKey(p.stream, 1, id, at)
		if err := s.store.PutNew(t.Context(), key.String(), data); err != nil {
			t.Fatal(err)
		}
		h, err := chunk.ReadHeader(data)
		if err != nil {
			t.Fatal(err)
		}
		return chunk.Locator{Key: key.String(), Size: int64(len(data)), Records: h.Records, Sum: h.Sum}.String()
	}
	if _, err := s.Commit(t.Context(), "clicks", "mine", []string{put("mine", began)}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), "clicks", "early", []string{put("early", began.Add(time.Hour))}); !errors.Is(err, ErrInvalid) {
		t.Errorf("the commit of a chunk whose key is from an hour ahead got %v", err)
	}
	put("dead", began.Add(time.Minute))
	for _, after := range []time.Duration{0, 30 * time.Minute, 59 * time.Minute} {
		s.now = func() time.Time { return began.Add(after) }
		if err := s.clean(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.held(t) != 3 {
			t.Fatalf("after %v %d chunks are left, want 3, because stage_ttl is 1h", after, s.held(t))
		}
	}
	s.now = func() time.Time { return began.Add(3*time.Hour + 2*time.Minute) }
	if err := s.clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.held(t) != 1 {
		t.Errorf("%d chunks are left, want only the committed one", s.held(t))
	}
	if got, err := s.Layout(t.Context(), "clicks"); err != nil || got.Stored > 200 || got.Stored < 1 {
		t.Errorf("%d bytes are counted, %v", got.Stored, err)
	}
}

// bucket is a store that has an S3 address.
type bucket struct{ storage.Store }

func (bucket) String() string { return "s3://lake/p/job/" }

func TestOnlyABucketIsOfferedToWriters(t *testing.T) {
	s := start(t)
	if l, err := s.Layout(t.Context(), "clicks"); err != nil || l.Upload.URL != "" {
		t.Errorf("the layout of a folder offers the upload %+v (%v), want none", l.Upload, err)
	}
	s.store = bucket{s.store}
	if l, err := s.Layout(t.Context(), "clicks"); err != nil || l.Upload.URL != "s3://lake/p/job" || l.Upload.Stream == "" || l.Upload.Now.IsZero() {
		t.Errorf("the layout of a bucket offers the upload %+v (%v)", l.Upload, err)
	}
}

func TestWhatWritersPutThemselvesCountsForMaxBytes(t *testing.T) {
	s := start(t)
	p, err := s.place(t.Context(), "clicks")
	if err != nil {
		t.Fatal(err)
	}
	put := func(id string) (string, int64) {
		t.Helper()
		noise := make([]byte, 700<<10)
		_, _ = rand.Read(noise)
		data, key := lines(string(noise)), chunk.NewKey(p.stream, 0, id, time.Now())
		if err := s.store.PutNew(t.Context(), key.String(), data); err != nil {
			t.Fatal(err)
		}
		h, err := chunk.ReadHeader(data)
		if err != nil {
			t.Fatal(err)
		}
		return chunk.Locator{Key: key.String(), Size: int64(len(data)), Records: h.Records, Sum: h.Sum}.String(), int64(len(data))
	}
	if _, err := s.Layout(t.Context(), "clicks"); err != nil { // lists the bucket before the chunks are put
		t.Fatal(err)
	}
	l, size := put("t1")
	if _, err := s.Commit(t.Context(), "clicks", "t1", []string{l}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Layout(t.Context(), "clicks"); err != nil || got.Stored != size {
		t.Errorf("%d bytes are counted (%v), but the chunk has %d", got.Stored, err, size)
	}
	l, _ = put("t2")
	_, err = s.Commit(t.Context(), "clicks", "t2", []string{l})
	if full, ok := errors.AsType[*Full](err); !ok || full.Most != 1<<20 {
		t.Errorf("a commit above max_bytes got %v, want Full", err)
	}
	if landed, _, err := s.Landed(t.Context(), "clicks", "t2"); err != nil || landed {
		t.Errorf("the commit above max_bytes landed: %v (%v), want false", landed, err)
	}
}

// A writer may put a chunk after its dataset was deleted. It is deleted while the master runs.
func TestChunksThatComeAfterTheirDatasetWasDeletedAreDeleted(t *testing.T) {
	s := start(t)
	s.staged(t, "t", 0, lines("a"))
	s.every, s.orphaned = time.Millisecond, time.Millisecond
	left := filepath.Join(s.store.(*storage.Folder).String(), ".new-left")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(left, time.Now(), time.Now().Add(-2*putWithin)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	deadline := time.After(5 * time.Minute)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := range 3 { // Run may find the first one in its first look; the others come later
		if err := s.store.Put(t.Context(), chunk.NewKey("sgone", 0, fmt.Sprint("t", i), time.Now()).String(), lines("b")); err != nil {
			t.Fatal(err)
		}
		for s.held(t) > 1 {
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("chunk %d is still there", i)
			}
		}
	}
	cancel()
	<-ended
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that a killed writer has left is still there (%v)", err)
	}
}

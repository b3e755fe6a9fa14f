package files

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/sourcetest"
)

// writable is a bucket that tests write into.
type writable interface {
	storage.Objects
	put(t testing.TB, name string, content []byte)
	remove(t testing.TB, name string)
}

// memory is a bucket in memory.
type memory struct {
	mu    sync.Mutex
	all   map[string]storage.Object
	data  map[string][]byte
	asked atomic.Int64
	pages atomic.Int64 // how many requests for names came
	limit int64        // the largest read that was asked for, in bytes

	meanwhile func(key string)       // called during a deletion, before the tag is compared
	refuses   func(key string) error // says why an object is not deleted
}

func newMemory() *memory {
	return &memory{all: map[string]storage.Object{}, data: map[string][]byte{}}
}

func (m *memory) String() string { return "s3://test" }

func (m *memory) put(_ testing.TB, name string, content []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sum := md5.Sum(content)
	m.data[name] = bytes.Clone(content)
	m.all[name] = storage.Object{Key: name, Size: int64(len(content)), Tag: hex.EncodeToString(sum[:]), Modified: time.Now()}
}

func (m *memory) remove(_ testing.TB, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.data, name)
	delete(m.all, name)
}

func (m *memory) Head(ctx context.Context, key string) (storage.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.all[key]
	if !ok {
		return o, fmt.Errorf("s3://test/%s: %w", key, storage.ErrNotFound)
	}
	return o, ctx.Err()
}

func (m *memory) ReadAt(ctx context.Context, key, tag string, p []byte, offset int64) error {
	o, err := m.Head(ctx, key)
	if err != nil {
		return err
	}
	if o.Tag != tag {
		return fmt.Errorf("s3://test/%s: %w", key, storage.ErrChanged)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked.Add(1)
	m.limit = max(m.limit, int64(len(p)))
	if copy(p, m.data[key][offset:]) < len(p) {
		return errors.New("the read goes beyond the end of the object")
	}
	return nil
}

func (m *memory) Remove(ctx context.Context, key, tag string) error {
	o, err := m.Head(ctx, key)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.meanwhile != nil {
		m.meanwhile(key)
		o = m.all[key]
	}
	if m.refuses != nil {
		if err := m.refuses(key); err != nil {
			return fmt.Errorf("s3://test/%s: %w", key, err)
		}
	}
	if o.Tag != tag {
		return fmt.Errorf("s3://test/%s: %w", key, storage.ErrChanged)
	}
	delete(m.data, key)
	delete(m.all, key)
	return nil
}

func (m *memory) Page(ctx context.Context, prefix, after string) ([]storage.Object, error) {
	m.pages.Add(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	var page []storage.Object
	for name, o := range m.all {
		if strings.HasPrefix(name, prefix) && name > after {
			page = append(page, o)
		}
	}
	slices.SortFunc(page, func(a, b storage.Object) int { return strings.Compare(a.Key, b.Key) })
	return page[:min(len(page), 7)], ctx.Err()
}

func opener(b storage.Objects) func(string, string, []string) (storage.Objects, error) {
	return func(string, string, []string) (storage.Objects, error) { return b, nil }
}

// inBucket is a place of the conformance suite: it puts the files of a folder into a bucket.
type inBucket struct {
	*folder
	bucket writable
	sent   int
}

func (b *inBucket) name(i int) string { return fmt.Sprintf("part-%06d", i) + b.suffix }

func (b *inBucket) send(t testing.TB, i int) {
	content, err := os.ReadFile(filepath.Join(b.dir, b.name(i)))
	if err != nil {
		t.Fatal(err)
	}
	b.bucket.put(t, b.name(i), content)
}

func (b *inBucket) Produce(t testing.TB, records [][]byte) {
	b.folder.Produce(t, records)
	for ; b.sent < b.files; b.sent++ {
		b.send(t, b.sent+1)
	}
}

func (b *inBucket) Open(t testing.TB, known []sources.Segment) sources.Source {
	t.Helper()
	s, err := Open(Options{Dataset: "d", Framing: b.framing, Known: known, Cache: b.cache, Objects: opener(b.bucket),
		Spec: &Spec{Root: "s3://test", Paths: []string{"."}, Verify: b.verify, MaxRecord: b.maxRecord}})
	if err != nil {
		t.Fatal(err)
	}
	s.blocks = b.blocks
	return s
}

// inBuckets is a harness whose places are buckets.
func inBuckets(h sourcetest.Harness, bucket func(testing.TB) writable) sourcetest.Harness {
	local := h.New
	h.New = func(t testing.TB) sourcetest.Place { return &inBucket{folder: local(t).(*folder), bucket: bucket(t)} }
	change := h.Change
	h.Change = func(t testing.TB, p sourcetest.Place) {
		b := p.(*inBucket)
		change(t, b.folder)
		b.send(t, 1)
	}
	h.Remove = func(t testing.TB, p sourcetest.Place) {
		b := p.(*inBucket)
		for i := range b.files {
			b.bucket.remove(t, b.name(i+1))
		}
	}
	h.Count = 10_000
	return h
}

func inMemory(testing.TB) writable { return newMemory() }

func TestLinesInABucketPassTheSuite(t *testing.T) {
	sourcetest.Run(t, inBuckets(harness(Framing{Kind: Lines, EmptyLines: true}, "\n", "", "fast", defaultBlocks), inMemory))
}

func TestQuotedCSVInABucketPassesTheSuite(t *testing.T) {
	sourcetest.Run(t, inBuckets(quotedHarness(tinyBlocks), inMemory))
}

func TestRawObjectsPassTheSuite(t *testing.T) {
	h := inBuckets(harness(Framing{Kind: Whole}, "", "", "fast", defaultBlocks), inMemory)
	h.Count = 1000
	sourcetest.Run(t, h)
}

func remote(t testing.TB, b storage.Objects, paths ...string) *Source {
	t.Helper()
	if len(paths) == 0 {
		paths = []string{"."}
	}
	s, err := Open(Options{Dataset: "d", Framing: Framing{Kind: Lines, EmptyLines: true}, Objects: opener(b),
		Spec: &Spec{Root: "s3://test", Paths: paths, Verify: "fast", MaxRecord: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAnObjectWhoseKeyHasAnEmptyFolderNameIsTold(t *testing.T) {
	for _, end := range []string{"", endNever} {
		for _, key := range []string{"a//1.csv", "/1.csv", "a/b//c/1.csv"} {
			m, log := newMemory(), &bytes.Buffer{}
			for _, name := range []string{"b.csv", "a/", "a//", key, key + "x"} {
				m.put(t, name, []byte("x\n"))
			}
			f := Spec{Root: "s3://test", Verify: "fast", MaxRecord: 1 << 20, End: end}
			f.Fill()
			s, err := Open(Options{Dataset: "d", Framing: Framing{Kind: Lines, EmptyLines: true}, Objects: opener(m), Spec: &f, Logger: slog.New(slog.NewTextHandler(log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			if segs := sourcetest.Segments(t, s, s.partition, 10); len(segs) != 1 {
				t.Errorf("%q, end %q: %d segments, want that of b.csv", key, end, len(segs))
			}
			if text := log.String(); strings.Count(text, "empty folder name") != 1 || !strings.Contains(text, "object=s3://test/"+key+"\n") {
				t.Errorf("%q, end %q: the log says %q", key, end, text)
			}
			s.Close()
		}
	}
}

func TestPathsNameTheSameObjectsAsFiles(t *testing.T) {
	names := []string{"a/1.csv", "a/2.csv", "a/b/3.csv", "a/.hid/4.csv", "a/_tmp/5.csv", "_SUCCESS", "b.csv", "ab/6.csv", "a[1].csv", "c d/ä.csv", "a/b/c/7.tsv"}
	m, dir := newMemory(), t.TempDir()
	for _, n := range names {
		m.put(t, n, []byte("x\n"))
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(n)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, n), []byte("x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m.put(t, "a/", nil) // the object that some tools make for a folder
	for _, paths := range [][]string{
		{"."}, {"a"}, {"a/b"}, {"*.csv"}, {"**/*.csv"}, {"a/*"}, {"a/**"}, {"**/b"}, {"b.csv", "a/1.csv"}, {"a[1].csv"}, {"?.csv", "**/c"},
		{"a/_tmp"}, {"a/.hid/*"}, {"a/*/*.csv"}, {"c d"}, {"a/1.csv", "a", "."}, {"**/*.tsv", "**/7*"}, {"_SUCCESS"}, {"nothing"}, {"*.nothing", "a"},
	} {
		local := lineSource(t, Options{Spec: &Spec{Root: dir, Paths: paths, Verify: "fast", MaxRecord: 1 << 20}, AllowedRoots: []string{dir}})
		want, wantErr := namesOf(t, local)
		got, err := namesOf(t, remote(t, m, paths...))
		if fmt.Sprint(got) != fmt.Sprint(want) || (err == nil) != (wantErr == nil) {
			t.Errorf("paths %q in a bucket: %v, %v; in a folder of this machine %v, %v", paths, got, err, want, wantErr)
		}
	}
}

func namesOf(t *testing.T, s *Source) (names []string, err error) {
	all, err := s.Segments(t.Context(), s.partition, -1, 1<<30)
	if err != nil {
		return nil, err
	}
	for _, g := range all {
		names = append(names, g.Name)
	}
	return names, nil
}

// endless is a bucket of so many objects. Each has one line, and is made when it is asked for.
type endless struct {
	memory
	objects, pages int
}

func (e *endless) Head(_ context.Context, key string) (storage.Object, error) {
	return storage.Object{Key: key, Size: 2, Tag: "t"}, nil
}

func (e *endless) ReadAt(_ context.Context, _, _ string, p []byte, offset int64) error {
	copy(p, "x\n"[offset:])
	return nil
}

func (e *endless) Page(_ context.Context, _, after string) ([]storage.Object, error) {
	e.pages++
	from := 0
	if after != "" {
		if _, err := fmt.Sscanf(after, "part-%d", &from); err != nil {
			return nil, err
		}
		from++
	}
	var page []storage.Object
	for i := from; i < min(from+1000, e.objects); i++ {
		page = append(page, storage.Object{Key: fmt.Sprintf("part-%07d", i), Size: 2, Tag: "t"})
	}
	return page, nil
}

// The names of a bucket are not kept in memory. Listed objects are: see the next test.
func TestTheNamesOfAMillionObjectsTakeTheMemoryOfAPage(t *testing.T) {
	e := &endless{objects: 1_000_000}
	s := remote(t, e)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	names, grown := 0, uint64(0)
	for {
		if err := s.findFiles(t.Context()); err != nil {
			t.Fatal(err)
		}
		names += len(s.list.files)
		s.list.next = len(s.list.files) // as if all were listed
		more, err := s.moreNames(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if e.pages%100 == 0 {
			runtime.GC()
			runtime.ReadMemStats(&after)
			grown = max(grown, after.HeapAlloc-min(before.HeapAlloc, after.HeapAlloc))
		}
		if !more {
			break
		}
	}
	if names != e.objects || grown > 4<<20 {
		t.Errorf("%d names, %d bytes more in memory", names, grown)
	}
	t.Logf("%d names in %d pages, at most %d bytes more in memory", names, e.pages, grown)
}

func TestAListedObjectTakesSomeHundredBytes(t *testing.T) {
	e := &endless{objects: 100_000}
	s := remote(t, e)
	heap := func() uint64 {
		var now runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&now)
		return now.HeapAlloc
	}
	before, n := heap(), 0
	for after := int64(-1); ; {
		segs, err := s.Segments(t.Context(), s.partition, after, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(segs) == 0 {
			break
		}
		n, after = n+len(segs), segs[len(segs)-1].ID
	}
	now := heap()
	runtime.KeepAlive(s)
	each := int64(now-min(now, before)) / int64(n)
	t.Logf("%d bytes for each of %d objects", each, n)
	if n != e.objects || each > 400 {
		t.Errorf("%d of %d objects are listed, and each takes %d bytes", n, e.objects, each)
	}
}

func TestAnObjectThatIsReplacedWhileItIsReadIsNamed(t *testing.T) {
	m := newMemory()
	line := strings.Repeat("x", 99) + "\n"
	m.put(t, "f", []byte(strings.Repeat(line, 40<<20/100)))
	s := remote(t, m)
	segments, err := s.Segments(t.Context(), s.partition, -1, 10)
	if err != nil {
		t.Fatal(err)
	}
	r := sources.Range{Partition: s.partition, End: segments[0].End}
	c, err := s.Open(t.Context(), r, sources.Position{}, segments[0].Locator)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	var b sources.Batch
	if err := c.Next(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	m.put(t, "f", []byte(strings.Repeat(strings.ToUpper(line), 40<<20/100)))
	for err == nil {
		if err = c.Next(t.Context(), &b); err == nil && bytes.Contains(b.Arena, []byte("X")) {
			t.Fatal("a read gave bytes of the new object")
		}
	}
	changed, ok := errors.AsType[*sources.Changed](err)
	if !ok || changed.Name != "f" || !strings.Contains(changed.What, "another object in its place: ETag ") {
		t.Errorf("reading a replaced object returns %v, want an error with its ETag", err)
	}
	m.remove(t, "f")
	if _, err := s.Open(t.Context(), r, sources.Position{}, segments[0].Locator); !errors.As(err, new(*sources.Truncated)) {
		t.Errorf("opening a deleted object returns %v, want Truncated", err)
	}
}

func TestObjectsAreReadInFewLargeRequests(t *testing.T) {
	m := newMemory()
	content := make([]byte, 64<<20)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(content)
	m.put(t, "f", content)
	s := remote(t, m)
	f, err := s.openFile(t.Context(), "f")
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 0, len(content))
	p := make([]byte, 300<<10)
	for len(got) < len(content) {
		n, err := f.ReadAt(p[:min(len(p), len(content)-len(got))], int64(len(got)))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p[:n]...)
	}
	if !bytes.Equal(got, content) {
		t.Fatal("the bytes read differ from those that were put")
	}
	if n := m.asked.Load(); n > 12 || m.limit > mostAtOnce*blockBytes {
		t.Errorf("%d requests of at most %d bytes for 64 MiB", n, m.limit)
	}
	if n := len(s.bucket.ahead.blocks); n > keptBlocks {
		t.Errorf("%d blocks are kept", n)
	}
	for range 2000 { // overlapping reads at random places
		off := int64(rng.Uint64() % uint64(len(content)))
		p := p[:min(len(p), len(content)-int(off))]
		if _, err := f.ReadAt(p, off); err != nil || !bytes.Equal(p, content[off:][:len(p)]) {
			t.Fatalf("at %d: %v", off, err)
		}
	}
	if n := s.bucket.ahead.used.Len(); n > keptBlocks || n != len(s.bucket.ahead.blocks) {
		t.Errorf("%d blocks are kept, and %d are known", n, len(s.bucket.ahead.blocks))
	}
}

// stuck answers no read until its context ends.
type stuck struct{ *memory }

func (s stuck) ReadAt(ctx context.Context, _, _ string, _ []byte, _ int64) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestAReaderThatGivesUpDoesNotWaitForTheBucket(t *testing.T) {
	m := newMemory()
	m.put(t, "f", []byte("a\nb\n"))
	segments, err := remote(t, m).Segments(t.Context(), "files:d", -1, 10)
	if err != nil {
		t.Fatal(err)
	}
	s := remote(t, stuck{m})
	c, err := s.Open(t.Context(), sources.Range{Partition: s.partition, End: 4}, sources.Position{}, segments[0].Locator)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if err := c.Next(ctx, &sources.Batch{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got the error %v, want %v", err, context.Canceled)
	}
	if err := errors.Join(c.Close(), s.Close()); err != nil { // ends the hanging request
		t.Error(err)
	}
}

package master

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/link"
	"github.com/headrace/headrace/internal/proof/leaks"
	"github.com/headrace/headrace/sources"
)

const spec = `name: clicks
files: {root: /data}
decode: {format: lines, columns: [{name: line, path: $value, dtype: string}]}
`

// shelf is a source that is only listed. It has n segments of unit bytes (default 100). fail makes
// listings fail.
type shelf struct {
	sources.Source
	n, unit int

	mu     sync.Mutex
	fail   func(after int64) error
	away   atomic.Int32 // the partition has no leader at so many calls of Bounds
	opened []int        // the number of known segments at each open
	closed int
	asked  []int64 // `after` of each listing
}

func (s *shelf) open(_ context.Context, _ *dataset.Spec, known []sources.Segment) (sources.Source, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened = append(s.opened, len(known))
	return s, nil
}

func (s *shelf) Partitions(context.Context) ([]sources.PartitionID, error) {
	return []sources.PartitionID{"files:clicks"}, nil
}

func (s *shelf) Bounds(_ context.Context, parts []sources.PartitionID) ([]sources.Bounds, error) {
	out := make([]sources.Bounds, len(parts))
	for i, p := range parts {
		out[i] = sources.Bounds{Partition: p, Bounded: true, Estimated: true}
		if s.away.Add(-1) >= 0 {
			out[i].Err = &sources.Temporary{Err: errors.New("it has no leader now"), Backoff: time.Millisecond}
		}
	}
	return out, nil
}

func (s *shelf) Segments(_ context.Context, _ sources.PartitionID, after int64, most int) ([]sources.Segment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, after)
	if s.fail != nil {
		if err := s.fail(after); err != nil {
			return nil, err
		}
	}
	var out []sources.Segment
	for id := after + 1; id < int64(s.n) && len(out) < most; id++ {
		out = append(out, sources.Segment{ID: id, End: int64(max(s.unit, 100)), Sealed: true, Locator: []byte{1}, Name: fmt.Sprintf("f%d", id)})
	}
	return out, nil
}

func (s *shelf) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
	return nil
}

func (s *shelf) set(fail func(int64) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// running is a master and a client of it.
type running struct {
	headracev1.DatasetsClient
	t    *testing.T
	m    *Master
	done chan error
	stop func() error
}

func start(t *testing.T, cfg Config) *running {
	t.Helper()
	before := goleak.IgnoreCurrent()
	cfg.Listen, cfg.Job, cfg.Model = "127.0.0.1:0", "test", "shared"
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	select {
	case <-m.Ready():
	case err := <-done:
		cancel()
		t.Fatal(err)
	}
	conn, err := link.Dial(link.Target{Address: m.Addr(), State: cfg.State}, link.TLS{})
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceValue(func() error {
		cancel()
		err := errors.Join(conn.Close(), <-done)
		leaks.None(t, before)
		return err
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return &running{headracev1.NewDatasetsClient(conn), t, m, done, stop}
}

func (r *running) apply(yaml string) {
	r.t.Helper()
	if _, err := r.Apply(r.t.Context(), &headracev1.ApplyRequest{Yaml: yaml}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *running) until(what string, ok func(*headracev1.Dataset) bool) *headracev1.Dataset {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		d, err := r.Describe(ctx, &headracev1.DescribeRequest{Name: "clicks"})
		if err != nil {
			r.t.Fatalf("%s: %v", what, err)
		}
		if ok(d) {
			return d
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			r.t.Fatalf("this did not happen in time: %s; the dataset is %v", what, d)
		}
	}
}

func complete(d *headracev1.Dataset) bool { return d.ListingComplete }

func TestListingIsCompleteAndDurable(t *testing.T) {
	dir, s := t.TempDir(), &shelf{n: 40}
	r := start(t, Config{State: dir, OpenSource: s.open})
	r.apply(spec)
	if d := r.until("complete listing", complete); d.Counts.Listed != 4000 || d.Partitions != 1 {
		t.Error(d)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if s.closed != len(s.opened) {
		t.Errorf("opened %d, closed %d", len(s.opened), s.closed)
	}
	// The next master knows all segments and need not open the source.
	opens := len(s.opened)
	r = start(t, Config{State: dir, OpenSource: s.open})
	if d := r.until("complete listing", complete); d.Counts.Listed != 4000 || len(s.opened) != opens {
		t.Error(d, s.opened)
	}
}

// A source may need long for each segment, for example for a large compressed file.
func TestTheFirstSegmentIsListedBeforeTheOthers(t *testing.T) {
	s, more := &shelf{n: 40}, make(chan struct{})
	goOn := sync.OnceFunc(func() { close(more) })
	defer goOn()
	s.set(func(after int64) error {
		if after >= 0 {
			<-more
		}
		return nil
	})
	r := start(t, Config{State: t.TempDir(), OpenSource: s.open})
	r.apply(spec)
	d := r.until("a segment", func(d *headracev1.Dataset) bool { return d.Counts.Listed > 0 })
	goOn()
	if d.Counts.Listed != 100 || d.ListingComplete {
		t.Errorf("%d units are listed first, want the 100 of one segment", d.Counts.Listed)
	}
	r.until("complete listing", complete)
	s.mu.Lock()
	defer s.mu.Unlock()
	if want := []int64{-1, 0, 1, 3, 7, 15, 31}; !slices.Equal(s.asked, want) {
		t.Errorf("the listings began after the segments %d, want %d", s.asked, want)
	}
}

func TestListingStaysAWindowAheadOfThePlan(t *testing.T) {
	const file = 16 << 20 // bytes
	s := &shelf{n: 10_000, unit: file}
	r := start(t, Config{State: t.TempDir(), OpenSource: s.open, AheadSegments: 100})
	r.apply(spec)
	r.until("a full window", func(d *headracev1.Dataset) bool { return d.Counts.Listed >= 100*file })
	// Nothing is read, so nothing moves the window. If the listing went on, some of the master's next
	// answers would show it.
	for range 20 {
		d := r.until("an answer", func(*headracev1.Dataset) bool { return true })
		if d.Counts.Listed > (100+listAtOnce)*file || d.ListingComplete {
			t.Fatalf("%d units are listed, complete: %v; want at most %d ahead", d.Counts.Listed, d.ListingComplete, (100+listAtOnce)*file)
		}
	}
}

func TestShuffleListsEverything(t *testing.T) {
	s := &shelf{n: 500}
	r := start(t, Config{State: t.TempDir(), OpenSource: s.open, AheadSegments: 10})
	r.apply(spec + "shuffle: {seed: 1}\n")
	if d := r.until("complete listing", complete); d.Counts.Listed != 50_000 {
		t.Error(d)
	}
}

func TestAListingErrorStopsTheDatasetAndResumeGoesOn(t *testing.T) {
	s := &shelf{n: 40}
	s.set(func(after int64) error {
		if after >= 15 {
			return errors.New("files:clicks: f16: permission denied")
		}
		return nil
	})
	r := start(t, Config{State: t.TempDir(), OpenSource: s.open})
	r.apply(spec)
	d := r.until("failed state", func(d *headracev1.Dataset) bool { return d.State == "failed" })
	if !strings.Contains(d.Reason, "f16: permission denied") {
		t.Error(d.Reason)
	}
	s.set(nil)
	if _, err := r.Resume(t.Context(), &headracev1.ResumeRequest{Name: "clicks"}); err != nil {
		t.Fatal(err)
	}
	if d := r.until("complete listing", complete); d.Counts.Listed != 4000 || d.State != "running" {
		t.Error(d)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := s.opened[len(s.opened)-1]; last != 16 {
		t.Errorf("the source was opened again with %d known segments, want 16", last)
	}
}

func TestATemporaryErrorIsTriedAgain(t *testing.T) {
	s := &shelf{n: 3}
	var left atomic.Int32
	left.Store(2)
	s.set(func(int64) error {
		if left.Add(-1) >= 0 {
			return &sources.Temporary{Err: errors.New("busy"), Backoff: time.Millisecond}
		}
		return nil
	})
	r := start(t, Config{State: t.TempDir(), OpenSource: s.open})
	r.apply(spec)
	if d := r.until("complete listing", complete); d.State != "running" || d.Counts.Listed != 300 {
		t.Error(d)
	}
}

func TestAPartitionWithoutALeaderIsAskedAgain(t *testing.T) {
	s := &shelf{n: 3}
	s.away.Store(2)
	r := start(t, Config{State: t.TempDir(), OpenSource: s.open})
	r.apply(spec)
	if d := r.until("complete listing", complete); d.State != "running" || s.away.Load() >= 0 {
		t.Error(d)
	}
}

func TestDeletingADatasetEndsItsListing(t *testing.T) {
	s := &shelf{n: 3}
	s.set(func(int64) error { return &sources.Temporary{Err: errors.New("busy"), Backoff: time.Hour} })
	r := start(t, Config{State: t.TempDir(), OpenSource: s.open})
	r.apply(spec)
	r.until("an answer", func(*headracev1.Dataset) bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.asked) > 0 })
	if _, err := r.Delete(t.Context(), &headracev1.DeleteRequest{Name: "clicks"}); err != nil {
		t.Fatal(err)
	}
	s.set(nil)
	r.apply(spec) // another dataset of the same name
	r.until("complete listing", complete)
}

func TestStopDuringListingLeavesNothingRunning(t *testing.T) {
	s := &shelf{n: 3}
	s.set(func(int64) error { return &sources.Temporary{Err: errors.New("busy"), Backoff: time.Hour} })
	r := start(t, Config{State: t.TempDir(), OpenSource: s.open})
	r.apply(spec)
	r.until("an answer", func(*headracev1.Dataset) bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.asked) > 0 })
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != len(s.opened) {
		t.Errorf("opened %d, closed %d", len(s.opened), s.closed)
	}
}

func TestConfigNamesWhatIsMissing(t *testing.T) {
	open := (&shelf{}).open
	for want, cfg := range map[string]Config{
		"OpenSource": {State: "s", Listen: "l"}, "State": {OpenSource: open, Listen: "l"}, "Listen": {OpenSource: open, State: "s"},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a config without %s got %v", want, err)
		}
	}
}

func TestAPortOffLoopbackWithoutTLSIsRefused(t *testing.T) {
	m, err := New(Config{State: t.TempDir(), Listen: "0.0.0.0:0", OpenSource: (&shelf{}).open})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "--tls-cert") {
		t.Error(err)
	}
}

// The end of a topic's partition is found once, and must be stored in one commit with its only segment.
// If the master died between two commits, the next one would find another end.
func TestTheOnlySegmentOfATopicsPartitionIsStoredWithItsEnd(t *testing.T) {
	s := &shelf{n: 1}
	s.set(func(after int64) error {
		if after >= 0 { // the broker is away
			return &sources.Temporary{Err: errors.New("no answer"), Backoff: time.Hour}
		}
		return nil
	})
	r := start(t, Config{State: t.TempDir(), OpenSource: s.open})
	r.apply("name: clicks\nkafka: {brokers: [\"localhost:9\"], topic: clicks}\ndecode: {format: lines, columns: [{name: line, path: $value, dtype: string}]}\n")
	d := r.until("a segment", func(d *headracev1.Dataset) bool { return d.Counts.Listed > 0 })
	s.mu.Lock()
	defer s.mu.Unlock()
	if !d.ListingComplete || !slices.Equal(s.asked, []int64{-1}) {
		t.Errorf("after the first listing the input is complete: %t, and listings began after %d; want true and one listing", d.ListingComplete, s.asked)
	}
}

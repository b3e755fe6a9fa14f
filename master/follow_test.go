package master

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

const liveSpec = `name: clicks
kafka: {brokers: ["nobody:1"], topic: clicks, start: latest, end: never, refresh: 100ms}
decode: lines
`

// river is a source without an end. A test moves its heads.
type river struct {
	sources.Source
	mu       sync.Mutex
	heads    map[sources.PartitionID]int64
	parts    []sources.PartitionID
	joined   []sources.PartitionID
	err      error // Partitions returns it
	listings int   // calls of Partitions
	down     error // Bounds returns it
	hangs    bool  // Bounds hangs until its context ends or hangs is false again
	replaced []sources.Replaced
	unsure   error // Compare returns it
	compares int   // calls of Compare
}

func (r *river) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *river) add(head int64) sources.PartitionID {
	id := sources.PartitionID(fmt.Sprintf("river:%d", len(r.parts)))
	r.parts = append(r.parts, id)
	r.heads[id] = head
	return id
}

func newRiver(heads ...int64) *river {
	r := &river{heads: map[sources.PartitionID]int64{}}
	for _, h := range heads {
		r.add(h)
	}
	return r
}

func (r *river) open(context.Context, *dataset.Spec, []sources.Segment) (sources.Source, error) {
	return r, nil
}

func (r *river) Partitions(context.Context) ([]sources.PartitionID, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listings++
	return append([]sources.PartitionID(nil), r.parts...), r.err
}

func (r *river) Joined(parts []sources.PartitionID) {
	r.set(func() { r.joined = append(r.joined, parts...) })
}

func (r *river) Segments(_ context.Context, p sources.PartitionID, after int64, _ int) ([]sources.Segment, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if after >= 0 {
		return nil, errors.New("the river has one segment, and another one was asked for")
	}
	return []sources.Segment{{Start: 0, End: r.heads[p], Locator: []byte{1}, Name: string(p)}}, nil
}

func (r *river) Bounds(ctx context.Context, parts []sources.PartitionID) ([]sources.Bounds, error) {
	for r.hanging() && ctx.Err() == nil {
		pause(ctx, time.Millisecond)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []sources.Bounds
	for _, p := range parts {
		all = append(all, sources.Bounds{Partition: p, Head: sources.Position{Offset: r.heads[p]}})
	}
	return all, r.down
}

// Compare reports the replaced records. After that the source does not answer, so that a test sees the
// reported head.
func (r *river) Compare(context.Context) ([]sources.Replaced, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.compares++
	told := r.replaced
	if r.replaced = nil; told != nil {
		r.down = &sources.Temporary{Err: errors.New("no more for now")}
	}
	return told, r.unsure
}

func (r *river) hanging() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hangs
}

func (r *river) Close() error { return nil }

func listed(n int64) func(*headracev1.Dataset) bool {
	return func(d *headracev1.Dataset) bool { return d.Counts.Listed == n }
}

func followed(t *testing.T, r *river, state string) *running {
	t.Helper()
	return start(t, Config{State: state, OpenSource: r.open, HeadsEvery: 5 * time.Millisecond, HeadPatience: 50 * time.Millisecond, SilentAfter: 20 * time.Millisecond})
}

func TestHeadsAndNewPartitionsOfALiveInputAreFollowed(t *testing.T) {
	r, state := newRiver(10, 20), t.TempDir()
	m := followed(t, r, state)
	m.apply(liveSpec)
	m.until("what is there", listed(30))
	r.set(func() { r.heads["river:0"] = 15 })
	d := m.until("more in a partition", listed(35))
	if d.State != "running" || d.ListingComplete || len(r.joined) != 0 {
		t.Errorf("the dataset is %v, and the partitions %v joined later; want running, not complete, and none", d, r.joined)
	}
	r.set(func() { r.add(7) })
	if d := m.until("another partition", listed(42)); d.Partitions != 3 {
		t.Error(d)
	}
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	// The next master knows where each partition begins, and asks for their heads.
	r.set(func() { r.heads["river:2"] = 8; r.add(1) })
	m = followed(t, r, state)
	m.until("heads and a partition that came meanwhile", listed(44))
	if fmt.Sprint(r.joined) != "[river:2 river:3]" {
		t.Errorf("the partitions %v joined later, want river:2 and river:3", r.joined)
	}
}

func TestASourceThatDoesNotAnswerIsWaitedFor(t *testing.T) {
	r := newRiver(10)
	m := followed(t, r, t.TempDir())
	r.set(func() { r.err = &sources.Temporary{Err: errors.New("nobody is there")} })
	m.apply(liveSpec)
	r.set(func() { r.err, r.down = nil, &sources.Temporary{Err: errors.New("not yet")} })
	m.until("what is there", listed(10))
	r.set(func() { r.heads["river:0"], r.down = 12, nil })
	if d := m.until("more", listed(12)); d.State != "running" {
		t.Error(d)
	}
}

// A broker that is frozen does not even refuse: the question hangs.
func TestASourceThatDoesNotAnswerIsToldUntilItAnswersAgain(t *testing.T) {
	r := newRiver(10)
	m := followed(t, r, t.TempDir())
	m.apply(liveSpec)
	m.until("what is there", listed(10))
	answers := func(d *headracev1.Dataset) bool { return d.Silence == nil }
	for _, c := range []struct {
		what   string
		begins func()
		reason string
	}{
		{"a source that refuses", func() { r.down = &sources.Temporary{Err: errors.New("its leader is away")} }, "its leader is away"},
		{"a source that hangs", func() { r.hangs = true }, ""},
	} {
		before := time.Now()
		m.until("an answer", answers)
		r.set(c.begins)
		// On a busy machine the source may count as silent before that, with no reason.
		d := m.until(c.what, func(d *headracev1.Dataset) bool { return d.Silence != nil && d.Silence.Reason == c.reason })
		if s := d.Silence; d.State != "running" || s.Seconds < 0.02 || s.SinceMs > time.Now().UnixMilli() || s.SinceMs < before.UnixMilli()-1000 {
			t.Errorf("%s: the dataset is %v, want running and silent for at least 20 ms", c.what, d)
		}
		r.set(func() { r.down, r.hangs = nil, false })
		m.until("an answer after "+c.what, answers)
	}
}

// The name servers of RocketMQ list the queues of a broker that hangs. That does not count as an answer of the broker.
func TestAListingDoesNotEndTheSilenceOfASourceWhosePartitionsDoNotAnswer(t *testing.T) {
	r := newRiver(10)
	m := followed(t, r, t.TempDir())
	m.apply(liveSpec)
	m.until("what is there", listed(10))
	r.set(func() { r.down = &sources.Temporary{Err: errors.New("it hangs")} })
	first := m.until("silence", func(d *headracev1.Dataset) bool { return d.Silence.GetReason() == "it hangs" }).Silence.SinceMs
	r.set(func() { r.listings = 0 })
	m.until("more listings", func(*headracev1.Dataset) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.listings > 2
	})
	d := m.until("silence", func(d *headracev1.Dataset) bool { return d.Silence != nil })
	if d.Silence.SinceMs != first {
		t.Errorf("the silence began at %d, want %d as before the listings", d.Silence.SinceMs, first)
	}
	r.set(func() { r.down = nil })
	m.until("an answer", func(d *headracev1.Dataset) bool { return d.Silence == nil })
}

// noted is a shard service with one dataset. It notes what it is told about the dataset's source.
type noted struct {
	ledger
	set  serve.Dataset
	said []string
}

func (n *noted) Datasets(context.Context) ([]serve.Dataset, error) {
	return []serve.Dataset{n.set}, nil
}
func (n *noted) SourceAsked(uint32)          { n.said = append(n.said, "asked") }
func (n *noted) SourceSilent(uint32, string) { n.said = append(n.said, "silent") }
func (n *noted) SourceAnswered(uint32)       { n.said = append(n.said, "answered") }

// After a listing that was answered, the heads may not be asked for until half a minute later. In that
// time the source must not count as silent.
func TestAListingThatWasAnsweredLeavesNoQuestionOpen(t *testing.T) {
	spec, err := dataset.Parse([]byte(liveSpec), "")
	if err != nil {
		t.Fatal(err)
	}
	r := newRiver(10)
	srv := &noted{set: serve.Dataset{Spec: spec, Partitions: []serve.Partition{{Identity: "river:0"}}}}
	f := &following{listing: &listing{srv: srv, log: slog.New(slog.DiscardHandler), spec: spec}, src: r, joined: true, begun: true}
	for _, c := range []struct {
		err    error
		silent bool // it was silent before
		want   string
	}{
		{nil, false, "[asked answered]"},
		{nil, true, "[asked]"},
		{&sources.Temporary{Err: errors.New("it hangs")}, false, "[asked silent]"},
	} {
		r.err, f.silent, srv.said = c.err, c.silent, nil
		if err := f.listAgain(t.Context()); err != nil || fmt.Sprint(srv.said) != c.want {
			t.Errorf("the listing got %v, silent before: %v: the shard service was told %v (%v), want %s", c.err, c.silent, srv.said, err, c.want)
		}
	}
}

func TestATopicThatIsGoneStopsItsLiveDatasetAndIsNamed(t *testing.T) {
	r := newRiver(10)
	m := followed(t, r, t.TempDir())
	m.apply(liveSpec)
	m.until("what is there", listed(10))
	r.set(func() { r.err = &sources.Changed{Name: "topic clicks", What: "it was deleted"} })
	d := m.until("the end", func(d *headracev1.Dataset) bool { return d.State == "failed" })
	if !strings.Contains(d.Reason, "topic clicks") || !strings.Contains(d.Reason, "it was deleted") {
		t.Error(d.Reason)
	}
}

// A new leader may report a lower head for a moment. So a lower head counts only if it stays. (A head
// below planned records is a matter of the core: scenario diverged.txt.)
func TestAHeadThatFellIsBelievedOnlyWhenItStaysSo(t *testing.T) {
	r := newRiver(10)
	m := followed(t, r, t.TempDir())
	m.apply(liveSpec)
	m.until("what is there", listed(10))
	began := time.Now()
	r.set(func() { r.heads["river:0"] = 4 })
	m.until("the lower head counts", listed(4)) // none of the records was planned, so none is lost
	if waited := time.Since(began); waited < 50*time.Millisecond {
		t.Errorf("the lower head counted after %v, want at least 50 ms", waited)
	}
	r.set(func() { r.heads["river:0"] = 12 })
	if d := m.until("it goes on", listed(12)); d.State != "running" {
		t.Error(d)
	}
}

// Records above a fallen head may have been replaced. A lower head counts only when the source can
// compare its records with those that were read.
func TestAHeadThatFellIsNotBelievedWhileTheSourceCannotCompare(t *testing.T) {
	r := newRiver(10)
	m := start(t, Config{State: t.TempDir(), OpenSource: r.open, HeadsEvery: time.Millisecond, HeadPatience: time.Nanosecond})
	m.apply(liveSpec)
	m.until("what is there", listed(10))
	r.set(func() {
		r.heads["river:0"], r.compares = 4, 0
		r.unsure = &sources.Temporary{Err: errors.New("the broker does not answer")}
	})
	d := m.until("some looks", func(*headracev1.Dataset) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.compares > 5
	})
	if d.Counts.Listed != 10 {
		t.Errorf("the source cannot compare, but %d records are listed, want 10", d.Counts.Listed)
	}
	r.set(func() { r.unsure = nil })
	m.until("the lower head counts", listed(4))
}

// If a source has replaced records, its head does not fall, because it has other records there already.
func TestRecordsThatTheSourceHasReplacedAreTakenBackAtOnce(t *testing.T) {
	r := newRiver(10, 20)
	m := followed(t, r, t.TempDir())
	m.apply(liveSpec)
	m.until("what is there", listed(30))
	r.set(func() { r.replaced = []sources.Replaced{{Partition: "river:0", From: 4, Before: 10}} })
	m.until("the records that stay", listed(24)) // none of the others was planned, so none is lost
	r.set(func() { r.down = nil })
	if d := m.until("it goes on", listed(30)); d.State != "running" {
		t.Error(d)
	}
}

func TestReplacedRecordsOfAnInputThatEndsAreTold(t *testing.T) {
	r := newRiver()
	r.replaced = []sources.Replaced{{Partition: "sealed", From: 4, Before: 10}, {Partition: "grows", From: 5, Before: 9}, {Partition: "settled", From: 1, Before: 2}}
	srv := &heads{}
	w := &watch{srv: srv}
	needs := []serve.Need{{Partition: 1, Identity: "grows"}, {Partition: 2, Identity: "sealed"}, {Partition: 3, Identity: "new"}}
	segs := [][]sources.Segment{{{ID: 0, End: 9}}, {{ID: 3, End: 5, Sealed: true}, {ID: 4, End: 10, Sealed: true}}, nil}
	if err := w.compare(t.Context(), r, needs, segs); err != nil {
		t.Fatal(err)
	}
	if len(srv.told) != 1 || srv.told[0] != (serve.Head{Partition: 2, Segment: 4, End: 4, Fallen: true}) {
		t.Errorf("the core was told %+v, want a fallen head at 4 in segment 4 of partition 2", srv.told)
	}
}

type heads struct {
	kept
	told []serve.Head
}

func (s *heads) Heads(_ context.Context, all []serve.Head) error {
	s.told = append(s.told, all...)
	return nil
}

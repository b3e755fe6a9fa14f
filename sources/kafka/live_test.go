//go:build kafka

package kafka

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

func liveOptions(o Options) Options {
	o.End = End{At: brokers.Never}
	return o
}

// tail keeps reading the only segment of partition 0, and sends the texts of its records.
func tail(t *testing.T, s *Source) <-chan string {
	t.Helper()
	parts, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	segs, err := s.Segments(t.Context(), parts[0], -1, 2)
	if err != nil || len(segs) != 1 {
		t.Fatalf("%v (%v)", segs, err)
	}
	g := segs[0]
	c, err := s.Open(t.Context(), sources.Range{Partition: parts[0], Start: g.Start, End: g.End + 1<<40}, sources.Position{Offset: g.Start}, g.Locator)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	out, ended := make(chan string), make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-ended
		c.Close()
	})
	go func() {
		defer close(ended)
		var b sources.Batch
		for {
			if err := c.Next(ctx, &b); err != nil {
				if ctx.Err() == nil {
					t.Errorf("the tail ended: %v", err)
				}
				return
			}
			for _, r := range b.Recs {
				select {
				case out <- string(b.Arena[r.Value[0]:r.Value[1]]):
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return out
}

func next(t *testing.T, from <-chan string) string {
	t.Helper()
	select {
	case text := <-from:
		return text
	case <-time.After(5 * time.Minute):
		t.Fatal("no record comes")
		return ""
	}
}

// A tail delivers records once they are committed, in the order of the log, and none of an aborted
// transaction.
func TestATailWaitsBelowAnOpenTransaction(t *testing.T) {
	b := realBroker(t)
	topic := newTopic(t, b, 1, nil)
	s := openWith(t, liveOptions(options(b, topic)), nil)
	defer s.Close()
	records := tail(t, s)
	w := startWriter(t, b.Addr(), topic)
	committed := w.list()
	for i, want := range committed {
		if got := next(t, records); got != want {
			t.Fatalf("record %d is %s, want %s", i, got, want)
		}
	}
	if got := w.line(); got != "open" {
		t.Fatalf("got %v, want %v", got, "open")
	}
	// A whole round of long polls brings no record of the open transaction.
	select {
	case got := <-records:
		t.Fatalf("%s came, but its transaction is still open", got)
	case <-time.After(2 * tailWait * time.Millisecond):
	}
	if _, err := io.WriteString(w.in, "commit\n"); err != nil {
		t.Fatal(err)
	}
	for i, want := range w.list()[len(committed):] {
		if got := next(t, records); got != want {
			t.Fatalf("record %d after the open transaction is %s, want %s", i, got, want)
		}
	}
}

// A tail that begins at the head says at its first answer that it waits. The broker must not hold that
// answer back, because until then no other partition is begun.
func TestATailTellsAtOnceThatItWaitsAtTheHead(t *testing.T) {
	b := realBroker(t)
	s := openWith(t, liveOptions(options(b, newTopic(t, b, 1, nil))), nil)
	defer s.Close()
	s.tailWait = 600_000
	parts, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	segs, err := s.Segments(t.Context(), parts[0], -1, 2)
	if err != nil || len(segs) != 1 {
		t.Fatalf("%v (%v)", segs, err)
	}
	c, err := s.Open(t.Context(), sources.Range{Partition: parts[0], End: 1 << 40}, sources.Position{}, segs[0].Locator)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	heads := 0
	c.(sources.Tailing).OnHead(func(head int64) {
		if heads++; head != 0 {
			t.Errorf("the head is %d", head)
		}
		cancel()
	})
	if err := c.Next(ctx, &sources.Batch{}); ctx.Err() == nil || heads == 0 {
		t.Errorf("the tail named the head %d times before the broker's wait was over (%v)", heads, err)
	}
}

// With start: latest, records that are in a live topic at the start are left out. Records and partitions
// that are added later are read whole.
func TestWhatJoinsALiveTopicIsReadFromItsBeginning(t *testing.T) {
	b := realBroker(t)
	topic := newTopic(t, b, 1, nil)
	produce(t, b, topic, 0, 0, []message{{value: []byte("old")}})
	o := liveOptions(options(b, topic))
	o.Start = End{At: brokers.Latest}
	s := openWith(t, o, nil)
	defer s.Close()
	parts, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.Segments(t.Context(), parts[0], -1, 5)
	if err != nil || len(first) != 1 || first[0].Start != 1 || first[0].Sealed {
		t.Fatalf("%v (%v)", first, err)
	}
	if err := b.AddPartitions(t.Context(), topic, 2); err != nil {
		t.Fatal(err)
	}
	produce(t, b, topic, 1, 0, []message{{value: []byte("a")}, {value: []byte("b")}})
	later := openWith(t, o, first) // another master
	defer later.Close()
	var joined sources.PartitionID
	for deadline := time.Now().Add(5 * time.Minute); joined == "" && time.Now().Before(deadline); {
		if parts, err = later.Partitions(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(parts) == 2 {
			joined = parts[1]
		}
	}
	later.Joined([]sources.PartitionID{joined})
	segs, err := later.Segments(t.Context(), joined, -1, 5)
	if err != nil || len(segs) != 1 || segs[0].Start != 0 || segs[0].End != 2 {
		t.Errorf("%v (%v)", segs, err)
	}
	if same, err := later.Segments(t.Context(), parts[0], -1, 5); err != nil || len(same) != 1 || same[0].Start != 1 {
		t.Errorf("%v (%v)", same, err)
	}
}

func TestALiveTopicThatIsDeletedOrMadeAgainIsNamed(t *testing.T) {
	b := realBroker(t)
	topic := newTopic(t, b, 1, nil)
	s := openWith(t, liveOptions(options(b, topic)), nil)
	defer s.Close()
	if _, err := s.Partitions(t.Context()); err != nil {
		t.Fatal(err)
	}
	told := func(what string) {
		t.Helper()
		var changed *sources.Changed
		for deadline := time.Now().Add(5 * time.Minute); ; {
			_, err := s.Partitions(t.Context())
			if errors.As(err, &changed) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("it says %v", err)
			}
		}
		if text := changed.Error(); !strings.Contains(text, "topic "+topic) || !strings.Contains(text, what) {
			t.Errorf("the error %q must name topic %s and say %q", text, topic, what)
		}
	}
	if err := b.DeleteTopic(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	told("the topic was deleted")
	if err := b.CreateTopic(t.Context(), topic, 1, nil); err != nil {
		t.Fatal(err)
	}
	told("made again: its id is ")
}

// If a topic is deleted, its lost records end at the last head that was seen, not at the end of a lease.
func TestADeletedTopicIsToldUpToItsHead(t *testing.T) {
	b := realBroker(t)
	topic := newTopic(t, b, 1, nil)
	produce(t, b, topic, 0, 0, numbered(0, 10, 0))
	s := openFor(t, liveOptions(options(b, topic)))
	r, loc := one(t, s)
	r.End = 1 << 40
	c, err := s.Open(t.Context(), r, at(r), loc)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var batch sources.Batch
	if err := c.Next(t.Context(), &batch); err != nil || batch.End != 10 {
		t.Fatalf("read up to %d: %v", batch.End, err)
	}
	if err := b.DeleteTopic(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	var changed *sources.Changed
	for deadline := time.Now().Add(5 * time.Minute); !errors.As(err, &changed); {
		if err = c.Next(t.Context(), &batch); err == nil || time.Now().After(deadline) {
			t.Fatalf("it says %v", err)
		}
	}
	if changed.Range.Start != 10 || changed.Range.End != 10 || !strings.Contains(err.Error(), topic+"/0") || strings.Contains(err.Error(), "[") {
		t.Errorf("%+v: %v", changed.Range, err)
	}
}

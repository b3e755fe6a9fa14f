//go:build kafka

package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
	"github.com/headrace/headrace/sources/sourcetest"
)

func numbered(from, n, size int) []message {
	all := make([]message, n)
	for i := range all {
		all[i].value = fmt.Appendf(nil, "%08d%s", from+i, strings.Repeat("v", size))
	}
	return all
}

// one returns the first segment of the source's only partition.
func one(t *testing.T, s *Source) (sources.Range, []byte) {
	t.Helper()
	parts := asked(t, func() ([]sources.PartitionID, error) { return s.Partitions(t.Context()) })
	g := segments(t, s)[0]
	return sources.Range{Partition: parts[0], Segment: g.ID, Start: g.Start, End: g.End}, g.Locator
}

func at(r sources.Range) sources.Position {
	return sources.Position{Segment: r.Segment, Offset: r.Start}
}

func TestRecordsDeletedBelowAndInsideARangeAreToldExactly(t *testing.T) {
	b := realBroker(t)
	topic := newTopic(t, b, 1, nil)
	produce(t, b, topic, 0, 0, numbered(0, 1000, 10))
	s := openWith(t, options(b, topic), nil)
	defer s.Close()
	whole, loc := one(t, s)
	if err := b.DeleteRecords(t.Context(), topic, 0, 400); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ start, end, lostFrom, lostTo int64 }{
		{0, 1000, 0, 400}, {300, 500, 300, 400}, {0, 200, 0, 200}, {100, 400, 100, 400},
	} {
		r := whole
		r.Start, r.End = c.start, c.end
		got, err := sourcetest.Read(t.Context(), s, r, at(r), loc)
		var lost *sources.Truncated
		if !errors.As(err, &lost) || len(got) > 0 {
			t.Fatalf("%v: %d records, %v", r, len(got), err)
		}
		want := r
		want.Start, want.End = c.lostFrom, c.lostTo
		if lost.Lost != want {
			t.Errorf("%v is reported as lost, want %v", lost.Lost, want)
		}
	}
	r := whole
	r.Start = 400
	if got, err := sourcetest.Read(t.Context(), s, r, at(r), loc); err != nil || len(got) != 600 {
		t.Errorf("reading the records that are left: %d records, %v", len(got), err)
	}
	// A new dataset begins where the log begins. A start at a lost offset is refused.
	o := options(b, topic)
	fresh := openWith(t, o, nil)
	defer fresh.Close()
	if r, _ := one(t, fresh); r.Start != 400 {
		t.Errorf("a new dataset begins at %d", r.Start)
	}
	o.Start.Places = map[string]int64{"0": 399}
	late := openWith(t, o, nil)
	defer late.Close()
	var lost *sources.Truncated
	if _, err := late.Segments(t.Context(), whole.Partition, -1, 1); !errors.As(err, &lost) || lost.Lost.Start != 399 || lost.Lost.End != 400 {
		t.Errorf("a start at 399: %v", err)
	}
}

func TestRecordsDeletedInMidReadAreToldExactly(t *testing.T) {
	b := realBroker(t)
	topic := newTopic(t, b, 1, nil)
	const n = 30_000
	produce(t, b, topic, 0, 0, numbered(0, n, 1000)) // more than one fetch brings
	s := openWith(t, options(b, topic), nil)
	defer s.Close()
	r, loc := one(t, s)
	c, err := s.Open(t.Context(), r, at(r), loc)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	next := int64(0)
	var batch sources.Batch
	for first := true; ; first = false {
		err := c.Next(t.Context(), &batch)
		if err != nil {
			var lost *sources.Truncated
			if !errors.As(err, &lost) || lost.Lost.Start != next || lost.Lost.End != n-10 {
				t.Fatalf("after %d: %v", next, err)
			}
			return
		}
		for _, rec := range batch.Recs {
			if rec.Offset != next {
				t.Fatalf("offset %d after %d", rec.Offset, next-1)
			}
			next++
		}
		if first {
			if err := b.DeleteRecords(t.Context(), topic, 0, n-10); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestCompactedOffsetsAreHolesAndNotErrors(t *testing.T) {
	b := realBroker(t)
	topic := newTopic(t, b, 1, map[string]string{"cleanup.policy": "compact", "segment.ms": "100",
		"min.cleanable.dirty.ratio": "0.01", "min.compaction.lag.ms": "0"})
	latest := map[string]string{}
	total := 0
	write := func(n int) {
		all := make([]message, n)
		for i := range all {
			key := fmt.Sprint("key", total%17)
			latest[key] = fmt.Sprint("value", total)
			all[i] = message{key: []byte(key), value: []byte(latest[key])}
			total++
		}
		produce(t, b, topic, 0, everyCodec[total%5], all)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for {
		write(500) // enough for a new segment of the log, so that the ones before it are compacted
		s := openWith(t, options(b, topic), nil)
		got := everything(t, s)
		seen := map[string]string{}
		last := int64(-1)
		for _, g := range got {
			if g.Position.Offset <= last {
				t.Fatalf("offset %d after %d", g.Position.Offset, last)
			}
			last = g.Position.Offset
			seen[string(g.Key)] = string(g.Value)
		}
		for k, v := range latest {
			if seen[k] != v {
				t.Fatalf("%s is %q, want %q", k, seen[k], v)
			}
		}
		if len(got) < total*2/3 && total > 2000 {
			splitsHoles(t, s, got)
			s.Close()
			return
		}
		s.Close()
		if brokers.Pause(ctx, 300*time.Millisecond) != nil {
			t.Fatalf("Kafka compacted nothing: %d records of %d", len(got), total)
		}
	}
}

// splitsHoles reads a compacted range in pieces, most of them without a record. Kafka may go on compacting,
// so the records are compared with the newest values.
func splitsHoles(t *testing.T, s *Source, whole []sourcetest.Got) {
	t.Helper()
	r, loc := one(t, s)
	known := map[int64]string{}
	for _, g := range whole {
		known[g.Position.Offset] = string(g.Value)
	}
	for from := r.Start; from < r.End; from += 97 {
		part := r
		part.Start, part.End = from, min(from+97, r.End)
		got, err := sourcetest.Read(t.Context(), s, part, at(part), loc)
		if err != nil {
			t.Fatalf("%v: %v", part, err)
		}
		for _, g := range got {
			if o := g.Position.Offset; o < part.Start || o >= part.End || known[o] != string(g.Value) {
				t.Fatalf("%v: offset %d holds %q, was %q", part, o, g.Value, known[o])
			}
		}
	}
}

func TestKeysHeadersAndTimesAreThoseOfTheRecord(t *testing.T) {
	b := realBroker(t)
	for _, codec := range everyCodec {
		t.Run(codec.String(), func(t *testing.T) {
			topic := newTopic(t, b, 1, nil)
			when := time.UnixMilli(1_700_000_000_123)
			produce(t, b, topic, 0, codec, []message{
				{key: []byte("k"), value: []byte("v"), time: when, headers: []kafkago.Header{{Key: "a", Value: []byte("1")}, {Key: "bb", Value: []byte{}}}},
				{value: []byte("no key"), time: when.Add(7 * time.Millisecond)},
				{key: []byte("tombstone"), time: when},
				{key: []byte("empty"), value: []byte{}, time: when},
			})
			s := openWith(t, options(b, topic), nil)
			defer s.Close()
			r, loc := one(t, s)
			c, err := s.Open(t.Context(), r, at(r), loc)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			var batch sources.Batch
			if err := c.Next(t.Context(), &batch); err != nil || len(batch.Recs) != 4 || batch.End != 4 {
				t.Fatal(err, len(batch.Recs), batch.End)
			}
			text := func(p [2]int32) string { return string(batch.Arena[p[0]:p[1]]) }
			var said []string
			for _, rec := range batch.Recs {
				line := fmt.Sprintf("%d %q=%q", rec.Time-when.UnixMilli(), text(rec.Key), text(rec.Value))
				if rec.Tombstone {
					line += " null"
				}
				for _, h := range rec.Headers {
					line += fmt.Sprintf(" %s:%s", text(h.Key), text(h.Value))
				}
				said = append(said, line)
			}
			if got, want := strings.Join(said, "; "), `0 "k"="v" a:1 bb:; 7 ""="no key"; 0 "tombstone"="" null; 0 "empty"=""`; got != want {
				t.Errorf("read %s\nwant %s", got, want)
			}
			if err := c.Next(t.Context(), &batch); !errors.Is(err, io.EOF) {
				t.Errorf("got the error %v, want %v", err, io.EOF)
			}
		})
	}
}

// Java's compressors differ from those of the client in these tests: its snappy has frames (xerial), and
// its lz4 has other blocks. A topic's compression.type makes the broker compress records itself.
func TestWhatKafkaItselfCompressedIsReadAsItWasWritten(t *testing.T) {
	b := realBroker(t)
	for _, codec := range everyCodec[1:] {
		t.Run(codec.String(), func(t *testing.T) {
			topic := newTopic(t, b, 1, map[string]string{"compression.type": codec.String()})
			all := numbered(0, 3000, 300)
			all[1234].value = bytes.Repeat([]byte("long"), 900)
			produce(t, b, topic, 0, 0, all)
			s := openFor(t, options(b, topic))
			_, loc := one(t, s)
			p, err := parseLocator(loc)
			if err != nil {
				t.Fatal(err)
			}
			f, _, err := s.client.fetch(t.Context(), p, 0, unknownEpoch, fetchLeast, 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			h, err := parseHeader(f.records)
			if err != nil || h.codec() != int16(codec) {
				t.Fatalf("the broker has stored the batch with codec %d, want %v (%v)", h.codec(), codec, err)
			}
			if codec == kafkago.Snappy && !bytes.HasPrefix(f.records[headerSize:], xerial) {
				t.Errorf("its snappy begins with %x", f.records[headerSize:][:16])
			}
			for i, g := range everything(t, s) {
				if !bytes.Equal(g.Value, all[i].value) {
					t.Fatalf("record %d is %.40q", i, g.Value)
				}
			}
			if n := len(everything(t, s)); n != len(all) {
				t.Errorf("%d records of %d", n, len(all))
			}
		})
	}
}

func TestStartAndEndMayBeTimesAndOffsets(t *testing.T) {
	b := realBroker(t)
	topic := newTopic(t, b, 2, nil)
	begin := time.UnixMilli(1_700_000_000_000)
	for p := range 2 {
		all := numbered(0, 100, 0)
		for i := range all {
			all[i].time = begin.Add(time.Duration(i) * time.Second)
		}
		produce(t, b, topic, p, 0, all)
	}
	second := func(n int) time.Time { return begin.Add(time.Duration(n) * time.Second) }
	for name, c := range map[string]struct {
		start, end End
		want       string
	}{
		"all":            {End{At: brokers.Earliest}, End{At: brokers.Latest}, "[0,100) [0,100)"},
		"nothing":        {End{At: brokers.Latest}, End{At: brokers.Latest}, ""},
		"times":          {End{At: brokers.AtTime, Time: second(20)}, End{At: brokers.AtTime, Time: second(30)}, "[20,30) [20,30)"},
		"between two":    {End{At: brokers.AtTime, Time: second(20).Add(time.Millisecond)}, End{At: brokers.Latest}, "[21,100) [21,100)"},
		"a time to come": {End{At: brokers.Earliest}, End{At: brokers.AtTime, Time: second(5000)}, "[0,100) [0,100)"},
		"offsets": {End{At: brokers.Earliest, Places: map[string]int64{"0": 5, topic + "/1": 6}},
			End{At: brokers.Latest, Places: map[string]int64{"1": 50}}, "[5,100) [6,50)"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(b, topic)
			o.Start, o.End = c.start, c.end
			s := openWith(t, o, nil)
			defer s.Close()
			var said []string
			for _, g := range segments(t, s) {
				said = append(said, fmt.Sprintf("[%d,%d)", g.Start, g.End))
			}
			if got := strings.Join(said, " "); got != c.want {
				t.Errorf("listed %s, want %s", got, c.want)
			}
		})
	}
	o := options(b, topic)
	o.End.Places = map[string]int64{"0": 101}
	s := openWith(t, o, nil)
	defer s.Close()
	r, _ := one(t, openFor(t, options(b, topic)))
	if _, err := s.Segments(t.Context(), r.Partition, -1, 1); err == nil || !strings.Contains(err.Error(), "101") {
		t.Errorf("an end above the head: got the error %v, want one with %q", err, "101")
	}
}

func openFor(t *testing.T, o Options) *Source {
	t.Helper()
	s := openWith(t, o, nil)
	t.Cleanup(func() { s.Close() })
	return s
}

func TestNewPartitionsAreListedAndATopicThatIsNotThereIsNamed(t *testing.T) {
	b := realBroker(t)
	topic := newTopic(t, b, 1, nil)
	s := openFor(t, options(b, topic))
	before, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.AddPartitions(t.Context(), topic, 3); err != nil {
		t.Fatal(err)
	}
	produce(t, b, topic, 2, 0, numbered(0, 10, 0))
	after, err := s.Partitions(t.Context())
	if err != nil || len(before) != 1 || len(after) != 3 || after[0] != before[0] {
		t.Fatalf("%v then %v (%v)", before, after, err)
	}
	// Connections learn of new partitions within a second. Until then the error is temporary.
	for deadline := time.Now().Add(5 * time.Minute); ; {
		_, err := s.Segments(t.Context(), after[2], -1, 1)
		var again *sources.Temporary
		if err == nil {
			break
		}
		if !errors.As(err, &again) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if got := everything(t, s); len(got) != 10 {
		t.Errorf("%d records", len(got))
	}
	missing := openFor(t, options(b, "no-such-topic"))
	if _, err := missing.Partitions(t.Context()); err == nil || !strings.Contains(err.Error(), "no-such-topic") {
		t.Errorf("a topic that is not there: got the error %v, want one with %q", err, "no-such-topic")
	}
}

func TestATopicMadeAgainIsAnotherPartitionAndTold(t *testing.T) {
	b := realBroker(t)
	topic := newTopic(t, b, 1, nil)
	produce(t, b, topic, 0, 0, numbered(0, 10, 0))
	s := openFor(t, options(b, topic))
	r, loc := one(t, s)
	known := segments(t, s)
	harness(t, 0).Change(t, &place{b: b, topic: topic})
	if err := b.AddPartitions(t.Context(), topic, 3); err != nil {
		t.Fatal(err)
	}
	produce(t, b, topic, 0, 0, numbered(0, 10, 0))

	// The controller answers before the broker that leads the partition has dropped it.
	got, err := sourcetest.Read(t.Context(), s, r, at(r), loc)
	for err == nil && len(got) == 10 {
		got, err = sourcetest.Read(t.Context(), s, r, at(r), loc)
	}
	var changed *sources.Changed
	if !errors.As(err, &changed) || len(got) > 0 {
		t.Errorf("reading the old one: %d records, %v", len(got), err)
	}
	p, _ := parseLocator(loc)
	for _, want := range []string{p.String(), "was " + p.topic.String(), "its id is ", "delete the dataset and apply it again"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it does not say %q: %v", want, err)
		}
	}
	if _, err := openWithCleanup(t, options(b, topic), known).Partitions(t.Context()); !errors.As(err, &changed) {
		t.Errorf("listing on with what was known: %v", err)
	}
	fresh, _ := one(t, openFor(t, options(b, topic)))
	if fresh.Partition == r.Partition {
		t.Errorf("both are %s", r.Partition)
	}
}

// A topic of the same name in another cluster has other records.
func TestBrokersOfAnotherClusterAreTold(t *testing.T) {
	b := realBroker(t)
	topic := newTopic(t, b, 1, nil)
	produce(t, b, topic, 0, 0, numbered(0, 10, 0))
	s := openFor(t, options(b, topic))
	r, loc := one(t, s)
	p, err := parseLocator(loc)
	if err != nil {
		t.Fatal(err)
	}
	p.cluster = "another-cluster"
	r.Partition = p.id()
	if _, err := s.Open(t.Context(), r, at(r), p.locator()); err == nil || !strings.Contains(err.Error(), "another-cluster") {
		t.Errorf("a range of another cluster: got the error %v, want one with %q", err, "another-cluster")
	}
	o := options(b, topic)
	planned := openWithCleanup(t, o, []sources.Segment{{End: 10, Sealed: true, Locator: p.locator(), Name: p.String()}})
	var again *sources.Temporary
	if _, err := planned.Partitions(t.Context()); err == nil || errors.As(err, &again) || !strings.Contains(err.Error(), "another-cluster: correct kafka.brokers") {
		t.Errorf("a dataset that was planned on another cluster: %v", err)
	}
}

func TestATopicThatIsDeletedIsTold(t *testing.T) {
	b := realBroker(t)
	topic := newTopic(t, b, 1, nil)
	produce(t, b, topic, 0, 0, numbered(0, 10, 0))
	s := openFor(t, options(b, topic))
	r, loc := one(t, s)
	if err := b.DeleteTopic(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	// The controller answers before the broker that leads the partition has dropped it.
	got, err := sourcetest.Read(t.Context(), s, r, at(r), loc)
	for err == nil && len(got) == 10 {
		got, err = sourcetest.Read(t.Context(), s, r, at(r), loc)
	}
	var changed *sources.Changed
	if !errors.As(err, &changed) || !strings.Contains(err.Error(), "the topic was deleted") || len(got) > 0 {
		t.Errorf("%d records, %v", len(got), err)
	}
}

func openWithCleanup(t *testing.T, o Options, known []sources.Segment) *Source {
	t.Helper()
	s := openWith(t, o, known)
	t.Cleanup(func() { s.Close() })
	return s
}

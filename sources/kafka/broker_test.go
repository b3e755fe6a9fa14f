//go:build kafka

package kafka

// The tests behind the tag kafka run on a real broker: make test-kafka.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
	"github.com/headrace/headrace/sources/sourcetest"
)

var shared struct {
	once   sync.Once
	broker *testbroker.Broker
	err    error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.broker != nil {
		if err := shared.broker.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// realBroker is one Kafka for all tests that do not harm it.
func realBroker(t testing.TB) *testbroker.Broker {
	t.Helper()
	shared.once.Do(func() {
		shared.broker, shared.err = testbroker.StartKafka(context.Background(), testbroker.Options{Secure: true, Steady: true, DeletesEvery: 500 * time.Millisecond})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.broker
}

var topics atomic.Int64

func newTopic(t testing.TB, b *testbroker.Broker, partitions int, config map[string]string) string {
	t.Helper()
	name := fmt.Sprintf("t%d-%d", os.Getpid(), topics.Add(1))
	if err := b.CreateTopic(t.Context(), name, partitions, config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.DeleteTopic(context.Background(), name); err != nil && !errors.Is(err, kafkago.UnknownTopicOrPartition) {
			t.Logf("deleting %s: %v", name, err)
		}
	})
	return name
}

// message is one record to produce. The library's own records can be read only once.
type message struct {
	key, value []byte
	headers    []kafkago.Header
	time       time.Time
}

// produce appends messages to one partition, in batches of at most a few hundred
// KiB, and returns when they are there.
func produce(t testing.TB, b *testbroker.Broker, topic string, partition int, codec kafkago.Compression, all []message) {
	t.Helper()
	client, done := b.Client()
	defer done()
	for len(all) > 0 {
		n, size := 0, 0
		for n < len(all) && n < 1000 && (n == 0 || size+len(all[n].value)+len(all[n].key) < 600_000) {
			size += len(all[n].value) + len(all[n].key)
			n++
		}
		put(t, client, topic, partition, codec, all[:n])
		all = all[n:]
	}
}

func put(t testing.TB, client *kafkago.Client, topic string, partition int, codec kafkago.Compression, all []message) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	for {
		records := make([]kafkago.Record, len(all))
		for i, m := range all {
			records[i] = kafkago.Record{Time: m.time, Headers: m.headers, Value: kafkago.NewBytes(m.value)}
			if m.key != nil {
				records[i].Key = kafkago.NewBytes(m.key)
			}
		}
		res, err := client.Produce(t.Context(), &kafkago.ProduceRequest{Topic: topic, Partition: partition,
			RequiredAcks: kafkago.RequireAll, Compression: codec, Records: kafkago.NewRecordReader(records...)})
		if err == nil {
			err = res.Error
		}
		if err == nil {
			return
		}
		// Try again only after an error that says that nothing was written.
		if !testbroker.NothingWritten(err) || time.Now().After(deadline) {
			t.Fatalf("producing to %s/%d: %v", topic, partition, err)
		}
	}
}

// place is a topic of the conformance suite.
type place struct {
	b          *testbroker.Broker
	topic      string
	partitions int
	codecs     []kafkago.Compression
	rng        *rand.Rand
	next       int
}

func (p *place) Produce(t testing.TB, records [][]byte) {
	t.Helper()
	parts := make([][]message, p.partitions)
	for _, r := range records {
		parts[p.next%p.partitions] = append(parts[p.next%p.partitions], message{value: r, key: r[:min(3, len(r))], time: time.UnixMilli(int64(1700000000000 + p.next))})
		p.next++
	}
	for i, all := range parts {
		for len(all) > 0 {
			n := min(len(all), 1+p.rng.IntN(1000))
			produce(t, p.b, p.topic, i, p.codecs[p.rng.IntN(len(p.codecs))], all[:n])
			all = all[n:]
		}
	}
}

func (p *place) Border() time.Time { return time.UnixMilli(int64(1700000000000 + p.next)) }

func (p *place) Open(t testing.TB, known []sources.Segment) sources.Source {
	t.Helper()
	return openWith(t, options(p.b, p.topic), known)
}

func openWith(t testing.TB, o Options, known []sources.Segment) *Source {
	t.Helper()
	o.Known = known
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func options(b *testbroker.Broker, topics ...string) Options {
	return Options{Dataset: "d", Brokers: []string{b.Addr()}, Topics: topics, MaxRecord: 4096,
		Start: End{At: brokers.Earliest}, End: End{At: brokers.Latest}, headWithin: 500 * time.Millisecond}
}

var everyCodec = []kafkago.Compression{0, kafkago.Gzip, kafkago.Snappy, kafkago.Lz4, kafkago.Zstd}

func harness(t *testing.T, codecs ...kafkago.Compression) sourcetest.Harness {
	b := realBroker(t)
	return sourcetest.Harness{
		New: func(t testing.TB) sourcetest.Place {
			return &place{b: b, topic: newTopic(t, b, 2, nil), partitions: 2, codecs: codecs, rng: rand.New(rand.NewPCG(1, 2))}
		},
		Slow:       true,
		Contiguous: true,
		MaxRecord:  4096,
		Tail: func(t testing.TB, p sourcetest.Place) sources.Source {
			o := options(b, p.(*place).topic)
			o.End.At = brokers.Never
			return openWith(t, o, nil)
		},
		Change: func(t testing.TB, p sourcetest.Place) {
			name := p.(*place).topic
			if err := b.DeleteTopic(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			deadline := time.Now().Add(5 * time.Minute)
			for err := errors.New("no try"); err != nil; {
				if err = b.CreateTopic(t.Context(), name, 2, nil); err != nil && time.Now().After(deadline) {
					t.Fatal(err)
				}
			}
		},
		Remove: func(t testing.TB, p sourcetest.Place) {
			for i := range 2 {
				if err := b.DeleteRecords(t.Context(), p.(*place).topic, i, -1); err != nil {
					t.Fatal(err)
				}
			}
		},
	}
}

func TestPlainTopicsPassTheSuite(t *testing.T) {
	sourcetest.Run(t, harness(t, 0))
}

func TestCompressedTopicsPassTheSuite(t *testing.T) {
	sourcetest.Run(t, harness(t, everyCodec...))
}

// everything reads all segments of a source in order.
func everything(t testing.TB, s *Source) []sourcetest.Got {
	t.Helper()
	var all []sourcetest.Got
	for _, p := range asked(t, func() ([]sources.PartitionID, error) { return s.Partitions(t.Context()) }) {
		for _, g := range sourcetest.Segments(t, s, p, 10) {
			got, err := sourcetest.Read(t.Context(), s, sources.Range{Partition: p, Segment: g.ID, Start: g.Start, End: g.End},
				sources.Position{Segment: g.ID, Offset: g.Start}, g.Locator)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, got...)
		}
	}
	return all
}

func texts(all []sourcetest.Got) string {
	var b bytes.Buffer
	for i, g := range all {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.Write(g.Value)
	}
	return b.String()
}

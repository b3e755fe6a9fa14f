//go:build kafka

package produce

import (
	"context"
	"errors"
	"hash/crc32"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/headrace/headrace/internal/proof/demo/clicklog"
	"github.com/headrace/headrace/internal/proof/leaks"
	"github.com/headrace/headrace/internal/proof/testbroker"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const records, partitions = 60_000, 3

func startBroker(t *testing.T) *testbroker.Broker {
	t.Helper()
	b, err := testbroker.StartKafka(t.Context(), testbroker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// writer writes without compression.
type writer struct{ *testbroker.Appender }

func (w writer) Append(ctx context.Context, partition int, end int64, values [][]byte, sending func()) error {
	return w.Appender.Append(ctx, partition, end, values, 0, sending)
}

// produceTo is a producer with a log of its own.
func produceTo(t *testing.T, address, topic string) *Producer {
	t.Helper()
	dir := t.TempDir()
	o := clicklog.Options{LogDir: filepath.Join(dir, "log"), TruthDir: filepath.Join(dir, "truth"), Records: records, Seed: 3}
	m, err := clicklog.Write(t.Context(), o)
	if err == nil {
		err = m.SetTopic(o.LogDir, o.TruthDir, clicklog.Topic{Name: topic, Partitions: partitions, Stripe: 50})
	}
	if err != nil {
		t.Fatal(err)
	}
	return &Producer{Writer: writer{testbroker.NewAppender(address, topic)}, Manifest: m, LogDir: o.LogDir, TruthDir: o.TruthDir, Rate: 30_000}
}

func TestAProducerOnARealBroker(t *testing.T) {
	b := startBroker(t)
	for _, topic := range []string{"clicks", "shared"} {
		if err := b.CreateTopic(t.Context(), topic, partitions, nil); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("that is not alone reports it", func(t *testing.T) { isNotAlone(t, b, produceTo(t, b.Addr(), "shared")) })
	t.Run("produces every record once through kills", func(t *testing.T) { isKilled(t, b, produceTo(t, b.Addr(), "clicks")) })
}

// When the broker dies, a request that is on its way is carried out or not. At the end every record is in
// the topic once, where the truth says.
func isKilled(t *testing.T, b *testbroker.Broker, p *Producer) {
	ended := make(chan error, 1)
	go func() { ended <- p.Run(t.Context()) }() // ends with the test
	for _, at := range []int{records / 4, records / 2} {
		for p.Records() < at {
			if err := pause(t.Context(), time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	truth, err := clicklog.ReadTruth(p.TruthDir)
	if err != nil {
		t.Fatal(err)
	}
	heads := truth.Topic.Heads(records)
	for partition, head := range heads {
		r := kafkago.NewReader(kafkago.ReaderConfig{Brokers: []string{b.Addr()}, Topic: "clicks", Partition: partition, MaxBytes: 8 << 20, MaxWait: 50 * time.Millisecond})
		for offset := range head {
			m, err := r.ReadMessage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if n := truth.Topic.Number(partition, offset); m.Offset != offset || crc32.ChecksumIEEE(m.Value) != truth.Lines[n] {
				t.Fatalf("offset %d of partition %d is %d and not record %d", m.Offset, partition, offset, n)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func isNotAlone(t *testing.T, b *testbroker.Broker, p *Producer) {
	client, done := b.Client()
	defer done()
	_, err := client.Produce(t.Context(), &kafkago.ProduceRequest{Topic: "shared", Partition: 1, RequiredAcks: kafkago.RequireAll,
		Records: kafkago.NewRecordReader(kafkago.Record{Value: kafkago.NewBytes([]byte("another's"))})})
	if err != nil {
		t.Fatal(err)
	}
	p.Rate = 1e6
	if err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "shared/1 ends at offset 20001") {
		t.Errorf("got %v", err)
	}
}

func TestAProducerWithoutItsBrokerEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := produceTo(t, "127.0.0.1:1", "clicks").Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

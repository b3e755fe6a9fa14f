//go:build pulsar

package pulsar

// The tests with the tag pulsar run on a real broker: make test-pulsar.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/apache/pulsar-client-go/pulsar"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
	"github.com/headrace/headrace/sources/sourcetest"
)

var shared struct {
	once   sync.Once
	broker *testbroker.Pulsar
	client client.Client
	err    error
}

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(java.folder)
	if shared.client != nil {
		shared.client.Close()
	}
	if shared.broker != nil {
		if err := shared.broker.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// realBroker is one Pulsar for all tests that do not harm it.
func realBroker(t testing.TB) *testbroker.Pulsar {
	t.Helper()
	shared.once.Do(func() {
		shared.broker, shared.err = testbroker.StartPulsar(context.Background(), testbroker.PulsarOptions{EntriesPerLedger: 200})
		if shared.err == nil {
			shared.client, shared.err = newClient(&Options{Service: shared.broker.URL(), Logger: quiet()})
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.broker
}

var topics atomic.Int64

// newTopic makes a topic. It has no partitions if partitions is 0.
func newTopic(t testing.TB, b *testbroker.Pulsar, partitions int) string {
	t.Helper()
	name := fmt.Sprintf("t%d-%d", os.Getpid(), topics.Add(1))
	if err := b.CreateTopic(t.Context(), name, partitions); err != nil {
		t.Fatal(err)
	}
	return name
}

func admincall(t testing.TB, b *testbroker.Pulsar, method, path string, body any) {
	t.Helper()
	if _, err := b.Admin(context.Background(), method, path, body); err != nil {
		t.Fatal(err)
	}
}

func partitionNames(topic string, partitions int) []string {
	if partitions == 0 {
		return []string{topic}
	}
	var all []string
	for n := range partitions {
		all = append(all, fmt.Sprintf("%s-partition-%d", topic, n))
	}
	return all
}

// place is a topic of the conformance suite.
type place struct {
	b          *testbroker.Pulsar
	topic      string
	partitions int
	max        int64
	rng        *rand.Rand
	next       int
}

var codecs = []client.CompressionType{client.NoCompression, client.LZ4, client.ZLib, client.ZSTD, client.SNAPPY}

func (p *place) Produce(t testing.TB, records [][]byte) {
	t.Helper()
	names := partitionNames(p.topic, p.partitions)
	var all []client.Producer
	for _, name := range names {
		o := client.ProducerOptions{Topic: name, CompressionType: codecs[p.rng.IntN(len(codecs))],
			SendTimeout:             -1, // otherwise the library keeps a goroutine for that time
			BatchingMaxPublishDelay: time.Second, BatchingMaxMessages: uint(1 + p.rng.IntN(1000)), BatchingMaxSize: 1 << 20,
			DisableBatching: len(records) < 200 && p.rng.IntN(4) == 0}
		all = append(all, producerOf(t, shared.client, o))
	}
	var failed atomic.Pointer[error]
	for _, r := range records {
		pr := all[p.next%len(all)]
		m := &client.ProducerMessage{Payload: r, Key: string(r[:min(3, len(r))]), EventTime: time.UnixMilli(int64(1700000000000 + p.next))}
		pr.SendAsync(t.Context(), m, func(_ client.MessageID, _ *client.ProducerMessage, err error) {
			if err != nil {
				failed.Store(&err)
			}
		})
		if p.next++; p.rng.IntN(200) == 0 {
			_ = pr.FlushWithCtx(t.Context())
		}
	}
	for i, pr := range all {
		if err := pr.FlushWithCtx(t.Context()); err != nil {
			t.Fatal(err)
		}
		pr.Close()
		if len(records) > 40 && p.rng.IntN(3) == 0 { // begin another ledger, but not for the small pieces of the live test, which needs only one
			admincall(t, p.b, "PUT", "persistent/public/default/"+names[i]+"/unload", nil)
		}
	}
	if err := failed.Load(); err != nil {
		t.Fatal(*err)
	}
}

func (p *place) options(end brokers.At) Options {
	return Options{Dataset: "test", Service: p.b.URL(), Admin: p.b.AdminURL(), Topics: []string{p.topic},
		Start: End{At: brokers.Earliest}, End: End{At: end}, MaxRecord: p.max}
}

func (p *place) Open(t testing.TB, known []sources.Segment) sources.Source {
	t.Helper()
	o := p.options(brokers.Latest)
	o.Known = known
	return mustOpen(t, o)
}

func mustOpen(t testing.TB, o Options) *Source {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	for _, partitions := range []int{3, 0} {
		t.Run(fmt.Sprint(partitions, " partitions"), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
			sourcetest.Run(t, sourcetest.Harness{
				New: func(t testing.TB) sourcetest.Place {
					return &place{b: b, topic: newTopic(t, b, partitions), partitions: partitions, max: 100_000, rng: rng}
				},
				Slow:      true,
				MaxRecord: 100_000,
				Change: func(t testing.TB, sp sourcetest.Place) {
					p := sp.(*place)
					deleteTopic(t, b, p.topic, partitions)
					if err := b.CreateTopic(t.Context(), p.topic, partitions); err != nil {
						t.Fatal(err)
					}
					p.Produce(t, [][]byte{[]byte("another")})
				},
				Tail: func(t testing.TB, sp sourcetest.Place) sources.Source {
					p := sp.(*place)
					return mustOpen(t, p.options(brokers.Never))
				},
				Roll: func(t testing.TB, sp sourcetest.Place) {
					for _, name := range partitionNames(sp.(*place).topic, partitions) {
						admincall(t, b, "PUT", "persistent/public/default/"+name+"/unload", nil)
					}
				},
				Remove: func(t testing.TB, sp sourcetest.Place) { trim(t, b, sp.(*place).topic, partitions) },
			})
		})
	}
}

// connect makes the connection that all producers of the tests share.
func connect(t testing.TB, b *testbroker.Pulsar) {
	t.Helper()
	producerOf(t, shared.client, client.ProducerOptions{Topic: newTopic(t, b, 0), SendTimeout: -1}).Close()
}

func deleteTopic(t testing.TB, b *testbroker.Pulsar, topic string, partitions int) {
	t.Helper()
	path := "persistent/public/default/" + topic
	if partitions > 0 {
		path += "/partitions"
	}
	admincall(t, b, "DELETE", path+"?force=true", nil)
}

// trim makes the broker delete everything that was written: it sets the retention of the topic's namespace
// to nothing, and rolls the ledgers over.
func trim(t testing.TB, b *testbroker.Pulsar, topic string, partitions int) {
	t.Helper()
	admincall(t, b, "POST", "namespaces/public/default/retention", map[string]int{"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
	t.Cleanup(func() {
		admincall(t, b, "POST", "namespaces/public/default/retention", map[string]int{"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
	})
	for _, name := range partitionNames(topic, partitions) {
		path := "persistent/public/default/" + name
		var before, now internalStats
		stats(t, b, name, &before)
		admincall(t, b, "PUT", path+"/unload", nil)
		deadline := time.Now().Add(3 * time.Minute)
		for {
			stats(t, b, name, &now)
			if now.Ledgers[0].Ledger > before.Ledgers[len(before.Ledgers)-1].Ledger {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s is not trimmed: %+v", name, now)
			}
			_, _ = b.Admin(t.Context(), "POST", path+"/trim", nil)
			time.Sleep(50 * time.Millisecond)
		}
	}
}

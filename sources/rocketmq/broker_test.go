//go:build rocketmq

package rocketmq

// The tests with the tag rocketmq run on a real broker: make test-rocketmq.

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	official "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
	"github.com/headrace/headrace/sources/sourcetest"
)

var shared struct {
	once     sync.Once
	broker   *testbroker.RocketMQ
	producer official.Producer
	err      error
}

func TestMain(m *testing.M) {
	rlog.SetLogLevel("error")
	code := m.Run()
	if shared.broker != nil {
		if err := shared.broker.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// small makes the files of the commit log so small, and deletes them so soon, that a test can wait for it.
var small = map[string]string{"mappedFileSizeCommitLog": "8388608", "cleanResourceInterval": "1000", "maxMessageSize": "4194304"}

// realBroker returns one broker for all tests that do not harm it, and the official client to write with.
// That client's goroutines run as long as the process, so it is started once, before any test looks at
// goroutines.
func realBroker(t testing.TB) (*testbroker.RocketMQ, official.Producer) {
	t.Helper()
	shared.once.Do(func() {
		if shared.broker, shared.err = testbroker.StartRocketMQ(context.Background(), testbroker.RocketMQOptions{Set: small}); shared.err == nil {
			shared.producer, shared.err = newProducer(shared.broker, "shared", primitive.Credentials{})
		}
		if shared.err == nil { // connect it: a producer connects when it first sends
			topic := newTopic(t, shared.broker, 1)
			send(t, shared.producer, shared.broker.RocketBroker, topic, 0, primitive.NewMessage(topic, []byte("first")))
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.broker, shared.producer
}

// newProducer returns a producer that never sends a message twice by itself.
func newProducer(b *testbroker.RocketMQ, group string, k primitive.Credentials) (official.Producer, error) {
	p, err := official.NewProducer(producer.WithNameServer([]string{b.NameServer()}), producer.WithGroupName(group), producer.WithInstanceName(group),
		producer.WithRetry(0), producer.WithQueueSelector(producer.NewManualQueueSelector()), producer.WithCredentials(k))
	if err != nil {
		return nil, err
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	return p, nil
}

var topics atomic.Int64

func newTopic(t testing.TB, b *testbroker.RocketMQ, queues int) string {
	t.Helper()
	name := fmt.Sprintf("t%d-%d", os.Getpid(), topics.Add(1))
	if err := b.CreateTopic(t.Context(), name, queues); err != nil {
		t.Fatal(err)
	}
	return name
}

// send appends messages to one queue and returns the offset of the first one. The official client always
// waits three seconds for an answer. On a busy machine the answer may come later, so send looks at the end
// of the queue to know whether the messages are there.
func send(t testing.TB, p official.Producer, broker *testbroker.RocketBroker, topic string, queue int, all ...*primitive.Message) int64 {
	t.Helper()
	for _, m := range all {
		m.Topic, m.Queue = topic, &primitive.MessageQueue{Topic: topic, BrokerName: broker.Name(), QueueId: queue}
	}
	ends := broker.NewAppender(topic)
	defer ends.Close()
	before, err := ends.End(t.Context(), queue)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Minute); ; {
		res, err := p.SendSync(t.Context(), all...)
		if err == nil && res.Status != primitive.SendOK {
			err = fmt.Errorf("status %d", res.Status)
		}
		if err == nil {
			return res.QueueOffset
		}
		if !strings.Contains(err.Error(), "route info not found") { // with this error nothing was sent
			for range 400 { // so many looks, and not 20 s, in which a busy machine may have stood still
				time.Sleep(50 * time.Millisecond)
				if at, err := ends.End(t.Context(), queue); err == nil && at >= before+int64(len(all)) {
					return before
				}
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("sending to %s/%s/%d: %v", topic, broker.Name(), queue, err)
		}
		time.Sleep(50 * time.Millisecond) // meanwhile the client tries to learn the route
	}
}

// place is a topic of the conformance suite.
type place struct {
	b      *testbroker.RocketMQ
	p      official.Producer
	topic  string
	queues int
	rng    *rand.Rand
	next   int
}

func (p *place) Produce(t testing.TB, records [][]byte) {
	t.Helper()
	parts := make([][]*primitive.Message, p.queues)
	for _, r := range records {
		m := primitive.NewMessage(p.topic, r).WithTag("t").WithKeys([]string{string(r[:min(3, len(r))])})
		parts[p.next%p.queues] = append(parts[p.next%p.queues], m)
		p.next++
	}
	for i, all := range parts {
		for len(all) > 0 {
			n := min(len(all), 1+p.rng.IntN(2000))
			if n == 2 {
				n = 1
			}
			send(t, p.p, p.b.RocketBroker, p.topic, i, all[:n]...)
			all = all[n:]
		}
		if n := len(parts[i]); n > 0 {
			p.visible(t, i)
		}
	}
}

// visible waits until the queue's head includes what was sent. The broker's index of a queue follows its
// commit log.
func (p *place) visible(t testing.TB, queue int) {
	t.Helper()
	if err := p.b.Reaches(t.Context(), remoting.Queue{Topic: p.topic, ID: queue}, int64((p.next+p.queues-1-queue)/p.queues)); err != nil {
		t.Fatal(err)
	}
}

// holds waits until queue 0 of a topic has that many messages.
func holds(t testing.TB, b *testbroker.RocketBroker, topic string, n int64) {
	t.Helper()
	if err := b.Reaches(t.Context(), remoting.Queue{Topic: topic}, n); err != nil {
		t.Fatal(err)
	}
}

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

func openFor(t testing.TB, o Options) *Source {
	t.Helper()
	s := openWith(t, o, nil)
	t.Cleanup(func() { s.Close() })
	return s
}

func options(b *testbroker.RocketMQ, topics ...string) Options {
	return Options{Dataset: "d", NameServers: []string{b.NameServer()}, Topics: topics, MaxRecord: 4096,
		Start: End{At: brokers.Earliest}, End: End{At: brokers.Latest}, headWithin: 500 * time.Millisecond, topicWithin: 2 * time.Second}
}

// fill writes so much that every file of the commit log that existed before is closed.
func fill(t testing.TB, b *testbroker.RocketMQ, p official.Producer) {
	t.Helper()
	topic, body := newTopic(t, b, 1), make([]byte, 2<<20)
	for range 5 {
		_, _ = crand.Read(body) // random, because the client would compress other bytes
		send(t, p, b.RocketBroker, topic, 0, primitive.NewMessage(topic, bytes.Clone(body)))
	}
}

func TestTopicsPassTheSuite(t *testing.T) {
	b, p := realBroker(t)
	sourcetest.Run(t, sourcetest.Harness{
		New: func(t testing.TB) sourcetest.Place {
			return &place{b: b, p: p, topic: newTopic(t, b, 2), queues: 2, rng: rand.New(rand.NewPCG(1, 2))}
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
			if err := b.CreateTopic(t.Context(), name, 2); err != nil {
				t.Fatal(err)
			}
		},
		Remove: func(t testing.TB, pl sourcetest.Place) {
			fill(t, b, p)
			for i := range 2 {
				if err := b.Trim(t.Context(), remoting.Queue{Topic: pl.(*place).topic, ID: i}, 25); err != nil {
					t.Fatal(err)
				}
			}
		},
	})
}

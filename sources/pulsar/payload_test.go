//go:build pulsar

package pulsar

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/apache/pulsar-client-go/pulsar"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
	"github.com/headrace/headrace/sources/sourcetest"
)

func producer(t testing.TB, o client.ProducerOptions) client.Producer {
	t.Helper()
	o.SendTimeout = -1
	p := producerOf(t, shared.client, o)
	t.Cleanup(p.Close)
	return p
}

// producerOf tries until it has a producer. The official client waits ten seconds for the broker, and a busy
// machine may need longer.
func producerOf(t testing.TB, c client.Client, o client.ProducerOptions) client.Producer {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		p, err := c.CreateProducer(o)
		if err == nil {
			return p
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func send(t testing.TB, p client.Producer, m *client.ProducerMessage) client.MessageID {
	t.Helper()
	id, err := p.Send(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// A chunked message has the position of its last chunk. That is so for a range that begins between its
// chunks, if a ledger ends between them, and with other messages in between.
func TestAMessageInChunksIsReadWholeWhereverOneBegins(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	topic := newTopic(t, b, 0)
	large := producer(t, client.ProducerOptions{Topic: topic, DisableBatching: true, EnableChunking: true, ChunkMaxMessageSize: 300})
	small := producer(t, client.ProducerOptions{Topic: topic, DisableBatching: true})
	var want [][]byte
	for i := range 6 {
		v := []byte(fmt.Sprintf("large %d ", i) + strings.Repeat("abcdefgh", 200))
		send(t, large, &client.ProducerMessage{Payload: v})
		want = append(want, v)
		v = fmt.Appendf(nil, "small %d", i)
		send(t, small, &client.ProducerMessage{Payload: v})
		want = append(want, v)
	}
	s := mustOpen(t, (&place{b: b, topic: topic, max: 1 << 20}).options(brokers.Latest))
	defer s.Close()
	ids, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	segs := sourcetestSegments(t, s, ids[0])
	if entries := entryOf(segs[0].End); entries < 30 {
		t.Fatalf("only %d entries, so the large messages are not in chunks", entries)
	}
	for _, step := range []int64{segs[0].End, at(1, 0), at(4, 0)} {
		var got [][]byte
		for from := segs[0].Start; from < segs[0].End; from += step {
			r := sources.Range{Partition: ids[0], Segment: segs[0].ID, Start: from, End: min(from+step, segs[0].End)}
			some, err := sourcetest.Read(t.Context(), s, r, sources.Position{Segment: r.Segment, Offset: r.Start}, segs[0].Locator)
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range some {
				got = append(got, g.Value)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("in pieces of %[2]d offsets %[1]d messages were read, want %[3]d", len(got), step, len(want))
		}
		for i := range got {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("message %d in pieces of %d offsets is %.20q, want %.20q", i, step, got[i], want[i])
			}
		}
	}
}

// Keys, properties and times are those of the message. A message without a value differs from one with an
// empty value. The empty value is read with every compression, although the library sends no bytes for it.
func TestKeysPropertiesTimesAndEmptyValuesAreTheMessages(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	topic := newTopic(t, b, 0)
	for i := range 2 * len(codecs) {
		p := producer(t, client.ProducerOptions{Topic: topic, CompressionType: codecs[i/2], DisableBatching: i%2 == 0, BatchingMaxPublishDelay: 10 * time.Millisecond})
		send(t, p, &client.ProducerMessage{Key: "k", Payload: []byte("v"), EventTime: time.UnixMilli(1_700_000_000_123), Properties: map[string]string{"b": "2", "a": "1"}})
		send(t, p, &client.ProducerMessage{Key: "e", Payload: []byte{}})
		send(t, p, &client.ProducerMessage{Key: "last", Payload: []byte("x")})
	}
	s := mustOpen(t, (&place{b: b, topic: topic, max: 1 << 20}).options(brokers.Latest))
	defer s.Close()
	ids, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g := sourcetestSegments(t, s, ids[0])[0]
	c, err := s.Open(t.Context(), sources.Range{Partition: ids[0], Segment: g.ID, Start: g.Start, End: g.End}, sources.Position{Segment: g.ID}, g.Locator)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var got []string
	var batch sources.Batch
	text := func(r [2]int32) string { return string(batch.Arena[r[0]:r[1]]) }
	for c.Next(t.Context(), &batch) == nil {
		for _, r := range batch.Recs {
			one := fmt.Sprintf("%s=%s", text(r.Key), text(r.Value))
			for _, h := range r.Headers {
				one += fmt.Sprintf(" %s:%s", text(h.Key), text(h.Value))
			}
			if r.Time == 1_700_000_000_123 {
				one += " event"
			} else if r.Time < 1_700_000_000_123 {
				one += " no time"
			}
			got = append(got, one)
		}
	}
	want := strings.TrimSuffix(strings.Repeat("k=v a:1 b:2 event; e=; last=x; ", 2*len(codecs)), "; ")
	if strings.Join(got, "; ") != want {
		t.Errorf("read %q, sent %q", strings.Join(got, "; "), want)
	}
}

// The Java client stores a key of bytes as base64 text. The key of a key-value schema is such a key.
func TestKeysOfBytesAreTheirBytes(t *testing.T) {
	b := realBroker(t)
	topic := newTopic(t, b, 0)
	if err := b.CreateTopic(t.Context(), topic+"-pairs", 0); err != nil {
		t.Fatal(err)
	}
	const n = 3
	javaSends(t, b, "keys", topic, n)
	var want []string
	for range 2 * n {
		want = append(want, "\x00\xffk|bytes", "AP9r|text", "|none")
	}
	for name, want := range map[string][]string{topic: want, topic + "-pairs": {"a key|a value", "a key|a value"}} {
		s := mustOpen(t, (&place{b: b, topic: name, max: 1 << 20}).options(brokers.Latest))
		if got := readAll(t, s); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Pulsar delays a message only for consumers that share a subscription. A reader gets it at its place, at once.
func TestADelayedMessageComesAtItsPlace(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	topic := newTopic(t, b, 0)
	p := producer(t, client.ProducerOptions{Topic: topic, DisableBatching: true})
	send(t, p, &client.ProducerMessage{Payload: []byte("before")})
	send(t, p, &client.ProducerMessage{Payload: []byte("delayed"), DeliverAfter: time.Hour})
	send(t, p, &client.ProducerMessage{Payload: []byte("after")})
	s := mustOpen(t, (&place{b: b, topic: topic, max: 1000}).options(brokers.Latest))
	defer s.Close()
	if got := readAll(t, s); !slices.Equal(got, []string{"|before", "|delayed", "|after"}) {
		t.Errorf("got %q, want %q", got, []string{"|before", "|delayed", "|after"})
	}
}

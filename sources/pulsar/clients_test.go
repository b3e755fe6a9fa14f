//go:build pulsar

package pulsar

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
	"github.com/headrace/headrace/sources/sourcetest"
)

// java is a program in testdata that is compiled once for all tests.
var java struct {
	once   sync.Once
	folder string
	err    error
}

// javaSend is the command of testdata/Send.java, with the broker's own jars.
func javaSend(t testing.TB, b *testbroker.Pulsar, what, topic string, count int) *exec.Cmd {
	t.Helper()
	quick := []string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}
	java.once.Do(func() {
		if java.folder, java.err = os.MkdirTemp("", "headrace-java-"); java.err != nil {
			return
		}
		args := append(slices.Clone(quick), "-cp", b.Classpath(), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-proc:none", "-d", java.folder, "testdata/Send.java")
		if out, err := exec.Command("java", args...).CombinedOutput(); err != nil {
			java.err = fmt.Errorf("compiling testdata/Send.java: %w\n%s", err, out)
		}
	})
	if java.err != nil {
		t.Fatal(java.err)
	}
	args := append(append(quick, b.JavaOptions()...), "-Xmx512m", "-cp", b.Classpath()+":"+java.folder, "Send", what, b.URL(), topic, strconv.Itoa(count))
	return exec.CommandContext(t.Context(), "java", args...)
}

func javaSends(t testing.TB, b *testbroker.Pulsar, what, topic string, count int) {
	t.Helper()
	cmd := javaSend(t, b, what, topic, count)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out[max(0, len(out)-4000):])
	}
}

// goSends sends the same number of messages with the Go client.
func goSends(t testing.TB, topic string, count int) {
	t.Helper()
	parts := 2 * len(codecs)
	var failed atomic.Pointer[error]
	for part := range parts {
		p := producer(t, client.ProducerOptions{Topic: topic, CompressionType: codecs[part%len(codecs)], MaxPendingMessages: 1000,
			BatchingMaxMessages: uint(1 + part*150), BatchingMaxPublishDelay: 5 * time.Millisecond})
		for i := part; i < count; i += parts {
			m := &client.ProducerMessage{Key: fmt.Sprintf("go-%d", i%89), Payload: fmt.Appendf(nil, "go %d %s", i, strings.Repeat("12345678", i%20))}
			if i%3 == 0 {
				m.Properties, m.EventTime = map[string]string{"n": strconv.Itoa(i)}, time.UnixMilli(int64(1_700_000_000_000+i))
			}
			p.SendAsync(t.Context(), m, func(_ client.MessageID, _ *client.ProducerMessage, err error) {
				if err != nil {
					failed.Store(&err)
				}
			})
		}
		if err := p.FlushWithCtx(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := failed.Load(); err != nil {
		t.Fatal(*err)
	}
}

// readAll reads a bounded dataset. It returns each record as one text.
func readAll(t testing.TB, s *Source) (all []string) {
	t.Helper()
	ids, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		for _, g := range sourcetestSegments(t, s, id) {
			c, err := s.Open(t.Context(), sources.Range{Partition: id, Segment: g.ID, Start: g.Start, End: g.End}, sources.Position{Segment: g.ID, Offset: g.Start}, g.Locator)
			if err != nil {
				t.Fatal(err)
			}
			some, err := texts(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, some...)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return all
}

// texts reads a cursor to its end. It tries again after a temporary error.
func texts(ctx context.Context, c sources.Cursor) (all []string, err error) {
	var b sources.Batch
	for {
		err := c.Next(ctx, &b)
		switch {
		case isTemporary(err):
			time.Sleep(50 * time.Millisecond)
			continue
		case err != nil:
			if err == io.EOF {
				return all, nil
			}
			return all, err
		}
		text := func(r [2]int32) string { return string(b.Arena[r[0]:r[1]]) }
		for _, r := range b.Recs {
			one := text(r.Key) + "|" + text(r.Value)
			for _, h := range r.Headers {
				one += "|" + text(h.Key) + "=" + text(h.Value) + "|" + strconv.FormatInt(r.Time, 10) // goSends sets a property and a time on the same messages
			}
			all = append(all, one)
		}
	}
}

// Twenty thousand records of the Java client, and as many of the Go client, with every batching and
// compression. Headrace reads the same records as the vendor's consumer.
func TestRecordsOfTheJavaAndTheGoClientAreReadAsTheVendorsConsumerReadsThem(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	const each = 20_000
	topic := newTopic(t, b, 3)
	sub, err := shared.client.Subscribe(client.ConsumerOptions{Topic: topic, SubscriptionName: "vendor", Type: client.Shared,
		SubscriptionInitialPosition: client.SubscriptionPositionEarliest})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	javaSends(t, b, "many", topic, each)
	goSends(t, topic, each)
	s := mustOpen(t, (&place{b: b, topic: topic, max: 1 << 20}).options(brokers.Latest))
	defer s.Close()
	got := readAll(t, s)
	var want []string
	for len(want) < 2*each {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		m, err := sub.Receive(ctx)
		cancel()
		if err != nil {
			t.Fatalf("the vendor's consumer got %d: %v", len(want), err)
		}
		one := m.Key() + "|" + string(m.Payload())
		if n, ok := m.Properties()["n"]; ok {
			one += "|n=" + n + "|" + strconv.FormatInt(m.EventTime().UnixMilli(), 10)
		}
		want = append(want, one)
		if err := sub.Ack(m); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if len(got) != 2*each {
		t.Errorf("%d records were read, want the %d that were sent", len(got), 2*each)
	}
	if !slices.Equal(got, want) {
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				t.Fatalf("record %d in order of content is %.80q, but %.80q at the vendor's consumer", i, got[i], want[i])
			}
		}
	}
}

// Messages of aborted transactions, and the markers, are holes. All other messages are read once, wherever
// ranges begin.
func TestOfTransactionsWhatWasCommittedIsRead(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	const rounds = 20
	topic := newTopic(t, b, 0)
	javaSends(t, b, "transactions", topic, rounds)
	var want []string
	for i := range rounds {
		want = append(want, fmt.Sprintf("kept %d 0", i), fmt.Sprintf("kept %d 1", i), fmt.Sprintf("plain %d", i))
	}
	slices.Sort(want)
	s := mustOpen(t, (&place{b: b, topic: topic, max: 1 << 20}).options(brokers.Latest))
	defer s.Close()
	ids, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g := sourcetestSegments(t, s, ids[0])[0]
	if n := entryOf(g.End); n < 6*rounds {
		t.Fatalf("the topic has only %d entries, so the aborted messages left no holes", n)
	}
	for _, step := range []int64{g.End, at(7, 0)} {
		var got []string
		for from := g.Start; from < g.End; from += step {
			some, err := sourcetest.Read(t.Context(), s, sources.Range{Partition: ids[0], Segment: g.ID, Start: from, End: min(from+step, g.End)},
				sources.Position{Segment: g.ID, Offset: from}, g.Locator)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range some {
				got = append(got, string(one.Value))
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("in pieces of %d entries %d records are read, %d were committed: %q", entryOf(step), len(got), len(want), got)
		}
	}
}

// oneKey is a producer's key, in memory.
type oneKey struct{ public []byte }

func (k oneKey) PublicKey(name string, _ map[string]string) (*crypto.EncryptionKeyInfo, error) {
	return crypto.NewEncryptionKeyInfo(name, k.public, nil), nil
}
func (oneKey) PrivateKey(string, map[string]string) (*crypto.EncryptionKeyInfo, error) {
	return nil, errors.New("there is no private key")
}

func TestAnEncryptedMessageIsToldWithItsEntry(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	for _, batching := range []bool{false, true} {
		topic := newTopic(t, b, 0)
		send(t, producer(t, client.ProducerOptions{Topic: topic, DisableBatching: true}), &client.ProducerMessage{Payload: []byte("plain")})
		p := producer(t, client.ProducerOptions{Topic: topic, DisableBatching: !batching, BatchingMaxPublishDelay: 10 * time.Millisecond,
			Encryption: &client.ProducerEncryptionInfo{KeyReader: oneKey{public}, Keys: []string{"k"}}})
		send(t, p, &client.ProducerMessage{Payload: []byte("secret")})
		s := mustOpen(t, (&place{b: b, topic: topic, max: 1 << 20}).options(brokers.Latest))
		defer s.Close()
		ids, err := s.Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		g := sourcetestSegments(t, s, ids[0])[0]
		got, err := sourcetest.Read(t.Context(), s, sources.Range{Partition: ids[0], Segment: g.ID, Start: g.Start, End: g.End}, sources.Position{Segment: g.ID}, g.Locator)
		malformed, ok := errors.AsType[*sources.Malformed](err)
		if len(got) != 1 || !ok || entryOf(malformed.Position.Offset) != 1 || !strings.Contains(err.Error(), "encrypted") {
			t.Errorf("batching %v: %d records, then %v; want one record, then an error that entry 1 is encrypted", batching, len(got), err)
		}
	}
}

// Partitions that are added to a live topic join the dataset, and are read from their beginning.
func TestPartitionsThatAreAddedJoin(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	topic := newTopic(t, b, 2)
	o := (&place{b: b, topic: topic, max: 1 << 20}).options(brokers.Never)
	o.Start = End{At: brokers.Latest}
	s := mustOpen(t, o)
	defer s.Close()
	before, err := s.Partitions(t.Context())
	if err != nil || len(before) != 2 {
		t.Fatal(before, err)
	}
	admincall(t, b, "POST", "persistent/public/default/"+topic+"/partitions", 4)
	writeTo(t, b, topic, 4, 0, 40)
	after, err := s.Partitions(t.Context())
	if err != nil || len(after) != 4 || !slices.Equal(after[:2], before) {
		t.Fatalf("%v after partitions were added to %v (%v)", after, before, err)
	}
	s.Joined(after[2:])
	for _, id := range after[2:] {
		g := sourcetestSegments(t, s, id)[0]
		got, err := sourcetest.Read(t.Context(), s, sources.Range{Partition: id, Segment: g.ID, Start: g.Start, End: g.End}, sources.Position{Segment: g.ID, Offset: g.Start}, g.Locator)
		if err != nil || len(got) != 10 || g.Start != 0 {
			t.Errorf("%s: %d records from %d on (%v), want the 10 that were written", id, len(got), g.Start, err)
		}
	}
}

//go:build rocketmq

package rocketmq

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/sourcetest"
)

// A hundred thousand messages of the Java client, with every batching and compression, and as many of the Go
// client. Headrace and the official Java consumer read the same bytes, keys and tags at the same offsets,
// and these are the bytes that were written.
func TestWhatJavaAndGoWroteIsTheSameForUsAndForTheOfficialConsumer(t *testing.T) {
	const each, single, length, queues = 100_000, 1_000, 150, 4
	b, _ := realBroker(t)
	singles, batched := map[string]string{}, newTopic(t, b, 1)
	for _, kind := range []string{"ZLIB", "LZ4", "ZSTD"} {
		singles[newTopic(t, b, 1)] = kind
	}
	java := each - len(singles)*single
	javaSends(t, b, single, length, 1, singles)
	javaSends(t, b, java, length, 500, map[string]string{batched: "NONE"})
	golang := newTopic(t, b, queues)
	sent := goSends(t, b, golang, each, queues)

	topics := slices.Concat([]string{batched, golang}, slices.Collect(maps.Keys(singles)))
	theirs := javaReceives(t, b, 2*each, topics...)
	o := options(b, topics...)
	o.MaxRecord = 1 << 20
	ours := readAll(t, openFor(t, o))
	if len(theirs) != 2*each || len(ours) != 2*each {
		t.Fatalf("the official consumer read %d messages, we %d, want %d", len(theirs), len(ours), 2*each)
	}
	for at, their := range theirs {
		if our, ok := ours[at]; !ok || !bytes.Equal(our.body, their.body) || our.key != their.key || our.tag != their.tag {
			t.Fatalf("%s: we read %.60q (key %q, tag %q), the official consumer %.60q (key %q, tag %q)", at, our.body, our.key, our.tag, their.body, their.key, their.tag)
		}
	}
	for at, body := range sent {
		if !bytes.Equal(ours[at].body, body) {
			t.Fatalf("%s: we read %.60q, and the Go client wrote %.60q", at, ours[at].body, body)
		}
	}
	singles[batched] = "NONE"
	for topic, kind := range singles {
		n := single
		if topic == batched {
			n = java
		}
		for i := range n {
			at := fmt.Sprintf("%s/0/%d", topic, i)
			if string(ours[at].body) != javaSent(kind, i, length) {
				t.Fatalf("%s: we read %.60q, and the Java client wrote %.60q", at, ours[at].body, javaSent(kind, i, length))
			}
		}
	}
}

// received is a message as one of the two readers got it. at is topic/queue/offset.
type received struct {
	at, key, tag string
	body         []byte
}

// readAll reads all queues of a source, with keys and tags.
func readAll(t *testing.T, s *Source) map[string]received {
	t.Helper()
	all := map[string]received{}
	parts, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range parts {
		p, _ := s.Listed(id)
		for _, g := range sourcetest.Segments(t, s, id, 10) {
			c, err := s.Open(t.Context(), sources.Range{Partition: id, Segment: g.ID, Start: g.Start, End: g.End}, sources.Position{Segment: g.ID, Offset: g.Start}, g.Locator)
			if err != nil {
				t.Fatal(err)
			}
			var b sources.Batch
			for err = c.Next(t.Context(), &b); err == nil; err = c.Next(t.Context(), &b) {
				for _, r := range b.Recs {
					one := received{at: fmt.Sprintf("%s/%d/%d", p.topic, p.queue, r.Offset), key: string(b.Arena[r.Key[0]:r.Key[1]]), body: bytes.Clone(b.Arena[r.Value[0]:r.Value[1]])}
					for _, h := range r.Headers {
						if string(b.Arena[h.Key[0]:h.Key[1]]) == primitive.PropertyTags {
							one.tag = string(b.Arena[h.Value[0]:h.Value[1]])
						}
					}
					all[one.at] = one
				}
			}
			c.Close()
			if err != io.EOF {
				t.Fatal(err)
			}
		}
	}
	return all
}

// goSends writes batches of random size, and single messages so large that the official client compresses
// them. It returns the bodies by place.
func goSends(t *testing.T, b *testbroker.RocketMQ, topic string, n, queues int) map[string][]byte {
	t.Helper()
	_, p := realBroker(t)
	rng := rand.New(rand.NewPCG(7, 7))
	sent, ends := map[string][]byte{}, make([]int64, queues)
	for i, q := 0, 0; i < n; q = (q + 1) % queues {
		size := min(n-i, 2+rng.IntN(600))
		if rng.IntN(4) == 0 {
			size = 1
		}
		var all []*primitive.Message
		for k := range size {
			body := fmt.Appendf(nil, "go %d ", i+k)
			if size == 1 {
				body = bytes.Repeat(body, 1000)
			}
			for range rng.IntN(100) {
				body = append(body, byte(rng.IntN(256)))
			}
			m := primitive.NewMessage(topic, body).WithTag(fmt.Sprint("tag-", (i+k)%5)).WithKeys([]string{fmt.Sprint("key-", i+k)})
			all = append(all, m)
			sent[fmt.Sprintf("%s/%d/%d", topic, q, ends[q]+int64(k))] = body
		}
		if at := send(t, p, b.RocketBroker, topic, q, all...); at != ends[q] {
			t.Fatalf("sent to offset %d, want %d", at, ends[q])
		}
		ends[q] += int64(size)
		i += size
	}
	for q, end := range ends {
		if err := b.Reaches(t.Context(), remoting.Queue{Topic: topic, ID: q}, end); err != nil {
			t.Fatal(err)
		}
	}
	return sent
}

// javaReceives reads topics with the official Java consumer.
func javaReceives(t *testing.T, b *testbroker.RocketMQ, n int, topics ...string) map[string]received {
	t.Helper()
	file := filepath.Join(t.TempDir(), "received")
	args := append([]string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.home=" + t.TempDir(), "-Drmq.logback.configurationFile=" + b.Logback(),
		"-cp", b.Classpath(), "testdata/Receive.java", b.NameServer(), file, strconv.Itoa(n)}, topics...)
	if out, err := exec.CommandContext(t.Context(), "java", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in, all := bufio.NewReader(f), map[string]received{}
	read := func(into any) error { return binary.Read(in, binary.BigEndian, into) }
	text := func() []byte {
		var length int32
		if err := read(&length); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, length)
		if _, err := io.ReadFull(in, b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	for {
		if _, err := in.Peek(1); err == io.EOF {
			return all
		}
		topic := text()
		var queue int32
		var offset int64
		if read(&queue) != nil || read(&offset) != nil {
			t.Fatal("the file of the Java consumer is cut off")
		}
		one := received{at: fmt.Sprintf("%s/%d/%d", topic, queue, offset)}
		one.tag, one.key, one.body = string(text()), string(text()), text()
		if _, twice := all[one.at]; twice {
			t.Fatalf("the official consumer got %s twice", one.at)
		}
		all[one.at] = one
	}
}

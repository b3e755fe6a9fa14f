//go:build pulsar

package pulsar

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"testing"
	"time"

	client "github.com/apache/pulsar-client-go/pulsar"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// sent returns how many messages of a topic the broker has ever sent to readers.
func sent(t testing.TB, b *testbroker.Pulsar, topic string) (n int64) {
	t.Helper()
	text, err := b.Admin(t.Context(), "GET", "persistent/public/default/"+topic+"/stats", nil)
	var stats struct{ MsgOutCounter int64 }
	if err == nil {
		err = json.Unmarshal(text, &stats)
	}
	if err != nil {
		t.Fatal(err)
	}
	return stats.MsgOutCounter
}

// The broker sends little more than the ranges hold. With the library's default, a Reader of two entries of
// 100 messages gets a hundred entries: the broker sent 221,600 messages here for 6,000, and an agent of
// `make chaos` needed 258 MiB.
func TestTheBrokerSendsLittleMoreThanTheRangesHold(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	topic := newTopic(t, b, 0)
	const entries, perEntry, step = 180, 100, 2 // all entries are in one ledger
	p := producer(t, client.ProducerOptions{Topic: topic, CompressionType: client.ZSTD, BatchingMaxMessages: perEntry, BatchingMaxPublishDelay: time.Hour})
	for i := range entries * perEntry {
		p.SendAsync(t.Context(), &client.ProducerMessage{Payload: []byte(strconv.Itoa(i))}, func(client.MessageID, *client.ProducerMessage, error) {})
	}
	if err := p.FlushWithCtx(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, (&place{b: b, topic: topic, max: 1 << 20}).options(brokers.Latest))
	defer s.Close()
	ids, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g := sourcetestSegments(t, s, ids[0])[0]
	read := 0
	for from := int64(0); from < entries; from += 3 * step { // with gaps, so that no Reader goes on where another one ended
		c, err := s.Open(t.Context(), sources.Range{Partition: ids[0], Segment: g.ID, Start: at(from, 0), End: at(from+step, 0)},
			sources.Position{Segment: g.ID, Offset: at(from, 0)}, g.Locator)
		if err != nil {
			t.Fatal(err)
		}
		some, err := texts(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if len(some) != step*perEntry {
			t.Fatalf("entries [%d, %d) gave %d messages, want %d", from, from+step, len(some), step*perEntry)
		}
		read += len(some)
		_ = c.Close()
	}
	if n := sent(t, b, topic); n > 3*int64(read) {
		t.Errorf("the broker has sent %d messages for %d", n, read)
	}
}

// Few large messages are sent ahead, although a Reader begins before it knows how large they are.
func TestOfLargeMessagesFewAreAhead(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	topic := newTopic(t, b, 0)
	const n, size = 190, 1 << 20 // all in one ledger
	p := producer(t, client.ProducerOptions{Topic: topic, DisableBatching: true})
	for range n {
		send(t, p, &client.ProducerMessage{Payload: bytes.Repeat([]byte{1}, size)})
	}
	s := mustOpen(t, (&place{b: b, topic: topic, max: 1 << 22}).options(brokers.Latest))
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
	// The entries that were permitted before the size was known, and those that wait to be read.
	const most = 3 * entriesFirst
	read := int64(0)
	var batch sources.Batch
	for {
		err := c.Next(t.Context(), &batch)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		read += int64(len(batch.Recs))
		if n := sent(t, b, topic); n > read+most {
			t.Fatalf("when %d messages of 1 MiB were read, the broker had sent %d", read, n)
		}
	}
	if read != n {
		t.Errorf("%d messages were read, want the %d that were sent", read, n)
	}
}

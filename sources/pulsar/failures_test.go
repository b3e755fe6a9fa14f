//go:build pulsar

package pulsar

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/apache/pulsar-client-go/pulsar"
	"go.uber.org/goleak"

	"github.com/headrace/headrace/internal/proof/leaks"
	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// ownBroker is a broker that a test may kill.
func ownBroker(t testing.TB, o testbroker.PulsarOptions) *testbroker.Pulsar {
	t.Helper()
	b, err := testbroker.StartPulsar(t.Context(), o)
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

// A broker is killed while a Reader is kept, then it is frozen, then it is killed while an open cursor has
// more to read. Each record comes once, in order, and nothing runs on after the source is closed.
func TestARangeIsReadOnWhenTheBrokerWasKilledOrFrozen(t *testing.T) {
	b := ownBroker(t, testbroker.PulsarOptions{EntriesPerLedger: 10_000})
	const n = 9000
	topic := newTopic(t, b, 0)
	c, err := newClient(&Options{Service: b.URL(), Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	p := producerOf(t, c, client.ProducerOptions{Topic: topic, SendTimeout: -1, BatchingMaxMessages: 2})
	var want []string
	for i := range n {
		v := fmt.Sprintf("%d %s", i, strings.Repeat("x", 1000))
		want = append(want, "|"+v)
		p.SendAsync(t.Context(), &client.ProducerMessage{Payload: []byte(v)}, func(client.MessageID, *client.ProducerMessage, error) {})
	}
	if err := p.FlushWithCtx(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Close()
	c.Close()
	before := goleak.IgnoreCurrent()
	s := mustOpen(t, (&place{b: b, topic: topic, max: 1 << 20}).options(brokers.Latest))
	ids, err := s.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g := sourcetestSegments(t, s, ids[0])[0]
	cut := at(200, 0)
	read := func(from, to int64) sources.Cursor {
		c, err := s.Open(t.Context(), sources.Range{Partition: ids[0], Segment: g.ID, Start: from, End: to}, sources.Position{Segment: g.ID, Offset: from}, g.Locator)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := read(g.Start, cut)
	got, err := texts(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	_ = first.Close() // its Reader has more to read, so it is kept
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := read(cut, at(400, 0))
	some, err := texts(t.Context(), second)
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, some...)
	_ = second.Close()

	if err := b.Freeze(); err != nil {
		t.Fatal(err)
	}
	frozen := mustOpen(t, (&place{b: b, topic: topic, max: 1 << 20}).options(brokers.Latest))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	if _, err := frozen.Partitions(ctx); err == nil {
		t.Error("a frozen broker answers")
	}
	cancel()
	frozen.Close()
	if err := b.Thaw(); err != nil {
		t.Fatal(err)
	}
	third := read(at(400, 0), g.End)
	var batch sources.Batch
	for len(batch.Recs) == 0 {
		if err := third.Next(t.Context(), &batch); err != nil && !isTemporary(err) {
			t.Fatal(err)
		}
	}
	for _, r := range batch.Recs {
		got = append(got, "|"+string(batch.Arena[r.Value[0]:r.Value[1]]))
	}
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if some, err = texts(t.Context(), third); err != nil {
		t.Fatal(err)
	}
	if sent(t, b, topic) == 0 {
		t.Error("everything had come before the broker was killed, so this test has tested nothing")
	}
	got = append(got, some...)
	_ = third.Close()
	if !slices.Equal(got, want) {
		t.Errorf("%d records were read, want the %d that were sent", len(got), n)
	}
	s.Close()
	leaks.None(t, before, goleak.IgnoreAnyFunction("github.com/headrace/headrace/internal/proof/testbroker.(*process).start.func1")) // the broker's own goroutine
}

func readTexts(ctx context.Context, src sources.Source, id sources.PartitionID, g sources.Segment) ([]string, error) {
	c, err := src.Open(ctx, sources.Range{Partition: id, Segment: g.ID, Start: g.Start, End: g.End}, sources.Position{Segment: g.ID, Offset: g.Start}, g.Locator)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return texts(ctx, c)
}

//go:build pulsar

package pulsar

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/apache/pulsar-client-go/pulsar"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// A time means the first message that was published at that time or later. A dataset begins with this
// message, or ends before it.
func TestATimeIsTheFirstMessageOfItOrLater(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	topic := newTopic(t, b, 0)
	p := producer(t, client.ProducerOptions{Topic: topic, DisableBatching: true})
	var want []string
	published := map[string]time.Time{}
	for i := range 6 {
		v := fmt.Sprintf("|%d", i)
		before := time.Now()
		for !time.Now().Truncate(time.Millisecond).After(before) { // so that each message has a millisecond of its own
			time.Sleep(time.Millisecond)
		}
		send(t, p, &client.ProducerMessage{Payload: []byte(v[1:])})
		want = append(want, v)
	}
	all := mustOpen(t, (&place{b: b, topic: topic, max: 1000}).options(brokers.Latest))
	defer all.Close()
	ids, err := all.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range sourcetestSegments(t, all, ids[0]) {
		c, err := all.Open(t.Context(), sources.Range{Partition: ids[0], Segment: g.ID, Start: g.Start, End: g.End}, sources.Position{Segment: g.ID, Offset: g.Start}, g.Locator)
		if err != nil {
			t.Fatal(err)
		}
		var batch sources.Batch
		for c.Next(t.Context(), &batch) == nil {
			for _, r := range batch.Recs {
				published["|"+string(batch.Arena[r.Value[0]:r.Value[1]])] = time.UnixMilli(r.Time)
			}
		}
		_ = c.Close()
	}
	if len(published) != len(want) {
		t.Fatalf("%d messages were read, want the %d that were sent", len(published), len(want))
	}
	for _, one := range []struct {
		name       string
		start, end time.Time
		want       []string
	}{
		{"a piece", published["|1"], published["|4"], want[1:4]},
		{"a millisecond later", published["|1"].Add(time.Millisecond), published["|4"].Add(time.Millisecond), want[2:5]},
		{"all of it", published["|0"].Add(-time.Hour), published["|5"].Add(time.Hour), want},
		{"before it", published["|0"].Add(-2 * time.Hour), published["|0"].Add(-time.Hour), nil},
		{"after it", published["|5"].Add(time.Hour), published["|5"].Add(2 * time.Hour), nil},
	} {
		o := (&place{b: b, topic: topic, max: 1000}).options(brokers.AtTime)
		o.Start, o.End = End{At: brokers.AtTime, Time: one.start}, End{At: brokers.AtTime, Time: one.end}
		s := mustOpen(t, o)
		if got := readAll(t, s); !slices.Equal(got, one.want) {
			t.Errorf("%s: %q, want %q", one.name, got, one.want)
		}
		s.Close()
	}
}

// Reading begins exactly at a start id. If no message has the id, that is an error.
func TestAStartIDThatIsNotThereIsNamed(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	topic := newTopic(t, b, 0)
	p := producer(t, client.ProducerOptions{Topic: topic, DisableBatching: true})
	var want []string
	for i := range 10 {
		send(t, p, &client.ProducerMessage{Payload: fmt.Append(nil, i)})
		want = append(want, fmt.Sprintf("|%d", i))
	}
	var now internalStats
	stats(t, b, topic, &now)
	ledger := now.Ledgers[len(now.Ledgers)-1].Ledger
	open := func(id Place) *Source {
		o := (&place{b: b, topic: topic, max: 1000}).options(brokers.Latest)
		o.Start.Places = map[string]Place{"0": id}
		s := mustOpen(t, o)
		t.Cleanup(func() { s.Close() })
		return s
	}
	for entry, rest := range map[int64][]string{0: want, 7: want[7:], 10: nil} {
		if got := readAll(t, open(Place{Ledger: ledger, Entry: entry})); !slices.Equal(got, rest) {
			t.Errorf("from entry %d on: %q", entry, got)
		}
	}
	segments := func(id Place) error {
		s := open(id)
		ids, err := s.Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all, err := s.Segments(t.Context(), ids[0], -1, 100)
		if err == nil {
			t.Errorf("from %v on the topic is listed as %+v", id, all)
		}
		return err
	}
	for _, id := range []Place{{Ledger: ledger, Entry: 11}, {Ledger: ledger + 1000, Entry: 0}} {
		err := segments(id)
		if text := fmt.Sprintf("%d:%d", id.Ledger, id.Entry); err == nil || isTemporary(err) || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), topic) || !strings.Contains(err.Error(), "start") {
			t.Errorf("start id %s: %v", text, err)
		}
	}
	trim(t, b, topic, 0)
	err := segments(Place{Ledger: ledger, Entry: 7})
	lost, ok := errors.AsType[*sources.Truncated](err)
	if !ok || ledgerOf(lost.Lost.Segment) != ledger || lost.Lost.Start != at(7, 0) || !strings.Contains(err.Error(), "start names a message that Pulsar has deleted") {
		t.Errorf("start id of a deleted message: %v", err)
	}
}

// For a topic with a schema, the value of a message is the bytes that the schema has made.
func TestATopicWithASchemaGivesItsBytes(t *testing.T) {
	b := realBroker(t)
	connect(t, b)
	type click struct {
		ID   int64  `json:"id" avro:"id"`
		User string `json:"user" avro:"user"`
	}
	const definition = `{"type":"record","name":"click","fields":[{"name":"id","type":"long"},{"name":"user","type":"string"}]}`
	for name, one := range map[string]struct {
		schema client.Schema
		want   []string
	}{
		"JSON": {client.NewJSONSchema(definition, nil), []string{`|{"id":3,"user":"a"}`, `|{"id":-4,"user":"bc"}`}},
		"Avro": {client.NewAvroSchema(definition, nil), []string{"|\x06\x02a", "|\x07\x04bc"}}, // zigzag numbers
	} {
		topic := newTopic(t, b, 0)
		for _, batching := range []bool{false, true} {
			p := producer(t, client.ProducerOptions{Topic: topic, Schema: one.schema, DisableBatching: !batching, BatchingMaxPublishDelay: 10 * time.Millisecond})
			for _, v := range []click{{3, "a"}, {-4, "bc"}} {
				send(t, p, &client.ProducerMessage{Value: &v})
			}
		}
		s := mustOpen(t, (&place{b: b, topic: topic, max: 1000}).options(brokers.Latest))
		if got, want := readAll(t, s), append(slices.Clone(one.want), one.want...); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		s.Close()
	}
}

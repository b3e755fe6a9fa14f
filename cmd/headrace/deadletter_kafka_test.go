//go:build kafka

package main

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/headrace/headrace/internal/deadletter"
	"github.com/headrace/headrace/internal/view"
)

// Bad records of a topic are left out. Their dead letters are in another topic of the same brokers, each
// with the record's key and bytes.
func TestBadRecordsOfAKafkaTopicGoToATopic(t *testing.T) {
	b := steadyKafka.get(t)
	topic, letters := newTopic(t, b, 2, nil), newTopic(t, b, 2, nil)
	client, done := b.Client()
	defer done()
	const n = 3000
	bad, sum, good := map[string]string{}, 0, 0 // bad: values by key
	for p := range 2 {
		var records []kafkago.Record
		for i := p; i < n; i += 2 {
			key, value := fmt.Sprint("k", i), fmt.Sprintf("%d\t%d\tuser", i%2, i)
			if i%50 == 7 || i%50 == 8 {
				value = fmt.Sprintf("0\tx%d\tuser", i)
				bad[key] = value
			} else {
				sum += i
				good++
			}
			records = append(records, kafkago.Record{Key: kafkago.NewBytes([]byte(key)), Value: kafkago.NewBytes([]byte(value))})
		}
		if err := b.Produce(t.Context(), kafkago.ProduceRequest{Topic: topic, Partition: p}, records); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t)
	w.write("clicks.yaml", "name: clicks\nkafka: {brokers: [\""+b.Addr()+"\"], topic: "+topic+"}\ndead_letter: {topic: "+letters+"}\n"+
		"decode:\n  format: tsv\n  on_error: skip\n  columns:\n    - {name: label, path: 0, dtype: float32}\n    - {name: number, path: 1, dtype: int64}\n    - {name: user, path: 2, dtype: string}\n")
	r := w.run("run", "-f", "clicks.yaml", "--", w.self(""))
	rows, got := read(t, r.out)
	if r.code != exitOK || int(rows) != good || int(got) != sum {
		t.Fatalf("the trainer got %d rows with the sum %d, want %d with %d: %+v", rows, got, good, sum, r)
	}
	up := w.up()
	up.until("all dead letters are written", func() bool {
		v := decoded[view.Status](t, w.ok("dataset", "status", "clicks", "-o", "json"))
		return v.State == "done" && v.Bad != nil && v.Bad.Records == uint64(len(bad)) && v.Bad.Unwritten == 0
	})
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	ids, without := map[string]bool{}, maps.Clone(bad)
	for p := range 2 {
		in := kafkago.NewReader(kafkago.ReaderConfig{Brokers: []string{b.Addr()}, Topic: letters, Partition: p, MaxWait: 100 * time.Millisecond})
		defer in.Close()
		end, err := client.ListOffsets(ctx, &kafkago.ListOffsetsRequest{Topics: map[string][]kafkago.OffsetRequest{letters: {kafkago.LastOffsetOf(p)}}})
		if err != nil {
			t.Fatal(err)
		}
		for range end.Topics[letters][0].LastOffset {
			m, err := in.ReadMessage(ctx)
			if err != nil {
				t.Fatal(err)
			}
			l, err := deadletter.Decode(m.Value)
			if err != nil || string(m.Key) != l.ID || l.Column != "number" || l.Name == "" {
				t.Fatalf("the letter is %+v (%v)", l, err)
			}
			if text, ok := bad[string(l.Key)]; !ok || text != string(l.Value) {
				t.Fatalf("the letter of the key %q has the value %q, want %q", l.Key, l.Value, text)
			}
			// A letter may be there twice with the same id: the first master may have ended after it
			// had written the letter and before it had noted that.
			ids[l.ID] = true
			delete(without, string(l.Key))
		}
	}
	if len(without) > 0 || len(ids) != len(bad) {
		t.Errorf("%d letters of %d bad records were written, but none of %v", len(ids), len(bad), without)
	}
	if r := w.run("deadletter", "list", "clicks"); r.code == exitOK {
		t.Errorf("`deadletter list` of a topic got %+v, want a refusal", r)
	}
}

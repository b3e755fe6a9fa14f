//go:build kafka

package main

import (
	"fmt"
	"testing"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/headrace/headrace/internal/proof/testbroker"
)

func TestAFrozenKafkaIsToldSinceItDoesNotAnswer(t *testing.T) {
	b := steadyKafka.get(t)
	topic := newTopic(t, b, 2, nil)
	events(t, b, topic, 2, 0, 100)
	w := newWorld(t)
	w.silence(fmt.Sprintf("kafka: {brokers: [%q], topic: %s", b.Addr(), topic), b.Freeze, b.Thaw)
	w.nothingLeft()
}

func TestReadersOutliveAKafkaBrokerThatIsFrozenForLongAndKilled(t *testing.T) {
	b, err := testbroker.StartKafka(t.Context(), testbroker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.CreateTopic(t.Context(), "clicks", 1, nil); err != nil {
		t.Fatal(err)
	}
	newWorld(t).outlives(fmt.Sprintf("kafka: {brokers: [%q], topic: clicks", b.Addr()), b, func(first int) int64 {
		var records []kafkago.Record
		for _, v := range numbered(first, 64*modeBatch) {
			records = append(records, kafkago.Record{Value: kafkago.NewBytes(v)})
		}
		if err := b.Produce(t.Context(), kafkago.ProduceRequest{Topic: "clicks"}, records); err != nil {
			t.Fatal(err)
		}
		return int64(len(records))
	})
}

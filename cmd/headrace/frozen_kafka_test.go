//go:build kafka

package main

import (
	"fmt"
	"testing"

	"github.com/headrace/headrace/internal/proof/testbroker"
)

func TestAFrozenKafkaIsToldSinceItDoesNotAnswer(t *testing.T) {
	b, err := testbroker.StartKafka(t.Context(), testbroker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.CreateTopic(t.Context(), "events", 2, nil); err != nil {
		t.Fatal(err)
	}
	events(t, b, "events", 2, 0, 100)
	w := newWorld(t)
	w.silence(fmt.Sprintf("kafka: {brokers: [%q], topic: events", b.Addr()), b.Freeze, b.Thaw)
	w.nothingLeft()
}

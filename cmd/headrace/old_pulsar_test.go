//go:build pulsar

package main

import (
	"fmt"
	"testing"

	"github.com/headrace/headrace/internal/proof/testbroker"
)

func TestRecordsOfAPulsarTopicThatAreTooOldAreExcludedAndListed(t *testing.T) {
	b := pulsarBroker.get(t)
	topic := newPulsarTopic(t, b, "events")
	a, err := testbroker.NewPulsarAppender(b, topic)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	var ends [pulsarParts]int64
	turn := 0
	add := func(ids []int) { // each entry holds 100 records
		t.Helper()
		for from := 0; from < len(ids); from += pulsarBatch {
			if err := a.Append(t.Context(), turn, ends[turn], jsonOf(ids[from:from+pulsarBatch]), func() {}); err != nil {
				t.Fatal(err)
			}
			ends[turn] += pulsarBatch
			turn = (turn + 1) % pulsarParts
		}
	}
	tooOldIsLeftOut(t, fmt.Sprintf("pulsar: {service: %q, admin: %q, topic: %s, start: earliest, end: never}", b.URL(), b.AdminURL(), topic), 10, add)
}

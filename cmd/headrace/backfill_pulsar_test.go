//go:build pulsar

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/sources"
)

// Here batches are entries, ledgers roll over, and the topic's part of the dataset begins inside an entry.
func TestADatasetReadsItsHistoryFromFilesAndGoesOnInPulsar(t *testing.T) {
	b := pulsarBroker.get(t)
	topic := newPulsarTopic(t, b, "events")
	a, err := testbroker.NewPulsarAppender(b, topic)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	var places [2][]testbroker.PulsarPlace // by partition: the place of each of its records
	place := func(partition, number int) testbroker.PulsarPlace {
		known := len(places[partition])
		if number >= known {
			more, err := a.Places(t.Context(), partition, int64(known), number-known+1)
			if err != nil {
				t.Fatal(err)
			}
			places[partition] = append(places[partition], more...)
		}
		return places[partition][number]
	}
	newWorld(t).readsFilesAndGoesOn(&liveSource{
		part: func() string {
			from, other := place(0, backfilled/2), place(1, backfilled/2)
			if from.Index == 0 {
				t.Fatalf("record %d is the first one of its entry: this test needs a begin inside an entry", backfilled)
			}
			return historySpec(t, fmt.Sprintf("pulsar: {service: %q, admin: %q, topic: %s, end: never, subscription: trainers, start_ids: {0: \"%d:%d:%d\", 1: \"%d:%d:%d\"}}",
				b.URL(), b.AdminURL(), topic, from.Ledger, from.Entry, from.Index, other.Ledger, other.Entry, other.Index))
		},
		write: func(partition, before int, values [][]byte) error {
			return a.Append(t.Context(), partition, int64(before), values, func() {})
		},
		place: func(id int) (string, int64, int64) {
			p := place(id%2, id/2)
			return fmt.Sprintf("%s-partition-%d ledger %d", topic, id%2, p.Ledger), -1, p.Entry<<sources.EntryBits + int64(p.Index)
		},
		restart: func() error { return errors.Join(b.Kill(), b.Start(t.Context())) },
		told: func() bool {
			for p := range 2 {
				text, err := b.Admin(t.Context(), http.MethodGet, fmt.Sprintf("persistent/public/default/%s-partition-%d/internalStats", topic, p), nil)
				var s pulsarTopic
				if err == nil {
					err = json.Unmarshal(text, &s)
				}
				if err != nil {
					t.Fatal(err)
				}
				if last := place(p, backfillAll/2-1); s.Cursors["trainers"].MarkDeletePosition != fmt.Sprintf("%d:%d", last.Ledger, last.Entry) {
					return false
				}
			}
			return true
		},
	})
}

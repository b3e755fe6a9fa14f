//go:build kafka

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/headrace/headrace/internal/proof/testbroker"
)

func TestADatasetReadsItsHistoryFromFilesAndGoesOnInKafka(t *testing.T) {
	b, err := testbroker.StartKafka(t.Context(), testbroker.Options{Steady: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.CreateTopic(t.Context(), "events", 2, map[string]string{"retention.ms": "-1"}); err != nil {
		t.Fatal(err)
	}
	newWorld(t).readsFilesAndGoesOn(&liveSource{
		part: func() string {
			text, err := os.ReadFile("../../examples/kafka/history.yaml")
			if err != nil {
				t.Fatal(err)
			}
			return strings.Replace(string(text), "127.0.0.1:9092", b.Addr(), 1)
		},
		write: func(partition, _ int, values [][]byte) error {
			var records []kafkago.Record
			for _, v := range values {
				var e struct {
					User string
					At   int64
				}
				if err := json.Unmarshal(v, &e); err != nil {
					return err
				}
				records = append(records, kafkago.Record{Key: kafkago.NewBytes([]byte(e.User)), Value: kafkago.NewBytes(v), Time: time.UnixMilli(e.At)})
			}
			return b.Produce(t.Context(), kafkago.ProduceRequest{Topic: "events", Partition: partition}, records)
		},
		place:   func(id int) (string, int64, int64) { return fmt.Sprintf("events/%d", id%2), -1, int64(id / 2) },
		restart: func() error { return errors.Join(b.Kill(), b.Start(t.Context())) },
		told: func() bool {
			at := committed(t, b, 2)
			return at[0] == backfillAll/2 && at[1] == backfillAll/2
		},
	})
}

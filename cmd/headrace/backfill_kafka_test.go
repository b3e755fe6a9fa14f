//go:build kafka

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

func TestADatasetReadsItsHistoryFromFilesAndGoesOnInKafka(t *testing.T) {
	b := steadyKafka.get(t)
	topic := newTopic(t, b, 2, map[string]string{"retention.ms": "-1"})
	newWorld(t).readsFilesAndGoesOn(&liveSource{
		part: func() string {
			text, err := os.ReadFile("../../examples/kafka/history.yaml")
			if err != nil {
				t.Fatal(err)
			}
			return ofTopic(string(text), b, topic)
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
			return b.Produce(t.Context(), kafkago.ProduceRequest{Topic: topic, Partition: partition}, records)
		},
		place:   func(id int) (string, int64, int64) { return fmt.Sprintf("%s/%d", topic, id%2), -1, int64(id / 2) },
		restart: func() error { return errors.Join(b.Kill(), b.Start(t.Context())) },
		told: func() bool {
			at := committed(t, b, topic, 2)
			return at[0] == backfillAll/2 && at[1] == backfillAll/2
		},
	})
}

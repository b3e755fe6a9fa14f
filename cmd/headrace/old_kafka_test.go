//go:build kafka

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/headrace/headrace/internal/ckpt"
	"github.com/headrace/headrace/internal/view"
)

const oldSpec = `name: events
catch_up: {drop_older_than: 1h}
kafka:
  brokers: ["127.0.0.1:9092"]
  topic: events
  end: never
  group: headrace-events
decode:
  format: json
  columns: [{name: id, path: /id, dtype: int64}]
`

// With catch_up.drop_older_than, records that are two hours old are excluded before the first
// lease. The status and the checkpoint list them, also with a new master, and every other record
// is trained on once.
func TestRecordsOfAKafkaTopicThatAreTooOldAreExcludedAndListed(t *testing.T) {
	b := steadyKafka.get(t)
	topic := newTopic(t, b, 2, map[string]string{"retention.ms": "-1"})
	produce := func(from, to int, at time.Time) {
		t.Helper()
		for p := range 2 {
			var records []kafkago.Record
			for id := from + p; id < to; id += 2 {
				records = append(records, kafkago.Record{Value: kafkago.NewBytes(fmt.Appendf(nil, `{"id": %d}`, id)), Time: at})
			}
			if err := b.Produce(t.Context(), kafkago.ProduceRequest{Topic: topic, Partition: p}, records); err != nil {
				t.Fatal(err)
			}
		}
	}
	ids := func(ranges ...[2]int) (all []int) {
		for _, r := range ranges {
			for id := r[0]; id < r[1]; id++ {
				all = append(all, id)
			}
		}
		return all
	}
	now := time.Now()
	produce(0, 1000, now.Add(-2*time.Hour))
	produce(1000, 1600, now)
	w := newWorld(t)
	w.write("events.yaml", ofTopic(oldSpec, b, topic))
	up := w.up("-f", "events.yaml", "--model", "replicated")

	_, got := w.trainedKeeping(6, 20)
	if slices.Sort(got); !slices.Equal(got, ids([2]int{1000, 1600})) {
		t.Fatalf("%d records came, from %d to %d, want those from 1000 to 1599\n%s", len(got), got[0], got[len(got)-1], up.err)
	}
	excluded := func() (all []string) {
		for _, e := range decoded[view.Status](t, w.ok("dataset", "status", "events", "-o", "json")).Excluded {
			all = append(all, fmt.Sprintf("%s [%d, %d) %s: %s", e.Label, e.Start, e.End, e.Kind, e.Reason))
		}
		slices.Sort(all)
		return all
	}
	const why = "too_old: older than 1h0m0s when its turn came (catch_up.drop_older_than)"
	if got, want := excluded(), []string{topic + "/0 [0, 500) " + why, topic + "/1 [0, 500) " + why}; !slices.Equal(got, want) {
		t.Errorf("the excluded ranges are\n%q, want\n%q", got, want)
	}
	if out := w.ok("dataset", "status", "events"); !strings.Contains(out, "too_old") || !strings.Contains(out, "1,000") {
		t.Errorf("status says\n%s\nwant too_old and 1,000 in it", out)
	}

	// The next master still knows the excluded ranges, and the checkpoint of step 5 lists them.
	up.kill()
	up = w.up("--model", "replicated")
	restored, got := w.trainedKeeping(6, 20)
	if restored != "5" || len(got) != 100 || slices.Min(got) < 1000 || slices.Max(got) >= 1600 || len(excluded()) != 2 {
		t.Errorf("with the next master step %s was restored, %d records came, and the excluded ranges are %q; want step 5, 100 records and the same two ranges\n%s", restored, len(got), excluded(), up.err)
	}
	newest := decoded[[]ckpt.View](t, w.ok("ckpt", "list", "ckpt", "-o", "json"))
	path := newest[slices.IndexFunc(newest, func(c ckpt.View) bool { return c.Step == 5 })].Path
	v := decoded[ckpt.Audit](t, w.ok("audit", path, "-o", "json"))
	units := int64(0)
	for _, p := range v.Datasets[0].Partitions {
		for _, ps := range p.Passes {
			for _, x := range ps.Excluded {
				if units += x.Units; x.Kind != "too_old" {
					t.Errorf("the checkpoint lists the excluded range %+v, want the kind too_old", x)
				}
			}
		}
	}
	if units != 1000 || v.Datasets[0].Units != 500 {
		t.Errorf("the checkpoint has %d records and lists %d as excluded, want 500 and 1000", v.Datasets[0].Units, units)
	}
	r := w.run("audit", path, "--contains", topic+"/0/499", "-o", "json")
	if c := decoded[ckpt.Containing](t, r.out); c.In || c.Unsure {
		t.Errorf("audit --contains of an excluded record says %+v, want that it is certainly not in the checkpoint: %s", c, r.err)
	}
	up.stop()
	w.nothingLeft()
}

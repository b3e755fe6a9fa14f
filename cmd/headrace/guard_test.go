//go:build kafka

package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/internal/view"
)

// dated produces n records of about 1 KiB with ids from first on. All have the same time.
func dated(t *testing.T, b *testbroker.Broker, topic string, first, n int, when time.Time) {
	t.Helper()
	for id := first; id < first+n; id += 200 {
		var records []kafkago.Record
		for i := id; i < min(first+n, id+200); i++ {
			records = append(records, kafkago.Record{Time: when, Value: kafkago.NewBytes(
				fmt.Appendf(nil, `{"id": %d, "x": 1, "y": 2, "z": %q}`, i, strings.Repeat("z", 1000)))})
		}
		if err := b.Produce(t.Context(), kafkago.ProduceRequest{Topic: topic}, records); err != nil {
			t.Fatal(err)
		}
	}
}

// logBegins returns the offset at which partition 0's log begins.
func logBegins(t *testing.T, b *testbroker.Broker, topic string) int64 {
	t.Helper()
	client, done := b.Client()
	defer done()
	res, err := client.ListOffsets(t.Context(), &kafkago.ListOffsetsRequest{Topics: map[string][]kafkago.OffsetRequest{topic: {kafkago.FirstOffsetOf(0)}}})
	if err != nil {
		t.Fatal(err)
	}
	return res.Topics[topic][0].FirstOffset
}

// keeps sets how long Kafka keeps the records of a topic.
func keeps(t *testing.T, b *testbroker.Broker, topic string, keep time.Duration) {
	t.Helper()
	client, done := b.Client()
	defer done()
	res, err := client.IncrementalAlterConfigs(t.Context(), &kafkago.IncrementalAlterConfigsRequest{Resources: []kafkago.IncrementalAlterConfigsRequestResource{{
		ResourceType: kafkago.ResourceTypeTopic, ResourceName: topic,
		Configs: []kafkago.IncrementalAlterConfigsRequestConfig{{Name: "retention.ms", Value: fmt.Sprint(keep.Milliseconds()), ConfigOperation: kafkago.ConfigOperationSet}}}}})
	if err == nil {
		err = res.Resources[0].Error
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Nobody reads, and Kafka will soon delete records. The guard says so before it happens: in the log, in
// status, in top and as a metric. It never promises more time than there is. The deleted records are
// excluded when a trainer begins to read.
func TestDeletionByKafkaIsForetoldAndWhatIsDeletedIsExcluded(t *testing.T) {
	b := steadyKafka.get(t)
	const (
		n    = 3000
		keep = time.Hour
		in   = 20 * time.Minute // after this time the first 2000 are too old
	)
	topic := newTopic(t, b, 1, map[string]string{"retention.ms": fmt.Sprint(keep.Milliseconds()), "segment.bytes": "1048576"})
	tooOld := time.Now().Add(in)
	dated(t, b, topic, 0, 2000, tooOld.Add(-keep))
	dated(t, b, topic, 2000, n-2000, time.Now())
	w := newWorld(t)
	w.example(b, topic)
	spec, err := os.ReadFile(w.path("events.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	w.write("events.yaml", string(spec)+"on_loss: continue\nguard: {every: 200ms}\n")
	began := time.Now()
	up := w.up("-f", "events.yaml")

	foretold := regexp.MustCompile(`may soon delete records.*partition=` + topic + `/0.*oldest_needed=0.*left=\S+ by=age on_loss=continue`)
	up.until("the log foretells it", func() bool { return foretold.MatchString(up.err.String()) })
	v := decoded[view.Status](t, w.ok("dataset", "status", "events", "-o", "json"))
	if r := v.Retention; r == nil || !r.Warn || r.By != "age" || r.Never || r.Records != 0 {
		t.Fatalf("status says %+v", r)
	}
	// The records stay until tooOld at least. The guard has made its figure after its job began. How long
	// after that depends on the machine.
	if promised := began.Add(time.Duration(v.Retention.Seconds * float64(time.Second))); promised.After(tooOld.Add(time.Second)) {
		t.Errorf("the guard promises the records until %v, but they are safe only until %v", promised, tooOld)
	}
	if p := v.Partition[0].Retention; p == nil || p.By != "age" {
		t.Errorf("the partition's retention is %+v, want by age", p)
	}
	for _, args := range [][]string{{"top", "--once"}, {"dataset", "status", "events"}} {
		if out := w.ok(args...); !regexp.MustCompile(`KEPT FOR[\s\S]*\d[ms] !`).MatchString(out) {
			t.Errorf("%v does not warn how long records are kept:\n%s", args, out)
		}
	}
	page := w.fetch("http://" + decoded[view.Job](t, w.ok("status", "-o", "json")).HTTP + "/metrics")
	m := regexp.MustCompile(`(?m)^headrace_retention_distance_seconds\{dataset="events",partition="` + topic + `/0"\} (\S+)$`).FindStringSubmatch(page)
	if len(m) == 0 {
		t.Fatal(page)
	}
	if s, err := strconv.ParseFloat(m[1], 64); err != nil || s > in.Seconds() {
		t.Errorf("the metric is %s, want at most %v s", m[0], in.Seconds())
	}
	if !regexp.MustCompile(`(?m)^headrace_retention_warning\{dataset="events",\S+\} 1$`).MatchString(page) || !strings.Contains(page, "headrace_retention_distance_records") {
		t.Errorf("the metrics have no warning, or no distance in records:\n%s", page)
	}

	// To save time, Kafka now keeps records for less time, so the first 2000 are too old at once.
	begins := logBegins(t, b, topic)
	if begins > 0 {
		t.Fatalf("Kafka has deleted records up to %d before they were too old", begins)
	}
	keeps(t, b, topic, keep-in-time.Minute)
	up.until("Kafka deletes", func() bool { begins = logBegins(t, b, topic); return begins > 0 })
	// Nobody has begun to read, so a checkpoint that has these records may still be restored.
	if v = decoded[view.Status](t, w.ok("dataset", "status", "events", "-o", "json")); v.Counts.Excluded != 0 {
		t.Errorf("nobody has begun to read, but records are excluded: %+v", v)
	}
	if r := w.pythonTrainer("a", 0).wait(); r.code != 0 || !strings.Contains(r.out, "end of data") {
		t.Fatalf("the trainer ended with %+v\n%s", r, up.err)
	}
	ids, total := w.seen()
	if total != len(ids) || int64(total) != n-begins || ids[int(begins)] != 1 || ids[n-1] != 1 {
		t.Errorf("%d records are in the model, %d of them different; want each once from %d on, where Kafka's log begins", total, len(ids), begins)
	}
	v = decoded[view.Status](t, w.ok("dataset", "status", "events", "-o", "json"))
	if len(v.Excluded) != 1 || v.Excluded[0].Start != 0 || v.Excluded[0].End != begins || v.Counts.Excluded != begins {
		t.Errorf("excluded are %+v, want [0, %d), because Kafka's log begins there", v.Excluded, begins)
	}
	up.until("a dataset that is done is not guarded", func() bool {
		return decoded[view.Status](t, w.ok("dataset", "status", "events", "-o", "json")).Retention == nil
	})
	up.stop()
	w.nothingLeft()
}

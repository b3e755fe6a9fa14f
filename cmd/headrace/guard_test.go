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

// dated produces n records of about a KiB with ids from first on, all of one time.
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

// logBegins is where a partition's log begins.
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

// Nobody reads, and Kafka is about to delete records. The guard says so before, in the log,
// in status, in top and as a metric, and never promises more time than there is. The deleted
// records are then excluded, although no reader has asked for them.
func TestDeletionByKafkaIsForetoldAndWhatIsDeletedIsExcluded(t *testing.T) {
	b, err := testbroker.StartKafka(t.Context(), testbroker.Options{DeletesEvery: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const (
		n    = 3000
		keep = time.Hour
		in   = 20 * time.Minute // the first 2000 are too old then
	)
	if err := b.CreateTopic(t.Context(), "events", 1, map[string]string{"retention.ms": fmt.Sprint(keep.Milliseconds()), "segment.bytes": "1048576"}); err != nil {
		t.Fatal(err)
	}
	tooOld := time.Now().Add(in)
	dated(t, b, "events", 0, 2000, tooOld.Add(-keep))
	dated(t, b, "events", 2000, n-2000, time.Now())
	w := newWorld(t)
	w.example(b.Addr())
	spec, err := os.ReadFile(w.path("events.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	w.write("events.yaml", string(spec)+"on_loss: continue\nguard: {every: 200ms}\n")
	up := w.up("-f", "events.yaml")

	foretold := regexp.MustCompile(`may soon delete records.*partition=events/0.*oldest_needed=0.*left=\S+ by=age on_loss=continue`)
	up.until("the log foretells it", func() bool { return foretold.MatchString(up.err.String()) })
	v := decoded[view.Status](t, w.ok("dataset", "status", "events", "-o", "json"))
	asked := time.Now()
	if r := v.Retention; r == nil || !r.Warn || r.By != "age" || r.Never || r.Records != 0 {
		t.Fatalf("status says %+v", r)
	}
	// It stays until tooOld at least; the finding is at most some rounds old.
	if promised := asked.Add(time.Duration(v.Retention.Seconds * float64(time.Second))); promised.After(tooOld.Add(time.Second)) {
		t.Errorf("it is promised until %v, and was safe until %v", promised, tooOld)
	}
	if p := v.Partition[0].Retention; p == nil || p.By != "age" {
		t.Errorf("the partition's is %+v", p)
	}
	for _, args := range [][]string{{"top", "--once"}, {"dataset", "status", "events"}} {
		if out := w.ok(args...); !regexp.MustCompile(`KEPT FOR[\s\S]*\d[ms] !`).MatchString(out) {
			t.Errorf("%v says\n%s", args, out)
		}
	}
	page := w.fetch("http://" + decoded[view.Job](t, w.ok("status", "-o", "json")).HTTP + "/metrics")
	m := regexp.MustCompile(`(?m)^headrace_retention_distance_seconds\{dataset="events",partition="events/0"\} (\S+)$`).FindStringSubmatch(page)
	if len(m) == 0 {
		t.Fatal(page)
	}
	if s, err := strconv.ParseFloat(m[1], 64); err != nil || s > in.Seconds() {
		t.Errorf("the metric is %s", m[0])
	}
	if !regexp.MustCompile(`(?m)^headrace_retention_warning\{dataset="events",\S+\} 1$`).MatchString(page) || !strings.Contains(page, "headrace_retention_distance_records") {
		t.Error("the other metrics are not there")
	}

	// So that nobody waits, Kafka keeps less from now on: the first 2000 are too old at once.
	begins := logBegins(t, b, "events")
	if begins > 0 {
		t.Fatalf("Kafka has deleted up to %d before the records were too old", begins)
	}
	keeps(t, b, "events", keep-in-time.Minute)
	up.until("Kafka deletes", func() bool { begins = logBegins(t, b, "events"); return begins > 0 })
	// Nobody has begun to read: a checkpoint may be brought that has it.
	if v = decoded[view.Status](t, w.ok("dataset", "status", "events", "-o", "json")); v.Counts.Excluded != 0 {
		t.Errorf("%+v", v)
	}
	if r := w.pythonTrainer("a", 0).wait(); r.code != 0 || !strings.Contains(r.out, "end of data") {
		t.Fatalf("the trainer: %+v\n%s", r, up.err)
	}
	ids, total := w.seen()
	if total != len(ids) || int64(total) != n-begins || ids[int(begins)] != 1 || ids[n-1] != 1 {
		t.Errorf("%d records in the model, %d different ones, Kafka's log began at %d", total, len(ids), begins)
	}
	v = decoded[view.Status](t, w.ok("dataset", "status", "events", "-o", "json"))
	if len(v.Excluded) != 1 || v.Excluded[0].Start != 0 || v.Excluded[0].End != begins || v.Counts.Excluded != begins {
		t.Errorf("Kafka's log begins at %d, excluded is %+v", begins, v.Excluded)
	}
	up.until("a dataset that is done is not guarded", func() bool {
		return decoded[view.Status](t, w.ok("dataset", "status", "events", "-o", "json")).Retention == nil
	})
	up.stop()
	w.nothingLeft()
}

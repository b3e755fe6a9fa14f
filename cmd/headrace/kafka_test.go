//go:build kafka

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/headrace/headrace/internal/proof/testbroker"
)

// events produces n records to all partitions of a topic, some batches compressed and some not.
func events(t *testing.T, b *testbroker.Broker, topic string, partitions, from, n int) {
	t.Helper()
	for p := range partitions {
		for id := from + p; id < from+n; id += partitions * 500 {
			var records []kafkago.Record
			for i := id; i < min(from+n, id+partitions*500); i += partitions {
				x := float64(i%1000)/500 - 1
				records = append(records, kafkago.Record{Key: kafkago.NewBytes(fmt.Append(nil, "user-", i%7)),
					Value: kafkago.NewBytes(fmt.Appendf(nil, `{"id": %d, "x": %g, "y": %g}`, i, x, 3*x-1)), Time: time.UnixMilli(int64(1_700_000_000_000 + i))})
			}
			if err := b.Produce(t.Context(), kafkago.ProduceRequest{Topic: topic, Partition: p, Compression: kafkago.Compression(id / 500 % 5)}, records); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// example writes the spec of examples/kafka with addr as the broker's address.
func (w *world) example(addr string) {
	w.t.Helper()
	text, err := os.ReadFile("../../examples/kafka/events.yaml")
	if err != nil {
		w.t.Fatal(err)
	}
	w.write("events.yaml", strings.Replace(string(text), "127.0.0.1:9092", addr, 1))
}

func (w *world) pythonTrainer(name string, rank int, args ...string) *proc {
	w.t.Helper()
	env := w.env
	defer func() { w.env = env }()
	w.env = append(slices.Clone(env), fmt.Sprint("RANK=", rank), "WORLD_SIZE=2")
	script, err := filepath.Abs("../../examples/kafka/train.py")
	if err != nil {
		w.t.Fatal(err)
	}
	return w.startProgram(w.python(), append([]string{script, "--seen", w.path("seen-" + name), "--model", w.path("model")}, args...)...)
}

// seen returns how often each id is in the model, and the sum of these numbers.
func (w *world) seen() (ids map[int]int, total int) {
	w.t.Helper()
	ids = map[int]int{}
	files, _ := filepath.Glob(w.path("seen-*"))
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			w.t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			id, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				continue // a trainer was killed while it wrote this line
			}
			ids[id]++
			total++
		}
	}
	return ids, total
}

// This runs the example with a real Kafka, and kills a trainer and the broker. Every record is
// in the model, only records that the killed trainer was working on may be there twice, and the
// consumer group's lag is zero.
func TestTrainersOfAKafkaTopicSeeEveryRecordThroughKills(t *testing.T) {
	b, err := testbroker.StartKafka(t.Context(), testbroker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const n, partitions, rows = 40_000, 4, 100
	if err := b.CreateTopic(t.Context(), "events", partitions, nil); err != nil {
		t.Fatal(err)
	}
	events(t, b, "events", partitions, 0, n)
	w := newWorld(t)
	w.example(b.Addr())
	if out := w.ok("dataset", "check", "-f", "events.yaml"); !strings.Contains(out, "40,000 records, 0 bad") {
		t.Errorf("check says %s, want 40,000 records and none bad", out)
	}
	up := w.up("-f", "events.yaml")
	up.until("all is listed", func() bool {
		return regexp.MustCompile(`(?m)^listed +40,000$`).MatchString(w.ok("dataset", "describe", "events"))
	})
	events(t, b, "events", partitions, n, 500) // these come after the end, which was fixed when the topic was listed: they are not trained on
	first := w.pythonTrainer("a", 0, "--seconds", "0.01")
	second := w.pythonTrainer("b", 1, "--seconds", "0.01")
	first.until("a fifth of the data", func() bool { _, total := w.seen(); return total > n/5 })
	first.kill()
	third := w.pythonTrainer("c", 0, "--seconds", "0.01")
	second.until("half of the data", func() bool { _, total := w.seen(); return total > n/2 })
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*proc{second, third} {
		if r := p.wait(); r.code != 0 || !strings.Contains(r.out, "end of data") {
			t.Fatalf("a trainer ended with %+v, want exit code 0 at the end of the data; the master says\n%s", r, up.err)
		}
	}
	ids, total := w.seen()
	if len(ids) != n || ids[0] == 0 || ids[n-1] == 0 {
		t.Errorf("%d records are in the model, want all %d, from 0 to %d", len(ids), n, n-1)
	}
	if twice := total - len(ids); twice > 4*rows {
		t.Errorf("%d records are in the model a second time, want at most the %d that the killed trainer could be working on", twice, 4*rows)
	}
	t.Logf("%d records are in the model, %d of them twice", len(ids), total-len(ids))
	if out := w.ok("status"); !regexp.MustCompile(`events +done`).MatchString(out) {
		t.Errorf("status says %s\nwant the state done", out)
	}
	lagIsZero(t, b, up, "headrace-events", n/partitions)
	// Texts for people name the topic, not its id.
	for what, said := range map[string]string{"its status": w.ok("dataset", "status", "events"), "status": w.ok("status"), "the log": fmt.Sprint(up.err)} {
		if strings.Contains(said, "kafka:") || what == "its status" && !strings.Contains(said, "events/3") {
			t.Errorf("%s shows an internal id, or not the partition's name:\n%s", what, said)
		}
	}
	// After the spec names another group, our progress is committed to it before the process ends, even if that is at once.
	spec, err := os.ReadFile(w.path("events.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	w.write("events.yaml", strings.Replace(string(spec), "headrace-events", "another", 1))
	w.ok("dataset", "apply", "-f", "events.yaml")
	up.stop()
	if got := groupOffsets(t.Context(), t, b, "another"); !slices.Equal(got, slices.Repeat([]int64{n / partitions}, partitions)) {
		t.Errorf("the committed offsets of the new group are %v, want %d each\n%s", got, n/partitions, up.err)
	}
	w.nothingLeft()
}

// lagIsZero waits, while p runs, until the group has committed head in each of the four partitions.
func lagIsZero(t *testing.T, b *testbroker.Broker, p *proc, group string, head int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var last []int64
	p.until("a zero lag of the group", func() bool {
		last = groupOffsets(ctx, t, b, group)
		if ctx.Err() != nil {
			t.Fatalf("the committed offsets of group %s are %v, want %d each\n%s", group, last, head, p.err)
		}
		return slices.Equal(last, slices.Repeat([]int64{int64(head)}, 4))
	})
}

// groupOffsets returns the offsets that a group has committed, by partition, or nil if the broker gives no answer.
func groupOffsets(ctx context.Context, t *testing.T, b *testbroker.Broker, group string) []int64 {
	t.Helper()
	client, done := b.Client()
	defer done()
	res, err := client.OffsetFetch(ctx, &kafkago.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{"events": {0, 1, 2, 3}}})
	if err != nil || res.Error != nil {
		return nil
	}
	offsets := make([]int64, 4)
	for _, p := range res.Topics["events"] {
		offsets[p.Partition] = p.CommittedOffset
	}
	return offsets
}

func TestASpecWhoseTopicOrOffsetIsNotInKafkaIsRefusedAtApply(t *testing.T) {
	b, err := testbroker.StartKafka(t.Context(), testbroker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.CreateTopic(t.Context(), "events", 1, nil); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.example(b.Addr())
	spec, err := os.ReadFile(w.path("events.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	w.up()
	for name, c := range map[string]struct{ old, new, want string }{
		"no such topic":  {"topic: events", "topic: evnets", "evnets is not there"},
		"no such offset": {"start: earliest", "start_offsets: {0: 12}", "offset 12"},
		"no partition":   {"start: earliest", "start_offsets: {7: 0}", "names partition 7, which is not there: there are 1"},
		"no broker":      {b.Addr(), "127.0.0.1:1", "does not answer"},
	} {
		w.write("wrong.yaml", strings.Replace(string(spec), c.old, c.new, 1))
		r := w.run("dataset", "apply", "-f", "wrong.yaml")
		if r.code == 0 || !strings.Contains(r.err, c.want) {
			t.Errorf("apply, %s: %+v, want an error that says %q", name, r, c.want)
		}
	}
	// A topic without records can be applied too.
	w.ok("dataset", "apply", "-f", "events.yaml")
}

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

// steadyKafka deletes records soon, if their topic says so. restartedKafka is for tests that kill it:
// it is soon there again.
var (
	steadyKafka = sharedBroker[*testbroker.Broker]{start: func(ctx context.Context) (*testbroker.Broker, error) {
		return testbroker.StartKafka(ctx, testbroker.Options{Steady: true, DeletesEvery: 500 * time.Millisecond})
	}}
	restartedKafka = sharedBroker[*testbroker.Broker]{start: func(ctx context.Context) (*testbroker.Broker, error) {
		return testbroker.StartKafka(ctx, testbroker.Options{})
	}}
)

// newTopic makes a topic that no other test uses, and returns its name.
func newTopic(t *testing.T, b *testbroker.Broker, partitions int, config map[string]string) string {
	t.Helper()
	name := anotherTopic("events")
	if err := b.CreateTopic(t.Context(), name, partitions, config); err != nil {
		t.Fatal(err)
	}
	return name
}

// group is the consumer group of a test's dataset.
func group(topic string) string { return "headrace-" + topic }

// example writes the spec of examples/kafka for a topic of a broker.
func (w *world) example(b *testbroker.Broker, topic string) {
	w.t.Helper()
	text, err := os.ReadFile("../../examples/kafka/events.yaml")
	if err != nil {
		w.t.Fatal(err)
	}
	w.write("events.yaml", ofTopic(string(text), b, topic))
}

// ofTopic returns an example's spec for a topic of a broker.
func ofTopic(spec string, b *testbroker.Broker, topic string) string {
	return strings.NewReplacer("127.0.0.1:9092", b.Addr(), "topic: events\n", "topic: "+topic+"\n", "group: headrace-events\n", "group: "+group(topic)+"\n").Replace(spec)
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

// heldAfter is how many records a heldTrainer trains on before it waits.
const heldAfter = 1000

// heldTrainer writes the id of each record that it steps, as examples/kafka/train.py does. After the first
// thousand it waits for a file. So a test that stops the source then has records left, on any machine. The
// pause in each step keeps the agent from reading far ahead.
const heldTrainer = `
import os, sys, time
import headrace

seen, goes_on = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), sys.argv[2]
with headrace.dataset("events").batches(100) as stream:
    for step, b in enumerate(stream, 1):
        os.write(seen, "".join(f"{n}\n" for n in b["id"]).encode())
        stream.step()
        time.sleep(0.05)
        while step == 10 and not os.path.exists(goes_on):
            time.sleep(0.05)
`

// heldTrainer starts a trainer and waits until it is held. goOn lets it go on.
func (w *world) heldTrainer(name string) (p *proc, goOn func()) {
	w.t.Helper()
	env := w.env
	defer func() { w.env = env }()
	w.env = append(slices.Clone(env), "RANK=0", "WORLD_SIZE=2")
	p = w.startProgram(w.python(), "-c", heldTrainer, w.path("seen-"+name), w.path("go-on"))
	p.until("the trainer waits", func() bool { _, total := w.seen(); return total == heldAfter })
	return p, func() { w.write("go-on", "") }
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
	b := restartedKafka.get(t)
	const n, partitions, rows = 40_000, 4, 100
	topic := newTopic(t, b, partitions, nil)
	events(t, b, topic, partitions, 0, n)
	w := newWorld(t)
	w.example(b, topic)
	if out := w.ok("dataset", "check", "-f", "events.yaml"); !strings.Contains(out, "40,000 records, 0 bad") {
		t.Errorf("check says %s, want 40,000 records and none bad", out)
	}
	up := w.up("-f", "events.yaml")
	up.until("all is listed", func() bool {
		return regexp.MustCompile(`(?m)^listed +40,000$`).MatchString(w.ok("dataset", "describe", "events"))
	})
	events(t, b, topic, partitions, n, 500) // these come after the end, which was fixed when the topic was listed: they are not trained on
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
	lagIsZero(t, b, up, topic, group(topic), n/partitions)
	// Texts for people name the topic, not its id.
	for what, said := range map[string]string{"its status": w.ok("dataset", "status", "events"), "status": w.ok("status"), "the log": fmt.Sprint(up.err)} {
		if strings.Contains(said, "kafka:") || what == "its status" && !strings.Contains(said, topic+"/3") {
			t.Errorf("%s shows an internal id, or not the partition's name:\n%s", what, said)
		}
	}
	// After the spec names another group, our progress is committed to it before the process ends, even if that is at once.
	spec, err := os.ReadFile(w.path("events.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	w.write("events.yaml", strings.Replace(string(spec), group(topic), "another-"+topic, 1))
	w.ok("dataset", "apply", "-f", "events.yaml")
	up.stop()
	if got := groupOffsets(t.Context(), t, b, topic, "another-"+topic); !slices.Equal(got, slices.Repeat([]int64{n / partitions}, partitions)) {
		t.Errorf("the committed offsets of the new group are %v, want %d each\n%s", got, n/partitions, up.err)
	}
	w.nothingLeft()
}

// lagIsZero waits, while p runs, until the group has committed head in each of the four partitions.
func lagIsZero(t *testing.T, b *testbroker.Broker, p *proc, topic, group string, head int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	var last []int64
	p.until("a zero lag of the group", func() bool {
		last = groupOffsets(ctx, t, b, topic, group)
		if ctx.Err() != nil {
			t.Fatalf("the committed offsets of group %s are %v, want %d each\n%s", group, last, head, p.err)
		}
		return slices.Equal(last, slices.Repeat([]int64{int64(head)}, 4))
	})
}

// groupOffsets returns the offsets that a group has committed, by the partitions of a topic, or nil if the broker gives no answer.
func groupOffsets(ctx context.Context, t *testing.T, b *testbroker.Broker, topic, group string) []int64 {
	t.Helper()
	client, done := b.Client()
	defer done()
	res, err := client.OffsetFetch(ctx, &kafkago.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: {0, 1, 2, 3}}})
	if err != nil || res.Error != nil {
		return nil
	}
	offsets := make([]int64, 4)
	for _, p := range res.Topics[topic] {
		offsets[p.Partition] = p.CommittedOffset
	}
	return offsets
}

func TestASpecWhoseTopicOrOffsetIsNotInKafkaIsRefusedAtApply(t *testing.T) {
	b := steadyKafka.get(t)
	topic := newTopic(t, b, 1, nil)
	w := newWorld(t)
	w.example(b, topic)
	spec, err := os.ReadFile(w.path("events.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	w.up()
	for name, c := range map[string]struct{ old, new, want string }{
		"no such topic":  {"topic: " + topic, "topic: evnets", "evnets is not there"},
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

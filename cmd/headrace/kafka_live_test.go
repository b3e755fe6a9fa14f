//go:build kafka

package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/headrace/headrace/internal/proof/testbroker"
)

// producer writes events with the ids 0, 1, 2 and so on, each exactly once, until it is stopped.
// It spreads them over the first partitions of the topic, as many as partitions says.
type producer struct {
	t          *testing.T
	b          *testbroker.Broker
	topic      string
	partitions atomic.Int32
	made       atomic.Int64
	held       sync.Mutex // held by the test while the broker is down, so that nothing is produced
	stop       func()
}

func produceEvents(t *testing.T, b *testbroker.Broker, topic string, partitions int) *producer {
	p := &producer{t: t, b: b, topic: topic}
	p.partitions.Store(int32(partitions))
	quit := make(chan struct{})
	var wg sync.WaitGroup
	p.stop = sync.OnceFunc(func() { close(quit); wg.Wait() })
	t.Cleanup(p.stop)
	wg.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-quit:
				return
			}
			p.held.Lock()
			err := p.some(20)
			p.held.Unlock()
			if err != nil {
				t.Errorf("the producer failed: %v", err)
				return
			}
		}
	})
	return p
}

func (p *producer) some(n int) error {
	first := int(p.made.Load())
	var records []kafkago.Record
	for i := first; i < first+n; i++ {
		x := float64(i%1000)/500 - 1
		records = append(records, kafkago.Record{Value: kafkago.NewBytes(fmt.Appendf(nil, `{"id": %d, "x": %g, "y": %g}`, i, x, 3*x-1)), Time: time.Now()})
	}
	err := p.b.Produce(p.t.Context(), kafkago.ProduceRequest{Topic: p.topic, Partition: first / n % int(p.partitions.Load())}, records)
	if err == nil {
		p.made.Add(int64(n))
	}
	return err
}

// journal returns the ids that one trainer has put into the model, in the order in which it did.
func (w *world) journal(name string) (ids []int) {
	w.t.Helper()
	text, err := os.ReadFile(w.path("seen-" + name))
	if err != nil && !os.IsNotExist(err) {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if id, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && strings.HasSuffix(line, "\n") {
			ids = append(ids, id)
		}
	}
	return ids
}

// Records are produced while a trainer, an agent, the broker and the master are killed, and
// while the topic grows from 2 partitions to 4. Each record is in the model once, except those
// that the killed trainer was working on: they may be there twice.
func TestTrainersFollowAKafkaTopicThroughKillsAndGrowth(t *testing.T) {
	b := restartedKafka.get(t)
	topic := newTopic(t, b, 2, nil)
	const rows = 100
	w := newWorld(t)
	w.example(b, topic)
	text, err := os.ReadFile(w.path("events.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	w.write("events.yaml", strings.Replace(string(text), "end: latest ", "end: never\n  refresh: 500ms #", 1))
	produced := produceEvents(t, b, topic, 2)
	master := w.master()
	w.ok("dataset", "apply", "-f", "events.yaml")
	agent := w.start("agent", "--name", "one", "--allow-root", w.dir)
	agent.until("trainers can come", func() bool { _, err := os.Lstat(w.socket()); return err == nil })
	trainers := map[string]*proc{}
	start := func(name string, rank int) { trainers[name] = w.pythonTrainer(name, rank, "--max-wait", "0.02") }
	start("a", 0)
	start("b", 1)
	more := func(what string, n int) {
		t.Helper()
		_, before := w.seen()
		trainers["b"].until(fmt.Sprint(n, " more records after ", what), func() bool { _, total := w.seen(); return total >= before+n })
	}
	more("the start", 2000)

	trainers["a"].kill()
	start("c", 0)
	more("the kill of a trainer", 2000)

	if err := b.AddPartitions(t.Context(), topic, 4); err != nil {
		t.Fatal(err)
	}
	produced.partitions.Store(4)
	master.until("4 partitions", func() bool {
		return strings.Contains(w.ok("dataset", "describe", "events"), topic+"/3") || strings.Contains(master.err.String(), "partitions=2 known_before=2")
	})
	more("the growth", 2000)

	agent.kill()
	agent = w.start("agent", "--name", "one", "--allow-root", w.dir)
	more("the kill of an agent", 2000)

	produced.held.Lock() // if the broker died before it answered, the producer would send the record again
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	produced.held.Unlock()
	more("the kill of the broker", 2000)

	master.kill()
	master = w.master()
	more("the kill of the master", 2000)

	for _, name := range []string{"b", "c"} {
		trainers[name].until(fmt.Sprint("trainer ", name, "'s share"), func() bool { return len(w.journal(name)) >= 1000 })
	}
	produced.stop()
	n := int(produced.made.Load())
	trainers["b"].until("all records", func() bool { ids, _ := w.seen(); return len(ids) == n })
	ids, total := w.seen()
	for id := range n {
		if ids[id] == 0 {
			t.Fatalf("record %d of %d is not in the model", id, n)
		}
	}
	inHand := w.journal("a")
	inHand = inHand[max(0, len(inHand)-2*rows):]
	for id, times := range ids {
		if times > 1 && (times > 2 || !slices.Contains(inHand, id)) {
			t.Errorf("record %d is in the model %d times, want once, or twice if the killed trainer was working on it", id, times)
		}
	}
	t.Logf("%d records are in the model; %d that the killed trainer was working on are there twice", len(ids), total-n)
	lagIsZeroAt(t, b, topic, master, n) // before the trainers are killed: what a killed trainer has not acknowledged would stay in the lag
	for _, p := range []*proc{trainers["b"], trainers["c"]} {
		p.kill()
	}
	agent.stop()
	master.stop()
	w.nothingLeft()
}

// lagIsZeroAt waits until the sum of the group's committed offsets is n, the number of records in all partitions.
func lagIsZeroAt(t *testing.T, b *testbroker.Broker, topic string, master *proc, n int) {
	t.Helper()
	client, done := b.Client()
	defer done()
	master.until("a zero lag of the group", func() bool {
		res, err := client.OffsetFetch(t.Context(), &kafkago.OffsetFetchRequest{GroupID: group(topic), Topics: map[string][]int{topic: {0, 1, 2, 3}}})
		if err != nil || res.Error != nil {
			return false
		}
		sum := 0
		for _, p := range res.Topics[topic] {
			sum += int(p.CommittedOffset)
		}
		return sum == n
	})
}

func TestALiveKafkaTopicThatIsDeletedStopsItsDatasetAndIsNamed(t *testing.T) {
	b := steadyKafka.get(t)
	topic := newTopic(t, b, 2, nil)
	events(t, b, topic, 2, 0, 1000)
	w := newWorld(t)
	w.example(b, topic)
	text, err := os.ReadFile(w.path("events.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	w.write("events.yaml", strings.Replace(string(text), "end: latest ", "end: never #", 1))
	up := w.up("-f", "events.yaml")
	trainer := w.pythonTrainer("a", 0, "--max-wait", "0.02")
	trainer.until("all records", func() bool { ids, _ := w.seen(); return len(ids) == 1000 })
	if err := b.DeleteTopic(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	if r := trainer.wait(); r.code == 0 || !strings.Contains(r.err, topic) || !strings.Contains(r.err, "the topic was deleted") {
		t.Errorf("the trainer ended with %+v, want an error that names %s and says that the topic was deleted", r, topic)
	}
	if out := w.ok("dataset", "describe", "events"); !strings.Contains(out, "failed") || !strings.Contains(out, "the topic was deleted") {
		t.Errorf("describe says %s\nwant the state failed, and that the topic was deleted", out)
	}
	up.stop()
	w.nothingLeft()
}

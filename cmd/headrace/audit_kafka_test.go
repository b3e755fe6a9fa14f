//go:build kafka

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/ckpt"
)

// otherClient writes transactions into two partitions and aborts some of them. Then it prints
// [partition, offset, id] of each record that a consumer of another library gets.
const otherClient = `
import json, sys
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

bootstrap, topic = sys.argv[1:]
one = Producer({"bootstrap.servers": bootstrap, "transactional.id": "one"})
two = Producer({"bootstrap.servers": bootstrap, "transactional.id": "two", "compression.type": "zstd"})
plain = Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4"})
one.init_transactions(300)
two.init_transactions(300)
number = 0

def write(p, n):
    global number
    for _ in range(n):
        p.produce(topic, json.dumps({"id": number, "x": 0.5, "y": 1.5}), "user", number % 2)
        number += 1
    p.flush(300)

write(one, 0)
for i in range(4):
    one.begin_transaction()
    two.begin_transaction()
    write(plain, 3)
    write(one, 4)
    write(two, 3)
    write(plain, 2)
    one.commit_transaction(300) if i % 2 else one.abort_transaction(300)
    two.abort_transaction(300) if i % 3 else two.commit_transaction(300)
one.begin_transaction()
write(one, 3)
one.abort_transaction(300)

# A transaction has ended when its coordinator says so; the leader learns of it afterwards.
def ends(isolation):
    c = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends", "isolation.level": isolation})
    all = [c.get_watermark_offsets(TopicPartition(topic, p), timeout=300)[1] for p in range(2)]
    c.close()
    return all

while ends("read_committed") != ends("read_uncommitted"):
    pass

c = Consumer({"bootstrap.servers": bootstrap, "group.id": "other", "isolation.level": "read_committed", "enable.partition.eof": True})
c.assign([TopicPartition(topic, p, 0) for p in range(2)])
seen, ended = [], set()
while len(ended) < 2:
    m = c.poll(300)
    assert m is not None, "no record for five minutes"
    if m.error():
        assert m.error().code() == KafkaError._PARTITION_EOF, m.error()
        ended.add(m.partition())
        continue
    seen.append([m.partition(), m.offset(), json.loads(m.value())["id"]])
ends = [c.get_watermark_offsets(TopicPartition(topic, p))[1] for p in range(2)]
c.close()
print(json.dumps({"seen": seen, "ends": ends}))
`

// placeTrainer prints [partition, offset, id] of each record that it steps, and saves at the end.
const placeTrainer = `
import json, sys
import headrace
import numpy as np

headrace.init()
step = 0
with headrace.dataset("events").batches(7) as stream, headrace.Checkpointer(sys.argv[1], stream) as ck:
    for b in stream:
        at = b.positions()
        for row in zip(at["partition"].tolist(), at["offset"].tolist(), b["id"].tolist()):
            print(json.dumps(row))
        step = stream.step(step + 1)
    ck.save(step, {"step": np.int64(step)}).wait()
`

// Headrace and another client read a topic with aborted transactions. They must get the same records.
// The audit of the checkpoint says "yes" for exactly these records.
func TestAnAuditOfAKafkaTopicIsWhatAnotherClientReads(t *testing.T) {
	b := steadyKafka.get(t)
	topic := newTopic(t, b, 2, nil)
	w := newWorld(t)
	out, err := exec.CommandContext(t.Context(), w.python(), "-c", otherClient, b.Addr(), topic).Output()
	if err != nil {
		t.Fatalf("%v; make test-kafka installs what it needs\n%s", err, out)
	}
	var other struct {
		Seen [][3]int `json:"seen"`
		Ends []int    `json:"ends"`
	}
	if err := json.Unmarshal(out, &other); err != nil {
		t.Fatal(err)
	}
	ids := func(all [][3]int) map[[2]int]int {
		m := map[[2]int]int{}
		for _, r := range all {
			m[[2]int{r[0], r[1]}] = r[2]
		}
		if len(m) != len(all) {
			t.Fatalf("%d records were read at %d different positions, want the same number", len(all), len(m))
		}
		return m
	}
	want := ids(other.Seen)
	positions := other.Ends[0] + other.Ends[1]
	if len(want) == 0 || len(want) > positions-20 {
		t.Fatalf("the topic has %d records in %d positions: this test needs one with aborted transactions", len(want), positions)
	}

	w.example(b, topic)
	up := w.up("-f", "events.yaml", "--model", "replicated")
	r := w.startProgram(w.python(), "-c", placeTrainer, w.path("ckpt")).wait()
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	var got [][3]int
	for line := range strings.Lines(r.out) {
		var record [3]int
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		got = append(got, record)
	}
	if !maps.Equal(ids(got), want) {
		slices.SortFunc(got, func(a, b [3]int) int { return slices.Compare(a[:], b[:]) })
		t.Errorf("as (partition, offset, id), Headrace has read\n%v\nthe other client\n%v", got, other.Seen)
	}

	path := decoded[[]ckpt.View](t, w.ok("ckpt", "list", "ckpt", "-o", "json"))[0].Path
	d := decoded[ckpt.Audit](t, w.ok("audit", path, "-o", "json")).Datasets[0]
	if d.Records.Rows != int64(len(want)) || d.Units != int64(positions) {
		t.Errorf("the audit counts %d records in %d positions, want %d in %d", d.Records.Rows, d.Units, len(want), positions)
	}
	if text, says := w.ok("audit", path), fmt.Sprintf("; %d positions held none", positions-len(want)); !strings.Contains(text, says) {
		t.Errorf("the audit does not say %q:\n%s", says, text)
	}
	for p, end := range other.Ends {
		for offset := range end + 1 {
			r := w.run("audit", path, "--contains", fmt.Sprintf("%s/%d/%d", topic, p, offset), "-o", "json")
			v := decoded[ckpt.Containing](t, r.out)
			if _, has := want[[2]int{p, offset}]; v.In != has || v.Unsure || (r.code == exitOK) != has {
				t.Errorf("the other client has the record %s/%d/%d: %v; but the audit says %+v with exit code %d", topic, p, offset, has, v, r.code)
			}
		}
	}
	up.stop()
	w.nothingLeft()
}

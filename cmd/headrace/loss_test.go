//go:build kafka

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/view"
)

// Kafka deletes the first records of each partition while the topic is being read. With
// on_loss: stop (the default) the dataset stops, and its reason names the lost ranges and what
// can be done. With on_loss: continue the lost ranges are listed, and every other record is in
// the model exactly once.
func TestWhatKafkaLosesStopsTheDatasetOrIsExcludedExactly(t *testing.T) {
	b := steadyKafka.get(t)
	const n, partitions = 40_000, 4
	topic := newTopic(t, b, partitions, nil)
	events(t, b, topic, partitions, 0, n)
	w := newWorld(t)
	w.example(b, topic)
	spec, err := os.ReadFile(w.path("events.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	w.write("events.yaml", string(spec)+"guard: {every: 200ms}\n")
	up := w.up("-f", "events.yaml")

	first, goOn := w.heldTrainer("a")
	const begins = 7003 // the first of the 10,000 offsets of each partition that is not deleted; it is inside a later lease
	for p := range partitions {
		if err := b.DeleteRecords(t.Context(), topic, p, begins); err != nil {
			t.Fatal(err)
		}
	}
	goOn()
	r := first.wait()
	if r.code == 0 || !strings.Contains(r.err, "is lost at the source") || !strings.Contains(r.err, "on_loss: continue") {
		t.Fatalf("with lost records and on_loss: stop the trainer ended with %+v, want an error that says that records are lost and names on_loss: continue\n%s", r, up.err)
	}
	ids, _ := w.seen()
	up.until("the reason names what is lost in each partition", func() bool {
		reason := decoded[view.Status](t, w.ok("dataset", "status", "events", "-o", "json")).Reason
		for p := range partitions {
			for offset := range begins {
				if ids[offset*partitions+p] == 0 && !strings.Contains(reason, fmt.Sprintf("partition %s/%d pass 0: [", topic, p)) {
					return false
				}
			}
		}
		return strings.Contains(reason, fmt.Sprintf(", %d) of segment 0 is lost at the source", begins))
	})
	_, before := w.seen()
	if out := w.ok("dataset", "status", "events"); strings.Contains(out, "EXCLUDED") {
		t.Errorf("with on_loss: stop the status lists excluded ranges, want none:\n%s", out)
	}

	w.write("events.yaml", string(spec)+"guard: {every: 200ms}\non_loss: continue\n")
	w.ok("dataset", "apply", "-f", "events.yaml")
	w.ok("dataset", "resume", "events")
	if r := w.pythonTrainer("b", 1).wait(); r.code != 0 || !strings.Contains(r.out, "end of data") {
		t.Fatalf("with on_loss: continue the trainer ended with %+v, want exit code 0 at the end of the data\n%s", r, up.err)
	}

	ids, total := w.seen()
	if total != len(ids) {
		t.Errorf("records are in the model a second time %d times, want never", total-len(ids))
	}
	v := decoded[view.Status](t, w.ok("dataset", "status", "events", "-o", "json"))
	lost := map[int]bool{}
	for _, e := range v.Excluded {
		p := slices.IndexFunc(v.Partition, func(p view.Partition) bool { return p.Identity == e.Partition })
		for offset := e.Start; offset < e.End; offset++ {
			lost[int(offset)*partitions+p] = true
		}
		if e.Start >= e.End || e.End > begins || e.Kind != "truncated" || !strings.Contains(e.Reason, "7003") || e.Since == "" {
			t.Errorf("an excluded range is %+v, want one of the kind truncated, below offset %d, with a reason and a time", e, begins)
		}
	}
	for id := range n {
		switch {
		case lost[id] == (ids[id] == 1):
			t.Fatalf("record %d: excluded %v, in the model %d times; want it either excluded or in the model once", id, lost[id], ids[id])
		case lost[id] && id/partitions >= begins:
			t.Fatalf("record %d is excluded, but Kafka still has it", id)
		}
	}
	if int(v.Counts.Excluded) != len(lost) || len(lost) == 0 || int(v.Counts.Acked) != len(ids) || v.State != "done" {
		t.Errorf("%d records are excluded and %d in the model; want the same counts and the state done in the status %+v", len(lost), len(ids), v)
	}
	t.Logf("%d records were trained on before the stop and %d in all; %d are excluded, in %d ranges", before, total, len(lost), v.ExcludedRanges)
	for _, args := range [][]string{{"dataset", "status", "events"}, {"dataset", "describe", "events"}} {
		if out := w.ok(args...); !strings.Contains(out, "EXCLUDED") || !strings.Contains(out, "truncated: ") {
			t.Errorf("%v does not list the excluded ranges:\n%s", args, out)
		}
	}
	if !strings.Contains(up.err.String(), "the source has lost records; they are excluded") {
		t.Errorf("the master's log does not say that lost records are excluded:\n%s", up.err)
	}
	up.stop()
	w.nothingLeft()
}

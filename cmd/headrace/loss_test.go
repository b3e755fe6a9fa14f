//go:build kafka

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/internal/view"
)

// Kafka deletes the beginning of what is being read. With on_loss: stop (the
// default) the dataset stops and names the range and both ways out; with continue
// the lost ranges are listed, and every other record is in the model exactly once.
func TestWhatKafkaLosesStopsTheDatasetOrIsExcludedExactly(t *testing.T) {
	b, err := testbroker.StartKafka(t.Context(), testbroker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const n, partitions = 40_000, 4
	if err := b.CreateTopic(t.Context(), "events", partitions, nil); err != nil {
		t.Fatal(err)
	}
	events(t, b, "events", partitions, 0, n)
	w := newWorld(t)
	w.example(b.Addr())
	spec, err := os.ReadFile(w.path("events.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	w.write("events.yaml", string(spec)+"guard: {every: 200ms}\n")
	up := w.up("-f", "events.yaml")

	first := w.pythonTrainer("a", 0, "--seconds", "0.05")
	first.until("some records are in the model", func() bool { _, total := w.seen(); return total > 1000 })
	const begins = 7003 // of 10,000 in each partition, in the middle of leases to come
	for p := range partitions {
		if err := b.DeleteRecords(t.Context(), "events", p, begins); err != nil {
			t.Fatal(err)
		}
	}
	r := first.wait()
	if r.code == 0 || !strings.Contains(r.err, "is lost at the source") || !strings.Contains(r.err, "on_loss: continue") {
		t.Fatalf("a trainer of a dataset with a loss: %+v\n%s", r, up.err)
	}
	ids, _ := w.seen()
	up.until("the reason names what is lost in each partition", func() bool {
		reason := decoded[view.Status](t, w.ok("dataset", "status", "events", "-o", "json")).Reason
		for p := range partitions {
			for offset := range begins {
				if ids[offset*partitions+p] == 0 && !strings.Contains(reason, fmt.Sprintf("partition events/%d pass 0: [", p)) {
					return false
				}
			}
		}
		return strings.Contains(reason, fmt.Sprintf(", %d) of segment 0 is lost at the source", begins))
	})
	_, before := w.seen()
	if out := w.ok("dataset", "status", "events"); strings.Contains(out, "EXCLUDED") {
		t.Errorf("excluded with on_loss: stop:\n%s", out)
	}

	w.write("events.yaml", string(spec)+"guard: {every: 200ms}\non_loss: continue\n")
	w.ok("dataset", "apply", "-f", "events.yaml")
	w.ok("dataset", "resume", "events")
	if r := w.pythonTrainer("b", 1).wait(); r.code != 0 || !strings.Contains(r.out, "end of data") {
		t.Fatalf("a trainer with on_loss: continue: %+v\n%s", r, up.err)
	}

	ids, total := w.seen()
	if total != len(ids) {
		t.Errorf("%d of %d records came more than once", total-len(ids), total)
	}
	v := decoded[view.Status](t, w.ok("dataset", "status", "events", "-o", "json"))
	lost := map[int]bool{}
	for _, e := range v.Excluded {
		p := slices.IndexFunc(v.Partition, func(p view.Partition) bool { return p.Identity == e.Partition })
		for offset := e.Start; offset < e.End; offset++ {
			lost[int(offset)*partitions+p] = true
		}
		if e.Start >= e.End || e.End > begins || e.Kind != "truncated" || !strings.Contains(e.Reason, "7003") || e.Since == "" {
			t.Errorf("excluded is %+v", e)
		}
	}
	for id := range n {
		switch {
		case lost[id] == (ids[id] == 1):
			t.Fatalf("record %d: excluded %v, in the model %d times", id, lost[id], ids[id])
		case lost[id] && id/partitions >= begins:
			t.Fatalf("record %d is excluded, and Kafka has it", id)
		}
	}
	if int(v.Counts.Excluded) != len(lost) || len(lost) == 0 || int(v.Counts.Acked) != len(ids) || v.State != "done" {
		t.Errorf("%d records are excluded, %d in the model; status says %+v", len(lost), len(ids), v)
	}
	t.Logf("%d records before the stop, %d in all, %d excluded in %d ranges", before, total, len(lost), v.ExcludedRanges)
	for _, args := range [][]string{{"dataset", "status", "events"}, {"dataset", "describe", "events"}} {
		if out := w.ok(args...); !strings.Contains(out, "EXCLUDED") || !strings.Contains(out, "truncated: ") {
			t.Errorf("%v says\n%s", args, out)
		}
	}
	if !strings.Contains(up.err.String(), "the source has lost records; they are excluded") {
		t.Errorf("the log does not say it:\n%s", up.err)
	}
	up.stop()
	w.nothingLeft()
}

//go:build pulsar || rocketmq

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/view"
)

// tooOldIsLeftOut checks catch_up.drop_older_than with a broker that sets the time of each record.
// So the test cannot write old records: it writes 1,000, which are oldUnits of the source's unit,
// and waits until they are too old. Then it appends new records until the trainer has ended, so
// that on a slow machine, too, the trainer gets records that are not too old.
func tooOldIsLeftOut(t *testing.T, source string, oldUnits int64, add func(ids []int)) {
	const old = 1000
	all := func(from, to int) (ids []int) {
		for id := from; id < to; id++ {
			ids = append(ids, id)
		}
		return ids
	}
	add(all(0, old))
	w := newWorld(t)
	w.write("events.yaml", "name: events\ncatch_up: {drop_older_than: 3s}\n"+source+"\ndecode:\n  format: json\n  columns: [{name: id, path: /id, dtype: int64}]\n")
	up := w.up("-f", "events.yaml", "--model", "replicated")
	status := func() view.Status { return decoded[view.Status](t, w.ok("dataset", "status", "events", "-o", "json")) }
	up.until("all is listed", func() bool { return status().Counts.Listed >= oldUnits })
	time.Sleep(3 * time.Second) // now the records are older than drop_older_than
	defer func() {
		if t.Failed() {
			t.Logf("status: %s", w.run("dataset", "status", "events", "-o", "json").out)
		}
	}()

	trainer := w.startProgram(w.python(), "-c", modelTrainer, w.path("ckpt"), "3", "newest", "20")
	up.until("the old records are excluded", func() bool { return status().Counts.Excluded >= oldUnits })
	ended := make(chan result, 1)
	go func() { ended <- trainer.wait() }()
	var r result
	for next := old; r.out == ""; next += 100 {
		select {
		case r = <-ended:
		case <-time.After(50 * time.Millisecond):
			add(all(next, next+100))
		}
	}
	got := map[int]bool{}
	for id := range steppedIn(t, r.out) {
		if id < old || got[id] {
			t.Errorf("record %d came (a second time: %v), want only records from %d on, each once", id, got[id], old)
		}
		got[id] = true
	}
	if len(got) != 300 {
		t.Errorf("%d records came, want 300; the trainer ended with %+v", len(got), r)
	}
	for _, x := range status().Excluded {
		if x.Kind != "too_old" || x.Reason != "older than 3s when its turn came (catch_up.drop_older_than)" {
			t.Errorf("an excluded range is %+v, want the kind too_old and the reason with 3s", x)
		}
	}
	if out := w.ok("dataset", "status", "events"); !strings.Contains(out, "too_old") {
		t.Errorf("status does not say too_old:\n%s", out)
	}
	up.stop()
	w.nothingLeft()
}

// jsonOf returns the values of records with these ids.
func jsonOf(ids []int) (values [][]byte) {
	for _, id := range ids {
		values = append(values, fmt.Appendf(nil, `{"id": %d}`, id))
	}
	return values
}

//go:build pulsar || rocketmq

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/view"
)

// catch_up.drop_older_than where the broker stamps the records. The test cannot write old
// records, so it waits until they are old. 1,000 records are oldUnits of the source's unit. More
// are appended as long as the trainer wants some, so it gets young records on any machine.
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
	time.Sleep(3 * time.Second) // the age
	defer func() {
		if t.Failed() {
			t.Logf("status: %s", w.run("dataset", "status", "events", "-o", "json").out)
		}
	}()

	trainer := w.startProgram(w.python(), "-c", modelTrainer, w.path("ckpt"), "3", "newest", "20")
	up.until("what was there is excluded", func() bool { return status().Counts.Excluded >= oldUnits })
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
			t.Errorf("record %d came, again: %v", id, got[id])
		}
		got[id] = true
	}
	if len(got) != 300 {
		t.Errorf("%d records came\n%+v", len(got), r)
	}
	for _, x := range status().Excluded {
		if x.Kind != "too_old" || x.Reason != "older than 3s when its turn came (catch_up.drop_older_than)" {
			t.Errorf("%+v", x)
		}
	}
	if out := w.ok("dataset", "status", "events"); !strings.Contains(out, "too_old") {
		t.Errorf("status says\n%s", out)
	}
	up.stop()
	w.nothingLeft()
}

// jsonOf are the values of records with these ids.
func jsonOf(ids []int) (values [][]byte) {
	for _, id := range ids {
		values = append(values, fmt.Appendf(nil, `{"id": %d}`, id))
	}
	return values
}

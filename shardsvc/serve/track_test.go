package serve

import (
	"math"
	"testing"
	"time"

	"github.com/headrace/headrace/shardsvc"
)

func TestAgeAndDrainTimeFollowFromTheCounts(t *testing.T) {
	var k track
	start := time.Now()
	for _, x := range []struct {
		after           time.Duration
		listed, settled int64
		age, drain      float64
	}{
		{0, 1000, 0, 0, math.Inf(1)}, // nothing was settled yet
		{10 * time.Second, 1000, 0, 10, math.Inf(1)},
		{20 * time.Second, 1000, 200, 20, 80},  // 10/s, and 800 are left
		{30 * time.Second, 1500, 600, 30, 45},  // 20/s, and 900 are left
		{40 * time.Second, 1500, 1000, 10, 20}, // 25/s; what is left was listed 10 s ago
		{50 * time.Second, 1500, 1500, 0, 0},
		{200 * time.Second, 1600, 1500, 0, math.Inf(1)}, // nothing was settled in the last minute
	} {
		age, drain := k.seen(start.Add(x.after), shardsvc.Counts{Listed: x.listed, Settled: x.settled})
		if age != x.age || drain != x.drain {
			t.Errorf("after %v: age %v and drain time %v, want %v and %v", x.after, age, drain, x.age, x.drain)
		}
	}
}

// A restore makes acked records pending again. If the counter fell, Prometheus would take it for one
// that began again, and count everything that was ever trained as trained just now.
func TestTheCountOfSettledRecordsNeverFalls(t *testing.T) {
	var k track
	d := shardsvc.DatasetInfo{Options: shardsvc.Options{Unit: "bytes"}}
	for _, x := range []struct{ acked, want int64 }{{900, 900}, {1000, 1000}, {400, 1000}, {400, 1000}, {450, 1050}, {1000, 1600}} {
		d.Counts.Acked = x.acked
		if got := k.grown(&d)[outcome{"acked", "bytes"}]; got != x.want {
			t.Errorf("the ledger has %d acked, and the counter says %d, want %d", x.acked, got, x.want)
		}
	}
	d.Options.Backfill.Unit, d.Backfill.Acked = "records", 7
	if all := k.grown(&d); all[outcome{"acked", "records"}] != 7 || all[outcome{"acked", "bytes"}] != 1600 || len(all) != 6 {
		t.Errorf("with a backfill the counters are %v", all)
	}
}

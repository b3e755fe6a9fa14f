package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/view"
)

// A file is deleted after it was listed. With on_loss: continue the whole file is excluded, and the other
// files are read once. With on_loss: stop the dataset stops.
func TestAFileThatIsGoneStopsTheDatasetOrIsExcluded(t *testing.T) {
	for _, onLoss := range []string{"stop", "continue"} {
		t.Run(onLoss, func(t *testing.T) {
			w := newWorld(t)
			const n = 3000
			w.clicks(n)
			w.write("data/b.tsv", strings.Repeat("1\t1000000\tuser\n", 500))
			gone, err := os.ReadFile(w.path("data/b.tsv"))
			if err != nil {
				t.Fatal(err)
			}
			w.write("clicks.yaml", fmt.Sprintf("%son_loss: %s\n", clicksSpec, onLoss))
			up := w.up("-f", "clicks.yaml")
			up.until("all is listed", func() bool {
				return decoded[view.Status](t, w.ok("dataset", "status", "clicks", "-o", "json")).ListingComplete
			})
			if err := os.Remove(w.path("data/b.tsv")); err != nil {
				t.Fatal(err)
			}
			status := func() view.Status {
				return decoded[view.Status](t, w.ok("dataset", "status", "clicks", "-o", "json"))
			}
			if onLoss == "stop" {
				trainer := w.start("run", "--max-restarts", "0", "--", w.self(""))
				trainer.until("the dataset stops", func() bool { return status().State == "failed" })
				if v := status(); !strings.Contains(v.Reason, "b.tsv") || !strings.Contains(v.Reason, "lost at the source") || len(v.Excluded) != 0 {
					t.Errorf("%+v", v)
				}
				return
			}
			r := w.run("run", "--max-restarts", "0", "--", w.self(""))
			v := status()
			if rows, sum := read(t, r.out); r.code != exitOK || rows != n || sum != n*(n-1)/2 {
				t.Errorf("the trainer got %d rows with the sum %d: %+v", rows, sum, r)
			}
			if v.State != "done" || len(v.Excluded) != 1 || v.Excluded[0].Segment != 1 || v.Excluded[0].Start != 0 || v.Excluded[0].End != int64(len(gone)) || v.Counts.Excluded != int64(len(gone)) {
				t.Errorf("%+v", v)
			}
			up.stop()
			w.nothingLeft()
		})
	}
}

// In one lease, a block in which no record begins lies before a block that is gone. The dataset must
// still end: everything before the loss is settled, the empty block too.
func TestWhatIsGoneBehindABlockWithoutRecordsKeepsNothingFromItsEnd(t *testing.T) {
	w := newWorld(t)
	const n = 300
	w.clicks(n)
	gone := strings.Repeat("1\t1000000\tuser\n", 50)
	w.write("data/b.tsv", gone)
	w.write("clicks.yaml", clicksSpec+"on_loss: continue\nshuffle: {seed: 1, block: 8}\n") // records are longer than a block
	up := w.up("-f", "clicks.yaml")
	status := func() view.Status {
		return decoded[view.Status](t, w.ok("dataset", "status", "clicks", "-o", "json"))
	}
	up.until("all is listed", func() bool { return status().ListingComplete })
	if err := os.Remove(w.path("data/b.tsv")); err != nil {
		t.Fatal(err)
	}
	r := w.run("run", "--max-restarts", "0", "--", w.self(""))
	if rows, sum := read(t, r.out); r.code != exitOK || rows != n || sum != n*(n-1)/2 {
		t.Errorf("rows %d sum %d: %+v", rows, sum, r)
	}
	if v := status(); v.State != "done" || v.Counts.Excluded != int64(len(gone)) {
		t.Errorf("%+v", v)
	}
}

var changedRange = regexp.MustCompile(`b\.tsv changed after it was planned .* range \[\d+, \d+\)`)

// Guarantee 7: "A file that changed or shrank after it was planned stops the dataset. [...] The error
// names the place and the range." on_loss does not matter, because the file's records are not the planned
// ones any more.
func TestAFileThatChangedStopsTheDatasetWhateverOnLossSays(t *testing.T) {
	for _, onLoss := range []string{"stop", "continue"} {
		t.Run(onLoss, func(t *testing.T) {
			w := newWorld(t)
			w.clicks(1000)
			text := strings.Repeat("1\t1000000\tuser\n", 500)
			w.write("data/b.tsv", text)
			w.write("clicks.yaml", fmt.Sprintf("%son_loss: %s\n", clicksSpec, onLoss))
			up := w.up("-f", "clicks.yaml")
			status := func() view.Status {
				return decoded[view.Status](t, w.ok("dataset", "status", "clicks", "-o", "json"))
			}
			up.until("all is listed", func() bool { return status().ListingComplete })
			w.write("data/b.tsv", strings.ReplaceAll(text, "user", "USER"))
			trainer := w.start("run", "--max-restarts", "0", "--", w.self(""))
			trainer.until("the dataset stops", func() bool { return status().State == "failed" })
			v := status()
			if !changedRange.MatchString(v.Reason) || len(v.Excluded) != 0 {
				t.Errorf("%+v", v)
			}
		})
	}
}

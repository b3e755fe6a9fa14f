package main

import (
	"os"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/view"
)

// `headrace run` resumes a dataset that has failed if its spec was changed so that this may repair
// it, or if it gets --resume-failed. Earlier, a dataset could be resumed only while a master ran, and the
// master of `headrace run` ends with its trainers, so a repaired spec did not help.
func TestRunGoesOnWithAFailedDatasetThatItsSpecRepairs(t *testing.T) {
	w := newWorld(t)
	const n = 200
	w.clicks(n)
	w.write("data/b.tsv", "1\t1000000\t"+strings.Repeat("u", 500)+"\n")
	tight := strings.Replace(clicksSpec, "{root: data}", "{root: data, max_record: 256B}", 1)
	trainer := w.self("")
	// stops starts `headrace run`, waits until it says that the dataset has failed, stops it and returns what it said.
	stops := func(spec string, more ...string) string {
		t.Helper()
		w.write("clicks.yaml", spec)
		p := w.start(append(append([]string{"run", "-f", "clicks.yaml"}, more...), "--", trainer)...)
		p.until("the failure is told", func() bool {
			return strings.Contains(p.err.String(), "dataset stopped") || strings.Contains(p.err.String(), "has failed")
		})
		p.signal(os.Interrupt)
		return p.wait().err
	}
	if said := stops(tight); !strings.Contains(said, "max_record") {
		t.Fatalf("with a record that is too long, run said\n%s\nwant that the dataset failed because of max_record", said)
	}
	other := strings.Replace(tight, "decode:", "lease: {target: 1s}\ndecode:", 1)
	if said := stops(other); !strings.Contains(said, "dataset clicks has failed") || !strings.Contains(said, "`headrace run --resume-failed`") || strings.Contains(said, "it is resumed") {
		t.Errorf("after a change of a field that repairs nothing, run said\n%s\nwant that the dataset has failed, and --resume-failed as a way on", said)
	}
	if said := stops(other, "--resume-failed"); !strings.Contains(said, "it is resumed (--resume-failed)") || !strings.Contains(said, "dataset stopped") {
		t.Errorf("with --resume-failed, run said\n%s\nwant that the dataset was resumed, and failed again", said)
	}

	w.write("clicks.yaml", strings.Replace(other, "256B", "1MiB", 1))
	r := w.run("run", "-f", "clicks.yaml", "--", trainer)
	if _, sum := read(t, r.out); r.code != exitOK || sum < 1_000_000 || !strings.Contains(r.err, "it is resumed (its spec has changed, files.max_record") {
		t.Errorf("after the change that repairs the dataset: %+v, want that it was resumed and read to its end", r)
	}
	w.up()
	v := decoded[view.Status](t, w.ok("dataset", "status", "clicks", "-o", "json"))
	if v.State != "done" || v.Counts.Acked != v.Counts.Listed {
		t.Errorf("at the end the status is %+v, want done, with all records acknowledged", v)
	}
}

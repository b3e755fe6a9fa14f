package main

import (
	"os"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/view"
)

// A dataset that had failed could be resumed only while a master ran, and the master of
// `headrace run` ends with its trainers: the changed spec alone did not help.
func TestRunGoesOnWithAFailedDatasetThatItsSpecRepairs(t *testing.T) {
	w := newWorld(t)
	const n = 200
	w.clicks(n)
	w.write("data/b.tsv", "1\t1000000\t"+strings.Repeat("u", 500)+"\n")
	tight := strings.Replace(clicksSpec, "{root: data}", "{root: data, max_record: 256B}", 1)
	trainer := w.self("")
	// stops runs until the dataset has failed. Its trainers then wait.
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
		t.Fatalf("a record that is too long did not stop the dataset: %s", said)
	}
	other := strings.Replace(tight, "decode:", "lease: {target: 1s}\ndecode:", 1)
	if said := stops(other); !strings.Contains(said, "dataset clicks has failed") || !strings.Contains(said, "`headrace run --resume-failed`") || strings.Contains(said, "it is resumed") {
		t.Errorf("a field was changed that repairs nothing: %s", said)
	}
	if said := stops(other, "--resume-failed"); !strings.Contains(said, "it is resumed (--resume-failed)") || !strings.Contains(said, "dataset stopped") {
		t.Errorf("the user has asked for it: %s", said)
	}

	w.write("clicks.yaml", strings.Replace(other, "256B", "1MiB", 1))
	r := w.run("run", "-f", "clicks.yaml", "--", trainer)
	if _, sum := read(t, r.out); r.code != exitOK || sum < 1_000_000 || !strings.Contains(r.err, "it is resumed (its spec has changed, files.max_record") {
		t.Errorf("with the field that repairs it: %+v", r)
	}
	w.up()
	v := decoded[view.Status](t, w.ok("dataset", "status", "clicks", "-o", "json"))
	if v.State != "done" || v.Counts.Acked != v.Counts.Listed {
		t.Errorf("%+v", v)
	}
}

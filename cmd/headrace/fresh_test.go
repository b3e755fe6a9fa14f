package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A second project in another folder must not join the first project's job.
func TestAJobBelongsToTheFolderInWhichItWasBegun(t *testing.T) {
	w := newWorld(t)
	w.clicks(100)
	first := w.dir
	for _, name := range []string{"data/a.tsv", "clicks.yaml"} {
		text, err := os.ReadFile(w.path(name))
		if err != nil {
			t.Fatal(err)
		}
		w.write("second/"+name, string(text))
	}
	run := []string{"run", "-f", "clicks.yaml", "--", w.self("")}
	w.ok(run...)

	w.dir = filepath.Join(first, "second")
	r := w.run(run...)
	for _, says := range []string{"job default was begun in " + realPath(t, first), "this is " + realPath(t, w.dir), "--job second", "--job default goes on"} {
		if !strings.Contains(r.err, says) {
			t.Errorf("the run in the second folder does not say %q; it ended with exit code %d\n%s", says, r.code, r.err)
		}
	}
	if r.code != exitFailed {
		t.Errorf("the run in the second folder ended with exit code %d, want %d", r.code, exitFailed)
	}
	if r = w.run("up", "-f", "clicks.yaml"); r.code != exitFailed || !strings.Contains(r.err, "was begun in "+realPath(t, first)) {
		t.Errorf("`up` in the second folder ended with exit code %d\n%s", r.code, r.err)
	}
	// With a job of its own, the second project runs.
	w.write("headrace.yaml", "job: second\n")
	if r = w.run(run...); r.code != exitOK {
		t.Errorf("with a job of its own, the second project ended with exit code %d\n%s", r.code, r.err)
	} else if rows, _ := read(t, r.out); rows != 100 {
		t.Errorf("the second project's job has read %d of 100 records", rows)
	}
	w.dir = first
	if r = w.run(run...); r.code != exitOK || !strings.Contains(r.err, "was read to its end before (100 records)") {
		t.Errorf("the first project must go on, but ended with exit code %d\n%s", r.code, r.err)
	}
	// A folder that does not exist any more owns no job.
	if err := os.Rename(w.path("second"), w.path("moved")); err != nil {
		t.Fatal(err)
	}
	w.dir = filepath.Join(first, "moved")
	if r = w.run("run", "--", w.self("")); strings.Contains(r.err, "was begun in") {
		t.Errorf("the run in a renamed folder was refused: exit code %d\n%s", r.code, r.err)
	}
	w.dir = first
}

// A model that dies with its process and was never saved has learned nothing. So everything is trained on
// again, and the run says so.
func TestWithoutACheckpointTheNextRunIsToldThatItTrainsEverythingAgain(t *testing.T) {
	w := newWorld(t)
	w.clicks(100)
	run := []string{"run", "--model", "replicated", "-f", "clicks.yaml", "--", w.self("")}
	w.ok(run...)
	r := w.run(run...)
	if rows, _ := read(t, r.out); r.code != exitOK || rows != 100 {
		t.Fatalf("the second run has read %d of 100 records: exit %d\n%s", rows, r.code, r.err)
	}
	if strings.Contains(r.err, "nothing is left") || !strings.Contains(r.err, "was read before (100 records), and no checkpoint keeps what was learned: all of it is trained again") {
		t.Errorf("the second run does not say that all records are trained on again:\n%s", r.err)
	}
	if strings.Contains(r.err, "level=WARN") {
		t.Errorf("nothing went wrong, but the run prints a warning:\n%s", r.err)
	}
}

func TestAFreshRunBeginsAFinishedJobAnew(t *testing.T) {
	for model, says := range map[string]string{"shared": "nothing is left to train on; `headrace run --fresh`", "replicated": "all of it is trained again"} {
		t.Run(model, func(t *testing.T) {
			w := newWorld(t)
			w.clicks(100)
			run := []string{"run", "--model", model, "-f", "clicks.yaml", "--", w.self("")}
			fresh := append([]string{"run", "--fresh"}, run[1:]...)
			w.ok(run...)
			if r := w.run(run...); !strings.Contains(r.err, says) {
				t.Errorf("a run of a finished job does not say %q: exit code %d\n%s", says, r.code, r.err)
			}
			r := w.run(fresh...)
			if rows, _ := read(t, r.out); r.code != exitOK || rows != 100 || !strings.Contains(r.err, "starts from the beginning") {
				t.Errorf("the fresh run ended with exit code %d after %d of 100 rows\n%s", r.code, rows, r.err)
			}
		})
	}
}

func TestAnyChangeOfASpecIsAllowedWhileNothingOfItIsSettled(t *testing.T) {
	w := newWorld(t)
	w.clicks(100)
	up := w.up()
	w.ok("apply", "-f", "clicks.yaml")
	w.write("clicks.yaml", strings.Replace(clicksSpec, "float32", "float64", 1)+"shuffle: {seed: 3}\n")
	if r := w.run("apply", "-f", "clicks.yaml", "--dry-run"); r.code != exitOK || !strings.Contains(r.out, "decode.columns.label.dtype") {
		t.Errorf("the dry run ended with exit code %d\n%s%s", r.code, r.out, r.err)
	}
	if out := w.ok("apply", "-f", "clicks.yaml"); !strings.Contains(out, "changed") {
		t.Error(out)
	}
	if out := w.ok("describe", "clicks"); !strings.Contains(out, "dtype: float64") || !strings.Contains(out, "seed: 3") {
		t.Error(out)
	}
	// After records were settled, the change is refused. The error names a way that works without a master.
	w.ok("run", "--", w.self(""))
	w.write("clicks.yaml", clicksSpec)
	r := w.run("apply", "-f", "clicks.yaml")
	if r.code == exitOK || !strings.Contains(r.err, "would make its records mean something else") || !strings.Contains(r.err, "--fresh") {
		t.Errorf("the change of a settled dataset ended with exit code %d\n%s", r.code, r.err)
	}
	up.stop()
	r = w.run("run", "--fresh", "-f", "clicks.yaml", "--", w.self(""))
	if rows, _ := read(t, r.out); r.code != exitOK || rows != 100 {
		t.Errorf("with --fresh the run ended with exit code %d after %d rows, want 100\n%s", r.code, rows, r.err)
	}
	w.nothingLeft()
}

func realPath(t *testing.T, path string) string {
	t.Helper()
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	return real
}

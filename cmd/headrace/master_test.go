package main

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/headrace/headrace/internal/link"
	"github.com/headrace/headrace/internal/view"
)

func TestTwoMastersOnOneStateFolder(t *testing.T) {
	w := newWorld(t)
	first := w.master()
	r := w.run("master", "--listen", "127.0.0.1:0", "--http", "off", "--allow-root", w.dir)
	if r.code != exitFailed || !strings.Contains(r.err, "store") || !strings.Contains(r.err, "pid") {
		t.Errorf("the second master: exit code %d, want %d and an error that names the store and the first one's pid: %s", r.code, exitFailed, r.err)
	}
	if w.ok("list") != "no datasets; make one with `headrace dataset apply -f FILE`\n" {
		t.Error("after the second master's start, the first one does not list its datasets, want it to work as before")
	}
	first.stop()
	w.nothingLeft()
	w.master().stop() // a new master can start: the lock was released
	w.nothingLeft()
}

func TestStateOfANewerVersionIsRefused(t *testing.T) {
	w := newWorld(t)
	w.master().stop()
	db, err := pebble.Open(filepath.Join(w.state(), "store"), &pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Set([]byte("f"), []byte("999"), pebble.Sync), db.Close()); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"master", "up"} {
		r := w.run(verb, "--listen", "127.0.0.1:0", "--http", "off", "--allow-root", w.dir)
		if r.code != exitFailed || !strings.Contains(r.err, "999") || !strings.Contains(r.err, w.state()) {
			t.Errorf("%s with a store of version 999: %+v, want an error that names the version and the folder", verb, r)
		}
	}
	w.nothingLeft()
}

// A limit on the size of files makes the master's write fail, as a full disk does.
func TestAStoreThatCanNotWriteEndsTheMaster(t *testing.T) {
	w := newWorld(t)
	w.clicks(10)
	w.write("big.yaml", "# "+strings.Repeat("x", 900_000)+"\n"+clicksSpec)
	shell := w.path("limited")
	w.write("limited", "#!/bin/sh\nulimit -f 512\nexec "+binary+" \"$@\"\n")
	if err := os.Chmod(shell, 0o700); err != nil {
		t.Fatal(err)
	}
	p := w.startProgram(shell, "master", "--listen", "127.0.0.1:0", "--http", "off", "--allow-root", w.dir)
	p.until("address", w.masterThere)
	if r := w.run("apply", "-f", "big.yaml"); r.code == exitOK {
		t.Errorf("apply ended with %+v, want an error: the spec could not be written to the disk", r)
	}
	r := p.wait()
	if r.code != exitFailed || !strings.Contains(r.err, "file too large") || !strings.Contains(r.err, w.state()) {
		t.Errorf("the master: exit code %d, want %d and an error that names the state folder: %s", r.code, exitFailed, r.err)
	}
	w.nothingLeft()
	w.master().stop() // without the limit, a master can start on the same state again
}

func TestAPortInUseNamesItsFlag(t *testing.T) {
	w := newWorld(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, flag := range []string{"--listen", "--http"} {
		other := map[string]string{"--listen": "--http", "--http": "--listen"}[flag]
		r := w.run("master", flag, l.Addr().String(), other, "127.0.0.1:0", "--allow-root", w.dir)
		if r.code != exitFailed || !strings.Contains(r.err, flag+" "+l.Addr().String()+": another process listens there already") {
			t.Errorf("%s with a used port: exit code %d, want %d and an error that names flag and address: %s", flag, r.code, exitFailed, r.err)
		}
	}
	w.nothingLeft()
}

func TestAStateFolderThatCanNotBeMade(t *testing.T) {
	w := newWorld(t)
	w.write("file", "")
	r := w.run("master", "--state", w.path("file"), "--allow-root", w.dir)
	if r.code != exitFailed || !strings.Contains(r.err, w.path("file")) || !strings.Contains(r.err, "--state") {
		t.Errorf("with a file as state folder: %+v, want an error that names the file and --state", r)
	}
}

func TestDatasetsFromApplyToDelete(t *testing.T) {
	w := newWorld(t)
	w.clicks(100)
	m := w.master()

	if out := w.ok("dataset", "apply", "-f", "clicks.yaml", "--dry-run"); !strings.HasPrefix(out, "dataset clicks would be created\n") {
		t.Errorf("apply --dry-run of a new dataset says %q", out)
	}
	if out := w.ok("apply", "-f", "clicks.yaml"); !strings.HasPrefix(out, "dataset clicks created\n") {
		t.Errorf("the first apply says %q", out)
	}
	if out := w.ok("apply", "-f", "clicks.yaml"); out != "dataset clicks is as it was\n" {
		t.Errorf("apply of the same spec says %q", out)
	}
	w.write("more.yaml", clicksSpec+"passes: 3\n")
	if out := w.ok("apply", "-f", "more.yaml", "-o", "json"); decoded[[]view.Applied](t, out)[0].Outcome != "changed" || !strings.Contains(out, "passes") {
		t.Errorf("apply of other passes says %s\nwant the outcome changed, and the field", out)
	}
	w.write("other.yaml", strings.Replace(clicksSpec, "format: tsv", "format: csv", 1)+"passes: 3\n")
	for _, file := range []string{"other.yaml", "more.yaml"} { // no record is settled yet, so every field may still be changed
		if out := w.ok("apply", "-f", file); !strings.HasPrefix(out, "dataset clicks changed\n") || !strings.Contains(out, "decode.format") {
			t.Errorf("apply of %s, with another format, says %q, want that it was changed, and the field", file, out)
		}
	}

	stdin := exec.Command("sh", "-c", binary+" apply -f - <more.yaml")
	stdin.Dir, stdin.Env = w.dir, w.env
	if out, err := stdin.CombinedOutput(); err != nil || string(out) != "dataset clicks is as it was\n" {
		t.Errorf("apply of the same spec from the standard input: %v, it says %q", err, out)
	}

	m.until("listing", func() bool { return decoded[[]view.Dataset](t, w.ok("list", "-o", "json"))[0].ListingComplete })
	golden(t, "list.txt", w.ok("list"))
	golden(t, "list.json", w.ok("list", "-o", "json"))
	golden(t, "status.txt", w.ok("status", "clicks"))
	golden(t, "status.json", w.ok("status", "clicks", "-o", "json"))
	golden(t, "status.yaml", w.ok("dataset", "status", "clicks", "-o", "yaml"))
	golden(t, "describe.txt", strings.ReplaceAll(w.ok("describe", "clicks"), w.dir, "DIR"))
	golden(t, "peek.txt", w.ok("peek", "clicks", "-n", "3"))
	golden(t, "peek.json", w.ok("peek", "clicks", "-n", "2", "-o", "json"))
	if out := w.ok("peek", "clicks", "-n", "1", "--columns", "user", "-o", "json"); !strings.Contains(out, `"user": "user-0"`) || strings.Contains(out, "label") {
		t.Errorf("peek of one column says %s\nwant the column user, and no other", out)
	}
	if r := w.run("peek", "clicks", "--columns", "lable"); r.code != exitNotFound || !strings.Contains(r.err, "did you mean label?") {
		t.Errorf("peek of a column with a misspelt name: %+v", r)
	}
	for _, verb := range []string{"describe", "status", "peek", "pause", "resume", "delete"} {
		if r := w.run(verb, "clikcs"); r.code != exitNotFound || !strings.Contains(r.err, "clicks") {
			t.Errorf("%s of an unknown dataset: %+v, want exit code %d and the name clicks as a suggestion", verb, r, exitNotFound)
		}
	}
	if out := w.ok("__complete", "describe", ""); !strings.Contains(out, "clicks\trunning") {
		t.Errorf("the completion of describe offers %q", out)
	}

	if out := w.ok("pause", "clicks"); out != "dataset clicks paused\n" {
		t.Errorf("pause says %q", out)
	}
	if s := decoded[view.Description](t, w.ok("describe", "clicks", "-o", "json")).State; s != "paused" {
		t.Errorf("after pause the dataset's state is %s, want paused", s)
	}
	w.ok("resume", "clicks")

	if r := w.run("delete", "clicks"); r.code != exitUsage || !strings.Contains(r.err, "--yes") {
		t.Errorf("delete without a terminal and without --yes: %+v", r)
	}
	if out := w.ok("delete", "clicks", "--dry-run"); !strings.Contains(out, "would be deleted") {
		t.Errorf("delete --dry-run says %q", out)
	}
	if d := decoded[view.Deleted](t, w.ok("delete", "clicks", "--yes", "-o", "json")); !d.Deleted {
		t.Errorf("delete --yes says %+v, want that the dataset was deleted", d)
	}
	if r := w.run("describe", "clicks"); r.code != exitNotFound {
		t.Errorf("describe of the deleted dataset: %+v, want exit code %d", r, exitNotFound)
	}
	m.stop()
	w.nothingLeft()
}

func TestASpecIsRefusedForWhatItReads(t *testing.T) {
	w := newWorld(t)
	w.clicks(10)
	w.write("data/h.csv", "id,label\n1,2\n")
	w.master()
	outside, err := os.MkdirTemp("", "hr")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(outside)
	for _, tc := range []struct {
		name string
		code int
		spec string
		says string
	}{
		{"root that is not allowed", exitUsage, strings.Replace(clicksSpec, "root: data", "root: "+outside, 1), "allow"},
		{"file that is not there", exitNotFound, strings.Replace(clicksSpec, "root: data", "root: data, paths: [nope.tsv]", 1), "nope.tsv"},
		{"folder that is not there", exitNotFound, strings.Replace(clicksSpec, "root: data", "root: nope", 1), "nope"},
		{"field that is not in the first line", exitUsage, `name: h
files: {root: data, paths: [h.csv]}
decode:
  format: csv
  header: true
  columns:
    - {name: x, path: lable, dtype: int64}
`, "label"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w.write("s.yaml", tc.spec)
			r := w.run("apply", "-f", "s.yaml")
			if r.code != tc.code || !strings.Contains(r.err, tc.says) {
				t.Errorf("apply: exit code %d, want %d and %q: %s", r.code, tc.code, tc.says, r.err)
			}
			if c := w.run("check", "-f", "s.yaml"); tc.code == exitNotFound && c.code != tc.code {
				t.Errorf("check: exit code %d, want %d as for apply: %s", c.code, tc.code, c.err)
			}
		})
	}
	if w.ok("list", "-o", "json") != "[]\n" {
		t.Error("there are datasets after only refused specs, want none")
	}
}

func TestTheNextMasterKnowsWhatWasListed(t *testing.T) {
	w := newWorld(t)
	w.clicks(10)
	m := w.master()
	w.ok("apply", "-f", "clicks.yaml")
	m.until("listing", func() bool { return decoded[[]view.Dataset](t, w.ok("list", "-o", "json"))[0].ListingComplete })
	m.stop()
	if err := os.RemoveAll(w.path("data")); err != nil { // listing is complete, so the files are needed again only when they are read
		t.Fatal(err)
	}
	m = w.master()
	if v := decoded[view.Description](t, w.ok("describe", "clicks", "-o", "json")); v.State != "running" || !v.ListingComplete {
		t.Errorf("with the next master the dataset is %+v, want it running and completely listed", v)
	}
	m.stop()
}

func TestHTTPServesMetricsHealthAndProfiles(t *testing.T) {
	w := newWorld(t)
	w.clicks(10)
	m := w.master()
	w.ok("apply", "-f", "clicks.yaml")
	at := decoded[view.Job](t, w.ok("status", "-o", "json")).HTTP
	get := func(path string) (int, string) { return w.page("http://" + at + path) }
	for path, want := range map[string]string{"/healthz": "ok", "/readyz": "ok", "/metrics": "headrace_", "/debug/pprof/": "goroutine", "/": "/metrics"} {
		if code, body := get(path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("GET %s: status %d, want 200 and %q in %.200s", path, code, want, body)
		}
	}
	if code, _ := get("/nope"); code != 404 {
		t.Errorf("GET /nope: status %d, want 404", code)
	}
	m.stop()
}

func TestAMasterThatWasKilledIsFoundAgainOnAnotherPort(t *testing.T) {
	w := newWorld(t)
	w.clicks(10)
	m := w.master()
	w.ok("apply", "-f", "clicks.yaml")
	m.signal(syscall.SIGKILL)
	m.wait()
	if r := w.run("list"); r.code != exitUnreachable {
		t.Errorf("list without a master: %+v, want exit code %d", r, exitUnreachable)
	}
	before, err := link.ReadAddress(w.state())
	if err != nil {
		t.Fatal(err)
	}
	m = w.start("master", "--listen", "127.0.0.1:0", "--http", "off", "--allow-root", w.dir)
	m.until("another address", func() bool { // the kernel may give it the same port again
		a, err := link.ReadAddress(w.state())
		return err == nil && (a != before || strings.Contains(m.err.String(), "master is up"))
	})
	if v := decoded[[]view.Dataset](t, w.ok("list", "-o", "json")); len(v) != 1 || v[0].Name != "clicks" {
		t.Errorf("the second master lists %+v, want the dataset clicks", v)
	}
	if j := decoded[view.Job](t, w.ok("status", "-o", "json")); j.Term != 2 {
		t.Errorf("the second master's term is %d, want 2", j.Term)
	}
	m.stop()
	w.nothingLeft()
}

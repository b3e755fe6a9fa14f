package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// in is the same user in another folder.
func (w *world) in(folder string) *world {
	w.t.Helper()
	other := *w
	other.dir = w.path(folder)
	if err := os.MkdirAll(other.dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	return &other
}

// The command that init prints works in every folder, also where another folder has begun
// a job of the same name.
func TestInitNamesTheJobAfterItsFolderWhereTheNameIsTaken(t *testing.T) {
	w := newWorld(t)
	job := func(folder, says string) string {
		t.Helper()
		at := w.in(folder)
		at.write("d.csv", "x,label\n1,0\n2,1\n")
		out := at.ok("init", "d.csv", "--force")
		if says != "" && !strings.Contains(out, says) {
			t.Errorf("in %s init does not say %q:\n%s", folder, says, out)
		}
		if r := at.run("run", "-f", "d.yaml", "--", "true"); r.code != 0 {
			t.Errorf("in %s: exit %d\n%s%s", folder, r.code, out, r.err)
		}
		text, err := os.ReadFile(at.path("headrace.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.Split(string(text), "\n")[1], "job: "), " ")
		if err := os.Remove(at.path("headrace.yaml")); err != nil {
			t.Fatal(err)
		}
		return name
	}
	real, err := filepath.EvalSymlinks(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	if name := job("a", ""); name != "d" {
		t.Errorf("the first job is %s", name)
	}
	for range 2 { // the name is the same after the job has run
		if name := job("b", "note: job d was begun in "+filepath.Join(real, "a")+", so this one is called b-d (headrace.yaml)"); name != "b-d" {
			t.Errorf("the second job is %s", name)
		}
	}
	if name := job("c/b", "so this one is called b-d-"); !strings.HasPrefix(name, "b-d-") {
		t.Errorf("the third job is %s", name)
	}
	if name := job("a", ""); name != "d" {
		t.Errorf("the first job is now %s", name)
	}
	// A job keeps its name when the folder that had the wanted one has gone.
	if err := os.RemoveAll(w.path("a")); err != nil {
		t.Fatal(err)
	}
	if name := job("b", ""); name != "b-d" {
		t.Errorf("the second job is now %s", name)
	}
	if name := job("e", ""); name != "d" {
		t.Errorf("a new job does not take the name whose folder has gone: %s", name)
	}
}

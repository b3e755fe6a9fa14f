package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// in returns a world of the same user whose working folder is another one.
func (w *world) in(folder string) *world {
	w.t.Helper()
	other := *w
	other.dir = w.path(folder)
	if err := os.MkdirAll(other.dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	return &other
}

// init names the job so that `headrace run` works in its folder even if another folder has
// begun a job of the name that init would choose first.
func TestInitNamesTheJobAfterItsFolderWhereTheNameIsTaken(t *testing.T) {
	w := newWorld(t)
	job := func(folder, says string) string {
		t.Helper()
		at := w.in(folder)
		at.write("d.csv", "x,label\n1,0\n2,1\n")
		out := at.ok("init", "d.csv", "--force")
		if says != "" && !strings.Contains(out, says) {
			t.Errorf("init in folder %s says\n%s\nwant %q in it", folder, out, says)
		}
		if r := at.run("run", "-f", "d.yaml", "--", "true"); r.code != 0 {
			t.Errorf("run in folder %s: exit code %d, want 0; init said\n%s\nrun says\n%s", folder, r.code, out, r.err)
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
		t.Errorf("the job of folder a is called %s, want d", name)
	}
	for range 2 { // the second init, after the job has run, chooses the same name
		if name := job("b", "note: job d was begun in "+filepath.Join(real, "a")+", so this one is called b-d (headrace.yaml)"); name != "b-d" {
			t.Errorf("the job of folder b is called %s, want b-d", name)
		}
	}
	if name := job("c/b", "so this one is called b-d-"); !strings.HasPrefix(name, "b-d-") {
		t.Errorf("the job of folder c/b is called %s, want b-d-…", name)
	}
	if name := job("a", ""); name != "d" {
		t.Errorf("after the other jobs the job of folder a is called %s, want d", name)
	}
	// Folder a, whose job was called d, is removed: the job of folder b keeps its name, and a new job may be called d.
	if err := os.RemoveAll(w.path("a")); err != nil {
		t.Fatal(err)
	}
	if name := job("b", ""); name != "b-d" {
		t.Errorf("after folder a was removed, the job of folder b is called %s, want b-d", name)
	}
	if name := job("e", ""); name != "d" {
		t.Errorf("after folder a was removed, a new job is called %s, want d", name)
	}
}

func TestTheNextCommandThatInitNamesCanBeTyped(t *testing.T) {
	w := newWorld(t)
	w.write("d.csv", "x,label\n1,0\n2,1\n")
	const folder = "my model's $HOME"
	_, next, _ := strings.Cut(w.ok("init", "d.csv", "--out", folder), "The next command:\n\n")
	cd, _, _ := strings.Cut(next, " && ")
	if r := w.startProgram("sh", "-c", cd+" && ls").wait(); !strings.Contains(r.out, "train.py") {
		t.Errorf("a shell does not come into folder %s by %q: %+v", folder, cd, r)
	}
}

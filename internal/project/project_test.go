package project

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/config"
)

// begin makes the state folder of a job that was begun in the named folder, and returns that folder.
func begin(t *testing.T, states, job, folder string) string {
	t.Helper()
	for _, f := range []string{folder, filepath.Join(states, job)} {
		if err := os.MkdirAll(f, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := Remember(filepath.Join(states, job), folder); err != nil {
		t.Fatal(err)
	}
	return folder
}

// places returns a folder for the state of all jobs, and a folder for projects.
func places(t *testing.T) (states, projects string) {
	t.Helper()
	real, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(real, "states"), filepath.Join(real, "projects")
}

func TestAJobBelongsToTheFolderInWhichItWasBegun(t *testing.T) {
	states, projects := places(t)
	state := filepath.Join(states, "clicks")
	first := begin(t, states, "clicks", filepath.Join(projects, "a"))
	second := begin(t, states, "clicks", filepath.Join(projects, "b")) // the job stays that of the first folder
	for here, want := range map[string]string{first: "", second: first} {
		if there, err := Elsewhere(state, here); err != nil || there != want {
			t.Errorf("from %s, the job counts as begun in %q (%v), want %q", here, there, err, want)
		}
	}
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	if there, err := Elsewhere(state, second); err != nil || there != "" {
		t.Errorf("the folder is gone, but the job counts as begun in %q (%v)", there, err)
	}
	if err := Remember(state, second); err != nil {
		t.Fatal(err)
	}
	if there, err := Elsewhere(state, projects); err != nil || there != second {
		t.Errorf("the next folder did not get the job: %q, %v", there, err)
	}
	if there, err := Elsewhere(filepath.Join(states, "none"), second); err != nil || there != "" {
		t.Errorf("a job that was never begun: %q, %v", there, err)
	}
}

// Three folders with the same name want a job of the same name. Each gets a job of its own, and keeps it when the
// others are gone.
func TestAFolderAlwaysGetsTheSameJob(t *testing.T) {
	states, projects := places(t)
	jobs := map[string]string{}
	for _, parent := range []string{"x", "y", "z"} {
		folder := filepath.Join(projects, parent, "ads")
		job, there, err := Own(states, folder, "clicks")
		if err != nil || (there == "") != (parent == "x") {
			t.Fatalf("%s: %q, %q, %v", folder, job, there, err)
		}
		jobs[begin(t, states, job, folder)] = job
	}
	seen := map[string]bool{}
	for folder, job := range jobs {
		if seen[job] {
			t.Errorf("two folders have job %s: %v", job, jobs)
		}
		seen[job] = true
		if again, _, err := Own(states, folder, "clicks"); err != nil || again != job {
			t.Errorf("%s has job %s, and then %s (%v)", folder, job, again, err)
		}
	}
	last := filepath.Join(projects, "z", "ads")
	for folder := range jobs {
		if folder != last {
			if err := os.Remove(folder); err != nil {
				t.Fatal(err)
			}
		}
	}
	if again, _, err := Own(states, last, "clicks"); err != nil || again != jobs[last] {
		t.Errorf("after the others are gone, %s has job %s, want %s as before (%v)", last, again, jobs[last], err)
	}
	if !seen["clicks"] || !seen["ads-clicks"] {
		t.Errorf("the folders got the jobs %v, want clicks and ads-clicks among them", jobs)
	}
}

func TestAJobsNameIsLegalWhateverTheFolderIsCalled(t *testing.T) {
	for folder, want := range map[string]string{"/a/My ads": "My-ads", "/": "second", "/a/...": "second", "/x/" + strings.Repeat("y", 60): strings.Repeat("y", 40), "/a/größe": "gr--e"} {
		if got := jobFor(folder); got != want {
			t.Errorf("%s: %q, want %q", folder, got, want)
		}
	}
	if got := Another("/a/ads", "ads"); got != "ads-2" {
		t.Errorf("got %q, want %q", got, "ads-2")
	}
	if got := Another("/a/ads", "clicks"); got != "ads" {
		t.Errorf("got %q, want %q", got, "ads")
	}
	if got := joined("ads", strings.Repeat("w", config.LongestName), "12345678"); len(got) != config.LongestName || !strings.HasSuffix(got, "w-12345678") {
		t.Errorf("got %q, want a name of the greatest length with the whole suffix", got)
	}
}

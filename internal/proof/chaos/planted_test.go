//go:build planted

// These tests build the program with one planted bug in it: make test-chaos-planted.

package chaos

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/proof/planted"
)

// ofChaos are the planted bugs that chaos has to find, as the simulation does. Each makes stepped
// batches of a shared model come again near a death, which excuses most repeats.
var ofChaos = []string{
	"a leave counts before the acks beside it",
	"a silent agent is lost after one ttl",
	"steps of an ended process count as in hand",
	"acks wait a second and die with their trainer",
}

const withinRounds = 12 // of so many kills:
const killsOfARound = 20

// A chaos test that finds no bug may be unable to find any. So it has to find each of these.
func TestChaosFindsEachPlantedBugOfASharedModel(t *testing.T) {
	bugs, err := planted.Bugs()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range ofChaos {
		k := slices.IndexFunc(bugs, func(b planted.Bug) bool { return b.Name == name })
		if k < 0 {
			t.Errorf("no planted bug is called %q", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			o := Options{
				Binary: buildWith(t, bugs[k]), Python: python(t), Model: "shared", Source: Files, Kills: killsOfARound,
				Every: 500 * time.Millisecond, TTL: 2 * time.Second, Rate: 2000, Patience: 2 * time.Minute, Out: io.Discard,
			}
			for o.Seed = 1; o.Seed <= withinRounds; o.Seed++ {
				r, err := Run(t.Context(), o)
				if err != nil {
					t.Fatal(err)
				}
				if r.Folder != "" {
					_ = os.RemoveAll(r.Folder)
				}
				if r.Twice > 0 {
					t.Logf("seed %d, %d kills: twice %d: %s", o.Seed, r.Kills, r.Twice, r.Wrong[0])
					return
				}
				t.Logf("seed %d, %d kills: %d wrong", o.Seed, r.Kills, len(r.Wrong))
			}
			t.Errorf("not found in %d rounds: %s", withinRounds, bugs[k].What)
		})
	}
}

// buildWith builds the program with a bug in it.
func buildWith(t *testing.T, b planted.Bug) string {
	t.Helper()
	const root = "../../.."
	dir := t.TempDir()
	if err := planted.Overlay(root, dir, []planted.Bug{b.Always()}); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "headrace")
	build := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, "./cmd/headrace")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// python is the interpreter in the environment that `make venv` makes.
func python(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../../.venv/bin/python")
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("%v: run `make venv` first", err)
	}
	return path
}

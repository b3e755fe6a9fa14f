//go:build planted

// These tests need a build with the planted bugs in it: make test-planted.

package sim

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headrace/headrace/internal/proof/planted"
)

const within = 1000 // seeds

// found lists for each bug a seed that finds it, so that the test need not search. When the code changes,
// seeds play other stories. Then the test searches again, and takes longer.
const found = "testdata/found.txt"

var rewrite = flag.Bool("rewrite", false, "search a seed for each planted bug, and write "+found+" again")

func foundBefore(t *testing.T) map[string]uint64 {
	t.Helper()
	text, err := os.ReadFile(found)
	if err != nil {
		t.Fatal(err)
	}
	seeds := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		number, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if seeds[name], err = strconv.ParseUint(number, 10, 64); err != nil || seeds[name] == 0 || seeds[name] > within {
			t.Fatalf("%s: %q is not a seed up to %d and a bug (%v)", found, line, within, err)
		}
	}
	return seeds
}

// A simulation that finds no bug may be unable to find any. So it must find each of these.
func TestEachPlantedBugIsFound(t *testing.T) {
	bugs, err := planted.Bugs()
	if err != nil {
		t.Fatal(err)
	}
	var before map[string]uint64
	if !*rewrite {
		before = foundBefore(t)
	}
	var now strings.Builder
	for _, b := range bugs {
		t.Run(b.Name, func(t *testing.T) {
			planted.Choose(b.Name)
			defer planted.Choose("")
			seed, why := hunt(before[b.Name])
			if seed == 0 {
				t.Fatalf("not found within %d seeds: %s", within, b.What)
			}
			fmt.Fprintln(&now, seed, b.Name)
			t.Logf("seed %d, before it was %d: %.200s", seed, before[b.Name], why)
		})
	}
	if *rewrite {
		if err := os.WriteFile(found, []byte(now.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Without a bug the same program fails in no seed, also not in those that find the bugs.
func TestNothingIsFoundWhenNothingIsPlanted(t *testing.T) {
	seeds := map[uint64]bool{}
	for seed := uint64(1); seed <= 20; seed++ {
		seeds[seed] = true
	}
	for _, seed := range foundBefore(t) {
		seeds[seed] = true
	}
	for seed := range seeds {
		if r := Run(seed, nil); r.Failed != "" {
			t.Errorf("seed %d: %s", seed, r.Failed)
		}
	}
}

// hunt plays `first`, unless it is 0, and then seeds until one fails, several at the same time. It gives the
// lowest seed that failed.
func hunt(first uint64) (seed uint64, why string) {
	if first > 0 {
		if r := Run(first, nil); r.Failed != "" {
			return first, r.Failed
		}
	}
	var (
		next atomic.Uint64
		mu   sync.Mutex
		wg   sync.WaitGroup
		stop atomic.Bool
	)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for !stop.Load() {
				n := next.Add(1)
				if n > within {
					return
				}
				if r := Run(n, nil); r.Failed != "" {
					stop.Store(true)
					mu.Lock()
					if seed == 0 || n < seed {
						seed, why = n, fmt.Sprint(r.Failed)
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return seed, why
}

// The shrunk story of a planted bug fails. Without any one of its troubles it does not.
func TestAShrunkStoryStillFails(t *testing.T) {
	const bug = "steal of a delivered tail"
	planted.Choose(bug)
	defer planted.Choose("")
	seed, _ := hunt(foundBefore(t)[bug])
	s, r := Shrink(Story{Seed: seed})
	all := Troubles(seed)
	if again := s.Run(nil); r.Failed == "" || again != r {
		t.Fatalf("seed %d: %+v, then %+v", seed, r, again)
	}
	for i := range all {
		if s.without(i) {
			continue
		}
		less := Story{Seed: seed, Without: append(slices.Clone(s.Without), i)}
		if r := less.Run(nil); r.Failed != "" {
			t.Errorf("seed %d fails without trouble %d too: %s", seed, i, r.Failed)
		}
	}
	t.Logf("%d of %d troubles:\n%v%s", len(all)-len(s.Without), len(all), s, r.Failed)
}

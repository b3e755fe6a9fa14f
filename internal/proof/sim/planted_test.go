//go:build planted

// These tests need a build with the planted bugs in it: make test-planted.

package sim

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headrace/headrace/internal/proof/planted"
)

const within = 1000 // seeds

// A simulation that finds no bug may be blind: each of these is found.
func TestEachPlantedBugIsFound(t *testing.T) {
	bugs, err := planted.Bugs()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bugs {
		t.Run(b.Name, func(t *testing.T) {
			planted.Choose(b.Name)
			defer planted.Choose("")
			seed, why := hunt()
			if seed == 0 {
				t.Fatalf("not found within %d seeds: %s", within, b.What)
			}
			t.Logf("seed %d: %.200s", seed, why)
		})
	}
}

// Without a bug the same program finds none.
func TestNothingIsFoundWhenNothingIsPlanted(t *testing.T) {
	for seed := uint64(1); seed <= 100; seed++ {
		if r := Run(seed, nil); r.Failed != "" {
			t.Errorf("seed %d: %s", seed, r.Failed)
		}
	}
}

// hunt plays seeds until one fails, several at a time; it gives the lowest of those.
func hunt() (seed uint64, why string) {
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

// The smallest story of a planted bug fails, and without any of its troubles it does not.
func TestAShrunkStoryStillFails(t *testing.T) {
	planted.Choose("steal of a delivered tail")
	defer planted.Choose("")
	seed, _ := hunt()
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

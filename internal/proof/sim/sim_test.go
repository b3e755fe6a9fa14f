package sim

import (
	"bytes"
	"os"
	"strconv"
	"testing"
)

// seeds from HEADRACE_SEED on, or from 1.
func firstSeed(t *testing.T) uint64 {
	if s := os.Getenv("HEADRACE_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return 1
}

// Guarantees 1 to 6 and 9, as far as the two cores keep them.
func TestWholeJobsSurviveAnything(t *testing.T) {
	first := firstSeed(t)
	for seed := first; seed < first+200; seed++ {
		r := Run(seed, nil)
		if r.Failed != "" {
			t.Errorf("seed %d: %s\nreplay: make sim SEED=%d", seed, r.Failed, seed)
		} else if r.Events < leastEvents {
			t.Errorf("seed %d: only %d events", seed, r.Events)
		}
	}
}

// A job that is over too soon is played again with more to read, or the seed fails.
func TestASeedInWhichTooLittleHappensIsNone(t *testing.T) {
	for seed := uint64(1); seed <= 200; seed++ {
		if once := (Story{Seed: seed, Size: 1}).Run(nil); once.Failed == "" && once.Events < leastEvents {
			if r := Run(seed, nil); r.Events < leastEvents || r.Size < 2 || r.Failed != "" {
				t.Errorf("seed %d: %+v, and then %+v", seed, once, r)
			}
			return
		}
	}
	t.Error("no seed needed more input than it drew")
}

func TestASeedAlwaysGoesTheSameWay(t *testing.T) {
	for seed := uint64(1); seed <= 10; seed++ {
		var one, two bytes.Buffer
		a, b := Run(seed, &one), Run(seed, &two)
		if a != b || !bytes.Equal(one.Bytes(), two.Bytes()) {
			t.Errorf("seed %d: %+v, then %+v", seed, a, b)
		}
		if quiet := Run(seed, nil); quiet != a {
			t.Errorf("seed %d: %+v with a trace, %+v without", seed, a, quiet)
		}
	}
}

// A simulation in which little happens proves little. The seeds are fixed, so that
// what they reach is no matter of luck.
func TestMuchHappensInASeed(t *testing.T) {
	var sum Result
	const seeds = 100
	for seed := uint64(1); seed <= seeds; seed++ {
		r := Run(seed, nil)
		sum.Events += r.Events
		sum.Crashes += r.Crashes
		sum.Yields += r.Yields
		sum.Repeats += r.Repeats
		sum.Steals += r.Steals
		sum.Expired += r.Expired
		sum.Cuts += r.Cuts
		sum.Bound += r.Bound
		sum.Exact += r.Exact
		sum.Killed += r.Killed
		sum.Back += r.Back
		sum.Lost += r.Lost
		sum.Gone += r.Gone
	}
	if sum.Events < 500*seeds || sum.Crashes < 5*seeds || sum.Yields < 100*seeds || sum.Repeats == 0 || sum.Steals < seeds || sum.Expired == 0 ||
		sum.Cuts < 5*seeds || sum.Bound < 2*seeds || sum.Back < seeds/5 || sum.Exact < seeds/4 || sum.Lost < 2*seeds || sum.Gone < 2*seeds {
		t.Errorf("%d seeds: %+v", seeds, sum)
	}
	t.Logf("%d seeds: %+v", seeds, sum)
}

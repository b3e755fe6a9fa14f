package sim

import "testing"

// Leaving out a trouble does not change the others.
func TestAStoryWithoutATroubleHasTheSameOthers(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		all := Troubles(seed)
		if len(all) < 3 {
			continue
		}
		without := others(len(all), []int{0, 2})
		s := Story{Seed: seed, Without: without}
		if s.without(0) || !s.without(1) || s.without(2) || len(without) != len(all)-2 {
			t.Fatalf("seed %d: %v", seed, without)
		}
		r := s.Run(nil)
		if r.Failed != "" || r.Reached > 3 {
			t.Errorf("seed %d: %+v", seed, r)
		}
		if again := s.Run(nil); again != r {
			t.Errorf("seed %d: %+v, then %+v", seed, r, again)
		}
	}
}

package sim

import "testing"

// In these seeds two processes of a rank are made within a millisecond on two nodes whose
// messages take 50 ms: which of them is the newer one cannot be known, and neither may be
// held against the master.
func TestProcessesThatAreMadeTogetherOnTwoNodesMayComeInEitherOrder(t *testing.T) {
	for _, seed := range []uint64{5378, 7867} {
		if r := Run(seed, nil); r.Failed != "" {
			t.Errorf("seed %d: %s", seed, r.Failed)
		}
	}
}

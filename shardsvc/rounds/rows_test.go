package rounds

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// After a process has died, the rows of rounds are told again, sometimes with a gap. The rows
// that are known must be right, and a gap makes the rounds before it unknown.
func TestRowsAreKnownFromTheLastGapOn(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	dice := rand.New(rand.NewPCG(seed, 1))
	of := func(round uint32) uint64 { return uint64(round)*7919 + 1 }
	for range 300 {
		var r Rows[uint64]
		first, end := uint32(1), uint32(0) // the rounds that must be known
		for range 40 {
			to := end + dice.Uint32N(6) - min(end, 2)
			from := to - min(to, dice.Uint32N(9)) // the rounds from+1 to `to` are told
			var told []uint64
			for n := from + 1; n <= to; n++ {
				told = append(told, of(n))
			}
			r.Upto(to, told)
			if to > end {
				if from > end {
					first = from + 1
				}
				end = to
			}
			if dice.IntN(4) == 0 {
				through := dice.Uint32N(end + 2)
				r.Forget(through)
				first = max(first, min(through, end)+1)
			}
			if r.End() != end {
				t.Fatalf("seed %d: the last known round is %d, want %d", seed, r.End(), end)
			}
			after := dice.Uint32N(end + 2)
			var want []uint64
			for n := max(first, after+1); n <= end; n++ {
				want = append(want, of(n))
			}
			if got := r.From(after); !slices.Equal(got, want) {
				t.Fatalf("seed %d: after round %d the rows are %v, want %v (rounds %d to %d are known)", seed, after, got, want, first, end)
			}
			for n := range end + 2 {
				got, known := r.Of(n)
				if want := n >= first && n <= end && n > 0; known != want || known && got != of(n) {
					t.Fatalf("seed %d: round %d has %d rows (known: %v), want known: %v and %d rows", seed, n, got, known, want, of(n))
				}
			}
		}
	}
}

func TestTrimForgetsTheOldest(t *testing.T) {
	const last = 5*Kept + 1
	var r Rows[uint32]
	for round := uint32(1); round <= last; round++ {
		r.Upto(round, []uint32{round})
		r.Trim()
		if n := len(r.From(0)); n > 2*Kept || round > Kept && n < Kept {
			t.Fatalf("%d of %d rounds are kept, want %d to %d", n, round, Kept, 2*Kept)
		}
	}
	if n, known := r.Of(last - Kept + 1); !known || n != last-Kept+1 {
		t.Errorf("round %d has %d rows (known: %v)", last-Kept+1, n, known)
	}
	if _, known := r.Of(1); known {
		t.Error("round 1 is still known")
	}
}

// An agent may report any number of rounds, and need not report their rows. The master
// answers at once, and tells no rows that it does not know.
func TestRowsThatNobodySaidAreNotKnown(t *testing.T) {
	view := noRows{}
	s := New(Options{World: 2, Endless: true})
	s.Report(0, Report{Through: 2, Rows: []uint32{7, 8}})
	s.Report(1, Report{Through: 2, Rows: []uint32{1}}) // of round 2
	if d, _ := s.Decide(0, view); d.Through != 2 || !slices.Equal(s.Rows(0), []uint64{9}) {
		t.Fatalf("decided %+v, known rows %v; want those of round 2 only", d, s.Rows(0))
	}
	for rank := range 2 {
		s.Report(rank, Report{Through: math.MaxUint32})
	}
	if d, _ := s.Decide(0, view); d.Through != math.MaxUint32 || len(s.Rows(0)) != 0 {
		t.Fatalf("decided %+v, known rows %v; the rows of the reported rounds are not known", d, s.Rows(0))
	}
	s.Decide(0, view)
	s = New(Options{World: 2})
	s.Heard(math.MaxUint32, true, []uint64{5})
	s.Decide(0, view)
	if !slices.Equal(s.Rows(math.MaxUint32-1), []uint64{5}) {
		t.Errorf("the last round has the rows %v, want 5", s.Rows(math.MaxUint32-1))
	}
}

type noRows struct{}

func (noRows) Pending(int) bool  { return false }
func (noRows) Newest(int) uint64 { return 0 }
func (noRows) Moving() bool      { return false }
func (noRows) Settled() bool     { return false }

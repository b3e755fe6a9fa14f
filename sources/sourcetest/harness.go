package sourcetest

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headrace/headrace/internal/proof/leaks"
	"github.com/headrace/headrace/sources"
)

// Place is where one test's records live: a folder, a topic.
type Place interface {
	// Produce appends records and returns when readers can see them. Records of
	// one call stay in order within each partition.
	Produce(t testing.TB, records [][]byte)
	// Open opens the place as another process would, given the segments that were
	// numbered before. The suite closes it.
	Open(t testing.TB, known []sources.Segment) sources.Source
}

// Harness is an adapter's side of the suite.
type Harness struct {
	// New makes an empty place. When the test ends, the place is removed.
	New func(t testing.TB) Place
	// Encode makes a record that the source can hold from a text of letters, digits and colons.
	// The record must have the text in one piece, and must be read back byte for byte. nil: the
	// record is the text itself.
	Encode func(rng *rand.Rand, text []byte) []byte
	// Count is how many records the load test writes; 0: 60,000.
	Count int
	// Slow: a broker works for each range that is opened. The tests that open hundreds of random
	// ranges then open a quarter of them, and all with HEADRACE_SUITE=whole.
	Slow bool
	// Contiguous: a record's Next is the next record's Offset, so no position lies between two
	// records. Every position of a segment belongs to a record, or is acked with the record
	// before it. This holds however the records are divided into batches.
	Contiguous bool
	// MaxRecord is the largest record that the places allow; 0: no such test.
	MaxRecord int
	// Change replaces data that was planned. Readers must then see *Changed or *Diverged. nil:
	// this cannot happen to the source.
	Change func(t testing.TB, p Place)
	// Tail opens the place as input without an end. nil: the source has none.
	Tail func(t testing.TB, p Place) sources.Source
	// Roll seals the growing segment of every partition and begins another. nil: a
	// partition of the source has one growing segment for good (sources.Kind.Rolls).
	Roll func(t testing.TB, p Place)
	// Remove deletes everything that was produced, as retention would. Readers must then see
	// *Truncated. nil: this cannot happen to the source.
	Remove func(t testing.TB, p Place)
}

// Run runs the whole suite. HEADRACE_SEED repeats a run.
func Run(t *testing.T, h Harness) {
	seed := seed(t)
	if h.Encode == nil {
		h.Encode = func(_ *rand.Rand, text []byte) []byte { return text }
	}
	for _, one := range []struct {
		name string
		test func(*suite)
	}{
		{"WhatIsProducedIsReadOnceAndInOrder", (*suite).roundTrip},
		{"ARangeReadTwiceIsTheSame", (*suite).sameTwice},
		{"HoweverARangeIsSplitTheRecordsAreTheSame", (*suite).splits},
		{"ARecordBelongsToTheRangeItBeginsIn", (*suite).borders},
		{"ReadingCanBeginInsideARange", (*suite).from},
		{"AnEmptyRangeHoldsNothing", (*suite).empty},
		{"WhatABatchAcksStaysInItsRange", (*suite).acks},
		{"SegmentsAreListedTheSameInPiecesAndByAnotherProcess", (*suite).listing},
		{"WhatIsProducedLaterComesBehindAndMovesNoNumber", (*suite).growth},
		{"BoundsEncloseTheSegments", (*suite).bounds},
		{"APartitionOfAnotherSourceIsRefused", (*suite).foreign},
		{"ADamagedLocatorIsRefused", (*suite).locator},
		{"WhatChangedAfterItWasPlannedIsToldWithItsRange", (*suite).changed},
		{"WhatIsGoneIsToldWithItsRange", (*suite).gone},
		{"ARecordOverTheLimitIsToldWithItsPosition", (*suite).tooLarge},
		{"ACancelledContextEndsReadingAndLeavesNothingBehind", (*suite).cancelled},
		{"ABatchStaysAsItIsUntilTheNextCall", (*suite).slow},
		{"ReadersSideBySideDoNotDisturbEachOther", (*suite).concurrent},
		{"ATailWaitsAtHeadAndEndsAtOnceWhenItIsCancelled", (*suite).tail},
		{"WhereRecordsOfATimeBeginIsKnown", (*suite).dated},
		{"ATailThatRollsOverIsSealedWhereItEndedAndGoesOn", (*suite).rollover},
		{"EachOfManyRecordsComesOnceAndUndamaged", (*suite).load},
	} {
		t.Run(one.name, func(t *testing.T) {
			// Registered first, so that it runs last, after everything is closed.
			before := goleak.IgnoreCurrent()
			t.Cleanup(func() { leaks.None(t, before) })
			one.test(&suite{T: t, h: h, rng: rand.New(rand.NewPCG(seed, seed))})
		})
	}
}

func seed(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("HEADRACE_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("HEADRACE_SEED: %v", err)
		}
		seed = n
	}
	t.Logf("HEADRACE_SEED=%d", seed)
	return seed
}

type suite struct {
	*testing.T
	h   Harness
	rng *rand.Rand
}

// tries is how many random ranges a test opens that opens n if that costs little.
func (s *suite) tries(n int) int {
	if s.h.Slow && os.Getenv("HEADRACE_SUITE") != "whole" {
		return n / 4
	}
	return n
}

// text makes the text of record i: its number, a filling, and a checksum.
func text(i int, filling string) []byte {
	body := fmt.Sprintf("rec:%d:%s", i, filling)
	return fmt.Appendf(nil, "%s:%08x:cer", body, crc32.ChecksumIEEE([]byte(body)))
}

// number finds the text in a record, checks it and returns its number. Any bytes may stand
// before the text, even others that look like one, so the last one counts.
func number(record []byte) (int, error) {
	s := string(record)
	to := strings.LastIndex(s, ":cer")
	from := strings.LastIndex(s[:max(to, 0)], "rec:")
	if from < 0 || to < from+len("rec:")+9 {
		return 0, fmt.Errorf("no text of ours in %q", clip(s))
	}
	body, sum := s[from:to-9], s[to-8:to]
	if got := fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(body))); got != sum {
		return 0, fmt.Errorf("checksum %s of %q is not %s", got, clip(body), sum)
	}
	digits, _, _ := strings.Cut(body[len("rec:"):], ":")
	return strconv.Atoi(digits)
}

func clip(s string) string { return s[:min(len(s), 100)] }

// records makes n records whose fillings have up to most bytes.
func (s *suite) records(from, n, most int) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		all[i] = s.h.Encode(s.rng, text(from+i, strings.Repeat("x", s.rng.IntN(most+1))))
	}
	return all
}

// place makes one that holds n records, in a few calls of Produce.
func (s *suite) place(n int) (Place, [][]byte) {
	p, all := s.h.New(s), s.records(0, n, 120)
	for rest := all; len(rest) > 0; {
		k := min(len(rest), 1+s.rng.IntN(n))
		p.Produce(s, rest[:k])
		rest = rest[k:]
	}
	return p, all
}

func (s *suite) open(p Place, known []sources.Segment) sources.Source {
	src := p.Open(s, known)
	s.Cleanup(func() { src.Close() })
	return src
}

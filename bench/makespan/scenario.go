package main

import (
	"math/rand/v2"
	"slices"
	"time"
)

// scenario is one input, one group of workers and one death. Each side of the comparison plays it with the
// same seed.
type scenario struct {
	records int64
	rows    int64     // rows of a batch
	rates   []float64 // records/s of each worker
	seed    uint64

	victim  int // killed at dies, started again at back
	dies    int64
	back    int64
	jitter  float64 // a batch takes rows/rate, give or take this share
	startAt []int64
}

// draw makes the scenario of a seed: a random worker dies somewhere in the middle, and comes back some
// seconds later.
func draw(records, rows int64, rates []float64, seed uint64) scenario {
	r := rand.New(rand.NewPCG(seed, 1))
	total := 0.0
	for _, rate := range rates {
		total += rate
	}
	length := float64(records) / total * 1e9
	s := scenario{records: records, rows: rows, rates: rates, seed: seed, victim: r.IntN(len(rates)), jitter: 0.1}
	s.dies = int64(time.Second) + int64(length*(0.2+0.6*r.Float64()))
	s.back = s.dies + int64(time.Second) + r.Int64N(int64(4*time.Second))
	for range rates {
		s.startAt = append(s.startAt, int64(time.Second)+r.Int64N(int64(100*time.Millisecond)))
	}
	return s
}

// batchTime draws the time that a worker takes for n records. The jitter does not change the mean.
func (s *scenario) batchTime(r *rand.Rand, worker int, n int64) time.Duration {
	return time.Duration(float64(n) / s.rates[worker] * (1 + s.jitter*(2*r.Float64()-1)) * 1e9)
}

// ideal is the end if the living workers always work at their rates and never wait.
func (s *scenario) ideal() int64 {
	changes := []int64{s.dies, s.back}
	changes = append(changes, s.startAt...)
	slices.Sort(changes)
	left, at := float64(s.records), s.start()
	for _, next := range append(changes, 1<<62) {
		if next <= at {
			continue
		}
		rate := 0.0
		for w, r := range s.rates {
			if at >= s.startAt[w] && (w != s.victim || at < s.dies || at >= s.back) {
				rate += r
			}
		}
		if did := float64(next-at) / 1e9 * rate; did >= left {
			return at + int64(left/rate*1e9)
		} else {
			left -= did
		}
		at = next
	}
	return at
}

func (s *scenario) start() int64 { return slices.Min(s.startAt) }

// outcome is the result of one side.
type outcome struct {
	ratio    float64 // time over ideal
	grants   int
	repeated int64 // records processed more than once
}

func (s *scenario) ratio(end int64) float64 {
	return float64(end-s.start()) / float64(s.ideal()-s.start())
}

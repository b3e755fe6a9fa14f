package main

import (
	"math"
	"testing"
	"time"
)

func TestTheIdealIsWhatTheLivingCouldDo(t *testing.T) {
	s := scenario{records: 1500, rates: []float64{100, 50}, victim: 0, dies: 3e9, back: 5e9, startAt: []int64{1e9, 1e9}}
	// 2 s at 150/s, 2 s at 50/s, then 150/s for the remaining 1100 records.
	if got, want := float64(s.ideal()), 5e9+1100.0/150*1e9; math.Abs(got-want) > 10 {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestBothSidesGoThroughAllRecordsWhoeverDies(t *testing.T) {
	for seed := range uint64(10) {
		s := draw(500_000, rows, four, seed)
		if o := playFixed(s, 20*rows); o.ratio < 0.98 || o.ratio > 1.6 {
			t.Errorf("seed %d: fixed shards are at %.3f of the ideal", seed, o.ratio)
		}
		if o := playOurs(s); o.ratio < 0.98 || o.ratio > 1.2 || o.repeated != 0 {
			t.Errorf("seed %d: %+v", seed, o)
		}
	}
}

func TestADeadWorkersFixedShardIsDoneAgainFromItsStart(t *testing.T) {
	s := scenario{records: 1000, rows: 100, rates: []float64{100, 100}, victim: 0, startAt: []int64{1e9, 1e9},
		dies: int64(4500 * time.Millisecond), back: int64(time.Hour)}
	o := playFixed(s, 500)
	if o.repeated != 300 || o.grants != 3 {
		t.Errorf("%+v", o)
	}
}

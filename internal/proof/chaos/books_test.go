package chaos

import (
	"testing"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
)

func TestARunIsNotOverWhileAPieceWithoutARecordWaits(t *testing.T) {
	d := &headracev1.Dataset{Unit: "entries", Records: &headracev1.Tally{Rows: 100}, Counts: &headracev1.Counts{Settled: 9, Acked: 9, Pending: 1}}
	if allIn(d, 100) {
		t.Error("a piece is pending, and allIn says that the run is over")
	}
	d.Counts.Pending = 0
	if !allIn(d, 100) {
		t.Error("all records are settled and nothing is pending, and allIn says that the run is not over")
	}
	if allIn(d, 101) {
		t.Error("100 records of 101 are settled, and allIn says that the run is over")
	}
}

// A trainer was told to end while it held a piece without a record. The piece became pending again.
func TestOnlyAPieceWithoutARecordMayBeLeftBehind(t *testing.T) {
	entries := &headracev1.Dataset{State: "running", Unit: "entries", Records: &headracev1.Tally{Rows: 100}, Counts: &headracev1.Counts{Settled: 9, Acked: 9, Pending: 1}}
	if !restsWell(entries, 100) {
		t.Error("all 100 records are settled and only a piece without a record is pending: restsWell is false, want true")
	}
	if restsWell(entries, 101) {
		t.Error("100 records of 101 are settled: restsWell is true, want false")
	}
	records := &headracev1.Dataset{State: "running", Unit: "records", Counts: &headracev1.Counts{Settled: 100, Acked: 100, Pending: 1}}
	if restsWell(records, 100) {
		t.Error("a record is pending: restsWell is true, want false")
	}
}

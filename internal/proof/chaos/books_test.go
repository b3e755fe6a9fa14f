package chaos

import (
	"testing"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
)

func TestARunIsNotOverWhileAPieceWithoutARecordWaits(t *testing.T) {
	d := &headracev1.Dataset{Unit: "entries", Records: &headracev1.Tally{Rows: 100}, Counts: &headracev1.Counts{Settled: 9, Acked: 9, Pending: 1}}
	if allIn(d, 100) {
		t.Error("a piece waits to be read, and the run is over")
	}
	d.Counts.Pending = 0
	if !allIn(d, 100) {
		t.Error("all is in, and the run is not over")
	}
	if allIn(d, 101) {
		t.Error("a record is missing, and the run is over")
	}
}

// A trainer was told to end while it held such a piece, which came back when it ended.
func TestOnlyAPieceWithoutARecordMayBeLeftBehind(t *testing.T) {
	entries := &headracev1.Dataset{State: "running", Unit: "entries", Records: &headracev1.Tally{Rows: 100}, Counts: &headracev1.Counts{Settled: 9, Acked: 9, Pending: 1}}
	if !restsWell(entries, 100) {
		t.Error("all 100 records are in, and a piece without a record is left")
	}
	if restsWell(entries, 101) {
		t.Error("a record is missing")
	}
	records := &headracev1.Dataset{State: "running", Unit: "records", Counts: &headracev1.Counts{Settled: 100, Acked: 100, Pending: 1}}
	if restsWell(records, 100) {
		t.Error("a record is pending")
	}
}

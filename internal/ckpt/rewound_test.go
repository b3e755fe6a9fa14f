package ckpt

import (
	"strings"
	"testing"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
)

// Ranges that a checkpoint needs and that are deleted are listed one by one, each with its consequence.
func TestWhatIsGoneOfACheckpointIsSaidRangeByRange(t *testing.T) {
	r := func(pass, passes uint32, start, end int64, unit string, stops, whole bool) *headracev1.GoneRange {
		return &headracev1.GoneRange{Dataset: "clicks", Partition: "clicks/0", Identity: "kafka:c/t/0", Pass: pass, Passes: passes, Start: start, End: end,
			Unit: unit, Stops: stops, Whole: whole}
	}
	reply := &headracev1.RewindReply{Epoch: 4, Fenced: []uint32{0, 1},
		Again:   []*headracev1.AgainUnits{{Dataset: "clicks", Partition: "clicks/0", Units: 1660, Unit: "records"}},
		Records: &headracev1.Tally{Rows: 1600},
		Gone: &headracev1.Gone{More: 7, Units: 123456, AtLeast: true, Stops: true, Ranges: []*headracev1.GoneRange{
			r(0, 1, 340, 1700, "records", true, false), r(1, 1, 0, 20, "records", false, false), r(2, 3, 0, 2048, "bytes", false, false), r(0, 1, 2000, 2001, "records", true, true)}},
		Refused: "cannot go back to step 10", Hint: "go back to step 20",
		Voided: []*headracev1.CutState{{Cut: 7, State: "bound", Rank: -1, Step: 20, Path: "/ckpt/20"}},
	}
	var b strings.Builder
	v := rewoundOf(reply, "ctr", "ckpt/step-10", 10)
	v.Write(&b)
	sameAsFile(t, "rewind-refused.txt", b.String())
}

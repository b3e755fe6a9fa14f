package view

import (
	"strings"
	"testing"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
)

func TestReclaimedSaysWhichStepsComeAgain(t *testing.T) {
	for _, c := range []struct {
		step, kept int64
		want       string
	}{
		{130, 120, "its newest checkpoint is step 120: the records of steps 121 to 130 come again"},
		{120, 120, "no record of its model comes again"},
		{7, -1, "it has no checkpoint: all records of its 7 steps come again"},
		{0, -1, "no record of its model comes again"},
	} {
		var out strings.Builder
		ReclaimedOf(&headracev1.ReclaimReply{Agent: "n1", Pid: 4711, Leases: 3, Step: c.step, Kept: c.kept, Fenced: []uint32{0}}, 0, true).Write(&out)
		if !strings.Contains(out.String(), c.want) || !strings.Contains(out.String(), "rank 0 (process 4711, agent n1): the rows of 3 leases are taken back") {
			t.Errorf("step %d, checkpoint %d: %s", c.step, c.kept, out.String())
		}
	}
}

package view

import (
	"testing"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
)

func TestACutSaysWhetherItCanBeGoneBackTo(t *testing.T) {
	for want, k := range map[string]*headracev1.CutState{
		"bound":                 {State: "bound"},
		"voided":                {State: "voided"},
		"bound, not rewindable": {State: "bound", Gone: &headracev1.Gone{Stops: true}},
		"carried, with a loss":  {State: "carried", Gone: &headracev1.Gone{Units: 1}},
	} {
		if v := CutOf(k); Standing(v.State, v.Rewindable, v.Gone) != want || v.Rewindable != (want == "bound" || want == "carried, with a loss") {
			t.Errorf("%q, rewindable %v; want %q", Standing(v.State, v.Rewindable, v.Gone), v.Rewindable, want)
		}
	}
}

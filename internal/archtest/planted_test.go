package archtest

import (
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/proof/planted"
)

// If a change of the source moves the lines that a planted bug changes, this test fails and
// says which bug's file to update. `make test-planted` then shows that the bug is still found.
func TestEachPlantedBugFitsTodaysSource(t *testing.T) {
	bugs, err := planted.Bugs()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := planted.Patched("../..", bugs); err != nil {
		t.Error(err)
	}
	for _, b := range bugs {
		asks := false
		for _, e := range b.Edits {
			asks = asks || strings.Contains(e.New, "PLANTED")
		}
		if !asks {
			t.Errorf("%q can never be switched on: none of its edits reads PLANTED", b.Name)
		}
	}
}

package feed

import (
	"errors"
	"fmt"
	"testing"

	"github.com/headrace/headrace/sources"
)

// The master tries a range again for ever only if nobody answered at its source.
func TestOnlyASourceThatIsAwayIsTriedForEver(t *testing.T) {
	ds := &Dataset{Name: "clicks"}
	for want, err := range map[fault]error{
		{kind: "away"}:                &sources.Temporary{Err: errors.New("refused"), Away: true},
		{kind: "io"}:                  &sources.Temporary{Err: errors.New("a checksum")},
		{kind: "io", permanent: true}: errors.New("no permission"),
	} {
		got := faultOf(ds, "a/0", fmt.Errorf("reading: %w", err))
		if got.message = ""; got != want {
			t.Errorf("%v: %+v, want %+v", err, got, want)
		}
	}
}

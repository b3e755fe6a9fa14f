package pulsar

import (
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// A ledger ends before a place that was listed. Its records are read, and then the error names the rest of
// the range and the end of the ledger.
func TestALedgerThatEndsBeforeAListedPlaceIsTold(t *testing.T) {
	some := func() []*fakeEntry { return []*fakeEntry{plain("a"), plain("b"), plain("c")} }
	closed := newFakeBroker(t, 7, some(), []*fakeEntry{plain("another ledger's")})
	open := newFakeBroker(t, 7, some())
	for name, one := range map[string]struct {
		b        *fakeBroker
		end      brokers.At
		from, to int64
		want     []string
	}{
		"a closed ledger":                        {closed, brokers.Latest, 0, at(5, 0), []string{"a", "b", "c"}},
		"a closed ledger, from after its end on": {closed, brokers.Latest, at(4, 0), at(5, 0), nil},
		"a live one, from after its end on":      {closed, brokers.Never, at(4, 0), at(5, 0), nil},
		"the open ledger":                        {open, brokers.Latest, at(4, 0), at(5, 0), nil},
	} {
		s := one.b.open(t, one.end)
		got, err := one.b.read(t.Context(), s, 7, one.from, one.to, 10)
		diverged, is := errors.AsType[*sources.Diverged](err)
		if !slices.Equal(got, one.want) || !is {
			t.Errorf("%s: %q, then %v", name, got, err)
			continue
		}
		if rest := max(one.from, at(int64(len(got)), 0)); diverged.Head != at(3, 0) || diverged.Range.Start != rest || diverged.Name != "t ledger 7" {
			t.Errorf("%s: the rest is %+v, and the ledger %s ends at %d", name, diverged.Range, diverged.Name, diverged.Head)
		}
	}
	if got, err := closed.read(t.Context(), closed.open(t, brokers.Latest), 7, 0, at(3, 0), 1); err != io.EOF || !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("reading up to the ledger's end: %q, %v", got, err)
	}
}

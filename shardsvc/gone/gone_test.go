package gone

import (
	"testing"

	"github.com/headrace/headrace/shardsvc/line"
	"github.com/headrace/headrace/sources"
)

// TestWhatIsDeletedAndNotInTheCutIsGone: the cut has [0, 500) of a partition, and the source
// has deleted everything below 800.
func TestWhatIsDeletedAndNotInTheCutIsGone(t *testing.T) {
	table := line.Table{LastSeg: -1, Complete: true}
	table.Extend(&sources.Segment{ID: 3, End: 1000, Sealed: true})
	deleted := []Deletion{{Dataset: 1, Source: "a", Segment: 3, Low: 800}}
	for _, c := range []struct {
		about      string
		own        *line.Map // the records of the ranks that go back; nil: all ranks go back
		excluded   line.Set
		start, end int64
		none       bool
	}{
		{about: "all go back together", start: 500, end: 800},
		{about: "only the rank that has [600, 700) goes back", own: &line.Map{{Start: 600, End: 700}}, start: 600, end: 700},
		{about: "only a rank that has nothing goes back", own: &line.Map{}, none: true},
		{about: "[500, 750) is excluded", excluded: line.Set{Low: 750}, start: 750, end: 800},
	} {
		p := Partition{Table: &table, Dataset: 1, Source: "a", Passes: 1, Begun: 1, Pass: func(n uint32) Pass {
			return Pass{Line: line.Of(&table, n), Cut: &line.Set{Low: 500}, Excluded: c.excluded, Own: c.own}
		}}
		got := Search([]Partition{p}, deleted)
		if c.none {
			if got.Units != 0 || len(got.Ranges) != 0 {
				t.Errorf("%s: the search says that %+v is gone, want nothing", c.about, got)
			}
			continue
		}
		want := Range{Dataset: 1, Source: "a", Passes: 1, Segment: 3, Start: c.start, End: c.end, Stops: true}
		if got.Units != c.end-c.start || len(got.Ranges) != 1 || got.Ranges[0] != want {
			t.Errorf("%s: the search says that %+v is gone, want %+v", c.about, got, want)
		}
	}
}

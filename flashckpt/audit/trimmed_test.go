package audit

import (
	"fmt"
	"testing"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/sources"
)

// upTo returns a cut of pushed records in chunks of 10. Its first chunks were trimmed.
func upTo(trimmed, segments int, low cut.Place) *cut.Cut {
	p := cut.Partition{Number: 1, Identity: "landing:s/0"}
	for i := range segments {
		g := sources.Segment{ID: int64(i), End: 10, Sealed: true, Name: fmt.Sprint("c", i), Locator: []byte(fmt.Sprint("at ", i))}
		if i < trimmed-1 {
			continue
		}
		if i == trimmed-1 {
			g.Start, g.Locator = int64(-10*i), nil
		}
		p.Segments = append(p.Segments, g)
	}
	p.Passes = []cut.Pass{{Low: low}}
	return cutOf(&cut.Dataset{Name: "d", Unit: sources.Records, Partitions: []cut.Partition{p}})
}

func TestCutsBeforeAndAfterATrimAreCompared(t *testing.T) {
	old, newer, newest := upTo(0, 3, cut.Place{Segment: 2, Offset: 4}), upTo(5, 8, cut.Place{Segment: 6, Offset: 3}), upTo(7, 9, cut.Place{Segment: 8, Offset: 1})
	for name, c := range map[string]struct {
		a, b   *cut.Cut
		ua, ub int64
	}{
		"old and newer":    {old, newer, 0, 39},
		"newest and old":   {newest, old, 57, 0},
		"newer and newest": {newer, newest, 0, 18},
		"with itself":      {newest, newest, 0, 0},
	} {
		diff, err := Diff(c.a, c.b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var ua, ub int64
		for _, d := range diff {
			ua, ub = ua+d.UnitsA, ub+d.UnitsB
		}
		if ua != c.ua || ub != c.ub {
			t.Errorf("%s: %d units are only in the first cut and %d only in the second, want %d and %d: %+v", name, ua, ub, c.ua, c.ub, diff)
		}
	}
	diff, err := Diff(old, newer)
	if err != nil {
		t.Fatal(err)
	}
	// Trimmed records have the names of the chunks that the older cut knows. The others are one range.
	if got := fmt.Sprint(diff[0].OnlyB); got != fmt.Sprint([]Range{{Segment: 2, Start: 4, End: 10, Name: "c2"}, {Segment: 4, Start: -10, End: 10, Name: "c4"}, {Segment: 5, End: 10, Name: "c5"}, {Segment: 6, End: 3, Name: "c6"}}) {
		t.Errorf("only in the newer cut are %s", got)
	}
}

package frame

import (
	"reflect"
	"testing"
)

func TestRunsOfRows(t *testing.T) {
	rows := []uint64{4096, 4096, 4096, 0, 17, 17}
	runs := RunsOf(rows)
	if want := [][2]uint64{{3, 4096}, {1, 0}, {2, 17}}; !reflect.DeepEqual(runs, want) {
		t.Errorf("runs %v, want %v", runs, want)
	}
	for most, want := range [][]uint64{{}, {17}, {17, 17}, {0, 17, 17}, {4096, 0, 17, 17}} {
		if got := RowsOf(runs, most); len(got) != len(want) || len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("the newest %d: %v, want %v", most, got, want)
		}
	}
	// A client may send any runs. They must not give more rows than were asked for.
	if got := RowsOf([][2]uint64{{1 << 63, 1}, {0, 2}, {1 << 63, 3}}, 2); !reflect.DeepEqual(got, []uint64{3, 3}) {
		t.Errorf("of two endless runs: %v", got)
	}
}

package files

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/headrace/headrace/sources"
)

// emptyTables copies files of internal/parquet/testdata/empty, and default.parquet with 300 rows.
func emptyTables(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range append(names, "../default") {
		b, err := os.ReadFile(filepath.Join("../../internal/parquet/testdata/empty", name+".parquet"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)+".parquet"), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRowGroupsWithoutRowsStopNothing(t *testing.T) {
	dir := emptyTables(t, "all", "nogroup", "first", "between")
	s := openTables(t, dir, nil)
	segs, err := s.Segments(t.Context(), s.partition, -1, 100)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]int{}
	for _, g := range segs {
		ids, err := idsOf(s, g, g.Start, g.End, g.Start)
		if err != nil {
			t.Fatalf("%s: %v", g.Name, err)
		}
		for i, id := range ids {
			if id != int64(i) {
				t.Fatalf("%s: row %d has id %d", g.Name, i, id)
			}
		}
		rows[g.Name] = len(ids)
	}
	if len(rows) != 3 || rows["first.parquet"] != 3 || rows["between.parquet"] != 5 || rows["default.parquet"] != 300 {
		t.Errorf("%v", rows)
	}
}

// An older version listed last.parquet as [0, 300000) and [300000, 300000). A master that goes on from its state
// keeps both.
func TestARowGroupWithoutRowsAtTheEndIsNoSegment(t *testing.T) {
	dir := emptyTables(t, "last")
	listed := func(known []sources.Segment) []sources.Segment {
		s := openTables(t, dir, known)
		segs, err := s.Segments(t.Context(), s.partition, -1, 100)
		if err != nil {
			t.Fatal(err)
		}
		return segs
	}
	borders := func(segs []sources.Segment) (all [][3]int64) {
		for _, g := range segs {
			all = append(all, [3]int64{g.ID, g.Start, g.End})
		}
		return all
	}
	segs := listed(nil)
	if got, want := borders(segs), [][3]int64{{0, 0, 300}, {1, 0, 300_000}}; !slices.Equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
	// A file after last.parquet shows whether numbers have moved.
	if err := os.Rename(filepath.Join(dir, "default.parquet"), filepath.Join(dir, "other.parquet")); err != nil {
		t.Fatal(err)
	}
	segs = listed(nil)
	older := segs[0]
	older.ID, older.Start = 1, 300_000
	got, want := borders(listed([]sources.Segment{segs[0], older})), [][3]int64{{0, 0, 300_000}, {1, 300_000, 300_000}, {2, 0, 300}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

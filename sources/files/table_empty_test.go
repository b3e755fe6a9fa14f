package files

import (
	"os"
	"path/filepath"
	"testing"
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

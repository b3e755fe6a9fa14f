package parquet

import (
	"bytes"
	"os"
	"slices"
	"testing"
)

// With an offset index, the pages before the first wanted row are not read. Here zeros have
// replaced them.
func TestAPageIndexSparesThePagesBeforeARow(t *testing.T) {
	good, err := os.ReadFile("testdata/indexed.parquet")
	if err != nil {
		t.Fatal(err)
	}
	f, err := Open(bytes.NewReader(good), int64(len(good)))
	if err != nil {
		t.Fatal(err)
	}
	all := func() int { return 1000 }
	rows := f.Groups[0].Rows
	want, err := readRows(good, f, 0, 0, rows, all)
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []int64{1, rows / 2, rows - 1} {
		b, passed := bytes.Clone(good), 0
		for i := range f.meta.groups[0].columns {
			m := &f.meta.groups[0].columns[i]
			pages, err := f.pages(bytes.NewReader(good), m, rows)
			if err != nil || len(pages) == 0 {
				t.Fatal(m.path, pages, err)
			}
			for k, p := range pages[1:] {
				if p.row <= from {
					clear(b[pages[k].at:p.at])
					passed++
				}
			}
		}
		if got, err := readRows(b, f, 0, from, rows, all); err != nil || !slices.Equal(got, want[from:]) {
			t.Errorf("from row %d on, after %d pages: %v", from, passed, err)
		}
		if from > 1 && passed == 0 {
			t.Errorf("no page lies before row %d", from)
		}
		if _, err := readRows(b, f, 0, 0, rows, all); err == nil && from > 1 {
			t.Error("pages of zeros are read without an error")
		}
	}
}

func TestAPageIndexThatDoesNotFitIsAnError(t *testing.T) {
	good, err := os.ReadFile("testdata/indexed.parquet")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		f, err := Open(bytes.NewReader(good), int64(len(good)))
		if err != nil {
			t.Fatal(err)
		}
		b := bytes.Clone(good)
		m := &f.meta.groups[0].columns[i%len(f.leaves)]
		b[m.indexAt+int64(i)%m.indexSize] ^= byte(1 + i)
		if got, err := readRows(b, f, 0, f.Groups[0].Rows-5, f.Groups[0].Rows, func() int { return 9 }); err == nil && len(got) != 5 {
			t.Errorf("%d rows without an error, want 5 or an error", len(got))
		}
	}
}

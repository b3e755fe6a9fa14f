package sample

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/files"
)

func init() { dataset.Register(files.Kind) }

// clicks is a dataset of one file with the given lines.
func clicks(t *testing.T, lines string) (*dataset.Spec, Opener) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.tsv"), []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	docs, err := dataset.Documents([]byte("name: clicks\nfiles: {root: .}\ndecode:\n  format: tsv\n  columns:\n"+
		"    - {name: label, path: 0, dtype: float32}\n    - {name: number, path: 1, dtype: int64}\n    - {name: user, path: 2, dtype: string}\n"), "a test", dir)
	if err != nil {
		t.Fatal(err)
	}
	return docs[0].Spec, func(spec *dataset.Spec) (sources.Source, error) {
		return spec.ForALook().Open(dataset.Opening{AllowedRoots: []string{dir}, Logger: slog.New(slog.DiscardHandler)})
	}
}

func TestTheFirstRowsHaveTheAskedColumnsInTheSpecsOrder(t *testing.T) {
	spec, open := clicks(t, "1\t7\ta\n0\t8\tb\n1\t9\tc\n")
	rows, err := First(t.Context(), spec, open, 2, []string{"user", "number"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(rows.Objects())
	if err != nil {
		t.Fatal(err)
	}
	if want := `[{"number":7,"user":"a"},{"number":8,"user":"b"}]`; string(b) != want {
		t.Errorf("%s, want %s", b, want)
	}
	_, err = First(t.Context(), spec, open, 2, []string{"usr"})
	if e, ok := errors.AsType[*advice.Error](err); !ok || e.Kind != advice.NotFound || !strings.Contains(e.Hint, "user") {
		t.Error(err)
	}
}

func TestCheckSaysThatFilesWillBeDeleted(t *testing.T) {
	for more, want := range map[string]string{"": "", ", end: never": "", ", end: never, retain: 168h": "what was trained will be deleted, 168h0m0s after"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a"), []byte("1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		docs, err := dataset.Documents([]byte("name: clicks\nfiles: {root: ."+more+"}\ndecode: lines\n"), "a test", dir)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Check(t.Context(), docs[0].Spec, func(spec *dataset.Spec) (sources.Source, error) {
			return spec.ForALook().Open(dataset.Opening{AllowedRoots: []string{dir}, Logger: slog.New(slog.DiscardHandler)})
		}, 0)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		c.Write(&text)
		if c.Records != 1 || want == "" && strings.Contains(text.String(), "deleted") || !strings.Contains(text.String(), want) {
			t.Errorf("%q: %s", more, text.String())
		}
	}
}

func TestErrorsAreCountedByFieldWithTheirLine(t *testing.T) {
	spec, open := clicks(t, "1\t2\ta\n0\tx\tb\n1\ty\tc\nz\t4\te\n")
	c, err := Check(t.Context(), spec, open, 0)
	if err != nil {
		t.Fatal(err)
	}
	if c.Records != 4 || c.Bad != 3 || len(c.Fields) != 2 || c.Fields[0].Column != "number" || c.Fields[0].Errors != 2 || c.Fields[0].Rate != 0.5 ||
		!strings.HasPrefix(c.Fields[0].Example, "a.tsv:2: record at offset 6") || c.Fields[1].Column != "label" {
		t.Errorf("the check counted %+v", c)
	}
	if c, err = Check(t.Context(), spec, open, 1); err != nil || c.Records != 1 || c.Bad != 0 {
		t.Errorf("the first record alone: %+v, %v", c, err)
	}
}

// With on_error: skip, a record that its source cannot read is left out. It ends neither a check nor a look at
// rows, wherever it is.
func TestARecordThatCannotBeReadIsCountedAndPassed(t *testing.T) {
	long := strings.Repeat("x", 500)
	spec, open := clicks(t, "0\t1\t"+long+"\n1\t7\ta\n0\t8\t"+long+"\n1\t9\tc\n0\t1\t"+long+"\n")
	spec.Source.(*files.Spec).MaxRecord = 100
	c, err := Check(t.Context(), spec, open, 0)
	if err != nil {
		t.Fatal(err)
	}
	if c.Records != 5 || c.Bad != 3 || len(c.Fields) != 1 || c.Fields[0].Errors != 3 || c.Fields[0].Column != "" ||
		!strings.HasPrefix(c.Fields[0].Example, "the record at a.tsv offset 0 is longer than max_record 100 bytes") {
		t.Errorf("the check counted %+v, want one record over the limit", c)
	}
	if c, err = Check(t.Context(), spec, open, 2); err != nil || c.Records != 2 || c.Bad != 1 {
		t.Errorf("the first two: %+v, %v", c, err)
	}
	rows, err := First(t.Context(), spec, open, 2, []string{"number"})
	if err != nil || len(rows.Values()) != 2 {
		t.Fatal(rows, err)
	}
	raw, err := Records(t.Context(), spec, open, 5)
	if err != nil || len(raw) != 2 {
		t.Errorf("%d records, %v", len(raw), err)
	}
	r, err := openReader(spec, open)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	for last, want := range map[bool]string{false: `"number":7`, true: `"number":9`} {
		edges, err := r.edges(t.Context(), last)
		if err != nil || len(edges) != 1 || edges[0].Row == nil {
			t.Fatalf("%+v, %v", edges, err)
		}
		if b, err := json.Marshal(edges[0].Row); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s, want %s", b, want)
		}
	}
}

func TestAParquetFileWithoutRowsIsPassed(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"all", "first", "between"} { // all has no row, first 3, between 5
		b, err := os.ReadFile("../parquet/testdata/empty/" + name + ".parquet")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".parquet"), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	docs, err := dataset.Documents([]byte("name: clicks\nfiles: {root: .}\ndecode: {format: parquet, columns: [{name: id, path: id, dtype: int64}]}\n"), "a test", dir)
	if err != nil {
		t.Fatal(err)
	}
	open := func(spec *dataset.Spec) (sources.Source, error) {
		return spec.ForALook().Open(dataset.Opening{AllowedRoots: []string{dir}, Logger: slog.New(slog.DiscardHandler)})
	}
	if c, err := Check(t.Context(), docs[0].Spec, open, 0); err != nil || c.Records != 8 || c.Bad != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	rows, err := First(t.Context(), docs[0].Spec, open, 10, nil)
	if err != nil || len(rows.Values()) != 8 {
		t.Errorf("%v, %v", rows, err)
	}
}

package decode

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/frame"
)

// In must be called before records are appended. It takes the values of folders as text, number, hash, date or
// time.
func TestValuesOfTheFilesPath(t *testing.T) {
	d := compile(t, `
format: tsv
event_time: $path.dt
columns:
  - {name: x, path: 0, dtype: int64}
  - {name: dt, path: $path.dt, dtype: string}
  - {name: day, path: $path.dt, dtype: int32}
  - {name: hour, path: $path.hour, dtype: float32}
  - {name: bucket, path: $path.country, dtype: int64, hash: {buckets: 1000, salt: s}}
  - {name: at, path: $path.at, dtype: int64, missing: mask}
  - {name: raw, path: $path.country, dtype: bytes, missing: mask}
`)
	if _, err := decodeAll(t, d, lines("1\n")); err != errNoPath {
		t.Fatalf("before In: %v", err)
	}
	b, err := d.NewBuilder(10)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range []string{
		"dt=2026-11-22/hour=07/country=c%C3%B4te%2Fd%27or/a.tsv",
		"dt=1970-01-02/hour=1e2/country=de/at=2026-11-22 10%3A00%3A00.5/a.tsv",
		"dt=2026-11-20/dt=2026-11-22/hour=-1/country=100%/at=__HIVE_DEFAULT_PARTITION__/country=x/a=b.tsv",
	} {
		if err := d.In(p); err != nil {
			t.Fatal(err)
		}
		if n, err := d.Append(b, lines("1\n", "\n", "2\n", "3\n"), 0, 10); err != nil || n != 4 {
			t.Fatalf("file %d: %d, %v", i, n, err)
		}
	}
	hash := func(text string) int64 { return newHasher(1000, "s").bytes([]byte(text)) }
	f := finish1(t, d, b)
	for _, tc := range []struct {
		column string
		want   []any
	}{
		{"dt", []any{"2026-11-22", "1970-01-02", "2026-11-22"}},
		{"day", []any{int32(20779), int32(1), int32(20779)}},
		{"hour", []any{float32(7), float32(100), float32(-1)}},
		{"bucket", []any{hash("côte/d'or"), hash("de"), hash("x")}},
		{"at", []any{int64(0), int64(1795341600500), int64(0)}},
		{"raw", []any{"côte/d'or", "de", "x"}},
	} {
		var want []string
		for _, v := range tc.want {
			for range 3 {
				want = append(want, fmt.Sprint(v))
			}
		}
		if got := cells(t, f, tc.column); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", tc.column, got, want)
		}
	}
	if got, want := fmt.Sprint(b.Columns[5].Mask[:9]), "[0 0 0 1 1 1 0 0 0]"; got != want {
		t.Errorf("mask %s, want %s", got, want)
	}
	if b.Times[0] != 1795305600000 || b.Times[8] != b.Times[0] || b.Times[3] != 86400000 {
		t.Errorf("times %v", b.Times[:9])
	}
}

// If a path lacks the value of a column, that is an error of the file, unless the column has a default or a mask.
func TestAPathWithoutTheValueIsAnErrorOfTheFile(t *testing.T) {
	for _, tc := range []struct{ column, path, want string }{
		{"{name: h, path: $path.hour, dtype: int32}", "dt=1/a.tsv", "column h ($path.hour): the file lies in no folder hour=...; correct the path, or give the column a default or missing: mask"},
		{"{name: h, path: $path.hour, dtype: string}", "hour=7.tsv", "lies in no folder hour=..."},
		{"{name: h, path: $path.hour, dtype: string}", "Hour=7/a.tsv", "lies in no folder hour=..."},
		{"{name: h, path: $path.hour, dtype: string}", "hour=__HIVE_DEFAULT_PARTITION__/a.tsv", "folder hour=__HIVE_DEFAULT_PARTITION__ has no value"},
		{"{name: h, path: $path.hour, dtype: int64}", "hour=/a.tsv", "folder hour= has no value"},
		{"{name: h, path: $path.hour, dtype: int64}", "hour=late/a.tsv", `column h ($path.hour): "late": is not an integer; correct the folder's name or the column's dtype, or set decode.on_error: default`},
		{"{name: h, path: $path.hour, dtype: int32}", "hour=2026-11-22 10%3A00%3A00/a.tsv", "is out of the range of int32"},
		{"{name: h, path: $path.hour, dtype: int64, default: 1}", "hour=late/a.tsv", "is not an integer"},
		{"{name: h, path: $path.hour, dtype: string}", "hour=%ff/a.tsv", "is not UTF-8"},
		{"{name: h, path: $path.hour, dtype: string}", "hour=/a.tsv", ""},
		{"{name: h, path: $path.hour, dtype: int64, default: 1}", "a.tsv", ""},
		{"{name: h, path: $path.hour, dtype: int64, missing: mask}", "hour=/a.tsv", ""},
	} {
		d := compile(t, "format: tsv\ncolumns:\n  - {name: x, path: 0, dtype: int64}\n  - "+tc.column)
		err := d.In(tc.path)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s in %s: %v, want %q", tc.column, tc.path, err, tc.want)
		}
	}
	d := compile(t, "format: tsv\nevent_time: $path.dt\ncolumns: [{name: x, path: 0, dtype: int64}]")
	if err := d.In("dt=soon/a.tsv"); err == nil || !strings.Contains(err.Error(), `event_time ($path.dt): "soon" is not a time`) {
		t.Errorf("got the error %v, want one with %q", err, `event_time ($path.dt): "soon" is not a time`)
	}
	if err := d.In("a.tsv"); err != nil {
		t.Error(err)
	}
}

func TestOnErrorDefaultReplacesWhatThePathSays(t *testing.T) {
	d := compile(t, "format: tsv\non_error: default\ncolumns:\n  - {name: x, path: 0, dtype: int64, default: -1}\n  - {name: h, path: $path.hour, dtype: int64, default: 9}")
	if err := d.In("hour=late/a.tsv"); err != nil {
		t.Fatal(err)
	}
	f, err := decodeAll(t, d, lines("1\n", "bad\n", "3\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := cells(t, f, "h"); !slices.Equal(got, []string{"9", "9", "9"}) {
		t.Errorf("got %q, want %q", got, []string{"9", "9", "9"})
	}
	if got := fmt.Sprint(d.Errors()); got != "[{x 1} {h 3}]" {
		t.Errorf("got %q, want %q", got, "[{x 1} {h 3}]")
	}
}

// Each row has the values of its own file, whatever the format, and wherever a bad record ends an Append.
func TestEveryFormatTakesValuesOfThePath(t *testing.T) {
	const columns = "\n  - {name: dt, path: $path.dt, dtype: string}\n  - {name: hour, path: $path.hour, dtype: int64}"
	for _, tc := range []struct{ spec, good, bad string }{
		{"format: tsv\ncolumns:\n  - {name: x, path: 0, dtype: int64}", "1\n", "x\n"},
		{"format: tsv\ncolumns:\n  - {name: x, path: 0, dtype: string}\n  - {name: y, path: 1, dtype: int32}", "a\t1\n", "b\tx\n"},
		{"format: csv\ncolumns:\n  - {name: x, path: 0, dtype: float32}", "1.5\n", "x\n"},
		{"format: json\ncolumns:\n  - {name: x, path: /a, dtype: string}\n  - {name: l, path: /l/*, dtype: int64}", `{"a":"b","l":[1,2]}` + "\n", `{"a":"b","l":["z"]}` + "\n"},
		{"format: lines\ncolumns:\n  - {name: x, path: $value, dtype: string}", "text", "\xff"},
		{"format: binary\ncolumns:\n  - {name: x, dtype: int32}", "\x01\x02\x03\x04", "short"},
		{"format: tsv\ncolumns:", "1\n", ""}, // no column is made of the record itself
	} {
		d := compile(t, tc.spec+columns)
		b, err := d.NewBuilder(100)
		if err != nil {
			t.Fatal(err)
		}
		var want, hours []string
		for file := range 5 {
			if err := d.In(fmt.Sprintf("dt=day%d/hour=%02d/f", file, file)); err != nil {
				t.Fatal(err)
			}
			records := []string{tc.good, tc.good, tc.bad, tc.good}
			if tc.bad == "" {
				records = []string{tc.good, tc.good, tc.good}
			}
			batch := lines(records...)
			for at := 0; at < len(records); {
				n, err := d.Append(b, batch, at, 100)
				if at += n; err != nil {
					at++ // skip the bad record
				}
			}
			for range 3 {
				want, hours = append(want, fmt.Sprintf("day%d", file)), append(hours, fmt.Sprint(file))
			}
		}
		f := finish1(t, d, b)
		if got := cells(t, f, "dt"); !slices.Equal(got, want) {
			t.Errorf("%s\n%v, want %v", tc.spec, got, want)
		}
		if got := cells(t, f, "hour"); !slices.Equal(got, hours) {
			t.Errorf("%s\n%v, want %v", tc.spec, got, hours)
		}
	}
}

func TestRowsOfColumnsTakeValuesOfThePath(t *testing.T) {
	d := columnarDecoder(t, "fail", "{name: n, path: n, dtype: int64, default: 0}", "{name: s, path: s, dtype: string}",
		"{name: dt, path: $path.dt, dtype: string}", "{name: hour, path: $path.hour, dtype: int32}")
	b, err := d.NewBuilder(100)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for file := range 3 {
		if err := d.In(fmt.Sprintf("dt=%d/hour=%d/a.parquet", file, file)); err != nil {
			t.Fatal(err)
		}
		batch := rowsOfColumns() // the third row is bad
		for at := 0; at < 4; {
			n, err := d.Append(b, batch, at, 100)
			if at += n; err != nil {
				at++
			}
		}
		for range 3 {
			want = append(want, fmt.Sprint(file))
		}
	}
	f := finish1(t, d, b)
	if got := fmt.Sprint(cells(t, f, "n")); got != "[1 0 4 1 0 4 1 0 4]" { // null takes the default
		t.Errorf("n %s", got)
	}
	if dt, hour := cells(t, f, "dt"), cells(t, f, "hour"); !slices.Equal(dt, want) || !slices.Equal(hour, want) {
		t.Errorf("%v %v, want %v", dt, hour, want)
	}
}

// The size of the path's text counts in the decision whether one more record fits into a frame.
func TestTextOfThePathCountsForTheFramesSize(t *testing.T) {
	d := compile(t, "format: tsv\ncolumns:\n  - {name: x, path: 0, dtype: int64}\n  - {name: p, path: $path.p, dtype: string}")
	if err := d.In("p=" + strings.Repeat("x", 1000) + "/a"); err != nil {
		t.Fatal(err)
	}
	d.maxFrame = frameReserve + 10_000
	b, err := d.NewBuilder(100)
	if err != nil {
		t.Fatal(err)
	}
	records := make([]string, 100)
	for i := range records {
		records[i] = "1\n"
	}
	n, err := d.Append(b, lines(records...), 0, 100)
	if err != ErrFull || n < 5 || n > 10 || len(b.Columns[1].Values) != 1000*n {
		t.Errorf("%d, %v, %d bytes", n, err, len(b.Columns[1].Values))
	}
}

func TestEscapesAndFoldersOfAPath(t *testing.T) {
	for in, want := range map[string]string{"a%3Ab": "a:b", "%": "%", "%4": "%4", "%zz%41": "%zzA", "%%41": "%A", "": "", "%25%33": "%3"} {
		if got := unescapePath(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	if v, ok := PartitionValue("a%3Db=c=d/x", "a=b"); !ok || v != "c=d" {
		t.Error(v, ok)
	}
}

func TestTheFileMayChangeBetweenAppends(t *testing.T) {
	d := compile(t, "format: tsv\ncolumns:\n  - {name: x, path: 0, dtype: int64}\n  - {name: p, path: $path.p, dtype: int64}")
	clone, err := d.Bind(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.In("p=1/a"); err != nil {
		t.Fatal(err)
	}
	if err := d.In("p=x/a"); err == nil {
		t.Fatal("a bad value was accepted")
	}
	if _, err := decodeAll(t, d, lines("1\n")); err != errNoPath {
		t.Errorf("after a path that does not fit: %v", err)
	}
	if _, err := decodeAll(t, clone, lines("1\n")); err != errNoPath {
		t.Errorf("a clone must not know the file: %v", err)
	}
}

// cells are the values of a column as text.
func cells(t *testing.T, f *frame.Frame, name string) []string {
	t.Helper()
	var all []string
	for _, v := range rowsOf(t, f, name) {
		if b, ok := v.([]byte); ok {
			v = string(b)
		}
		all = append(all, fmt.Sprint(v))
	}
	return all
}

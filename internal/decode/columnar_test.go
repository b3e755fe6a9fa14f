package decode

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/sources"
)

func int64s(list ...int64) []byte {
	var b []byte
	for _, v := range list {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

func texts(list ...string) ([]byte, []int32) {
	var b []byte
	ends := []int32{0}
	for _, v := range list {
		b = append(b, v...)
		ends = append(ends, int32(len(b)))
	}
	return b, ends
}

// rowsOfColumns are 4 rows. n is 1, null, 2^40, 4, in a dictionary; s is a, b, a text that is not UTF-8, d;
// l is [1, null], [], [2], [3, 4].
func rowsOfColumns() *sources.Batch {
	dict := &sources.Dictionary{Len: 3, Values: int64s(4, 1<<40, 1)}
	s, ends := texts("a", "b", "\xff", "d")
	return &sources.Batch{
		FirstRow: 10, Rows: 4, End: 14,
		Columns: []sources.Column{
			{Path: "/n", Kind: sources.Int64Values, Valid: []byte{1, 0, 1, 1}, Dict: dict, Entries: []uint32{2, 1, 0}},
			{Path: "/s", Kind: sources.BytesValues, Values: s, Offsets: ends},
			{Path: "/l/*", Kind: sources.Int64Values, List: true, Ends: []int32{2, 2, 3, 5}, Valid: []byte{1, 0, 1, 1, 1}, Values: int64s(1, 2, 3, 4)},
			{Path: "/gone", Absent: true},
		},
	}
}

func columnarDecoder(t *testing.T, onError string, columns ...string) *Decoder {
	t.Helper()
	text := "name: d\nfiles: {root: /data}\ndecode:\n  format: parquet\n  on_error: " + onError + "\n  columns:\n"
	for _, c := range columns {
		text += "    - " + c + "\n"
	}
	spec, err := dataset.Parse([]byte(text), "d.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d, err := Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestRowsOfColumnsBecomeRowsOneOrManyAtATime(t *testing.T) {
	for step := 1; step <= 4; step++ {
		d := columnarDecoder(t, "default", "{name: n, path: n, dtype: int32, default: -1}", "{name: m, path: n, dtype: float64, missing: mask}",
			"{name: s, path: s, dtype: string, default: bad}", `{name: l, path: "/l/*", dtype: int32, default: 9}`, "{name: g, path: gone, dtype: int64, default: 7}",
			`{name: p, paths: [n, gone], dtype: int64, default: 5}`)
		b, err := d.NewBuilder(10)
		if err != nil {
			t.Fatal(err)
		}
		batch := rowsOfColumns()
		for from := 0; from < 4; {
			n, err := d.Append(b, batch, from, from+step)
			if err != nil || n == 0 {
				t.Fatal(n, err)
			}
			from += n
		}
		n := frame.View[int32](b.Columns[0].Values)
		if n[0] != 1 || n[1] != -1 || n[2] != -1 || n[3] != 4 {
			t.Errorf("n %v", n[:4])
		}
		m, mask := frame.View[float64](b.Columns[1].Values), b.Columns[1].Mask
		if m[0] != 1 || m[2] != 1<<40 || m[3] != 4 || string(mask[:4]) != "\x01\x00\x01\x01" {
			t.Errorf("m %v %v", m[:4], mask[:4])
		}
		if got := string(b.Columns[2].Values); got != "abbadd" {
			t.Errorf("s %q", got)
		}
		l := frame.View[int32](b.Columns[3].Values)
		if ends := b.Columns[3].RowOffsets; len(l) != 6 || l[1] != 9 || l[2] != 9 || l[5] != 4 || ends[1] != 2 || ends[2] != 3 || ends[4] != 6 {
			t.Errorf("l %v %v", l, ends[:5])
		}
		if g := frame.View[int64](b.Columns[4].Values); g[0] != 7 || g[3] != 7 {
			t.Errorf("g %v", g[:4])
		}
		if p := frame.View[int64](b.Columns[5].Values); p[0] != 1 || p[1] != 5 || p[2] != 5 || p[4] != 1<<40 || p[6] != 4 {
			t.Errorf("p %v", p[:8])
		}
		if e := d.Errors(); len(e) != 2 || e[0] != (FieldErrors{"n", 1}) || e[1] != (FieldErrors{"s", 1}) {
			t.Errorf("errors %v", e)
		}
		if b.Offsets[3] != 13 || b.Rows() != 4 {
			t.Errorf("offsets %v", b.Offsets[:4])
		}
	}
}

// In TestListsOfAFixedLengthFillAMatrix v is [1, 2], null, [3, 2^40], [5], [6, null], [7, 8].
func TestListsOfAFixedLengthFillAMatrix(t *testing.T) {
	batch := func() *sources.Batch {
		return &sources.Batch{Rows: 6, Columns: []sources.Column{{Path: "/v/*", Kind: sources.Int64Values, List: true,
			Ends: []int32{2, 2, 4, 5, 7, 9}, Valid: []byte{1, 1, 1, 1, 1, 1, 0, 1, 1}, Values: int64s(1, 2, 3, 1<<40, 5, 6, 7, 8)}}}
	}
	for step := 1; step <= 6; step++ {
		d := columnarDecoder(t, "default", `{name: v, path: "/v/*", dtype: int32, shape: [2], default: -1, missing: mask}`)
		b, err := d.NewBuilder(10)
		if err != nil {
			t.Fatal(err)
		}
		for from := 0; from < 6; {
			n, err := d.Append(b, batch(), from, from+step)
			if err != nil || n == 0 {
				t.Fatal(n, err)
			}
			from += n
		}
		got, mask := frame.View[int32](b.Columns[0].Values)[:12], b.Columns[0].Mask[:12]
		if want := []int32{1, 2, -1, -1, 3, -1, -1, -1, 6, -1, 7, 8}; !slices.Equal(got, want) {
			t.Errorf("%d at a time: %v, want %v", step, got, want)
		}
		if want := "\x01\x01\x00\x00\x01\x00\x00\x00\x01\x00\x01\x01"; string(mask) != want {
			t.Errorf("%d at a time: mask %v", step, mask)
		}
		if e := d.Errors(); len(e) != 1 || e[0] != (FieldErrors{"v", 2}) {
			t.Errorf("errors %v", e)
		}
	}
	for _, c := range []struct {
		column, want string
		rows         int
	}{
		{"{dtype: int64}", "is missing", 1},
		{"{dtype: int32, default: 0}", "out of the range of int32", 2},
		{"{dtype: int64, default: 0}", "has 1 values, and its shape has 2", 3},
	} {
		d := columnarDecoder(t, "fail", `{name: v, path: "/v/*", shape: [2], `+strings.TrimPrefix(c.column, "{"))
		b, err := d.NewBuilder(10)
		if err != nil {
			t.Fatal(err)
		}
		n, err := d.Append(b, batch(), 0, 10)
		if err == nil || !strings.Contains(err.Error(), c.want) || n != c.rows {
			t.Errorf("%s: %d rows, %v", c.column, n, err)
		}
	}
}

func TestABadRowOfColumnsEndsWithTheRowsBeforeIt(t *testing.T) {
	for _, c := range []struct {
		column, want string
		rows         int
	}{
		{"{name: c, path: n, dtype: int64}", "row is missing", 1},
		{"{name: c, path: n, dtype: int32, default: 0}", "out of the range of int32", 2},
		{"{name: c, path: s, dtype: string}", "is not UTF-8", 2},
		{`{name: c, path: "/l/*", dtype: int64}`, "an element of the list has no value", 0},
	} {
		d := columnarDecoder(t, "fail", `{name: first, path: s, dtype: bytes}`, c.column, `{name: last, path: "/l/*", dtype: int64, default: 0}`)
		b, err := d.NewBuilder(10)
		if err != nil {
			t.Fatal(err)
		}
		n, err := d.Append(b, rowsOfColumns(), 0, 10)
		bad, ok := errors.AsType[*Error](err)
		if !ok || !strings.Contains(strings.ReplaceAll(err.Error(), "byte 0: is", "row is"), c.want) || bad.Column != "c" || bad.Record != c.rows || bad.Offset != int64(10+c.rows) {
			t.Errorf("%s: %v", c.column, err)
		}
		if n != c.rows || b.Rows() != c.rows || len(b.Columns[0].Values) != c.rows {
			t.Errorf("%s: %d records, %d rows, %d bytes", c.column, n, b.Rows(), len(b.Columns[0].Values))
		}
	}
}

func TestAFieldThatDoesNotFitIsToldOfTheFile(t *testing.T) {
	for column, want := range map[string]string{
		"{name: c, path: n, dtype: string}":     "has int64 in the file",
		"{name: c, path: s, dtype: float32}":    "has text or bytes in the file",
		"{name: c, path: n, dtype: bool}":       "has int64 in the file",
		"{name: c, path: gone, dtype: float32}": "the file has no field /gone",
	} {
		d := columnarDecoder(t, "fail", column)
		b, err := d.NewBuilder(10)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Append(b, rowsOfColumns(), 0, 10); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got the error %v, want one with %q", column, err, want)
		}
	}
}

// A dictionary has one long text, and every row names it. A frame has no room for all the copies, and no more
// memory is allocated than a frame may have.
func TestRowsOfColumnsEndWhereAFrameIsFull(t *testing.T) {
	const rows = 20_000
	word := strings.Repeat("w", 2000)
	dict := &sources.Dictionary{Len: 1, Values: []byte(word), Offsets: []int32{0, int32(len(word))}}
	batch := &sources.Batch{Rows: rows, Columns: []sources.Column{
		{Path: "/a", Kind: sources.BytesValues, Dict: dict, Entries: make([]uint32, rows)},
		{Path: "/l/*", Kind: sources.BytesValues, List: true, Dict: dict, Entries: make([]uint32, rows), Valid: slices.Repeat([]byte{1}, rows)},
		{Path: "/n/*", Kind: sources.Int64Values, List: true, Valid: slices.Repeat([]byte{1}, rows)},
	}}
	for i := range rows {
		batch.Columns[2].Values = binary.LittleEndian.AppendUint64(batch.Columns[2].Values, uint64(i))
		batch.Columns[1].Ends, batch.Columns[2].Ends = append(batch.Columns[1].Ends, int32(i+1)), append(batch.Columns[2].Ends, int32(i+1))
	}
	a, l, n := "{name: a, path: a, dtype: string}", `{name: l, path: "/l/*", dtype: string}`, `{name: n, path: "/n/*", dtype: int64}`
	for _, columns := range [][]string{{a}, {l}, {a, l}, {l, n, a}} {
		d := columnarDecoder(t, "fail", columns...)
		d.maxFrame = frameReserve + 1_000_000
		b, err := d.NewBuilder(rows)
		if err != nil {
			t.Fatal(err)
		}
		at := 0
		for err == nil {
			var k int
			if k, err = d.Append(b, batch, at, rows); k == 0 && err == nil {
				t.Fatal("neither a row nor an error")
			}
			at += k
		}
		size := 0
		for i := range b.Columns {
			size += cap(b.Columns[i].Values)
		}
		fit := 1_000_000 / (2000*(len(columns)-len(columns)/3) + 200)
		if !errors.Is(err, ErrFull) || b.Rows() != at || at > 500 || at < fit*9/10 {
			t.Errorf("%d columns: %d rows, %v", len(columns), at, err)
		}
		if size > 1_000_000*len(columns)+8*rows {
			t.Errorf("%d columns: %d bytes were allocated", len(columns), size)
		}
		if len(columns) == 3 && !slices.Equal(b.Columns[1].Values, batch.Columns[2].Values[:8*at]) {
			t.Error("the rows of n have other values")
		}
	}
}

// Each replaced value counts once, also if its row is cut off because the frame is full, and is written again.
func TestReplacedValuesOfRowsThatAreCutOffCountOnce(t *testing.T) {
	const rows = 20_000
	word := strings.Repeat("w", 2000)
	dict := &sources.Dictionary{Len: 1, Values: []byte(word), Offsets: []int32{0, int32(len(word))}}
	batch := &sources.Batch{Rows: rows, Columns: []sources.Column{
		{Path: "/n", Kind: sources.Int64Values, Values: int64s(slices.Repeat([]int64{1 << 40}, rows)...)},
		{Path: "/a", Kind: sources.BytesValues, Dict: dict, Entries: make([]uint32, rows)},
	}}
	d := columnarDecoder(t, "default", "{name: n, path: n, dtype: int32, default: 7}", "{name: a, path: a, dtype: string, default: none}")
	d.maxFrame = frameReserve + 1_000_000
	b, err := d.NewBuilder(rows)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for err == nil {
		var k int
		if k, err = d.Append(b, batch, at, rows); k == 0 && err == nil {
			t.Fatal("neither a row nor an error")
		}
		at += k
	}
	if !errors.Is(err, ErrFull) || at < 100 || at == rows || b.Rows() != at {
		t.Errorf("%d rows, %d of them in the frame, %v", at, b.Rows(), err)
	}
	if e := d.Errors(); len(e) != 1 || e[0] != (FieldErrors{"n", uint64(at)}) {
		t.Errorf("%d rows, errors %v", at, e)
	}
	for i, v := range frame.View[int32](b.Columns[0].Values)[:at] {
		if v != 7 || b.Offsets[i] != int64(i) {
			t.Fatalf("row %d is %d at %d", i, v, b.Offsets[i])
		}
	}
}

// A uint64 that does not fit into an integer column is an error of its row. A hash column takes its decimal
// digits.
func TestLargeUnsignedNumbers(t *testing.T) {
	batch := &sources.Batch{
		Rows:    2,
		Columns: []sources.Column{{Path: "/u", Kind: sources.Uint64Values, Values: int64s(7, -1)}},
	}
	d := columnarDecoder(t, "fail", "{name: f, path: u, dtype: float64}", "{name: h, path: u, dtype: int64, hash: {buckets: 0}}")
	b, err := d.NewBuilder(10)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := d.Append(b, batch, 0, 10); n != 2 || err != nil {
		t.Fatalf("%d rows, %v", n, err)
	}
	if got := frame.View[float64](b.Columns[0].Values)[:2]; got[0] != 7 || got[1] != 1<<64 {
		t.Errorf("floats %v", got)
	}
	if h := frame.View[int64](b.Columns[1].Values)[1]; h != d.columns[1].hash.bytes([]byte("18446744073709551615")) {
		t.Errorf("the number was hashed to %d, not by its decimal digits", h)
	}
	for _, dtype := range []string{"int64", "int32"} {
		d = columnarDecoder(t, "fail", "{name: n, path: u, dtype: "+dtype+"}")
		if b, err = d.NewBuilder(10); err != nil {
			t.Fatal(err)
		}
		n, err := d.Append(b, batch, 0, 10)
		if n != 1 || err == nil || !strings.Contains(err.Error(), "18446744073709551615") || !strings.Contains(err.Error(), "out of the range of "+dtype) {
			t.Errorf("%s: %d rows, %v", dtype, n, err)
		}
	}
}

// If two columns are made of one field, its values are counted once for each run of rows.
func TestValuesOfAFieldAreCountedForEachRun(t *testing.T) {
	col := &sources.Column{Valid: []byte{1, 0, 1, 1, 0, 0, 1}}
	f := &feed{col: col}
	for _, step := range []struct{ slots, values, first int }{{0, 0, 0}, {3, 2, 0}, {1, 1, 0}, {2, 1, 0}, {4, 2, 1}, {0, 0, 3}, {3, 1, 3}} {
		for range 2 {
			if got := f.values(step.slots); got != step.values || f.value != step.first {
				t.Errorf("slots [%d, %d): %d values from value %d on, want %d from %d on", f.slot, f.slot+step.slots, got, f.value, step.values, step.first)
			}
		}
		if step.slots == 2 || step.slots == 4 {
			f.advance(0, step.slots-1)
		}
	}
}

package decode

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/sources"
)

func TestEachColumnKindOfACSVRecord(t *testing.T) {
	d := compile(t, `
format: csv
fields: [id, flag, price, tags, note, a, b]
columns:
- {name: id, path: id, dtype: int64}
- {name: flag, path: flag, dtype: bool, default: "false"}
- {name: price, path: price, dtype: float64, missing: mask}
- {name: tags, path: tags, dtype: string, split: "|", weights: ":", max: 2}
- {name: note, path: note, dtype: string}
- {name: ab, paths: [a, b], dtype: int32, default: "-1", missing: mask}
- {name: line, path: $value, dtype: bytes}
`)
	f, err := decodeAll(t, d, lines(
		`9223372036854775807,true,1.5,x:0.5|y|z,"hello, ""you""",1,2`,
		`-9223372036854775808,,,,,,-2147483648`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]any{
		"id":           {int64(math.MaxInt64), int64(math.MinInt64)},
		"flag":         {true, false},
		"price":        {1.5, 0.0},
		"tags":         {[]any{"x", "y"}, []any{}},
		"tags_weights": {[]any{float32(0.5), float32(1)}, []any{}},
		"note":         {`hello, "you"`, ""},
		"ab":           {[]any{int32(1), int32(2)}, []any{int32(-1), int32(math.MinInt32)}},
		"line":         {[]byte(`9223372036854775807,true,1.5,x:0.5|y|z,"hello, ""you""",1,2`), []byte(`-9223372036854775808,,,,,,-2147483648`)},
	} {
		if got := rowsOf(t, f, name); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, not %v", name, got, want)
		}
	}
	for i, want := range map[int][]byte{2: {1, 0}, 6: {1, 1, 0, 1}} {
		if got := f.Columns[i].Mask; !reflect.DeepEqual(got, want) {
			t.Errorf("mask of %s: %v, not %v", f.Columns[i].Layout.Field.Name, got, want)
		}
	}
}

func TestEachColumnKindOfAJSONRecord(t *testing.T) {
	d := compile(t, `
format: json
columns:
- {name: id, path: /user/id, dtype: int64}
- {name: key, path: /user/id, dtype: int64, hash: {buckets: 0, salt: id}}
- {name: ok, path: /ok, dtype: bool, missing: mask}
- {name: price, path: "/items/*/price", dtype: float32, default: "0"}
- {name: item, path: "/items/*/id", dtype: string}
- {name: first, path: /items/0/id, dtype: string, default: none}
- {name: tags, path: /tags, dtype: int64, split: " ", hash: {buckets: 100}}
`)
	f, err := decodeAll(t, d, lines(
		`{"user":{"id":9007199254740993},"ok":true,"items":[{"id":"a\n","price":1.5},{"id":"b"}],"tags":"x y"}`,
		`{"items":[],"tags":null,"user":{"id":-1}}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]any{
		"id":    {int64(9007199254740993), int64(-1)},
		"key":   {Hash64([]byte("9007199254740993"), 0, "id"), Hash64([]byte("-1"), 0, "id")},
		"ok":    {true, false},
		"price": {[]any{float32(1.5), float32(0)}, []any{float32(0)}},
		"item":  {[]any{"a\n", "b"}, []any{}},
		"first": {"a\n", "none"},
		"tags":  {[]any{Hash64([]byte("x"), 100, ""), Hash64([]byte("y"), 100, "")}, []any{}},
	} {
		if got := rowsOf(t, f, name); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, not %v", name, got, want)
		}
	}
}

func TestAnErrorNamesOffsetColumnFieldByteValueAndWayOut(t *testing.T) {
	tsv := "format: tsv\nfields: [id, n, s]\ncolumns: [{name: number, path: n, dtype: int32}, {name: word, path: s, dtype: string, default: x}]\n"
	object := "format: json\ncolumns: [{name: number, path: /a/n, dtype: int32}]\n"
	for _, c := range []struct{ spec, record, want string }{
		{tsv, "a\t12x\tb", `record at offset 4, column number (field n), byte 2: "12x": is not an integer; correct the record, or set decode.on_error: default`},
		{tsv, "a\t2147483648\tb", `record at offset 4, column number (field n), byte 2: "2147483648": is out of the range of int32; correct the record, or set decode.on_error: default`},
		{tsv, "a\t\tb", `record at offset 4, column number (field n), byte 2: is missing; give the column a default, or missing: mask`},
		{tsv, "a\t1\t\xff", `record at offset 4, column word (field s), byte 4: "\xff": is not UTF-8; use dtype: bytes; correct the record, or set decode.on_error: default`},
		{tsv, "a\t1", `record at offset 4, byte 0: "a\t1": has 2 fields, and 3 are named: is the delimiter '\t' right?`},
		{tsv, "a\t1\tb\tc", `record at offset 4, byte 0: "a\t1\tb\tc": has 4 fields, and 3 are named: is the delimiter '\t' right?`},
		{strings.Replace(strings.ReplaceAll(strings.ReplaceAll(tsv, "path: n", "path: 1"), "path: s", "path: 2"), "fields: [id, n, s]\n", "", 1), "a\t1",
			`record at offset 4, column word (field 2), byte 3: "a\t1": has 2 fields, and field 2 is wanted (from 0): is the delimiter '\t' right?; correct the record, or set decode.on_error: default`},
		{object, `{"a":{"n":"7"}}`, `record at offset 4, column number (/a/n), byte 11: "7": is a string, not a number; correct the record, or set decode.on_error: default`},
		{object, `{"a":{"n":7.0}}`, `record at offset 4, column number (/a/n), byte 10: "7.0": is not an integer; correct the record, or set decode.on_error: default`},
		{object, `{"a":7}`, `record at offset 4, column number (/a/n), byte 0: is missing; give the column a default, or missing: mask`},
	} {
		good := "1\t2\t"
		if c.spec == object {
			good = `{"a":{"n":1}}`
		}
		batch := lines(good, c.record, good)
		batch.Recs[1].Offset = 4
		d := compile(t, c.spec)
		b, _ := d.NewBuilder(9)
		n, err := d.Append(b, batch, 0, 9)
		var e *Error
		if !errors.As(err, &e) || err.Error() != c.want || e.Record != 1 || n != 1 || b.Rows() != 1 {
			t.Errorf("%q: %d consumed, %d rows,\n %v, not\n %s", c.record, n, b.Rows(), err, c.want)
		}
	}
}

func TestOnErrorDefaultPutsTheDefaultAndCountsByColumn(t *testing.T) {
	d := compile(t, `
format: json
on_error: default
columns:
- {name: n, path: /n, dtype: int32, default: "-1"}
- {name: m, path: /m, dtype: float32, missing: mask}
- {name: l, path: "/l/*", dtype: int64}
event_time: /t
`)
	f, err := decodeAll(t, d, lines(`{"n":"x","m":"y","l":[1,"2",3],"t":"soon"}`, `{"n":`, `{"n":4,"m":0.5,"t":1700000000}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]any{
		"n": {int32(-1), int32(-1), int32(4)},
		"m": {float32(0), float32(0), float32(0.5)},
		"l": {[]any{int64(1), int64(3)}, []any{}, []any{}},
	} {
		if got := rowsOf(t, f, name); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, not %v", name, got, want)
		}
	}
	want := []FieldErrors{{"$value", 1}, {"n", 1}, {"m", 1}, {"l", 1}, {"event_time", 1}}
	if got := d.Errors(); !reflect.DeepEqual(got, want) {
		t.Errorf("counted %v, not %v", got, want)
	}
}

func TestEventTimeIsMillisecondsSecondsOrRFC3339(t *testing.T) {
	d := compile(t, "format: csv\ncolumns: [{name: a, path: 0, dtype: int32}]\nevent_time: \"1\"\n")
	batch := lines("1,1700000000", "2,1700000000123", "3,2023-11-14T22:13:20.123Z", "4,1700000000.123", "5,", "6,-1")
	b, _ := d.NewBuilder(9)
	if _, err := d.Append(b, batch, 0, 9); err != nil {
		t.Fatal(err)
	}
	if got, want := b.Times[:6], []int64{1700000000000, 1700000000123, 1700000000123, 1700000000123, 0, -1000}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}

func TestKeysHeadersAndTimestampsBecomeColumns(t *testing.T) {
	spec := parse(t, "format: raw\ncolumns: [{name: v, path: $value, dtype: bytes}]\n")
	cols := spec.Decode.Columns
	unknown := "?"
	for _, c := range [][3]string{{"k", "$key", "string"}, {"h", "$header.h", "int32"}, {"t", "$timestamp", "int64"}} {
		col := cols[0]
		col.Name, col.Path, col.DType, col.Missing = c[0], c[1], c[2], "mask"
		if c[2] == "string" {
			col.Default = &unknown
		}
		spec.Decode.Columns = append(spec.Decode.Columns, col)
	}
	d, err := Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	batch := &sources.Batch{Arena: []byte("keyvalueh42")}
	batch.Recs = []sources.Record{
		{Key: [2]int32{0, 3}, Value: [2]int32{3, 8}, Time: 1234, Headers: []sources.Header{{Key: [2]int32{0, 3}, Value: [2]int32{0, 3}}, {Key: [2]int32{8, 9}, Value: [2]int32{9, 11}}}},
		{Value: [2]int32{3, 3}},
	}
	f, err := decodeAll(t, d, batch)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]any{
		"v": {[]byte("value"), []byte{}}, "k": {"key", "?"}, "h": {int32(42), int32(0)}, "t": {int64(1234), int64(0)},
	} {
		if got := rowsOf(t, f, name); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, not %v", name, got, want)
		}
	}
}

func TestATombstoneIsToldFromAnEmptyValueInEveryFormatThatHasARowForIt(t *testing.T) {
	deleted := func(format, column string) []any {
		t.Helper()
		spec := parse(t, "format: "+format+"\ncolumns: ["+column+"]\n")
		col := spec.Decode.Columns[0]
		col.Name, col.Path, col.DType, col.Default, col.Shape = "deleted", "$tombstone", "bool", nil, nil
		spec.Decode.Columns = append(spec.Decode.Columns, col)
		d, err := Compile(spec)
		if err != nil {
			t.Fatal(err)
		}
		batch := &sources.Batch{Arena: []byte(`{"a": 1}`), Recs: []sources.Record{{Value: [2]int32{0, 8}}, {Tombstone: true}, {}}}
		f, err := decodeAll(t, d, batch)
		if err != nil {
			t.Fatal(err)
		}
		return rowsOf(t, f, "deleted")
	}
	for _, format := range []string{"raw", "lines"} {
		if got := deleted(format, "{name: v, path: $value, dtype: bytes}"); !reflect.DeepEqual(got, []any{false, true, false}) {
			t.Errorf("%s: %v", format, got)
		}
	}
	if got := deleted("json", "{name: v, path: /a, dtype: int32}"); !reflect.DeepEqual(got, []any{false}) {
		t.Errorf("json, for which an empty value is a blank line: %v", got)
	}
}

func TestHeadersNameFieldsPerFileAndRowsMeetInOneBuilder(t *testing.T) {
	d := compile(t, "format: csv\nheader: true\ncolumns: [{name: a, path: a, dtype: int32}, {name: b, path: b, dtype: string}]\n")
	b, _ := d.NewBuilder(4)
	if _, err := d.Append(b, lines("1,x"), 0, 4); !errors.Is(err, ErrUnbound) {
		t.Fatalf("without a header: %v", err)
	}
	for header, record := range map[string]string{"a,b": "1,x", "\ufeff\"b\",c,a\r": "x,?,1"} {
		bound, err := d.Bind([]byte(header))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := bound.Append(b, lines(record), 0, 4); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	f := finish1(t, d, b)
	if got := rowsOf(t, f, "b"); !reflect.DeepEqual(got, []any{"x", "x"}) {
		t.Errorf("b: %v", got)
	}
	for header, want := range map[string]string{"a,c": `there is no field "b"`, "a,a": "two fields are called", `a,"b`: "never closed"} {
		if _, err := d.Bind([]byte(header)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %s", header, err, want)
		}
	}
}

func TestOnlyTheAskedColumnsAreMade(t *testing.T) {
	d := compile(t, manyKinds, WithColumns([]string{"s", "h"}))
	schema := d.Schema()
	if got := schema.Names(); !reflect.DeepEqual(got, []string{"h", "s"}) {
		t.Errorf("columns %v", got)
	}
	if _, err := Compile(parse(t, manyKinds), WithColumns([]string{"nope"})); err == nil || !strings.Contains(err.Error(), `no column "nope"; it has h, f, i`) {
		t.Errorf("got the error %v, want one with %q", err, `no column "nope"; it has h, f, i`)
	}
}

// Batches have exactly N rows, however records arrive, and rows from a stolen position on are dropped. Each row
// comes once, as it was.
func TestLeftoversAndTruncationLoseAndRepeatNothing(t *testing.T) {
	r := seeded(t)
	d := compile(t, "format: tsv\ncolumns: [{name: id, path: 0, dtype: int64}, {name: s, path: 1, dtype: string}, {name: r, path: 2, dtype: string, split: \"|\", missing: mask}]\n")
	var records []string
	for i := range 500 {
		id := []string{"a", "bb", "ccc"}[i%3]
		records = append(records, strings.Join([]string{string(itoa(i)), id + string(itoa(i)), strings.Repeat("x|", i%4)}, "\t"))
	}
	batch := lines(records...)
	whole, err := decodeAll(t, d, batch)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := frame.NewPool(d.Layout(), 64, 64)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		var ids, texts, lists []any
		b, next := pool.Get(), pool.Get()
		for from := 0; from < len(records); {
			n, err := d.Append(b, batch, from, 1+r.IntN(64))
			if err != nil {
				t.Fatal(err)
			}
			from += n
			if b.Rows() > 0 && r.IntN(3) == 0 {
				cut := r.IntN(b.Rows() + 1) // the tail is stolen, so its records come again
				from -= b.Rows() - cut
				b.Truncate(cut)
			}
			if b.Rows() == 0 || (b.Rows() < 40 && from < len(records)) {
				continue
			}
			send := 1 + r.IntN(b.Rows())
			if from == len(records) {
				send = b.Rows()
			}
			if err := b.MoveTail(send, next); err != nil {
				t.Fatal(err)
			}
			f := finish1(t, d, b)
			ids, texts, lists = append(ids, rowsOf(t, f, "id")...), append(texts, rowsOf(t, f, "s")...), append(lists, rowsOf(t, f, "r")...)
			pool.Put(b)
			b, next = next, pool.Get()
		}
		for name, got := range map[string][]any{"id": ids, "s": texts, "r": lists} {
			if want := rowsOf(t, whole, name); !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: %d rows %v, not %v", name, len(got), got, want)
			}
		}
	}
}

func TestARecordThatWouldTakeTheFrameOverItsLimitIsLeftForTheNext(t *testing.T) {
	d := compile(t, "format: lines\ncolumns: [{name: v, path: $value, dtype: bytes}]\n")
	d.maxFrame = frameReserve + 100_000
	b, _ := d.NewBuilder(10)
	batch := lines(strings.Repeat("a", 60_000), strings.Repeat("b", 60_000), "c")
	if n, err := d.Append(b, batch, 0, 10); n != 1 || !errors.Is(err, ErrFull) || b.Rows() != 1 {
		t.Fatal(n, err, b.Rows())
	}
	if f := finish1(t, d, b); len(f.Columns[0].Values) != 60_000 {
		t.Error("parts of the second record were left in the frame")
	}
	b.Reset()
	if n, err := d.Append(b, batch, 1, 10); n != 2 || err != nil {
		t.Fatal(n, err)
	}
}

func itoa(i int) []byte { return []byte{byte('0' + i/100), byte('0' + i/10%10), byte('0' + i%10)} }

func TestNothingIsAllocatedPerRecord(t *testing.T) {
	const binary = "format: binary\ncolumns: [{name: x, dtype: float32, shape: [3], missing: mask}, {name: s, dtype: bytes, shape: [2]}]\n"
	for format, spec := range map[string]*dataset.Spec{"tsv": clickSpec("tsv"), "json": clickSpec("json"), "binary": parse(t, binary)} {
		batch := batchOf(slices.Repeat([][]byte{make([]byte, 14)}, 200)...)
		if format != "binary" {
			batch = batchOf(clickLines(format, 200)...)
		}
		d, err := Compile(spec)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := d.NewBuilder(200)
		n := testing.AllocsPerRun(10, func() {
			b.Reset()
			if _, err := d.Append(b, batch, 0, 200); err != nil {
				t.Fatal(err)
			}
		})
		if n > 2 { // allowed: the copy of the last record, with its padding
			t.Errorf("%s: %v allocations for 200 records", format, n)
		}
	}
}

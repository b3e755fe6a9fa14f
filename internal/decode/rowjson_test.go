package decode

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
)

// threeRows have several lists, lists in lists, dictionaries, nulls and times.
func threeRows() *sources.Batch {
	dict := &sources.Dictionary{Len: 2, Values: []byte("a\"\\\x01\n<é"), Offsets: []int32{0, 6, 8}}
	s, ends := texts("x", "y\ty", "")
	floats := binary.LittleEndian.AppendUint32(nil, math.Float32bits(1e20))
	floats = binary.LittleEndian.AppendUint32(floats, math.Float32bits(-0.5))
	return &sources.Batch{
		FirstRow: 10, Rows: 3, End: 13,
		Columns: []sources.Column{
			{Path: "/id", Kind: sources.Int64Values, Values: int64s(1, -2, 1<<53+1)},
			{Path: "/user/name", Kind: sources.BytesValues, Dict: dict, Valid: []byte{1, 0, 1}, Entries: []uint32{0, 1}},
			{Path: "/user/ok", Kind: sources.BoolValues, Values: []byte{1, 0, 1}},
			{Path: "/items/*/price", Kind: sources.Float32Values, List: true, Ends: []int32{2, 2, 3}, Valid: []byte{1, 0, 1}, Values: floats},
			{Path: "/items/*/n", Kind: sources.Int64Values, List: true, Ends: []int32{2, 2, 3}, Valid: []byte{1, 1, 1}, Values: int64s(7, 8, 9)},
			{Path: "/items/*/tags/*", Kind: sources.BytesValues, List: true, Ends: []int32{0, 0, 3}, Valid: []byte{1, 1, 1}, Values: s, Offsets: ends},
			{Path: "/a~1b", Kind: sources.Uint64Values, Values: int64s(-1, 0, 3)},
			{Path: "/gone", Absent: true},
		},
	}
}

const threeColumns = `{name: id, path: /id, dtype: int64}
{name: name, path: /user/name, dtype: string, missing: mask}
{name: ok, path: /user/ok, dtype: bool}
{name: price, path: "/items/*/price", dtype: float32, default: -1}
{name: n, path: "/items/*/n", dtype: int64}
{name: tags, path: "/items/*/tags/*", dtype: string}
{name: big, path: /a~1b, dtype: int64, hash: {buckets: 1000}}
{name: gone, path: /gone, dtype: int64, default: 4}`

func TestARowOfColumnsAsJSON(t *testing.T) {
	d := columnarDecoder(t, "fail", strings.Split(threeColumns, "\n")...)
	for row, want := range []string{
		`{"id":1,"user":{"name":"a\"\\\u0001\n<","ok":true},"items":[{"price":1e+20,"n":7},{"price":null,"n":8}],"a/b":18446744073709551615}`,
		`{"id":-2,"user":{"name":null,"ok":false},"items":[],"a/b":0}`,
		`{"id":9007199254740993,"user":{"name":"é","ok":true},"items":[{"price":-0.5,"n":9,"tags":["x","y\ty",""]}],"a/b":3}`,
	} {
		got, size := d.RowJSON(threeRows(), row, 1<<20)
		if string(got) != want || int(size) != len(want) || !json.Valid(got) {
			t.Errorf("row %d: %s of %d bytes, want %s", row, got, size, want)
		}
		for most := range want {
			if got, size := d.RowJSON(threeRows(), row, most); string(got) != want[:most] || int(size) != len(want) {
				t.Fatalf("row %d, %d bytes of it: %s of %d bytes", row, most, got, size)
			}
		}
	}
}

// A JSON dataset with the same columns reads the same rows from the text.
func TestARowAsJSONGivesTheSameColumns(t *testing.T) {
	columns := strings.Split(threeColumns, "\n")
	d, batch := columnarDecoder(t, "fail", columns...), threeRows()
	text := "name: d\nfiles: {root: /data}\ndecode:\n  format: json\n  columns:\n    - " + strings.Join(columns, "\n    - ") + "\n"
	spec, err := dataset.Parse([]byte(text), "d.yaml")
	if err != nil {
		t.Fatal(err)
	}
	again, err := Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := d.NewBuilder(3)
	got, _ := again.NewBuilder(3)
	if n, err := d.Append(want, batch, 0, 3); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	lines := &sources.Batch{}
	for row := range 3 {
		value, _ := d.RowJSON(batch, row, 1<<20)
		from := int32(len(lines.Arena))
		lines.Arena = append(lines.Arena, value...)
		lines.Recs = append(lines.Recs, sources.Record{Offset: int64(row), Value: [2]int32{from, int32(len(lines.Arena))}})
	}
	if n, err := again.Append(got, lines, 0, 3); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	for i := range want.Columns {
		g, w := &got.Columns[i], &want.Columns[i]
		if !bytes.Equal(g.Values, w.Values) || !bytes.Equal(g.Mask, w.Mask) || !slices.Equal(g.RowOffsets, w.RowOffsets) || !slices.Equal(g.Elements, w.Elements) {
			t.Errorf("column %d: %+v, want %+v", i, g, w)
		}
	}
}

// Values that JSON cannot express become texts that no column takes for another value.
func TestARowAsJSONSaysWhatJSONHasNoWordsFor(t *testing.T) {
	d := columnarDecoder(t, "fail", "{name: b, path: b, dtype: bytes}", "{name: f, path: f, dtype: float64}", "{name: day, path: day, dtype: int32}")
	raw, ends := texts("\xff\x00")
	inf := binary.LittleEndian.AppendUint64(nil, math.Float64bits(math.Inf(-1)))
	batch := &sources.Batch{Rows: 1, Columns: []sources.Column{
		{Path: "/b", Kind: sources.BytesValues, Values: raw, Offsets: ends},
		{Path: "/f", Kind: sources.Float64Values, Values: inf},
		{Path: "/day", Kind: sources.Int32Values, TicksPerSecond: sources.PerDay, Values: []byte{2, 0, 0, 0}},
		{Path: "/seen", Kind: sources.Int64Values, TicksPerSecond: 1e6, Values: int64s(1_700_000_000_123_456)}, // event_time
	}}
	want := `{"b":{"base64":"/wA="},"f":"-Inf","day":2,"seen":"2023-11-14T22:13:20.123Z"}`
	if got, _ := d.RowJSON(batch, 0, 1<<20); string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A float32 of the file becomes a float64 as it is. The few digits that tell it from other float32 are
// another float64.
func TestAFloatOfARowAsJSONIsTheSameFloat64(t *testing.T) {
	columns := []string{"{name: wide, path: /f, dtype: float64}", "{name: same, path: /f, dtype: float32}", "{name: short, path: /g, dtype: float32}",
		`{name: list, path: "/l/*", dtype: float64}`}
	tenth := binary.LittleEndian.AppendUint32(nil, math.Float32bits(0.1))
	dict := &sources.Dictionary{Len: 1, Values: tenth}
	batch := &sources.Batch{Rows: 1, Columns: []sources.Column{
		{Path: "/f", Kind: sources.Float32Values, Values: tenth},
		{Path: "/g", Kind: sources.Float32Values, Values: tenth},
		{Path: "/l/*", Kind: sources.Float32Values, List: true, Ends: []int32{1}, Valid: []byte{1}, Dict: dict, Entries: []uint32{0}},
	}}
	d := columnarDecoder(t, "fail", columns...)
	row, _ := d.RowJSON(batch, 0, 1<<20)
	if want := `{"f":0.10000000149011612,"g":0.1,"l":[0.10000000149011612]}`; string(row) != want {
		t.Errorf("%s, want %s", row, want)
	}
	b, _ := d.NewBuilder(1)
	if n, err := d.Append(b, batch, 0, 1); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	f, err := decodeAll(t, compile(t, "format: json\ncolumns:\n- "+strings.Join(columns, "\n- ")+"\n"), lines(string(row)))
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.Columns {
		if got, want := f.Columns[i].Values, b.Columns[i].Values; !bytes.Equal(got, want) {
			t.Errorf("column %d: %x, want %x", i, got, want)
		}
	}
}

package decode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
)

const everyPiece = `
format: binary
record_size: 48
columns:
- {name: id, dtype: int64}
- {name: x, dtype: float32, shape: [2, 3]}
- {name: flags, dtype: bool, shape: 2}
- {name: y, dtype: float64, offset: 34}
- {name: n, dtype: int32, offset: 0}
- {name: tag, dtype: bytes, offset: 42, shape: [3]}
`

// everyRecord is a record of everyPiece, written by encoding/binary. Its last 3 bytes belong to no column.
func everyRecord(t testing.TB, id int64, x [6]float32, flags [2]bool, y float64, tag string) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, v := range []any{id, x, flags, y, []byte(tag), []byte("pad")} {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func TestABinaryRecordIsCutByOffsetAndShape(t *testing.T) {
	d := compile(t, everyPiece)
	x := [6]float32{1, 2.5, -3, float32(math.Inf(1)), 5e-45, 0}
	f, err := decodeAll(t, d, batchOf(everyRecord(t, 1<<40+7, x, [2]bool{true, false}, math.Pi, "abc"), everyRecord(t, -1, [6]float32{}, [2]bool{false, true}, -0.5, "\x00\xff ")))
	if err != nil {
		t.Fatal(err)
	}
	if got := d.Schema().Fields[1].Shape; !reflect.DeepEqual(got, []int{2, 3}) {
		t.Errorf("shape %v", got)
	}
	for name, want := range map[string][]any{
		"id":    {int64(1<<40 + 7), int64(-1)},
		"n":     {int32(7), int32(-1)}, // the lower half of id: columns may overlap
		"x":     {[]any{x[0], x[1], x[2], x[3], x[4], x[5]}, []any{float32(0), float32(0), float32(0), float32(0), float32(0), float32(0)}},
		"flags": {[]any{true, false}, []any{false, true}},
		"y":     {math.Pi, -0.5},
		"tag":   {[]byte("abc"), []byte("\x00\xff ")},
	} {
		if got := rowsOf(t, f, name); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, not %v", name, got, want)
		}
	}
}

func TestABinaryRecordOfAnotherSizeIsAnErrorThatNamesOffsetAndSizes(t *testing.T) {
	d := compile(t, "format: binary\ncolumns: [{name: id, dtype: int32}, {name: x, dtype: float32, shape: [3]}, {name: ok, dtype: bool}]\n")
	for _, c := range []struct{ record, want string }{
		{"short", `record at offset 21, byte 0: "short": has 5 bytes, and every record has 17 by decode.record_size and its columns: id [0, 4), x [4, 16), ok [16, 17)`},
		{"", `has 0 bytes, and every record has 17`},
		{strings.Repeat("l", 18), `has 18 bytes, and every record has 17`},
		{strings.Repeat("\x00", 16) + "\x02", `record at offset 21, byte 16: "\x02": is no bool of column ok: the byte is neither 0 nor 1`},
	} {
		batch := batchOf(make([]byte, 17), []byte(c.record), make([]byte, 17))
		batch.Recs[1].Offset = 21
		b, _ := d.NewBuilder(3)
		n, err := d.Append(b, batch, 0, 3)
		e, ok := errors.AsType[*Error](err)
		if n != 1 || !ok || e.Record != 1 || b.Rows() != 1 || !strings.Contains(e.Error(), c.want) {
			t.Errorf("%d records, %d rows, %v", n, b.Rows(), err)
		}
	}
}

func TestOnErrorDefaultReplacesABinaryRecordAsAWhole(t *testing.T) {
	d := compile(t, `
format: binary
on_error: default
columns:
- {name: id, dtype: int32, default: -1}
- {name: x, dtype: float32, shape: [2], missing: mask}
- {name: ok, dtype: bool, missing: mask, default: true}
- {name: raw, dtype: bytes, shape: [2], default: "??"}
- {name: whole, path: $value, dtype: bytes, default: none}
`)
	good := "\x05\x00\x00\x00" + "\x00\x00\x80\x3f\x00\x00\x00\x40" + "\x00" + "ab"
	f, err := decodeAll(t, d, lines(good, "bad", good[:12]+"\x07ab", good))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]any{
		"id":    {int32(5), int32(-1), int32(-1), int32(5)},
		"x":     {[]any{float32(1), float32(2)}, []any{float32(0), float32(0)}, []any{float32(0), float32(0)}, []any{float32(1), float32(2)}},
		"ok":    {false, true, true, false},
		"raw":   {[]byte("ab"), []byte("??"), []byte("??"), []byte("ab")},
		"whole": {[]byte(good), []byte("bad"), []byte(good[:12] + "\x07ab"), []byte(good)},
	} {
		if got := rowsOf(t, f, name); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, not %v", name, got, want)
		}
	}
	if x, ok := f.Columns[1].Mask, f.Columns[2].Mask; !bytes.Equal(x, []byte{1, 1, 0, 0, 0, 0, 1, 1}) || !bytes.Equal(ok, []byte{1, 0, 0, 1}) {
		t.Errorf("masks %v %v", x, ok)
	}
	if got := d.Errors(); !reflect.DeepEqual(got, []FieldErrors{{"$value", 2}}) {
		t.Errorf("counted %v", got)
	}
}

func TestBinaryColumnsGoWithKeysAndTimesAndCanBeChosen(t *testing.T) {
	text := "name: d\nkafka: {brokers: ['b:1'], topic: t}\ndecode:\n" + indent("format: binary\nevent_time: $timestamp\ncolumns:\n- {name: a, dtype: int32}\n- {name: key, path: $key, dtype: string}\n- {name: b, dtype: int32}\n")
	spec, err := dataset.Parse([]byte(text), "")
	if err != nil {
		t.Fatal(err)
	}
	batch := &sources.Batch{Arena: []byte("\x01\x00\x00\x00\x02\x00\x00\x00key"), Recs: []sources.Record{{Value: [2]int32{0, 8}, Key: [2]int32{8, 11}, Next: 1, Time: 1_700_000_000_123}}}
	for _, columns := range [][]string{nil, {"b"}, {"key"}} {
		d, err := Compile(spec, WithColumns(columns))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := d.NewBuilder(1)
		if n, err := d.Append(b, batch, 0, 1); n != 1 || err != nil || b.Times[0] != 1_700_000_000_123 {
			t.Fatal(n, err, b.Times)
		}
		f := finish1(t, d, b)
		for name, want := range map[string]any{"a": int32(1), "key": "key", "b": int32(2)} {
			if columns != nil && columns[0] != name {
				continue
			}
			if got := rowsOf(t, f, name); got[0] != want {
				t.Errorf("%v: %s is %v", columns, name, got)
			}
		}
		// The required size of a record does not depend on the columns that are read.
		short := &sources.Batch{Arena: []byte("1234567"), Recs: []sources.Record{{Value: [2]int32{0, 7}}}}
		b.Reset()
		if _, err := d.Append(b, short, 0, 1); err == nil {
			t.Errorf("%v: a record of 7 bytes was accepted", columns)
		}
	}
}

// FuzzBinaryIsEncodingBinary compares columns at any places with what encoding/binary reads there.
func FuzzBinaryIsEncodingBinary(f *testing.F) {
	f.Add([]byte("0123456789abcdef0123456789abcdef"), uint8(0), uint8(3), uint8(9), uint8(2), uint8(15))
	f.Add([]byte("\x00\x00\x01\x01\x02\x00\x01\x00"), uint8(4), uint8(1), uint8(2), uint8(0), uint8(8))
	f.Fuzz(func(t *testing.T, content []byte, flagsAt, flags, xAt, xs, size uint8) {
		spec := &dataset.Spec{Name: "f", Decode: dataset.DecodeSpec{Format: "binary", OnError: "fail", RecordSize: dataset.Size(size), Columns: []dataset.Column{
			{Name: "flags", DType: "bool", Offset: place(flagsAt), Shape: []int{int(flags)}},
			{Name: "x", DType: "float32", Offset: place(xAt), Shape: []int{int(xs)}},
			{Name: "raw", DType: "bytes", Offset: place(flagsAt), Shape: []int{int(flags)}},
		}}}
		fits := flags > 0 && xs > 0 && int(flagsAt)+int(flags) <= int(size) && int(xAt)+4*int(xs) <= int(size)
		d, err := Compile(spec)
		if fits != (err == nil) {
			t.Fatalf("fits: %v, %v", fits, err)
		}
		if err != nil {
			return
		}
		var all [][]byte
		for c := content; len(c) > 0; c = c[min(len(c), int(size)):] {
			all = append(all, c[:min(len(c), int(size))])
		}
		got, err := decodeAll(t, d, batchOf(all...))
		for i, r := range all {
			bad := len(r) != int(size) || notBools(r[flagsAt:int(flagsAt)+int(flags)]) >= 0
			if bad {
				e, ok := errors.AsType[*Error](err)
				if !ok || e.Record != i {
					t.Fatalf("record %d %q: %v", i, r, err)
				}
				return
			}
			if err != nil {
				continue // the error is of a later record
			}
			x := make([]float32, xs)
			if _, err := binary.Decode(r[xAt:], binary.LittleEndian, x); err != nil {
				t.Fatal(err)
			}
			for k, v := range x {
				if math.Float32bits(v) != binary.LittleEndian.Uint32(got.Columns[1].Values[4*(i*int(xs)+k):]) {
					t.Fatalf("record %d, float %d is not %v", i, k, v)
				}
			}
			want := r[flagsAt : int(flagsAt)+int(flags)]
			if raw := rowsOf(t, got, "raw")[i].([]byte); !bytes.Equal(raw, want) || !bytes.Equal(got.Columns[0].Values[i*int(flags):(i+1)*int(flags)], want) {
				t.Fatalf("record %d: %q and %q, not %q", i, raw, got.Columns[0].Values, want)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}

func place(at uint8) *int {
	n := int(at)
	return &n
}

func BenchmarkBinary500Bytes(b *testing.B) {
	d := compile(b, "format: binary\ncolumns: [{name: x, dtype: float32, shape: [125]}]\n")
	all := make([][]byte, 1024)
	for i := range all {
		all[i] = make([]byte, 500)
	}
	batch := batchOf(all...)
	into, _ := d.NewBuilder(1024)
	b.SetBytes(500 * 1024)
	for b.Loop() {
		into.Reset()
		if _, err := d.Append(into, batch, 0, 1024); err != nil {
			b.Fatal(err)
		}
	}
}

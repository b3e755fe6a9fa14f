package decode

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// null is an element without a value.
const null = -12345.0

// shapedForms write a record whose list v has the given elements, in each format of rows. Protobuf has no nulls;
// its lists are tested packed and unpacked.
var shapedForms = map[string]func(all []float64) string{
	"json": func(all []float64) string {
		var some []string
		for _, x := range all {
			some = append(some, strings.Replace(fmt.Sprint(x), "-12345", "null", 1))
		}
		return `{"v": [` + strings.Join(some, ", ") + `]}`
	},
	"avro": func(all []float64) string {
		var b []byte
		if len(all) > 0 {
			b = binary.AppendVarint(b, int64(len(all)))
		}
		for _, x := range all {
			if x == null {
				b = binary.AppendVarint(b, 0)
				continue
			}
			b = binary.LittleEndian.AppendUint64(binary.AppendVarint(b, 1), math.Float64bits(x))
		}
		return wire(7, append(b, 0)...)
	},
	"protobuf": func(all []float64) string {
		var b []byte
		for _, x := range all {
			b = protowire.AppendFixed64(protowire.AppendTag(b, 1, protowire.Fixed64Type), math.Float64bits(x))
		}
		return string(b)
	},
	"protobuf packed": func(all []float64) string {
		var b, list []byte
		for _, x := range all {
			list = protowire.AppendFixed64(list, math.Float64bits(x))
		}
		b = protowire.AppendBytes(protowire.AppendTag(b, 1, protowire.BytesType), list)
		return string(b)
	},
}

func shapedDecoder(t *testing.T, form, onError, column string) *Decoder {
	t.Helper()
	columns := "on_error: " + onError + "\ncolumns: [" + column + "]\n"
	switch form {
	case "json":
		return compile(t, "format: json\n"+columns)
	case "avro":
		return written(t, columns, shelf{7: `{"type": "record", "name": "R", "fields": [{"name": "v", "type": {"type": "array", "items": ["null", "double"]}}]}`})
	}
	return messages(t, `syntax = "proto3"; message M { repeated double v = 1; }`, columns)
}

// Lists of a fixed length are rows of a matrix in every format of rows. columnar_test.go tests the same for
// Parquet.
func TestListsOfAFixedLengthAreRowsOfAMatrix(t *testing.T) {
	for form, record := range shapedForms {
		nulls := !strings.HasPrefix(form, "protobuf")
		t.Run(form, func(t *testing.T) {
			records := []string{record([]float64{1, 2}), record([]float64{-3.5, 4}), record([]float64{0, 1e300})}
			want := "[[1 2] [-3.5 4] [0 1e+300]]"
			d := shapedDecoder(t, form, "fail", `{name: v, path: "/v/*", dtype: float64, shape: [2]}`)
			f, err := decodeAll(t, d, lines(records...))
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(rowsOf(t, f, "v")); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			if shape := f.Columns[0].Layout.Field.Shape; len(shape) != 1 || shape[0] != 2 {
				t.Errorf("shape %v", shape)
			}

			// A missing row or element takes the default, and its mask says so.
			d = shapedDecoder(t, form, "fail", `{name: v, path: "/v/*", dtype: float32, shape: [2], default: -1, missing: mask}`)
			records, want = []string{record(nil), record([]float64{5, 6})}, "[[-1 -1] [5 6]]"
			mask := "[0 0 1 1]"
			if nulls {
				records, want, mask = append(records, record([]float64{7, null})), "[[-1 -1] [5 6] [7 -1]]", "[0 0 1 1 1 0]"
			}
			if f, err = decodeAll(t, d, lines(records...)); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(rowsOf(t, f, "v")); got != want || fmt.Sprint(f.Columns[0].Mask) != mask {
				t.Errorf("%s %v, want %s %s", got, f.Columns[0].Mask, want, mask)
			}

			// A list that does not fit the shape is an error of its record.
			for _, c := range []struct {
				column string
				all    []float64
				says   string
			}{
				{"", nil, "is missing"},
				{"", []float64{1, 2, 3}, "has 3 values, and its shape has 2"},
				{", default: 0", []float64{1}, "has 1 values, and its shape has 2"},
				{"", []float64{1, null}, "an element of the array has no value"},
			} {
				if !nulls && strings.Contains(c.says, "element") {
					continue
				}
				d := shapedDecoder(t, form, "fail", `{name: v, path: "/v/*", dtype: float64, shape: [2]`+c.column+"}")
				if _, err := decodeAll(t, d, lines(record([]float64{1, 2}), record(c.all))); err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v: %v, want %s", c.all, err, c.says)
				}
			}

			// With on_error: default the row is replaced and counted, and the next row is right.
			d = shapedDecoder(t, form, "default", `{name: v, path: "/v/*", dtype: float64, shape: [2], default: 9}`)
			if f, err = decodeAll(t, d, lines(record([]float64{1, 2, 3}), record([]float64{4, 5}))); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(rowsOf(t, f, "v")); got != "[[9 9] [4 5]]" || fmt.Sprint(d.Errors()) != "[{v 1}]" {
				t.Errorf("%s, %v", got, d.Errors())
			}
		})
	}
	// Two dimensions, in row-major order, from a field of each element.
	d := compile(t, "format: json\ncolumns: [{name: v, path: \"/v/*/x\", dtype: int32, shape: [2, 2]}]\n")
	f, err := decodeAll(t, d, lines(`{"v": [{"x": 1}, {"x": 2}, {"x": 3}, {"x": 4}]}`))
	if err != nil || fmt.Sprint(rowsOf(t, f, "v")) != "[[1 2 3 4]]" {
		t.Errorf("%v, %v", f, err)
	}
}

package decode

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/headrace/headrace/sources"
)

// edge is the least float64 that is rounded to infinity as a float32.
var edge = math.Nextafter(0x1.ffffffp127, math.Inf(1))

// A double that float32 does not hold is an error of its record in every format, as in text. Infinities and
// NaN stay.
func TestADoubleBeyondFloat32IsAnErrorInEveryFormat(t *testing.T) {
	kept := []float64{math.Inf(1), math.Inf(-1), math.MaxFloat32, -math.MaxFloat32, math.Nextafter(0x1.ffffffp127, 0), 1e-300}
	for form, record := range shapedForms {
		if form == "json" {
			continue
		}
		t.Run(form, func(t *testing.T) {
			d := shapedDecoder(t, form, "fail", `{name: v, path: "/v/*", dtype: float32}`)
			f, err := decodeAll(t, d, lines(record(kept)))
			if want := "[[+Inf -Inf 3.4028235e+38 -3.4028235e+38 3.4028235e+38 0]]"; err != nil || fmt.Sprint(rowsOf(t, f, "v")) != want {
				t.Errorf("%v, %v, want %s", f, err, want)
			}
			for _, v := range []float64{edge, 0x1.ffffffp127, -1e300, math.MaxFloat64} {
				if _, err := decodeAll(t, d, lines(record([]float64{1}), record([]float64{2, v}))); err == nil || !strings.Contains(err.Error(), "is out of the range of float32") {
					t.Errorf("%g: %v", v, err)
				}
			}
			d = shapedDecoder(t, form, "default", `{name: v, path: "/v/*", dtype: float32, default: 9}`)
			f, err = decodeAll(t, d, lines(record([]float64{1, 1e300})))
			if err != nil || fmt.Sprint(rowsOf(t, f, "v")) != "[[1 9]]" || fmt.Sprint(d.Errors()) != "[{v 1}]" {
				t.Errorf("%v, %v, %v", f, err, d.Errors())
			}
		})
	}
	for _, inDict := range []bool{false, true} {
		batch := func(values ...float64) *sources.Batch {
			col := sources.Column{Path: "/v", Kind: sources.Float64Values}
			var raw []byte
			for i, v := range values {
				raw = binary.LittleEndian.AppendUint64(raw, math.Float64bits(v))
				col.Entries = append(col.Entries, uint32(i))
			}
			if col.Values = raw; inDict {
				col.Values, col.Dict = nil, &sources.Dictionary{Len: len(values), Values: raw}
			} else {
				col.Entries = nil
			}
			return &sources.Batch{Rows: len(values), End: int64(len(values)), Columns: []sources.Column{col}}
		}
		d := columnarDecoder(t, "fail", "{name: v, path: v, dtype: float32}")
		b, _ := d.NewBuilder(10)
		if n, err := d.Append(b, batch(kept...), 0, 10); n != len(kept) || err != nil {
			t.Errorf("%d rows, %v", n, err)
		}
		b.Reset()
		if n, err := d.Append(b, batch(1, edge, 2), 0, 10); n != 1 || err == nil || !strings.Contains(err.Error(), "is out of the range of float32") {
			t.Errorf("%d rows, %v", n, err)
		}
		d = columnarDecoder(t, "default", "{name: v, path: v, dtype: float32, default: 9}")
		b, _ = d.NewBuilder(10)
		if n, err := d.Append(b, batch(1, -1e300, 2), 0, 10); n != 3 || err != nil || fmt.Sprint(d.Errors()) != "[{v 1}]" {
			t.Errorf("%d rows, %v, %v", n, err, d.Errors())
		}
	}
}

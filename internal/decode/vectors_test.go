package decode

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/frame"
)

// vectorCases make api/vectors/columns, the columns that a spec makes of records, and api/vectors/frames, the same
// as bytes on the wire. api/vectors/README.md describes the files.
var vectorCases = []struct {
	name, decode string
	perBatch     int
	records      []string
	spans        int
}{
	{"click_log", `
format: tsv
columns:
- {name: label, path: 0, dtype: float32}
- {name: dense, paths: ["1..3"], dtype: float32, default: "0"}
- {name: cat, paths: ["4..6"], dtype: int64, hash: {buckets: 1000, salt: ctr}}
`, 2, []string{"1\t5\t\t0.5\t68fd1e64\t\t80e26c9b", "0\t-1\t1e3\t16777217\ta\tb\tc", "1\t1\t2\t3\tx\ty\tz"}, 2},
	{"every_dtype", `
format: json
columns:
- {name: flag, path: /flag, dtype: bool, missing: mask}
- {name: i32, path: /i32, dtype: int32, missing: mask}
- {name: i64, path: /i64, dtype: int64}
- {name: f32, path: /f32, dtype: float32}
- {name: f64, path: /f64, dtype: float64}
- {name: text, path: /text, dtype: string, default: "none", missing: mask}
- {name: raw, path: $value, dtype: bytes}
- {name: full_hash, path: /text, dtype: int64, hash: {buckets: 0, salt: s}, default: "-1"}
`, 4, []string{
		`{"flag":true,"i32":-2147483648,"i64":9223372036854775807,"f32":0.1,"f64":0.1,"text":"Zürich \u65e5\n"}`,
		`{"flag":false,"i32":2147483647,"i64":-9223372036854775808,"f32":3.4028235e38,"f64":1.7976931348623157e308,"text":""}`,
		`{"flag":null,"i64":9007199254740993,"f32":-0.0,"f64":5e-324}`,
	}, 1},
	{"ragged", `
format: csv
fields: [ids, words, blobs, numbers]
columns:
- {name: ids, path: ids, dtype: int64, split: "|", weights: ":", max: 3}
- {name: words, path: words, dtype: string, split: " ", missing: mask}
- {name: blobs, path: blobs, dtype: bytes, split: "|"}
- {name: numbers, path: numbers, dtype: float64, split: "|", default: "nan"}
- {name: hashed, path: words, dtype: int64, split: " ", hash: {buckets: 10}}
`, 3, []string{"1:0.5|2|3:0|4,alpha beta,x,1", `7,"two  words",a||b,1|-inf|`, ",,,", "9:1e-3,x,\"q\"\"\",nan"}, 1},
	{"binary", `
format: binary
record_size: 40
columns:
- {name: id, dtype: int64}
- {name: x, dtype: float32, shape: [2, 3]}
- {name: ok, dtype: bool, missing: mask}
- {name: y, dtype: int32, offset: 36}
- {name: tag, dtype: bytes, shape: [3], offset: 33}
`, 2, []string{
		"\xff\xff\xff\xff\xff\xff\xff\x7f" + "\x00\x00\x80\x3f\x00\x00\x20\xc0\x00\x00\xc0\x7f\x00\x00\x80\xff\x01\x00\x00\x00\x00\x00\x00\x80" + "\x01" + "abc" + "\x00\x00\x00\x80",
		"\x01\x00\x00\x00\x00\x00\x00\x00" + strings.Repeat("\x00", 24) + "\x00" + "\xff\x00 " + "\x2a\x00\x00\x00",
		strings.Repeat("\x00", 40),
	}, 1},
	{"one_row", "format: lines\ncolumns:\n- {name: line, path: $value, dtype: string}\n", 1024, []string{"a line"}, 1},
}

type vector struct {
	Name    string           `json:"name"`
	Spec    *json.RawMessage `json:"decode,omitempty"`
	Records []string         `json:"records,omitempty"`
	Bytes   [][]byte         `json:"records_base64,omitempty"`
	Schema  *frame.Schema    `json:"schema,omitempty"`
	Head    *vectorHead      `json:"head,omitempty"`
	Spans   []frame.Span     `json:"spans,omitempty"`
	Names   *json.RawMessage `json:"names,omitempty"`
	Offsets []int64          `json:"offsets"`
	Columns map[string]any   `json:"columns"`
	Masks   map[string][]int `json:"masks"`
	Payload string           `json:"payload_base64,omitempty"`
}

type vectorHead struct {
	Rows         int    `json:"rows"`
	Batches      int    `json:"batches"`
	RowsPerBatch int    `json:"rows_per_batch"`
	FirstBatch   uint32 `json:"first_batch"`
	Last         bool   `json:"last"`

	Times []frame.Times `json:"times,omitempty"` // for each piece
}

func TestColumnAndFrameVectors(t *testing.T) {
	for _, c := range vectorCases {
		t.Run(c.name, func(t *testing.T) {
			spec := parse(t, c.decode)
			d, err := Compile(spec)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := d.NewBuilder(len(c.records))
			batch := lines(c.records...)
			if n, err := d.Append(b, batch, 0, len(c.records)); err != nil || n != len(c.records) {
				t.Fatal(n, err)
			}
			spans := make([]frame.Span, c.spans)
			for i := range spans {
				at := int64(1000 * i)
				spans[i] = frame.Span{Rows: 1, Partition: 7, Pass: uint32(i), Dataset: 3, Segment: 3, Start: at, End: at + 100, LeaseFrom: at, LeaseTo: at + 128,
					Epoch: 1, Term: 2, Sequence: uint64(1)<<63 + uint64(i), EventTime: 1700000000123}
			}
			spans[len(spans)-1].Rows = uint32(len(c.records) - len(spans) + 1)
			names := json.RawMessage(`{"partitions": {"7": "files:clicks"}, "segments": {"7/3": "day_3.tsv"}}`)
			head := frame.Head{RowsPerBatch: c.perBatch, FirstBatch: 41, Last: c.spans == 1, Names: names}
			if c.spans > 1 {
				for i := range int64(frame.Pieces(c.perBatch, spans)) {
					head.Times = append(head.Times, frame.Times{Oldest: 1699999999000 - i, Newest: 1700000000123})
				}
			}
			payload, err := b.Finish(head, spans)
			if err != nil {
				t.Fatal(err)
			}
			f, err := frame.Read(d.Layout(), payload)
			if err != nil {
				t.Fatal(err)
			}
			v := vector{Name: c.name, Offsets: f.Offsets, Columns: map[string]any{}, Masks: map[string][]int{}}
			for i := range f.Columns {
				v.show(&f.Columns[i], f.Rows)
			}
			wire := v
			text, err := json.Marshal(spec.Decode)
			if err != nil {
				t.Fatal(err)
			}
			v.Spec, v.Records = (*json.RawMessage)(&text), c.records
			if spec.Decode.Format == "binary" {
				v.Records, v.Bytes = nil, toBytes(c.records)
			}
			golden(t, filepath.Join(vectors, "columns", c.name+".json"), v)
			schema := d.Schema()
			s := frame.SchemaOf(&schema)
			wire.Schema, wire.Spans, wire.Names = &s, spans, &names
			wire.Head = &vectorHead{f.Rows, f.Batches, f.RowsPerBatch, f.FirstBatch, f.Last, f.Times}
			wire.Payload = base64.StdEncoding.EncodeToString(payload)
			golden(t, filepath.Join(vectors, "frames", c.name+".json"), wire)
		})
	}
}

func toBytes(records []string) [][]byte {
	all := make([][]byte, len(records))
	for i, r := range records {
		all[i] = []byte(r)
	}
	return all
}

// show writes a column in a form that JSON can hold: integers exactly, floats so that they read back the same,
// bytes as base64.
func (v *vector) show(c *frame.Received, rows int) {
	name := c.Layout.Field.Name
	list := make([]any, rows)
	for r := range rows {
		list[r] = showJSON(c.Row(r))
	}
	v.Columns[name] = list
	if c.Mask != nil {
		for _, m := range c.Mask {
			v.Masks[name] = append(v.Masks[name], int(m))
		}
	}
}

func showJSON(v any) any {
	switch v := v.(type) {
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = showJSON(v[i])
		}
		return list
	case float32:
		return showFloat(float64(v), 32)
	case float64:
		return showFloat(v, 64)
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	}
	return v
}

func showFloat(v float64, bits int) any {
	switch {
	case math.IsNaN(v):
		return "nan"
	case math.IsInf(v, 1):
		return "inf"
	case math.IsInf(v, -1):
		return "-inf"
	}
	return json.Number(strconv.FormatFloat(v, 'g', -1, bits))
}

func readVector(t *testing.T, name string) (v vector) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// The written files are decoded here without the code that has made them.
func TestFrameVectorsReadBack(t *testing.T) {
	for _, c := range vectorCases {
		v := readVector(t, filepath.Join(vectors, "frames", c.name+".json"))
		fields, err := v.Schema.Fields()
		if err != nil {
			t.Fatal(err)
		}
		l, err := frame.NewLayout(fields)
		if err != nil {
			t.Fatal(err)
		}
		payload, err := base64.StdEncoding.DecodeString(v.Payload)
		if err != nil {
			t.Fatal(err)
		}
		f, err := frame.Read(l, payload)
		if err != nil {
			t.Fatal(err)
		}
		if f.Rows != v.Head.Rows || len(f.Spans) != len(v.Spans) || f.Spans[0] != v.Spans[0] || !bytes.Contains(f.Names, []byte("files:clicks")) {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
}

// dataset.FromJSON reads the JSON specs in columns/.
func TestColumnVectorsDecodeFromTheirFiles(t *testing.T) {
	for _, c := range vectorCases {
		v := readVector(t, filepath.Join(vectors, "columns", c.name+".json"))
		var decode dataset.DecodeSpec
		if err := json.Unmarshal(*v.Spec, &decode); err != nil {
			t.Fatal(err)
		}
		d, err := Compile(&dataset.Spec{Name: c.name, Decode: decode})
		if err != nil {
			t.Fatal(err)
		}
		if f, err := decodeAll(t, d, batchOf(append(v.Bytes, toBytes(v.Records)...)...)); err != nil || f.Rows != len(v.Offsets) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

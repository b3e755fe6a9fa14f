package decode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
)

// clickLines makes the records that BenchmarkTSV and BenchmarkJSON read: clicks of 13 numbers and 26
// categories, as in Criteo's log. About 10 % of the numbers are absent.
func clickLines(format string, n int) [][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	lines := make([][]byte, n)
	for i := range lines {
		var b bytes.Buffer
		num := func() string {
			if r.IntN(10) == 0 {
				return ""
			}
			return strconv.Itoa(int(r.ExpFloat64() * 50))
		}
		if format == "tsv" {
			fmt.Fprintf(&b, "%d", r.IntN(2))
			for range 13 {
				b.WriteString("\t" + num())
			}
			for range 26 {
				fmt.Fprintf(&b, "\t%08x", r.Uint32())
			}
		} else {
			fmt.Fprintf(&b, `{"label":%d`, r.IntN(2))
			for k := range 13 {
				v := num()
				if v == "" {
					v = "null"
				}
				fmt.Fprintf(&b, `,"I%d":%s`, k+1, v)
			}
			for k := range 26 {
				fmt.Fprintf(&b, `,"C%d":"%08x"`, k+1, r.Uint32())
			}
			b.WriteString("}")
		}
		lines[i] = b.Bytes()
	}
	return lines
}

func clickSpec(format string) *dataset.Spec {
	zero := "0"
	label, nums, cats := "0", []string{"1..13"}, []string{"14..39"}
	if format == "json" {
		label, nums, cats = "/label", nil, nil
		for i := range 13 {
			nums = append(nums, fmt.Sprintf("/I%d", i+1))
		}
		for i := range 26 {
			cats = append(cats, fmt.Sprintf("/C%d", i+1))
		}
	}
	return &dataset.Spec{Name: "clicks", Decode: dataset.DecodeSpec{Format: format, Columns: []dataset.Column{
		{Name: "label", Path: label, DType: "float32"},
		{Name: "num", Paths: nums, DType: "float32", Default: &zero},
		{Name: "cat", Paths: cats, DType: "int64", Hash: &dataset.Hash{Buckets: 1 << 20, Salt: ""}},
	}}}
}

// batchOf lays lines out as a source does: in one arena, with their line ends.
func batchOf(lines ...[]byte) *sources.Batch {
	b := &sources.Batch{}
	for _, l := range lines {
		at := int32(len(b.Arena))
		b.Arena = append(append(b.Arena, l...), '\n')
		b.Recs = append(b.Recs, sources.Record{Offset: int64(at), Next: int64(len(b.Arena)), Value: [2]int32{at, at + int32(len(l))}})
	}
	b.End = int64(len(b.Arena))
	return b
}

func benchmarkDecode(b *testing.B, format string) {
	lines := clickLines(format, 4096)
	batch := batchOf(lines...)
	d, err := Compile(clickSpec(format))
	if err != nil {
		b.Fatal(err)
	}
	out, err := d.NewBuilder(len(lines))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(batch.Arena)))
	for b.Loop() {
		out.Reset()
		if n, err := d.Append(out, batch, 0, len(lines)); err != nil || n != len(lines) {
			b.Fatal(n, err)
		}
	}
	perRecord(b, len(lines))
}

func perRecord(b *testing.B, n int) {
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrec/s")
}

func BenchmarkTSV(b *testing.B)  { benchmarkDecode(b, "tsv") }
func BenchmarkJSON(b *testing.B) { benchmarkDecode(b, "json") }

// BenchmarkTSVSplitAndStrconv reads the same columns with the standard library.
func BenchmarkTSVSplitAndStrconv(b *testing.B) {
	lines := clickLines("tsv", 4096)
	num, cat := make([]float32, 13*len(lines)), make([]int64, 26*len(lines))
	for b.Loop() {
		for i, l := range lines {
			fields := bytes.Split(l, []byte{'\t'})
			for k := range 13 {
				if len(fields[1+k]) > 0 {
					v, _ := strconv.ParseFloat(string(fields[1+k]), 32)
					num[i*13+k] = float32(v)
				}
			}
			for k := range 26 {
				cat[i*26+k] = int64(xxhash.Sum64(fields[14+k]) & (1<<20 - 1))
			}
		}
	}
	perRecord(b, len(lines))
}

func BenchmarkJSONUnmarshal(b *testing.B) {
	lines := clickLines("json", 4096)
	num, cat := make([]float32, 13*len(lines)), make([]int64, 26*len(lines))
	for b.Loop() {
		for i, l := range lines {
			var m map[string]any
			if err := json.Unmarshal(l, &m); err != nil {
				b.Fatal(err)
			}
			for k := range 13 {
				v, _ := m["I"+strconv.Itoa(k+1)].(float64)
				num[i*13+k] = float32(v)
			}
			for k := range 26 {
				s, _ := m["C"+strconv.Itoa(k+1)].(string)
				cat[i*26+k] = int64(xxhash.Sum64String(s) & (1<<20 - 1))
			}
		}
	}
	perRecord(b, len(lines))
}

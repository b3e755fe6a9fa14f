package decode

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
)

// shortened returns the same entries with 16 bits each.
func shortened(entries []uint32) []uint16 {
	short := make([]uint16, len(entries))
	for i, e := range entries {
		short[i] = uint16(e)
	}
	return short
}

func TestValuesOfADictionaryAreLookedUpForValidRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 70 {
		vals := make([]float32, 1+rng.IntN(40))
		for i := range vals {
			vals[i] = rng.Float32()
		}
		for _, share := range []float32{0, 0.1, 0.5, 0.9, 1} {
			var want, all []float32
			var index []uint32
			valid := make([]byte, n)
			for i := range valid {
				if want = append(want, -7); rng.Float32() < share {
					k := rng.IntN(len(vals))
					valid[i], want[i] = 1, vals[k]
					index, all = append(index, uint32(k)), append(all, vals[k])
				}
			}
			got := make([]float32, n+1)
			lookUpValid(got[:n], vals, index, valid, -7)
			again := make([]float32, n+1)
			if lookUpValid(again[:n], vals, shortened(index), valid, -7); !slices.Equal(again, got) {
				t.Fatalf("valid rows %v became %v, want %v", valid, again, got)
			}
			if !slices.Equal(got[:n], want) || got[n] != 0 {
				t.Fatalf("valid rows %v became %v, want %v", valid, got, want)
			}
			got = make([]float32, len(index)+1)
			if lookUp(got[:len(index)], vals, shortened(index)); !slices.Equal(got[:len(index)], all) || got[len(index)] != 0 {
				t.Fatalf("%v became %v, want %v", index, got, all)
			}
			clear(got)
			lookUp(got[:len(index)], vals, index)
			if !slices.Equal(got[:len(index)], all) || got[len(index)] != 0 {
				t.Fatalf("%v became %v, want %v", index, got, all)
			}
		}
	}
}

// The values of a dictionary are the same, whatever the number of bytes in which they are kept.
func TestValuesOfALargeDictionaryAreThoseOfTheFile(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, test := range []struct {
		n           int
		most, last  int64 // the upper limit of the values, and the last value
		tiny, short bool
	}{
		{leastShort - 1, math.MaxUint16, 1, false, false},
		{leastShort, math.MaxUint16, math.MaxUint16, true, false},
		{leastShort, math.MaxUint16, math.MaxUint16 + 1, false, true},
		{leastShort, math.MaxUint16, -1, false, true},
		{leastShort, math.MaxUint16, math.MaxInt64, false, false},
		{leastShort, math.MaxInt32, math.MaxInt32, false, true},
		{leastShort, math.MaxInt32, math.MinInt32, false, true},
		{leastShort, math.MaxInt32, math.MaxInt32 + 1, false, false},
		{leastShort, math.MaxInt32, math.MinInt32 - 1, false, false},
		{leastShort, math.MaxInt32, math.MaxInt64, false, false},
		{3 * leastShort, math.MaxInt32, -1, false, true}, // replaces the dictionary before it, as in the next piece of a column
		{3 * leastShort, math.MaxUint16, 0, true, false},
	} {
		c := &column{dtype: dataset.Int64}
		for range 2 {
			vals := make([]int64, test.n)
			for i := range vals {
				if vals[i] = rng.Int64N(test.most + 1); test.most == math.MaxInt32 && i%2 == 1 {
					vals[i] = ^vals[i]
				}
			}
			vals[test.n-1] = test.last
			col := &sources.Column{Kind: sources.Int64Values, Dict: &sources.Dictionary{Len: test.n, Values: bitsAs[byte](vals)}}
			for range 1000 + rng.IntN(10) {
				col.Entries = append(col.Entries, uint32(rng.IntN(test.n)))
			}
			col.Entries = append(col.Entries, uint32(test.n-1))
			got := make([]int64, len(col.Entries)+1)
			if !plainRows(&Decoder{}, c, 0, &feed{col: col}, got[:len(col.Entries)], nil, len(col.Entries), 0) {
				t.Fatal("a value was reported as bad")
			}
			for i, k := range col.Entries {
				if got[i] != vals[k] {
					t.Fatalf("value %d is %d, want %d", i, got[i], vals[k])
				}
			}
			if got[len(col.Entries)] != 0 {
				t.Fatal("values were written beyond the rows")
			}
			again := make([]int64, len(got))
			inShort := *col
			inShort.Entries, inShort.Short = nil, shortened(col.Entries)
			if !plainRows(&Decoder{}, c, 0, &feed{col: &inShort}, again[:len(got)-1], nil, len(got)-1, 0) || !slices.Equal(again, got) {
				t.Fatal("with entries of 16 bits the values differ")
			}
			if known := dictionaryOf[int64](c, 0, col); (len(known.tiny) > 0) != test.tiny || (len(known.short) > 0) != test.short {
				t.Errorf("%d values up to %d and %d: %d are tiny, %d short", test.n, test.most, test.last, len(known.tiny), len(known.short))
			}
		}
	}
}

// Entries of a dictionary may have 32 bits or 16. Every kind of column gets the same values.
func TestRowsAreTheSameInHoweverManyBitsTheirEntriesAre(t *testing.T) {
	const rows = 300
	rng := rand.New(rand.NewPCG(5, 6))
	words, ends := texts("a", "bb", "\xff", "2026-01-02T03:04:05Z", "")
	numbers := &sources.Dictionary{Len: 4, Values: int64s(4, 1<<40, 1, -1)}
	of := &sources.Dictionary{Len: 5, Values: words, Offsets: ends}
	batch := func() *sources.Batch {
		return &sources.Batch{FirstRow: 5, Rows: rows, End: 5 + rows, Columns: []sources.Column{
			{Path: "/n", Kind: sources.Int64Values, Dict: numbers}, {Path: "/s", Kind: sources.BytesValues, Dict: of},
			{Path: "/l/*", Kind: sources.Int64Values, List: true, Dict: numbers}, {Path: "/w/*", Kind: sources.BytesValues, List: true, Dict: of},
			{Path: "/t", Kind: sources.BytesValues, Dict: of}, {Path: "/d", Kind: sources.Int64Values, TicksPerSecond: 1000, Dict: numbers}}}
	}
	long, short := batch(), batch()
	for i := range long.Columns {
		a, b := &long.Columns[i], &short.Columns[i]
		slots := rows
		if a.List {
			slots = 0
			for range rows {
				slots += rng.IntN(4)
				a.Ends = append(a.Ends, int32(slots))
			}
		}
		for range slots {
			valid := byte(min(rng.IntN(8), 1))
			if a.Valid = append(a.Valid, valid); valid == 1 {
				a.Entries = append(a.Entries, uint32(rng.IntN(a.Dict.Len)))
			}
		}
		b.Ends, b.Valid, b.Short = a.Ends, a.Valid, shortened(a.Entries)
	}
	for _, columns := range [][]string{
		{"{name: n, path: n, dtype: int64, default: 7}", "{name: d, path: d, dtype: float32, missing: mask}", "{name: i, path: n, dtype: int32, default: -1}"},
		{"{name: s, path: s, dtype: string, default: bad}", "{name: h, path: s, dtype: int64, default: 0, hash: {buckets: 1000}}", "{name: m, paths: [n, d], dtype: float64, default: 0}"},
		{`{name: l, path: "/l/*", dtype: int32, default: 9}`, `{name: w, path: "/w/*", dtype: string, default: none}`, `{name: f, path: "/l/*", dtype: int64, shape: [2], default: 3}`},
	} {
		var built [2]*Builder
		for k, batch := range []*sources.Batch{long, short} {
			d := columnarDecoder(t, "default\n  event_time: t", columns...)
			b, err := d.NewBuilder(rows)
			if err != nil {
				t.Fatal(err)
			}
			for from := 0; from < rows; {
				n, err := d.Append(b, batch, from, from+1+rng.IntN(90))
				if err != nil || n == 0 {
					t.Fatal(n, err)
				}
				from += n
			}
			built[k] = b
			for row := range rows {
				if v, _ := d.RowJSON(long, row, 1<<20); k == 1 {
					if w, _ := d.RowJSON(short, row, 1<<20); !bytes.Equal(v, w) {
						t.Fatalf("row %d is %s, and %s in 16 bits", row, v, w)
					}
				}
			}
		}
		for i := range built[0].Columns {
			a, b := &built[0].Columns[i], &built[1].Columns[i]
			if !bytes.Equal(a.Values, b.Values) || !bytes.Equal(a.Mask, b.Mask) || !slices.Equal(a.RowOffsets, b.RowOffsets) || !slices.Equal(a.Elements, b.Elements) {
				t.Errorf("%v: column %d differs", columns, i)
			}
		}
		if !slices.Equal(built[0].Times, built[1].Times) || slices.Max(built[0].Times) == 0 {
			t.Errorf("%v: times differ, or there are none", columns)
		}
		if !slices.Equal(built[0].Offsets, built[1].Offsets) || built[0].Offsets[0] != 5 || built[0].Offsets[rows-1] != 4+rows {
			t.Errorf("%v: offsets from %d to %d", columns, built[0].Offsets[0], built[0].Offsets[rows-1])
		}
	}
}

// A text is hashed in place, except if it is in the last bytes of a piece of memory.
func TestTextsAreHashedWhereverTheyLie(t *testing.T) {
	h := newHasher(1<<20, "salt")
	var data []byte
	offsets := []int32{0}
	for n := range 200 {
		data = append(data, bytes.Repeat([]byte{byte(n)}, n%45)...)
		offsets = append(offsets, int32(len(data)))
	}
	data = slices.Clip(data)
	got := make([]int64, len(offsets)-1)
	hashTexts(h, data, offsets, got)
	for i, v := range got {
		if want := h.bytes(bytes.Clone(data[offsets[i]:offsets[i+1]])); v != want {
			t.Errorf("text %d hashes to %d, want %d", i, v, want)
		}
	}
}

// A file's values may begin at any byte.
func TestADictionaryMayLieAnywhere(t *testing.T) {
	values := int64s(5, 6, 1<<40)
	memory := make([]byte, len(values)+8)
	for shift := range 8 {
		d := columnarDecoder(t, "fail", "{name: n, path: n, dtype: int64}")
		b, err := d.NewBuilder(4)
		if err != nil {
			t.Fatal(err)
		}
		at := memory[shift:][:len(values):len(values)]
		copy(at, values)
		batch := &sources.Batch{Rows: 2,
			Columns: []sources.Column{{Path: "/n", Kind: sources.Int64Values, Dict: &sources.Dictionary{Len: 3, Values: at}, Entries: []uint32{2, 0}}}}
		if n, err := d.Append(b, batch, 0, 4); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		if got := unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(b.Columns[0].Values))), 2); got[0] != 1<<40 || got[1] != 5 {
			t.Errorf("shifted by %d bytes: %v", shift, got)
		}
	}
}

// The next dictionary has the same size and reuses the memory of the converted values, so it must be converted
// again.
func TestANewDictionaryIsConvertedAnew(t *testing.T) {
	d := columnarDecoder(t, "fail", "{name: n, path: n, dtype: int64}", "{name: f, path: n, dtype: float64}", "{name: h, path: s, dtype: int64, hash: {buckets: 0}}")
	b, err := d.NewBuilder(4)
	if err != nil {
		t.Fatal(err)
	}
	for round, words := range [][]string{{"a", "b"}, {"c", "d"}, {"e"}} {
		v, ends := texts(words...)
		numbers := &sources.Dictionary{Len: 2, Values: int64s(int64(10*round), int64(10*round+1))}
		batch := &sources.Batch{Rows: 1, Columns: []sources.Column{
			{Path: "/n", Kind: sources.Int64Values, Dict: numbers, Entries: []uint32{1}},
			{Path: "/s", Kind: sources.BytesValues, Dict: &sources.Dictionary{Len: len(words), Values: v, Offsets: ends}, Entries: []uint32{0}}}}
		if n, err := d.Append(b, batch, 0, 4); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		n := unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(b.Columns[0].Values))), 1)[0]
		f := unsafe.Slice((*float64)(unsafe.Pointer(unsafe.SliceData(b.Columns[1].Values))), 1)[0]
		h := unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(b.Columns[2].Values))), 1)[0]
		if want := int64(10*round + 1); n != want || f != float64(want) || h != Hash64([]byte(words[0]), 0, "") {
			t.Errorf("round %d: %d, %g, %d", round, n, f, h)
		}
		b.Reset()
	}
}

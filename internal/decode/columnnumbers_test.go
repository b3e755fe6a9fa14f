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
			if !slices.Equal(got[:n], want) || got[n] != 0 {
				t.Fatalf("valid rows %v became %v, want %v", valid, got, want)
			}
			got = make([]float32, len(index)+1)
			lookUp(got[:len(index)], vals, index)
			if !slices.Equal(got[:len(index)], all) || got[len(index)] != 0 {
				t.Fatalf("%v became %v, want %v", index, got, all)
			}
		}
	}
}

// The values of a dictionary are the same in however many bytes they are kept.
func TestValuesOfALargeDictionaryAreThoseOfTheFile(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, test := range []struct {
		n           int
		most, last  int64 // the last value, and the most that the other ones may be
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
		{3 * leastShort, math.MaxInt32, -1, false, true}, // the dictionary of the next piece of the column
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
				t.Fatal("a value is bad")
			}
			for i, k := range col.Entries {
				if got[i] != vals[k] {
					t.Fatalf("value %d is %d, want %d", i, got[i], vals[k])
				}
			}
			if got[len(col.Entries)] != 0 {
				t.Fatal("more was written")
			}
			if known := dictionaryOf[int64](c, 0, col); (len(known.tiny) > 0) != test.tiny || (len(known.short) > 0) != test.short {
				t.Errorf("%d values up to %d and %d: %d are tiny, %d short", test.n, test.most, test.last, len(known.tiny), len(known.short))
			}
		}
	}
}

// Text is hashed where it lies, except for the last bytes of a piece of memory.
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

// A dictionary of the same size follows, and the memory of what was converted is used again.
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

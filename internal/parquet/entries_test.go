package parquet

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/headrace/headrace/sources"
)

// numbersInRuns writes numbers in runs of random lengths, of one number or bit-packed. In a run of
// one number, it sets all the numbers to the first one.
func numbersInRuns(rng *rand.Rand, all []uint32, width uint) (b []byte) {
	for len(all) > 0 {
		n := min(1+rng.IntN(60), len(all))
		if rng.IntN(3) == 0 {
			for i := range n {
				all[i] = all[0]
			}
			b = binary.AppendUvarint(b, uint64(n)<<1)
			b = append(b, binary.LittleEndian.AppendUint32(nil, all[0])[:(width+7)/8]...)
		} else {
			if n = min(8*(1+rng.IntN(70)), len(all)); n < 8 { // the last group is filled up with zeros
				n = len(all)
			} else {
				n = n / 8 * 8
			}
			packed := make([]byte, (n+7)/8*int(width))
			for i, v := range all[:n] {
				for k := range width {
					at := uint(i)*width + k
					packed[at/8] |= byte(v>>k&1) << (at % 8)
				}
			}
			b = append(binary.AppendUvarint(b, uint64((n+7)/8)<<1|1), packed...)
		}
		all = all[n:]
	}
	return b
}

// The values that are read are those that were written. This holds whether the numbers of a
// dictionary's entries fit into 16 bits or not, and in whatever pieces rows are read or passed.
func TestValuesOfADictionaryOfAnySizeAreThoseThatWereWritten(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	const rows = 5000
	for _, n := range []int{1, 2, 200, 1<<15 + 1, sources.ShortEntries - 1, sources.ShortEntries, sources.ShortEntries + 1, 80_000} {
		for _, typ := range []physical{int64Type, byteArray} {
			col := writtenColumn{name: "v", typ: typ}
			for i := range n {
				v := binary.LittleEndian.AppendUint64(nil, uint64(i)*2654435761)
				if typ == byteArray {
					v = v[:3+i%5]
				}
				col.dict = append(col.dict, v)
			}
			var want [][]byte // nil: null
			for len(want) < rows {
				entries := min(1+rng.IntN(1500), rows-len(want))
				defs := make([]uint32, entries)
				for i := range defs {
					if defs[i] = 1; rng.IntN(10) == 0 {
						defs[i] = 0
					}
				}
				page := writtenPage{entries: entries, encoding: rleDictionary, defs: numbersInRuns(rng, defs, 1)}
				var all []uint32
				for _, d := range defs {
					if d == 1 {
						all = append(all, uint32(rng.IntN(n)))
					}
				}
				width := uint(bits.Len(uint(n-1))) + uint(rng.IntN(3))
				page.values = append([]byte{byte(width)}, numbersInRuns(rng, all, width)...)
				for _, d := range defs {
					if d == 0 {
						want = append(want, nil)
						continue
					}
					want = append(want, col.dict[all[0]])
					all = all[1:]
				}
				col.pages = append(col.pages, page)
			}
			b := writeFile(rows, col)
			rd, err := opened(t, b).Read(bytes.NewReader(b), 0, paths("/v"))
			if err != nil {
				t.Fatal(err)
			}
			cols := make([]sources.Column, 1)
			for rd.Left() > 0 {
				if rng.IntN(4) == 0 {
					if err := rd.Skip(rng.Int64N(min(rd.Left(), 300))); err != nil {
						t.Fatal(err)
					}
				}
				at := int(rd.Row())
				got, err := rd.Next(int(min(rd.Left(), 1+rng.Int64N(2000))), cols)
				if err != nil {
					t.Fatal(err)
				}
				c, value := &cols[0], 0
				if n <= sources.ShortEntries && len(c.Entries) > 0 || n > sources.ShortEntries && len(c.Short) > 0 {
					t.Fatalf("a dictionary of %d entries: %d numbers of 32 bits, %d of 16; want numbers of 16 bits up to %d entries", n, len(c.Entries), len(c.Short), sources.ShortEntries)
				}
				for i, v := range want[at : at+got] {
					if null := len(c.Valid) > 0 && c.Valid[i] == 0; null != (v == nil) {
						t.Fatalf("a dictionary of %d entries: row %d is null: %v, want %v", n, at+i, null, v == nil)
					} else if null {
						continue
					}
					if g := valueOf(c, value); !bytes.Equal(g, v) {
						t.Fatalf("a dictionary of %d entries: row %d is %x, want %x", n, at+i, g, v)
					}
					value++
				}
			}
			rd.Close()
		}
	}
}

// A number that no entry has is an error, even if an entry has the number of its low 16 bits.
func TestANumberThatIsNoEntryIsAnError(t *testing.T) {
	for _, n := range []int{1, 100, sources.ShortEntries, sources.ShortEntries + 1} {
		for _, packed := range []bool{false, true} {
			for _, number := range []uint32{uint32(n - 1), uint32(n), 1 << 16, 1<<16 + 1, 1 << 20} {
				page := writtenPage{entries: 8, encoding: rleDictionary, defs: run(8, 1), values: []byte{24}}
				one := binary.LittleEndian.AppendUint32(nil, number)[:3]
				if packed {
					page.values = append(append(page.values, 3), slices.Repeat(one, 8)...)
				} else {
					page.values = append(append(page.values, 16), one...)
				}
				b := writeFile(8, writtenColumn{name: "v", typ: int64Type, dict: slices.Repeat([][]byte{make([]byte, 8)}, n), pages: []writtenPage{page}})
				rd, err := opened(t, b).Read(bytes.NewReader(b), 0, paths("/v"))
				if err != nil {
					t.Fatal(err)
				}
				_, err = rd.Next(8, make([]sources.Column, 1))
				if bad := number >= uint32(n); bad != (err != nil) || bad && !strings.Contains(err.Error(), "entries of its dictionary") {
					t.Errorf("number %d, %d entries, packed %v: error %v, want an error: %v", number, n, packed, err, bad)
				}
				rd.Close()
			}
		}
	}
}

// A column of entries counts 2 bytes a row, so 40 of them still have many rows in a batch.
func TestABatchOfEntriesIsSizedByTheirNumbers(t *testing.T) {
	const rows = 100_000
	var cols []writtenColumn
	for i := range 40 {
		cols = append(cols, writtenColumn{name: string(rune('A' + i)), typ: int64Type, dict: [][]byte{make([]byte, 8)},
			pages: []writtenPage{{entries: rows, encoding: rleDictionary, defs: run(rows, 1), values: append([]byte{8}, run(rows, 0)...)}}})
	}
	plain := writtenColumn{name: "plain", typ: int64Type, pages: []writtenPage{{entries: rows, encoding: plainEncoding, defs: run(rows, 1), values: make([]byte, 8*rows)}}}
	for _, test := range []struct {
		cols []writtenColumn
		row  int
	}{{cols, 8 + 40*2}, {append(cols, plain), 8 + 40*2 + 8}, {[]writtenColumn{plain}, 8 + 8}} {
		b := writeFile(rows, test.cols...)
		var every []string
		for _, c := range test.cols {
			every = append(every, "/"+c.name)
		}
		rd, err := opened(t, b).Read(bytes.NewReader(b), 0, paths(every...))
		if err != nil {
			t.Fatal(err)
		}
		if n := rd.Batch(rows); n != min(rows, batchBytes/test.row) {
			t.Errorf("%d columns: a batch has %d rows, want %d", len(test.cols), n, batchBytes/test.row)
		}
		rd.Close()
	}
}

// FuzzRuns reads runs in pieces, as numbers of 16 and of 32 bits. They are those of a plain loop.
func FuzzRuns(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	for width := range uint(25) {
		all := make([]uint32, 300)
		for i := range all {
			all[i] = rng.Uint32() & (1<<width - 1)
		}
		f.Add(numbersInRuns(rng, all, width), byte(width), uint32(1)<<width, uint64(width))
	}
	f.Fuzz(func(t *testing.T, b []byte, width byte, n uint32, seed uint64) {
		if width > 32 {
			return
		}
		all, whole := plainRuns(b, uint(width), 3000)
		samePieces[uint32](t, b, uint(width), int(n%(1<<31)), seed, all, whole)
		samePieces[uint16](t, b, uint(width), int(n%(1<<16+1)), seed, all, whole)
	})
}

// plainRuns returns the numbers of runs, up to most of them. whole: they come before any damage.
func plainRuns(b []byte, width uint, most int) (all []uint32, whole bool) {
	for len(all) < most {
		head, k := binary.Uvarint(b)
		if k <= 0 {
			return all, false
		}
		b = b[k:]
		if head&1 == 0 {
			if len(b) < int(width+7)/8 {
				return all, false
			}
			var word [4]byte
			copy(word[:], b[:(width+7)/8])
			v := binary.LittleEndian.Uint32(word[:])
			if uint64(v)>>width != 0 {
				return all, false
			}
			b = b[(width+7)/8:]
			for range min(head>>1, uint64(most)) {
				all = append(all, v)
			}
			continue
		}
		if head>>1 > 1<<32 {
			return all, false
		}
		for i := range min(head>>1*8, uint64(most)) {
			v := uint32(0)
			for k := range width {
				at := uint(i)*width + k
				if at/8 >= uint(len(b)) {
					return all, false
				}
				v |= uint32(b[at/8]>>(at%8)&1) << k
			}
			all = append(all, v)
		}
		b = b[min(uint64(len(b)), head>>1*uint64(width)):]
	}
	return all[:most], true
}

func samePieces[T number](t *testing.T, b []byte, width uint, n int, seed uint64, all []uint32, whole bool) {
	rng := rand.New(rand.NewPCG(seed, seed))
	h := newHybrid(b, width)
	for len(all) > 0 {
		got := make([]T, min(1+rng.IntN(100), len(all)))
		beyond, err := read(&h, got, n)
		if err != nil { // a packed run that is cut off is refused as soon as a piece of it is missing
			if whole {
				t.Fatalf("width %d: %v, and %d numbers follow", width, err, len(all))
			}
			return
		}
		if want := slices.Max(all[:len(got)]) >= uint32(n); beyond != want {
			t.Fatalf("width %d: a number is %d or more: %v, want %v; the numbers are %v", width, n, beyond, want, all[:len(got)])
		} else if !want {
			for i, v := range got {
				if uint32(v) != all[i] {
					t.Fatalf("width %d: number %d, want %d", width, v, all[i])
				}
			}
		}
		all = all[len(got):]
	}
}

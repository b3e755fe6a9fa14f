package parquet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/headrace/headrace/sources"
)

// Of the 300 rows of nulls/pages.parquet (pyarrow; pages of 20 rows) only rows 100 to 199 have
// nulls: x in each third row, word in each seventh. So a batch spans pages with and without.
func TestABatchMaySpanPagesWithNullsAndWithout(t *testing.T) {
	b, err := os.ReadFile("testdata/nulls/pages.parquet")
	if err != nil {
		t.Fatal(err)
	}
	f, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for range 200 {
		rd, err := f.Read(bytes.NewReader(b), 0, paths("/id", "/x", "/word"))
		if err != nil {
			t.Fatal(err)
		}
		if err := rd.Skip(rng.Int64N(120)); err != nil {
			t.Fatal(err)
		}
		cols := make([]sources.Column, 3)
		for rd.Left() > 0 {
			row := int(rd.Row())
			n := int(min(rd.Left(), 1+rng.Int64N(150)))
			if got, err := rd.Next(n, cols); err != nil || got != n {
				t.Fatal(err)
			}
			var value [3]int
			for i := range n {
				for k, null := range []bool{false, row+i >= 100 && row+i < 200 && (row+i)%3 == 0, row+i >= 100 && row+i < 200 && (row+i)%7 == 0} {
					c := &cols[k]
					if there := len(c.Valid) == 0 || c.Valid[i] == 1; there == null {
						t.Fatalf("row %d of %s has a value: %v, want %v", row+i, c.Path, there, !null)
					} else if !there {
						continue
					}
					got := valueOf(c, value[k])
					value[k]++
					switch k {
					case 0:
						if v := binary.LittleEndian.Uint64(got); v != uint64(row+i) {
							t.Fatalf("row %d: id %d", row+i, v)
						}
					case 1:
						if v := math.Float64frombits(binary.LittleEndian.Uint64(got)); v != float64(row+i)/2 {
							t.Fatalf("row %d: x %v", row+i, v)
						}
					default:
						if want := fmt.Sprint("w", (row+i)%11); string(got) != want {
							t.Fatalf("row %d: word %q, want %q", row+i, got, want)
						}
					}
				}
			}
			for k, c := range cols {
				if len(c.Valid) > 0 && sources.CountValid(c.Valid) != value[k] {
					t.Fatalf("%s: CountValid counts %d values, want %d", c.Path, sources.CountValid(c.Valid), value[k])
				}
			}
		}
		rd.Close()
	}
}

// Packed numbers of every width, read in pieces of any length, are those that were packed.
func TestPackedNumbersOfAnyWidthAreReadInAnyPieces(t *testing.T) {
	t.Run("32 bits", func(t *testing.T) { packedNumbers[uint32](t, 1<<31) })
	t.Run("16 bits", func(t *testing.T) { packedNumbers[uint16](t, 1<<16) })
}

// packedNumbers packs random numbers of each width and reads them as T. limit is the largest n that
// read takes for T. A few numbers are limit or more.
func packedNumbers[T number](t *testing.T, limit int) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for width := range uint(33) {
		groups := 1 + rng.IntN(40)
		want := make([]uint32, 8*groups)
		packed := make([]byte, groups*int(width))
		for i := range want {
			if want[i] = uint32(rng.Uint64() & (1<<width - 1)); limit == 1<<16 && rng.IntN(50) > 0 {
				want[i] &= 1<<16 - 1
			}
			for k := range width {
				at := uint(i)*width + k
				packed[at/8] |= byte(want[i]>>k&1) << (at % 8)
			}
		}
		b := append(binary.AppendUvarint(nil, uint64(groups<<1|1)), packed...)
		h := newHybrid(b, width)
		for at := 0; at < len(want); {
			got := make([]T, min(1+rng.IntN(30), len(want)-at))
			most := int(slices.Max(want[at : at+len(got)]))
			too := h
			if beyond, err := read(&too, got, min(most, limit)); err != nil || !beyond {
				t.Fatalf("width %d at %d: the largest number is %d, and read does not report that one is %d or more (%v)", width, at, most, min(most, limit), err)
			}
			if beyond, err := read(&h, got, min(most+1, limit)); err != nil || beyond != (most >= limit) {
				t.Fatalf("width %d at %d: a number is %d or more: %v, and the largest is %d (%v)", width, at, min(most+1, limit), beyond, most, err)
			}
			for i, v := range got {
				if most < limit && uint32(v) != want[at+i] {
					t.Fatalf("width %d: number %d is %d, want %d", width, at+i, v, want[at+i])
				}
			}
			at += len(got)
		}
		if _, err := read(&h, make([]T, 1), limit); err == nil {
			t.Fatalf("width %d: read gives a number after the last one", width)
		}
	}
}

// Levels of one bit are those of their runs, whatever runs these are and in whatever pieces they
// are read.
func TestLevelsOfOneBitAreThoseOfTheirRuns(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for range 500 {
		var runs, want []byte
		for long := 2 + rng.IntN(200); len(want) < 2000; {
			if n := rng.IntN(long); rng.IntN(2) == 0 {
				v := byte(rng.IntN(2))
				runs, want = append(runs, run(n, v)...), append(want, bytes.Repeat([]byte{v}, n)...)
				continue
			}
			groups := rng.IntN(1 + long/8)
			runs = binary.AppendUvarint(runs, uint64(groups<<1|1))
			for range groups {
				b := byte(rng.Uint32())
				runs = append(runs, b)
				for i := range 8 {
					want = append(want, b>>i&1)
				}
			}
		}
		h := newHybrid(runs, 1)
		for at, most := 0, 1+rng.IntN(1000); at < len(want); {
			piece := want[at:min(len(want), at+1+rng.IntN(most))]
			room := bytes.Repeat([]byte{9}, len(piece)+100)
			full, err := h.levels(room[:len(piece)], 1)
			if err != nil || full != sources.CountValid(piece) || !bytes.Equal(room[:len(piece)], piece) {
				t.Fatalf("levels from %d on: %v with %d full (%v), want %v", at, room[:len(piece)], full, err, piece)
			}
			if slices.Max(room[len(piece):]) != 9 || slices.Min(room[len(piece):]) != 9 {
				t.Fatalf("levels from %d on: more than %d were written", at, len(piece))
			}
			at += len(piece)
		}
		if _, err := h.levels(make([]byte, 1), 1); err == nil {
			t.Fatal("levels gives a level after the last one")
		}
	}
	for _, damaged := range [][]byte{append(run(8, 2), run(8, 0)...), {3, 0}, run(8, 1)[:1], {0x80, 0x80, 0x80}} {
		h := newHybrid(append(run(5, 1), damaged...), 1)
		if _, err := h.levels(make([]byte, 1000), 1); err == nil {
			t.Errorf("the damaged run %v gives levels, want an error", damaged)
		}
	}
}

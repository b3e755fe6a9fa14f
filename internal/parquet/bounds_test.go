package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/sources"
)

// taking is how many bytes f allocates.
func taking(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

func bytesOf(cols []sources.Column) (n int) {
	for _, c := range cols {
		n += len(c.Values) + len(c.Valid) + 4*(len(c.Ends)+len(c.Offsets)+len(c.Entries)) + 2*len(c.Short)
	}
	return n
}

func opened(t testing.TB, b []byte) *File {
	t.Helper()
	f, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// padded is a column of lists of 1,000 numbers, nearly all of them 0.
func padded(name string, rows int) writtenColumn {
	c := writtenColumn{name: name, typ: int64Type, list: true, dict: [][]byte{make([]byte, 8)}}
	reps := append(run(1, 0), run(999, 1)...)
	const perPage = 500
	for range rows / perPage {
		c.pages = append(c.pages, writtenPage{entries: perPage * 1000, encoding: rleDictionary,
			reps: bytes.Repeat(reps, perPage), defs: run(perPage*1000, 3), values: append([]byte{8}, run(perPage*1000, 0)...)})
	}
	return c
}

func TestABatchOfListsIsBoundedInBytes(t *testing.T) {
	const rows = 4000
	b := writeFile(rows, padded("a", rows), padded("b", rows), padded("c", rows), padded("d", rows))
	f := opened(t, b)
	if len(b) > 1<<20 {
		t.Fatalf("the file has %d bytes, want at most 1 MiB", len(b))
	}
	for _, ask := range []func(rd *Reader) int{
		func(rd *Reader) int { return rd.Batch(16 << 10) },
		func(rd *Reader) int { return int(rd.Left()) }, // far more than Batch would ask for
	} {
		rd, err := f.Read(bytes.NewReader(b), 0, paths("/a/*", "/b/*", "/c/*", "/d/*"))
		if err != nil {
			t.Fatal(err)
		}
		cols := make([]sources.Column, 4)
		total, most := 0, 0
		took := taking(func() {
			for rd.Left() > 0 {
				n, err := rd.Next(ask(rd), cols)
				if err != nil {
					t.Fatal(err)
				}
				for i := range cols {
					if len(cols[i].Ends) != n || int(cols[i].Ends[n-1]) != 1000*n || len(cols[i].Short) != 1000*n {
						t.Fatalf("column %d of %d rows has %d ends and %d entries, want 1,000 entries a row", i, n, len(cols[i].Ends), len(cols[i].Short))
					}
				}
				total += n
				most = max(most, bytesOf(cols))
			}
		})
		if total != rows || most > mostBytes+4<<20 || took > 200<<20 {
			t.Errorf("%d rows, batches of up to %d bytes, %d MiB taken; want %d rows, %d bytes and 200 MiB at most", total, most, took>>20, rows, mostBytes+4<<20)
		}
	}
}

// Whatever the bounds, the rows are those that were written. One column has lists of texts, some
// of them long, on pages that divide rows, with a dictionary or without. The other one needs less.
func TestRowsAreTheSameWhateverABatchHasRoomFor(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, seed))
	for range 8 {
		rows := make([][][]byte, 1+rng.IntN(60))
		small := make([][][]byte, len(rows))
		for i := range rows {
			if rng.IntN(8) > 0 {
				rows[i] = [][]byte{}
			}
			for range rng.IntN(1 + rng.IntN(20)) {
				if rows[i] = append(rows[i], nil); rng.IntN(5) > 0 {
					rows[i][len(rows[i])-1] = bytes.Repeat([]byte{byte('a' + rng.IntN(3))}, rng.IntN(2)*100_000+rng.IntN(3))
				}
			}
			small[i] = [][]byte{binary.LittleEndian.AppendUint64(nil, uint64(i))}
		}
		texts, numbers := writtenColumn{name: "texts", typ: byteArray, list: true, dict: [][]byte{}}, writtenColumn{name: "numbers", typ: int64Type, list: true}
		perPage, values := 1+rng.IntN(30), writtenColumn{typ: byteArray}
		pagesOf(&texts, rows, perPage, math.MaxInt)
		pagesOf(&values, rows, perPage, 0)
		for i := range texts.pages {
			if rng.IntN(2) == 0 {
				texts.pages[i] = values.pages[i]
			}
		}
		pagesOf(&numbers, small, 7, 0)
		b := writeFile(int64(len(rows)), texts, numbers)
		f := opened(t, b)
		read := func(most int, skip bool) (all []string) {
			rd, err := f.Read(bytes.NewReader(b), 0, paths("/texts/*", "/numbers/*"))
			if err != nil {
				t.Fatal(err)
			}
			cols := make([]sources.Column, 2)
			for rd.Left() > 0 {
				if n := rng.Int64N(rd.Left()); skip && rng.IntN(2) == 0 {
					if err := rd.Skip(n); err != nil {
						t.Fatal(err)
					}
					all = append(all, make([]string, n)...)
				}
				n, err := rd.Next(min(most, int(rd.Left())), cols)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, rowsOf(cols, n)...)
			}
			return all
		}
		want := make([]string, len(rows))
		for i, row := range rows {
			want[i] = "/texts/*="
			for _, v := range row {
				if v == nil {
					want[i] += "null,"
				} else {
					want[i] += fmt.Sprintf("%x,", v)
				}
			}
			want[i] += fmt.Sprintf(";/numbers/*=%x,;", small[i][0])
		}
		for _, got := range [][]string{read(1, false), read(1000, false), read(1000, true), read(5, true)} {
			if len(got) != len(want) {
				t.Fatalf("%d rows, want %d", len(got), len(want))
			}
			for i := range got {
				if got[i] != "" && got[i] != want[i] {
					t.Fatalf("row %d of %d differs", i, len(rows))
				}
			}
		}
	}
}

// A row begins with values, and goes on with entries of a dictionary.
func TestADictionaryMayBeginInTheMiddleOfARow(t *testing.T) {
	row := [][]byte{[]byte("one"), []byte("two"), nil, []byte("two"), []byte("three"), []byte("one")}
	rows := [][][]byte{row, row[1:2], {}, row}
	texts, values := writtenColumn{name: "texts", typ: byteArray, list: true, dict: [][]byte{}}, writtenColumn{typ: byteArray}
	pagesOf(&texts, rows, 4, math.MaxInt)
	pagesOf(&values, rows, 4, 0)
	for i := 0; i < len(texts.pages); i += 2 {
		texts.pages[i] = values.pages[i]
	}
	b := writeFile(int64(len(rows)), texts)
	f := opened(t, b)
	const whole = "/texts/*=6f6e65,74776f,null,74776f,7468726565,6f6e65,;"
	for _, limit := range []int64{0, 1000} {
		rd, err := f.Read(bytes.NewReader(b), 0, paths("/texts/*"))
		if err != nil {
			t.Fatal(err)
		}
		rd.Bound(limit, nil)
		var got []string
		for cols := make([]sources.Column, 1); rd.Left() > 0; {
			n, err := rd.Next(int(rd.Left()), cols)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, rowsOf(cols, n)...)
		}
		if want := []string{whole, "/texts/*=74776f,;", "/texts/*=;", whole}; !slices.Equal(got, want) {
			t.Errorf("limit %d: rows %q, want %q", limit, got, want)
		}
	}
	rd, err := f.Read(bytes.NewReader(b), 0, paths("/texts/*"))
	if err != nil {
		t.Fatal(err)
	}
	rd.Bound(20, nil)
	if _, err := rd.Next(1, make([]sources.Column, 1)); err == nil || !strings.Contains(err.Error(), "row 0 takes") {
		t.Errorf("with a bound of 20 bytes: %v, want that row 0 takes more", err)
	}
}

// A column that is full in the middle of its first row goes on by more than an entry at a time.
func TestAFullColumnGoesOnInStretches(t *testing.T) {
	col := &sources.Column{Kind: sources.BytesValues, List: true, Valid: make([]byte, 5000), Entries: make([]uint32, 5000)}
	col.Dict = &sources.Dictionary{Len: 1, Values: []byte("x"), Offsets: []int32{0, 1}}
	c := &chunk{coding: inDict, dict: col.Dict, longest: 1, entries: 100_000, entry: 10}
	for most, want := range map[int]int{1 << 20: stretch, 1000: fullStretch} {
		if k, full := c.stretch(col, most); k != want || full != (want == fullStretch) {
			t.Errorf("with room for %d bytes: %d entries, full %v; want %d entries", most, k, full, want)
		}
	}
	c.entries = 13
	if k, full := c.stretch(col, 1000); k != 3 || !full {
		t.Errorf("%d entries, full %v; want the 3 that are left, and full", k, full)
	}
	// Long texts: about as many bytes as a stretch may have, and one text in any case.
	col = &sources.Column{Kind: sources.BytesValues, List: true, Values: make([]byte, 5000), Offsets: []int32{0, 5000}}
	c = &chunk{leaf: &node{}, entries: 100, vals: values{offsets: make([]int32, 101)}}
	for i := range c.vals.offsets {
		c.vals.offsets[i] = int32(i) * (300 << 10)
	}
	if k, full := c.stretch(col, 1000); k < 1 || k > 3 || !full {
		t.Errorf("%d texts of 300 KiB, full %v; want 1 to 3, and full", k, full)
	}
}

// endless writes three rows: a number, a list, and a number. The list has 2^26 nulls on each of
// its pages, and each of these pages has a few bytes.
func endless(pages int) []byte {
	c := writtenColumn{name: "nums", typ: int64Type, list: true}
	pagesOf(&c, [][][]byte{{{1, 2, 3, 4, 5, 6, 7, 8}}}, 1, 0)
	for i := range pages {
		p := writtenPage{entries: maxEntries, encoding: plainEncoding, reps: run(maxEntries, 1), defs: run(maxEntries, 2)}
		if i == 0 {
			p.reps = append(run(1, 0), run(maxEntries-1, 1)...)
		}
		c.pages = append(c.pages, p)
	}
	pagesOf(&c, [][][]byte{{{8, 7, 6, 5, 4, 3, 2, 1}}}, 1, 0)
	return writeFile(3, c)
}

func TestARowOverTheLimitIsToldAfterTheRowsBeforeIt(t *testing.T) {
	b := endless(2)
	f := opened(t, b)
	cols := make([]sources.Column, 1)
	rd, err := f.Read(bytes.NewReader(b), 0, paths("/nums/*"))
	if err != nil {
		t.Fatal(err)
	}
	rd.Bound(16<<20, nil)
	took := taking(func() {
		if n, err := rd.Next(3, cols); n != 1 || err != nil {
			t.Errorf("%d rows, %v; want the row before the large one", n, err)
		}
		_, err = rd.Next(2, cols)
	})
	large, ok := errors.AsType[*RowTooLarge](err)
	if !ok || large.Row != 1 || large.Column != "/nums/*" || !rd.Failed() {
		t.Errorf("%v; want that row 1 is too large", err)
	}
	if took > 150<<20 {
		t.Errorf("%d MiB were taken, want at most 150", took>>20)
	}
	took = taking(func() {
		if rd, err = f.Read(bytes.NewReader(b), 0, paths("/nums/*")); err != nil {
			t.Fatal(err)
		}
		if err := rd.Skip(2); err != nil {
			t.Fatal(err)
		}
		if n, err := rd.Next(1, cols); n != 1 || err != nil || rowsOf(cols, 1)[0] != "/nums/*=0807060504030201,;" {
			t.Error(n, err)
		}
	})
	if took > 16<<20 {
		t.Errorf("%d MiB were taken to pass the large row, want at most 16", took>>20)
	}
}

func TestARowsBytesAreThoseOfAllItsColumns(t *testing.T) {
	text := func(n int) []byte { return bytes.Repeat([]byte("a"), n) }
	a, c := writtenColumn{name: "a", typ: byteArray, list: true}, writtenColumn{name: "c", typ: byteArray, list: true}
	pagesOf(&a, [][][]byte{{text(600)}, {text(300)}, {text(600)}}, 2, 9)
	pagesOf(&c, [][][]byte{{text(300)}, {text(600)}, {text(500)}}, 2, 0)
	b := writeFile(3, a, c)
	rd, err := opened(t, b).Read(bytes.NewReader(b), 0, paths("/a/*", "/c/*", "/absent"))
	if err != nil {
		t.Fatal(err)
	}
	rd.Bound(1000, nil)
	cols := make([]sources.Column, 3)
	if n, err := rd.Next(3, cols); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	_, err = rd.Next(1, cols)
	if large, ok := errors.AsType[*RowTooLarge](err); !ok || *large != (RowTooLarge{2, "/a/*", 1108}) {
		t.Errorf("%v; want that row 2 takes 1,108 bytes, most of them in /a/*", err)
	}
}

func TestReadingEndsWhenItIsNoLongerWanted(t *testing.T) {
	b := endless(40)
	rd, err := opened(t, b).Read(bytes.NewReader(b), 0, paths("/nums/*"))
	if err != nil {
		t.Fatal(err)
	}
	stop, asked := errors.New("stop"), 0
	rd.Bound(0, func() error {
		if asked++; asked == 3 {
			return stop
		}
		return nil
	})
	if err := rd.Skip(2); !errors.Is(err, stop) {
		t.Error(err)
	}
	if err := rd.Skip(1); !errors.Is(err, stop) {
		t.Errorf("it goes on: %v", err)
	}
	if n, err := rd.Next(1, make([]sources.Column, 1)); !errors.Is(err, stop) {
		t.Errorf("it goes on with %d rows: %v", n, err)
	}
}

// drain reads a file as table.go does, with bounds. In each group it begins at the row that from
// returns. The file may be damaged, and its footer may claim any number of rows.
func drain(b []byte, every []Path, from func(rows int64) int64) error {
	f, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return err
	}
	cols := make([]sources.Column, len(every))
	read := 0
	for g := range f.Groups {
		rd, err := f.Read(bytes.NewReader(b), g, every)
		if err != nil {
			return err
		}
		defer rd.Close()
		rd.Bound(1<<20, patience(150))
		if err := rd.Skip(from(f.Groups[g].Rows)); err != nil {
			return err
		}
		for rd.Left() > 0 {
			n, err := rd.Next(rd.Batch(16<<10), cols)
			if err != nil {
				return err
			}
			if size := bytesOf(cols); size > len(every)<<20+64<<20 {
				return errors.New("runtime error: a batch has no bound") // boundsHold fails on each "runtime error"
			}
			if read += n; read > 1_000_000 {
				return nil
			}
		}
	}
	return nil
}

// patience ends a reading after some pages, because a few bytes may have entries that take hours.
func patience(pages int) func() error {
	return func() error {
		if pages--; pages < 0 {
			return io.ErrNoProgress
		}
		return nil
	}
}

// allowed is how many bytes drain may allocate for a file: a constant for the bound of a batch, and
// a part in proportion to the file. Memory that grows by doubling is counted several times.
func allowed(b []byte) int64 { return 256<<20 + 4096*int64(len(b)) }

func boundsHold(t *testing.T, b []byte) {
	t.Helper()
	for _, from := range []func(int64) int64{
		func(int64) int64 { return 0 },
		func(rows int64) int64 { return min(rows/2, 1<<23) },
		func(rows int64) int64 { return min(max(0, rows-1), 1<<20) },
	} {
		var err error
		took := taking(func() { err = drain(b, everyPath, from) })
		if err != nil && strings.Contains(err.Error(), "runtime error") {
			t.Error(err)
		}
		if took > allowed(b) {
			t.Errorf("a file of %d bytes made the reader take %d MiB, want at most %d", len(b), took>>20, allowed(b)>>20)
		}
	}
}

// hostile writes files of a few bytes with as many values as the format allows, and files whose
// values have an impossible length.
func hostile() map[string][]byte {
	null := writtenColumn{name: "tags", typ: byteArray, list: true}
	flag := writtenColumn{name: "flag", typ: boolean}
	word := writtenColumn{name: "word", typ: byteArray, dict: [][]byte{bytes.Repeat([]byte("w"), 1000)}}
	flat := writtenColumn{name: "id", typ: int64Type}
	const pages = 3
	for range pages {
		null.pages = append(null.pages, writtenPage{entries: maxEntries, encoding: plainEncoding, reps: run(maxEntries, 0), defs: run(maxEntries, 0)})
		flag.pages = append(flag.pages, writtenPage{entries: maxEntries, encoding: rleEncoding, defs: run(maxEntries, 1),
			values: append(binary.LittleEndian.AppendUint32(nil, uint32(len(run(maxEntries, 1)))), run(maxEntries, 1)...)})
		word.pages = append(word.pages, writtenPage{entries: maxEntries, encoding: rleDictionary, defs: run(maxEntries, 1), values: append([]byte{8}, run(maxEntries, 0)...)})
		flat.pages = append(flat.pages, writtenPage{entries: maxEntries, encoding: plainEncoding, defs: append(run(1, 0), run(maxEntries-1, 0)...)})
	}
	deltas := writtenColumn{name: "id", typ: int64Type}
	d := binary.AppendUvarint(nil, 1<<20)
	d = append(binary.AppendUvarint(append(d, 1), maxEntries), 0)
	for range 64 {
		d = append(d, 0, 0)
	}
	deltas.pages = []writtenPage{{entries: maxEntries, encoding: deltaBinaryPacked, defs: run(maxEntries, 1), values: d}}
	const rows = pages * maxEntries
	return map[string][]byte{"nulls of lists": writeFile(rows, null), "bools": writeFile(rows, flag), "long texts": writeFile(rows, word),
		"nulls": writeFile(rows, flat), "deltas": writeFile(maxEntries, deltas), "a long list": endless(3),
		"a length below 0": oddLength(-8), "no length": oddLength(0), "a large length": oddLength(math.MaxInt32)}
}

// oddLength writes one column. Its values have n bytes each, which no real value has.
func oddLength(n int64) []byte {
	return writeFile(2, writtenColumn{name: "fixed", typ: fixedBytes, length: n, pages: []writtenPage{{entries: 2, encoding: plainEncoding, defs: run(2, 0)}}})
}

func TestALengthThatNoValueHasIsRefusedBeforeRowsAreRead(t *testing.T) {
	for _, n := range []int64{-8, -1, 0, 1<<20 + 1, math.MaxInt32, math.MinInt32} {
		b := oddLength(n)
		if rd, err := opened(t, b).Read(bytes.NewReader(b), 0, paths("/fixed")); err == nil || !strings.Contains(err.Error(), "column /fixed: has values of ") {
			t.Errorf("length %d: reader %v, error %v; want that the length is refused", n, rd, err)
		}
	}
}

// By the footer, a row's bytes in all columns, and the 8 bytes that each row takes, are 2^64.
func TestSizesOfColumnsDoNotOverflow(t *testing.T) {
	var cols []writtenColumn
	var every []string
	lists := func(width, values int64) {
		name := fmt.Sprintf("c%d", len(cols))
		cols = append(cols, writtenColumn{name: name, typ: fixedBytes, length: width, list: true, values: values})
		every = append(every, "/"+name+"/*")
	}
	for range 15 {
		lists(1<<20-1, 1<<40)
	}
	for i := 3; i < 60; i++ {
		width := max(3, i-40)
		lists(1<<width-1, 1<<(i-width))
	}
	b := writeFile(1, cols...)
	rd, err := opened(t, b).Read(bytes.NewReader(b), 0, paths(every...))
	if err != nil {
		t.Fatal(err)
	}
	if n := rd.Batch(100); n != 1 {
		t.Errorf("a batch has %d rows, want 1", n)
	}
}

func TestATinyFileTakesLittleMemory(t *testing.T) {
	for name, b := range hostile() {
		t.Run(name, func(t *testing.T) { boundsHold(t, b) })
	}
	for name, b := range testFiles(t) {
		t.Run(name, func(t *testing.T) { boundsHold(t, b) })
	}
}

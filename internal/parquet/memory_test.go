package parquet

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/headrace/headrace/sources"
)

// Memory that a reader leaves to the next ones is not used any more: neither by the rows that it
// gave, nor by a reader that still reads. This holds after damaged files, too.
func TestNoTwoReadersUseTheSameMemory(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	type kept struct {
		cols []sources.Column
		n    int
		want []string
	}
	type open struct {
		name string
		rd   *Reader
		want []string
		at   int
	}
	files := testFiles(t)
	whole := map[string][]string{}
	for name, b := range files {
		rows, err := readRows(b, opened(t, b), 0, 0, opened(t, b).Groups[0].Rows, func() int { return 1000 })
		if err != nil {
			t.Fatal(name, err)
		}
		whole[name] = rows
	}
	var batches []kept
	var readers []*open
	for range 3 {
		for name, b := range files {
			for range 3 {
				c := bytes.Clone(b)
				c[rng.IntN(len(c))] ^= 1 << rng.IntN(8)
				_ = readDamaged(c)
			}
			rd, err := opened(t, b).Read(bytes.NewReader(b), 0, everyPath)
			if err != nil {
				t.Fatal(name, err)
			}
			readers = append(readers, &open{name, rd, whole[name], 0})
		}
		for len(readers) > 0 { // each batch is that of a random reader
			i := rng.IntN(len(readers))
			o := readers[i]
			cols := make([]sources.Column, len(everyPath))
			n, err := o.rd.Next(o.rd.Batch(1+rng.IntN(100)), cols)
			if err != nil {
				t.Fatal(o.name, err)
			}
			batches = append(batches, kept{cols, n, o.want[o.at : o.at+n]})
			if o.at += n; o.rd.Left() == 0 {
				o.rd.Close()
				readers = slices.Delete(readers, i, i+1)
			}
		}
	}
	for _, b := range batches {
		if !slices.Equal(rowsOf(b.cols, b.n), b.want) {
			t.Fatal("rows have changed after they were read")
		}
		for i := range b.cols {
			b.cols[i].Reset()
		}
	}
}

func TestADictionaryIsLeftToOthersOnceNobodyHasIt(t *testing.T) {
	freed := 0
	d := &sources.Dictionary{Len: 1, Values: []byte{1}}
	d.Share(func(*sources.Dictionary) { freed++ })
	var a, b sources.Column
	a.Use(d)
	a.Use(d)
	b.Use(d)
	d.Release()
	a.Reset()
	if freed != 0 || b.Dict != d || a.Dict != nil {
		t.Fatalf("freed %d times while a column has the dictionary, want 0", freed)
	}
	b.Use(&sources.Dictionary{})
	if freed != 1 {
		t.Fatalf("freed %d times when the last column gave the dictionary up, want 1", freed)
	}
	a.Dict = d // not by Use: it does not count
	a.Reset()
	if freed != 1 {
		t.Fatalf("freed %d times, want 1: a column that got the dictionary without Use must not free it", freed)
	}
}

// The kernel clears new memory, and that takes longer than reading into it.
func TestABatchIsReadToWhereTheLastOneWas(t *testing.T) {
	const rows = 300
	page := writtenPage{entries: rows, encoding: rleDictionary, defs: append(run(rows/2, 1), run(rows/2, 0)...), values: append([]byte{8}, run(rows/2, 0)...)}
	b := writeFile(rows, writtenColumn{name: "id", typ: int64Type, dict: [][]byte{make([]byte, 8)}, pages: []writtenPage{page}})
	cols := make([]sources.Column, 1)
	var entries *uint16
	var valid *byte
	for group := range 3 {
		rd, err := opened(t, b).Read(bytes.NewReader(b), 0, paths("/id"))
		if err != nil {
			t.Fatal(err)
		}
		for batch := range 3 {
			if n, err := rd.Next(rows/3, cols); n != rows/3 || err != nil {
				t.Fatal(n, err)
			}
			if group == 0 && batch == 0 {
				entries, valid = unsafe.SliceData(cols[0].Short), unsafe.SliceData(cols[0].Valid)
			}
			if unsafe.SliceData(cols[0].Short) != entries || unsafe.SliceData(cols[0].Valid) != valid {
				t.Errorf("row group %d, batch %d: the column does not lie in the memory of the first batch", group, batch)
			}
		}
		rd.Close()
	}
}

func TestAReaderThatWasClosedReadsNothing(t *testing.T) {
	b := writeFile(2, writtenColumn{name: "id", typ: int64Type, pages: []writtenPage{{entries: 2, encoding: plainEncoding, defs: run(2, 0)}}})
	rd, err := opened(t, b).Read(bytes.NewReader(b), 0, paths("/id"))
	if err != nil {
		t.Fatal(err)
	}
	rd.Close()
	rd.Close()
	if _, err := rd.Next(1, make([]sources.Column, 1)); err == nil || !rd.Failed() || rd.Skip(1) == nil {
		t.Error("it reads on after it was closed")
	}
}

func TestAPageThatFailsIsLeftToOthersOnce(t *testing.T) {
	for _, codec := range []int32{snappyCodec, gzipCodec, zstdCodec, brotliCodec, lz4RawCodec} {
		c := &chunk{codec: codec, un: &unpacker{}, page: take(1 << leastSpare)}
		was := unsafe.SliceData(c.page)
		if _, err := c.unpack(bytes.Repeat([]byte{0xA0}, 200), 5<<leastSpare); err == nil {
			t.Fatalf("codec %d unpacks bytes that it never made", codec)
		}
		c.close()
		if a, b := take(1<<leastSpare), take(1<<leastSpare); unsafe.SliceData(a) == was && unsafe.SliceData(b) == was {
			t.Errorf("codec %d: the page was left twice, and two users of take got it", codec)
		}
	}
}

// The values of a page of version 2 that is not compressed are read from the bytes of the file. These
// bytes must stay in the column's window until the page ends, while other columns are read.
func TestALargePageIsReadToItsEndBesideOthers(t *testing.T) {
	const rows = readAhead / 4
	var cols []writtenColumn
	for v := range byte(2) {
		cols = append(cols, writtenColumn{name: string('a' + rune(v)), typ: int64Type, codec: snappyCodec,
			pages: []writtenPage{{entries: rows, encoding: plainEncoding, v2: true, defs: run(rows, 1), values: bytes.Repeat([]byte{v + 1}, 8*rows)}}})
	}
	b := writeFile(rows, cols...)
	rd, err := opened(t, b).Read(bytes.NewReader(b), 0, paths("/a", "/b"))
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	got := make([]sources.Column, 2)
	for rd.Left() > 0 {
		n, err := rd.Next(rd.Batch(1000), got)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range got {
			if !bytes.Equal(c.Values, bytes.Repeat([]byte{byte(i + 1)}, 8*n)) {
				t.Fatalf("column %d has other values", i)
			}
		}
	}
}

package files

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/tfrecord"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/sourcetest"
)

// tfrecordHarness writes TFRecords. Every third one contains bytes that look like a TFRecord.
func tfrecordHarness(b blocks) sourcetest.Harness {
	h := harness(Framing{Kind: TFRecord, EmptyLines: true}, "", "", "fast", b)
	h.Encode = func(rng *rand.Rand, text []byte) []byte {
		if rng.IntN(3) > 0 {
			return text
		}
		return tfrecord.Append(tfrecord.Append([]byte("\n"), text), nil)
	}
	return h
}

func TestTFRecordsPassTheSuite(t *testing.T) { sourcetest.Run(t, tfrecordHarness(defaultBlocks)) }

func TestTFRecordsInTinyBlocksPassTheSuite(t *testing.T) {
	h := tfrecordHarness(tinyBlocks)
	h.Count = 20_000
	sourcetest.Run(t, h)
}

func TestGzippedTFRecordsPassTheSuite(t *testing.T) {
	h := tfrecordHarness(tinyBlocks)
	h.Count = 20_000
	sourcetest.Run(t, packedHarness(h, ".tfrecord.gz", packGzip))
}

func TestZstdTFRecordsPassTheSuite(t *testing.T) {
	sourcetest.Run(t, packedHarness(tfrecordHarness(defaultBlocks), ".zst", packZstd))
}

// want is the record that TensorFlow's TFRecordWriter wrote for "hello", with its CRCs.
func TestATFRecordIsWhatTensorFlowWrites(t *testing.T) {
	want := []byte("\x05\x00\x00\x00\x00\x00\x00\x00\xea\xb2\x04\x3e" + "hello" + "\xbb\x1f\x1c\x19")
	if got := tfrecord.Append(nil, []byte("hello")); !bytes.Equal(got, want) {
		t.Errorf("%x, TensorFlow writes %x", got, want)
	}
}

func TestADamagedTFRecordIsToldWithFileAndOffset(t *testing.T) {
	var content []byte
	for i := range 5 {
		content = tfrecord.Append(content, fmt.Appendf(nil, "record %d", i))
	}
	const size = tfrecord.Head + 8 + tfrecord.Tail
	for _, c := range []struct {
		name   string
		change func(b []byte) []byte
		at     int64
		says   string
	}{
		{"data", func(b []byte) []byte { b[2*size+tfrecord.Head] ^= 1; return b }, 2 * size, "CRC of the record's data"},
		{"CRC of data", func(b []byte) []byte { b[3*size-1] ^= 1; return b }, 2 * size, "CRC of the record's data"},
		{"length", func(b []byte) []byte { b[3*size] ^= 1; return b }, 3 * size, "CRC of the record's length"},
		{"end in data", func(b []byte) []byte { return b[:5*size-6] }, 4 * size, "cut short"},
		{"end in head", func(b []byte) []byte { return b[:4*size+5] }, 4 * size, "cut short"},
		{"bytes behind", func(b []byte) []byte { return append(b, "more than a header"...) }, 5 * size, "CRC of the record's length"},
	} {
		for _, bl := range []blocks{defaultBlocks, tinyBlocks} {
			s := one(t, c.change(bytes.Clone(content)), Framing{Kind: TFRecord, EmptyLines: true}, bl)
			segs, err := listAll(t, s)
			var got []sourcetest.Got
			for _, g := range segs {
				some, e := readRange(t, s, g, g.Start, g.End)
				if got = append(got, some...); e != nil && err == nil {
					err = e
				}
			}
			bad, ok := errors.AsType[*sources.Malformed](err)
			if !ok || bad.Position.Offset != c.at || bad.Name != "f" || !strings.Contains(bad.What, c.says) {
				t.Errorf("%s: %v", c.name, err)
			}
			if strings.HasPrefix(c.says, "CRC of the record's data") {
				if len(got) != 2 {
					t.Errorf("%s: %d records before it", c.name, len(got))
				}
				alone, ok := sources.StandsAlone(err)
				if !ok || alone.Start != 2*size || alone.Next != 3*size || alone.Size != 8 || len(alone.Value) != 8 {
					t.Errorf("%s: %+v, %v", c.name, alone, ok)
				}
				last := segs[len(segs)-1] // the records after the damaged one can be read
				some, err := readRange(t, s, last, max(alone.Next, last.Start), last.End)
				if err != nil || len(some) == 0 || some[len(some)-1].Next != int64(len(content)) {
					t.Errorf("%s: then %v, %v", c.name, some, err)
				}
			} else if _, ok := sources.StandsAlone(err); ok {
				t.Errorf("%s: the place of the next record counts as known", c.name)
			}
		}
	}
}

func TestALengthThatNobodyCanHaveIsAnError(t *testing.T) {
	for _, length := range []uint64{1 << 62, 1<<64 - 1, 1<<63 - 4, 1 << 21} {
		head := binary.LittleEndian.AppendUint64(nil, length)
		content := append(binary.LittleEndian.AppendUint32(head, tfrecord.CRC(head)), make([]byte, 2<<20)...)
		s := one(t, content, Framing{Kind: TFRecord, EmptyLines: true}, defaultBlocks)
		_, err := listAll(t, s)
		if _, ok := errors.AsType[*sources.TooLarge](err); !ok {
			t.Errorf("length %d: %v", length, err)
		}
	}
}

func TestAFileThatIsNoTFRecordIsTold(t *testing.T) {
	s := one(t, []byte("label,user\n1,ann\n2,bob\n"), Framing{Kind: TFRecord, EmptyLines: true}, defaultBlocks)
	if _, err := listAll(t, s); err == nil || !strings.Contains(err.Error(), "or is no TFRecord file") {
		t.Errorf("got the error %v, want one with %q", err, "or is no TFRecord file")
	}
	s = one(t, packGzip(t, 1, tfrecord.Append(nil, []byte("x"))), Framing{Kind: TFRecord, EmptyLines: true}, defaultBlocks)
	if _, err := listAll(t, s); err == nil || !strings.Contains(err.Error(), "set files.compression: gzip") {
		t.Errorf("got the error %v, want one with %q", err, "set files.compression: gzip")
	}
	s = one(t, tfrecord.Append(nil, []byte("some data")), Framing{Kind: Lines, Text: true}, defaultBlocks)
	if _, err := listAll(t, s); err == nil || !strings.Contains(err.Error(), "set decode.format: tfrecord") {
		t.Errorf("got the error %v, want one with %q", err, "set decode.format: tfrecord")
	}
}

// FuzzTFRecord reads any bytes as records or an error, and checks that two parts give the same.
func FuzzTFRecord(f *testing.F) {
	two := tfrecord.Append(tfrecord.Append(nil, []byte("one")), []byte("another one"))
	f.Add(two, uint16(7), uint8(3))
	f.Add(two[:len(two)-1], uint16(19), uint8(200))
	f.Fuzz(func(t *testing.T, content []byte, cut uint16, block uint8) {
		bl := blocks{read: 16 + int64(block), records: 3, overrun: 2, segment: 40, every: 10, scan: 1 + int64(block)/2}
		s := one(t, content, Framing{Kind: TFRecord, EmptyLines: true}, bl)
		segs, _ := listAll(t, s)
		for _, g := range segs {
			whole, err := readRange(t, s, g, g.Start, g.End)
			if err != nil {
				continue
			}
			mid := min(max(int64(cut), g.Start), g.End)
			left, err1 := readRange(t, s, g, g.Start, mid)
			right, err2 := readRange(t, s, g, mid, g.End)
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			compareParts(t, whole, append(left, right...))
			for _, r := range whole {
				if !bytes.Contains(content, tfrecord.Append(nil, r.Value)) {
					t.Fatalf("%q was read, but no such record is there", r.Value)
				}
			}
		}
	})
}

// A read may end exactly at the last unpacked byte. Then the reader does not know yet that it was the last.
func TestCompressedTFRecordsThatEndWithAReadAreWhole(t *testing.T) {
	const size = 25 // bytes of a record; the source reads 100 bytes at once
	data := bytes.Repeat([]byte("x"), size-tfrecord.Head-tfrecord.Tail)
	for n := range 4 {
		for _, records := range []int{4, 400, 60_000} { // looking at how a file begins finds the end of a small one
			var content []byte
			for range records {
				content = tfrecord.Append(content, data)
			}
			s := one(t, packGzip(t, n, content), Framing{Kind: TFRecord, EmptyLines: true}, tinyBlocks)
			s.spec.Compression = "gzip"
			segs, err := listAll(t, s)
			if err != nil || len(segs) == 0 || segs[len(segs)-1].End != int64(len(content)) {
				t.Fatalf("file %d of %d bytes: %v, %v", n, len(content), segs, err)
			}
		}
	}
}

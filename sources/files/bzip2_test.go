package files

import (
	"bytes"
	"compress/bzip2"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// bzip2Blocks cuts a content into blocks.
func bzip2Blocks(rng *rand.Rand, content []byte, most int) (blocks [][]byte) {
	for len(content) > 0 {
		n := min(len(content), 1+rng.IntN(most))
		blocks, content = append(blocks, content[:n]), content[n:]
	}
	return blocks
}

// everyPoint notes every restart point.
type everyPoint struct{ all []point }

func (e *everyPoint) wanted(int64) bool { return true }
func (e *everyPoint) distance() int64   { return 1 }
func (e *everyPoint) note(p *point)     { e.all = append(e.all, *p) }

// bzip2Contents makes contents of several kinds: text, noise, runs, and bytes that look like the mark of a block.
func bzip2Contents(rng *rand.Rand, size int) map[string][]byte {
	noise := make([]byte, size)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	marks := bytes.Clone(noise)
	for i := 0; i+12 < size; i += 1 + rng.IntN(40) {
		copy(marks[i:], []byte{0x31, 0x41, 0x59, 0x26, 0x53, 0x59, 0x17, 0x72, 0x45, 0x38, 0x50, 0x90})
	}
	long := bytes.Repeat([]byte{'x'}, size)
	long[size/3] = 'y'
	return map[string][]byte{"text": logLines(rng, size), "noise": noise, "marks": marks, "runs": long}
}

// Every block is found, and reading from each gives the same bytes as the standard library.
func TestEveryBlockOfBzip2IsARestartPoint(t *testing.T) {
	rng := rngOf(t)
	for name, content := range bzip2Contents(rng, 60_000) {
		for _, level := range []byte{'1', '9'} {
			t.Run(fmt.Sprintf("%s %c", name, level), func(t *testing.T) {
				var file []byte
				var starts []int64 // where blocks begin
				out := int64(0)
				rest := content
				for len(rest) > 0 { // several streams, some of them empty, as pbzip2 writes
					n := min(len(rest), 1+rng.IntN(20_000))
					blocks := bzip2Blocks(rng, rest[:n], 7000)
					rest = rest[n:]
					for _, b := range blocks {
						starts = append(starts, out)
						out += int64(len(b))
					}
					file = append(file, packBzip2(level, blocks...)...)
					for range rng.IntN(3) {
						file = append(file, packBzip2("19"[rng.IntN(2)])...)
					}
				}
				if got := unpackAll(t, bzip2.NewReader(bytes.NewReader(file))); !bytes.Equal(got, content) {
					t.Fatal("the standard library reads another content: this test's encoder is wrong")
				}
				found := &everyPoint{}
				r, err := bzip2Codec.begin(bytes.NewReader(file), int64(len(file)), point{}, found)
				if err != nil {
					t.Fatal(err)
				}
				if got := unpackAll(t, r); !bytes.Equal(got, content) {
					t.Fatal("the content differs")
				}
				if len(found.all) != len(starts) {
					t.Fatalf("%d blocks were found, and there are %d", len(found.all), len(starts))
				}
				for i, p := range found.all {
					if p.Out != starts[i] {
						t.Fatalf("block %d begins at %d, and a point says %d", i, starts[i], p.Out)
					}
					r, err := bzip2Codec.begin(bytes.NewReader(file), int64(len(file)), p, noNotes{})
					if err != nil {
						t.Fatal(err)
					}
					if got := unpackAll(t, r); !bytes.Equal(got, content[p.Out:]) {
						t.Fatalf("from block %d on the content differs", i)
					}
				}
			})
		}
	}
}

// The CRC of a stream is checked, wherever in it reading begins.
func TestTheCRCOfABzip2StreamIsCheckedFromARestartPoint(t *testing.T) {
	rng := rngOf(t)
	blocks := bzip2Blocks(rng, logLines(rng, 30_000), 5000)
	file := packBzip2('9', blocks...)
	found := &everyPoint{}
	r, err := bzip2Codec.begin(bytes.NewReader(file), int64(len(file)), point{}, found)
	if err != nil {
		t.Fatal(err)
	}
	unpackAll(t, r)
	// The last bits before the padding are the CRC.
	file[len(file)-2] ^= 1
	for _, p := range append([]point{{}}, found.all...) {
		r, err := bzip2Codec.begin(bytes.NewReader(file), int64(len(file)), p, noNotes{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r); err == nil || !bytes.Contains([]byte(err.Error()), []byte("the CRC of a stream is")) {
			t.Errorf("from %d on: %v", p.Out, err)
		}
	}
}

// afterBlock tries the eight bits at which a mark may begin. If two marks could fit, the end of a block
// would not be known.
func TestMarksOfBzip2DoNotOverlap(t *testing.T) {
	for _, a := range []uint64{blockMark, streamMark} {
		for _, b := range []uint64{blockMark, streamMark} {
			for shift := 1; shift < 8; shift++ {
				if a&(1<<(48-shift)-1) == b>>shift {
					t.Errorf("marks %x and %x can overlap, %d bits apart", a, b, shift)
				}
			}
		}
	}
}

// A file is listed once, and then a reader on the same machine begins in its middle.
func TestAReaderOfBzip2BeginsInTheMiddle(t *testing.T) {
	rng := rngOf(t)
	var blocks [][]byte
	var content []byte
	for range 60 { // runs make large blocks out of few bytes
		b := append(logLines(rng, 3000), bytes.Repeat([]byte("="), 200_000)...)
		b = append(b, '\n')
		blocks, content = append(blocks, b), append(content, b...)
	}
	file := packBzip2('9', blocks...)
	dir, cache := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.bz2"), file, 0o600); err != nil {
		t.Fatal(err)
	}
	open := func() *Source {
		s, err := Open(Options{Dataset: "d", Spec: &Spec{Root: dir, MaxRecord: 1 << 20}, Framing: Framing{Kind: Lines}, AllowedRoots: []string{dir}, Cache: cache})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	lists, reads := open(), open()
	segs, err := lists.Segments(context.Background(), lists.partition, -1, 100)
	if err != nil || len(segs) != 1 || segs[0].End != int64(len(content)) {
		t.Fatal(segs, err)
	}
	l, err := decodeLocator(segs[0].Locator)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, "a.bz2"))
	if err != nil {
		t.Fatal(err)
	}
	u := newUnpacked(localFile{f}, l.Identity.Size, l.Codec, reads.pointsFor(l))
	defer func() { _ = u.Close() }()
	at := int64(len(content)) - 1<<20
	got := make([]byte, 1000)
	if _, err := u.ReadAt(got, at); err != nil || !bytes.Equal(got, content[at:][:1000]) {
		t.Fatalf("what was read differs: %v", err)
	}
	if p := u.points.before(at); at-p.Out > pointsEvery+1<<20 || !p.Inside {
		t.Errorf("reading at %d begins at restart point %d", at, p.Out)
	}
	part, err := readRange(t, reads, segs[0], at, at+100_000)
	if err != nil || len(part) == 0 {
		t.Fatalf("%d records, %v", len(part), err)
	}
}

// FuzzBzip2AgainstTheStandardLibrary checks, for any bytes, that exactly what the standard library reads
// is read.
func FuzzBzip2AgainstTheStandardLibrary(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, content := range bzip2Contents(rng, 900) {
		file := append(packBzip2('1', bzip2Blocks(rng, content, 400)...), packBzip2('9')...)
		file = append(file, packBzip2('9', content)...)
		f.Add(file, uint16(7), byte(3), uint16(0))
		f.Add(file, uint16(len(file)-3), byte(0x40), uint16(0))
		f.Add(file, uint16(0), byte(0), uint16(5))
	}
	if bz, err := os.ReadFile("testdata/bzip2/lines.csv.bz2"); err == nil {
		f.Add(bz, uint16(100), byte(0), uint16(0))
	}
	f.Add([]byte("BZh9"), uint16(0), byte(0), uint16(0))
	f.Add([]byte{}, uint16(0), byte(0), uint16(0))
	f.Fuzz(func(t *testing.T, file []byte, at uint16, flip byte, cut uint16) {
		file = bytes.Clone(file)
		if len(file) > 0 {
			file[int(at)%len(file)] ^= flip
			file = file[:len(file)-int(cut)%len(file)]
		}
		const most = 1 << 20
		want, wrong := io.ReadAll(io.LimitReader(bzip2.NewReader(bytes.NewReader(file)), most))
		found := &everyPoint{}
		r, err := bzip2Codec.begin(bytes.NewReader(file), int64(len(file)), point{}, found)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(io.LimitReader(r, most))
		if !bytes.Equal(got, want) || (err == nil) != (wrong == nil) {
			t.Fatalf("%d bytes and %v, the standard library has %d bytes and %v", len(got), err, len(want), wrong)
		}
		for i, p := range found.all {
			if i > 20 {
				break
			}
			r, err := bzip2Codec.begin(bytes.NewReader(file), int64(len(file)), p, noNotes{})
			if err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(io.LimitReader(r, most-p.Out))
			if p.Out > int64(len(got)) || !bytes.Equal(rest, got[p.Out:]) || (err == nil) != (wrong == nil) {
				t.Fatalf("from %d on: %d bytes and %v, from the beginning %d and %v", p.Out, len(rest), err, len(got), wrong)
			}
		}
	})
}

package files

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/tfrecord"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/sourcetest"
)

// folder is a place of the conformance suite. Each Produce writes one file, or with raw framing a file
// for each record.
type folder struct {
	dir       string
	framing   Framing
	lineEnd   string
	preface   string
	maxRecord dataset.Size
	verify    string
	blocks    blocks
	files     int
	cache     string
	pack      func(t testing.TB, n int, plain []byte) []byte
	suffix    string
}

func (f *folder) Produce(t testing.TB, records [][]byte) {
	if f.framing.Kind == Whole {
		for _, r := range records {
			f.write(t, r)
		}
		return
	}
	var b bytes.Buffer
	b.WriteString(f.preface)
	for i, r := range records {
		if f.framing.Kind == TFRecord {
			b.Write(tfrecord.Append(nil, r))
			continue
		}
		if f.framing.Kind == Delimited {
			b.Write(delimited(r))
			continue
		}
		b.Write(r)
		if i < len(records)-1 || f.files%2 == 0 { // every other file ends without a line end
			b.WriteString(f.lineEnd)
		}
		if !f.framing.EmptyLines && i%7 == 0 {
			b.WriteString("\n\r\n\n") // positions without a record
		}
	}
	f.write(t, b.Bytes())
}

func (f *folder) write(t testing.TB, content []byte) {
	t.Helper()
	f.files++
	name := filepath.Join(f.dir, fmt.Sprintf("part-%06d", f.files)+f.suffix)
	if f.pack != nil {
		content = f.pack(t, f.files, content)
	}
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (f *folder) Open(t testing.TB, known []sources.Segment) sources.Source {
	t.Helper()
	s, err := Open(Options{Dataset: "d", Framing: f.framing, AllowedRoots: []string{f.dir}, Known: known, Cache: f.cache,
		Spec: &Spec{Root: f.dir, Paths: []string{"."}, Verify: f.verify, MaxRecord: f.maxRecord}})
	if err != nil {
		t.Fatal(err)
	}
	s.blocks = f.blocks
	return s
}

// tinyBlocks are so small that borders of blocks fall at every kind of place, even in small files.
var tinyBlocks = blocks{read: 64, records: 5, overrun: 8, segment: 1000, every: 150, scan: 100}

func harness(framing Framing, lineEnd, preface, verify string, b blocks) sourcetest.Harness {
	return sourcetest.Harness{
		New: func(t testing.TB) sourcetest.Place {
			return &folder{dir: t.TempDir(), framing: framing, lineEnd: lineEnd, preface: preface, maxRecord: 4096, verify: verify, blocks: b}
		},
		Contiguous: true,
		MaxRecord:  4096,
		Change: func(t testing.TB, p sourcetest.Place) {
			f := p.(*folder)
			name := filepath.Join(f.dir, "part-000001"+f.suffix)
			old, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			old[len(old)/2] ^= 1
			if err := os.WriteFile(name, old, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		Remove: func(t testing.TB, p sourcetest.Place) {
			f := p.(*folder)
			for i := range f.files {
				if err := os.Remove(filepath.Join(f.dir, fmt.Sprintf("part-%06d", i+1)+f.suffix)); err != nil {
					t.Fatal(err)
				}
			}
		},
	}
}

func TestLinesPassTheSuite(t *testing.T) {
	sourcetest.Run(t, harness(Framing{Kind: Lines, EmptyLines: true}, "\n", "", "fast", defaultBlocks))
}

func TestPlainCSVPassesTheSuite(t *testing.T) {
	sourcetest.Run(t, harness(Framing{Kind: Lines, Header: true, Text: true}, "\r\n", byteOrderMark+"\na,b\r\n\r\n", "full", defaultBlocks))
}

func TestPlainCSVInTinyBlocksPassesTheSuite(t *testing.T) {
	h := harness(Framing{Kind: Lines, Header: true, Text: true}, "\r\n", "a,b\r\n\r\n", "fast", tinyBlocks)
	h.Count = 20_000
	sourcetest.Run(t, h)
}

func TestQuotedCSVPassesTheSuite(t *testing.T) {
	sourcetest.Run(t, quotedHarness(defaultBlocks))
}

func TestQuotedCSVInTinyBlocksPassesTheSuite(t *testing.T) {
	h := quotedHarness(tinyBlocks)
	h.Count = 20_000
	sourcetest.Run(t, h)
}

func quotedHarness(b blocks) sourcetest.Harness {
	h := harness(Framing{Kind: Quoted, Quote: '"', Delimiter: ',', Header: true, Text: true}, "\r\n", "\"a\n\",b\r\n", "fast", b)
	h.Encode = func(rng *rand.Rand, text []byte) []byte {
		switch rng.IntN(5) {
		case 0:
			return text
		case 1:
			return fmt.Appendf(nil, "\"%s\",\"a \"\"b\"\"\n,\r\n\",5\" x", text)
		case 2:
			return fmt.Appendf(nil, ",\"\n\n\n\n\n%s\"\"\"", text)
		case 3:
			return fmt.Appendf(nil, "\"\",%s,\"\n\"", text)
		}
		return fmt.Appendf(nil, "%s,\"\"", text)
	}
	return h
}

func TestRecordsOfOneSizePassTheSuite(t *testing.T) {
	sourcetest.Run(t, fixedHarness(defaultBlocks))
}

func TestRecordsOfOneSizeInTinyBlocksPassTheSuite(t *testing.T) {
	h := fixedHarness(tinyBlocks)
	h.Count = 20_000
	sourcetest.Run(t, h)
}

func fixedHarness(b blocks) sourcetest.Harness {
	const size = 203
	h := harness(Framing{Kind: Fixed, Size: size, EmptyLines: true}, "", "", "fast", b)
	h.MaxRecord = 0 // all records have the same size, so none is over a limit
	h.Encode = func(rng *rand.Rand, text []byte) []byte {
		record := make([]byte, 0, size)
		for range rng.IntN(size - len(text) + 1) {
			record = append(record, byte(rng.Uint32()))
		}
		record = append(record, text...)
		for len(record) < size {
			record = append(record, "\n\r\"\x00"[rng.IntN(4)])
		}
		return record
	}
	return h
}

func TestRawFilesPassTheSuite(t *testing.T) {
	h := harness(Framing{Kind: Whole}, "", "", "fast", defaultBlocks)
	h.Count = 1000
	sourcetest.Run(t, h)
}

package files

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/headrace/headrace/sources/sourcetest"
)

// packGzip packs at levels from stored to best. Every third file has several members, with every kind of
// header field.
func packGzip(t testing.TB, n int, text []byte) []byte {
	var b bytes.Buffer
	pieces := 1
	if n%3 == 0 {
		pieces = 4
	}
	for i := range pieces {
		part := text[len(text)*i/pieces : len(text)*(i+1)/pieces]
		w, err := gzip.NewWriterLevel(&b, n%10)
		if err != nil {
			t.Fatal(err)
		}
		if n%2 == 0 {
			w.Name, w.Comment, w.Extra = "part", "a comment", []byte{1, 2, 3}
		}
		for len(part) > 0 { // blocks end at random places
			k := min(len(part), 1+len(text)/7)
			if _, err := w.Write(part[:k]); err != nil {
				t.Fatal(err)
			}
			if n%5 == 0 {
				if err := w.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			part = part[k:]
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n%4 == 0 {
		b.Write(make([]byte, 7)) // padding
	}
	return b.Bytes()
}

// packZstd makes one frame or several, also frames without a content size, and a skippable frame.
func packZstd(t testing.TB, n int, text []byte) []byte {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = enc.Close() }()
	var b bytes.Buffer
	pieces := 1 + n%4
	for i := range pieces {
		part := text[len(text)*i/pieces : len(text)*(i+1)/pieces]
		if n%3 == 0 { // streamed: no content size in the header
			enc.Reset(&b)
			for half := range 2 {
				if _, err := enc.Write(part[len(part)*half/2 : len(part)*(half+1)/2]); err != nil {
					t.Fatal(err)
				}
				if err := enc.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			if err := enc.Close(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		b.Write(enc.EncodeAll(part, nil))
		skip := binary.LittleEndian.AppendUint32(nil, 0x184D2A5E)
		b.Write(append(binary.LittleEndian.AppendUint32(skip, 9), "seekable!"...))
	}
	return b.Bytes()
}

func packedHarness(h sourcetest.Harness, suffix string, pack func(testing.TB, int, []byte) []byte) sourcetest.Harness {
	plain := h.New
	h.New = func(t testing.TB) sourcetest.Place {
		f := plain(t).(*folder)
		f.pack, f.suffix, f.cache = pack, suffix, t.TempDir()
		return f
	}
	return h
}

func TestGzippedLinesPassTheSuite(t *testing.T) {
	sourcetest.Run(t, packedHarness(harness(Framing{Kind: Lines, EmptyLines: true}, "\n", "", "fast", defaultBlocks), ".gz", packGzip))
}

func TestGzippedCSVInTinyBlocksPassesTheSuite(t *testing.T) {
	h := harness(Framing{Kind: Lines, Header: true, Text: true}, "\r\n", byteOrderMark+"\na,b\r\n\r\n", "full", tinyBlocks)
	h.Count = 20_000
	sourcetest.Run(t, packedHarness(h, ".csv.gz", packGzip))
}

func TestGzippedQuotedCSVPassesTheSuite(t *testing.T) {
	h := quotedHarness(tinyBlocks)
	h.Count = 20_000
	sourcetest.Run(t, packedHarness(h, ".CSV.GZ", packGzip))
}

func TestZstdLinesPassTheSuite(t *testing.T) {
	sourcetest.Run(t, packedHarness(harness(Framing{Kind: Lines, EmptyLines: true}, "\n", "", "fast", defaultBlocks), ".zst", packZstd))
}

func TestZstdRecordsOfOneSizePassTheSuite(t *testing.T) {
	h := fixedHarness(tinyBlocks)
	h.Count = 20_000
	sourcetest.Run(t, packedHarness(h, ".zst", packZstd))
}

// logLines is text that compresses as logs do: words and numbers.
func logLines(rng *rand.Rand, size int) []byte {
	words := []string{"click", "view", "buy", "http://example.org/", "user", "0.5", "\t", ",", "Müller"}
	b := make([]byte, 0, size+1000)
	zeros := false
	for len(b) < size {
		for range 1 + rng.IntN(20) {
			b = append(b, words[rng.IntN(len(words))]...)
			b = strconv.AppendInt(append(b, ' '), rng.Int64N(1_000_000), 10)
		}
		b = append(b, '\n')
		if !zeros && len(b) > size/2 {
			zeros, b = true, append(b, make([]byte, size/8)...) // compresses to nearly nothing
		}
	}
	return b[:size]
}

// unpackAll reads an unpacker to its end.
func unpackAll(t testing.TB, r io.Reader) []byte {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

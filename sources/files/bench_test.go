package files

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/sourcetest"
)

func benchSource(b *testing.B, framing Framing, line string) *Source {
	b.Helper()
	dir := b.TempDir()
	content := bytes.Repeat([]byte(line), (64<<20)/len(line))
	if err := os.WriteFile(filepath.Join(dir, "f"), content, 0o600); err != nil {
		b.Fatal(err)
	}
	return benchOpen(b, dir, framing)
}

func benchOpen(b *testing.B, dir string, framing Framing) *Source {
	b.Helper()
	s, err := Open(Options{Dataset: "d", Framing: framing, AllowedRoots: []string{dir},
		Spec: &Spec{Root: dir, MaxRecord: 16 << 20}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

func BenchmarkRead(b *testing.B) {
	quoted := Framing{Kind: Quoted, Quote: '"', Delimiter: ','}
	for _, size := range []int{20, 100, 250, 2000} {
		plain := strings.Repeat("x", size-1) + "\n"
		b.Run(fmt.Sprintf("lines/%d", size), func(b *testing.B) {
			sourcetest.Bench(b, benchSource(b, Framing{Kind: Lines}, plain))
		})
	}
	b.Run("csv-without-quotes/100", func(b *testing.B) {
		sourcetest.Bench(b, benchSource(b, quoted, strings.Repeat("12345678,", 11)+"\n"))
	})
	b.Run("csv-all-quoted/100", func(b *testing.B) {
		sourcetest.Bench(b, benchSource(b, quoted, strings.Repeat(`"12345678",`, 9)+"\n"))
	})
	b.Run("csv-quoted-text/1000", func(b *testing.B) {
		sourcetest.Bench(b, benchSource(b, quoted, "1,\""+strings.Repeat("some text\n", 98)+"\"\n"))
	})
}

func BenchmarkIndexQuotedCSV(b *testing.B) {
	for name, line := range map[string]string{
		"without-quotes": strings.Repeat("12345678,", 11) + "\n",
		"all-quoted":     strings.Repeat(`"12345678",`, 9) + "\n",
	} {
		b.Run(name, func(b *testing.B) {
			s := benchSource(b, Framing{Kind: Quoted, Quote: '"', Delimiter: ','}, line)
			b.SetBytes(64 << 20)
			for b.Loop() {
				again := benchOpen(b, s.spec.Root, s.framing)
				if _, err := again.Segments(b.Context(), again.partition, -1, 10); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkListAHundredThousandFiles(b *testing.B) {
	dir := manyFiles(b, 100_000)
	for b.Loop() {
		s := benchOpen(b, dir, Framing{Kind: Lines})
		if n := len(sourcetest.Segments(b, s, s.partition, 1000)); n != 100_000 {
			b.Fatalf("%d segments", n)
		}
	}
}

// BenchmarkOpenInTheMiddle opens a shard in the middle of a file of 100 GB.
func BenchmarkOpenInTheMiddle(b *testing.B) {
	dir := b.TempDir()
	middle := sparse(b, dir, 100<<30)
	s := benchOpen(b, dir, Framing{Kind: Lines})
	segs, err := s.Segments(b.Context(), s.partition, -1, 1)
	if err != nil {
		b.Fatal(err)
	}
	r := sources.Range{Partition: s.partition, Start: middle + 5, End: middle + 256<<10}
	var batch sources.Batch
	for b.Loop() {
		c, err := s.Open(b.Context(), r, sources.Position{Offset: r.Start}, segs[0].Locator)
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Next(b.Context(), &batch); err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}

// sparse makes a file of that size with a MiB of lines in its middle, whose
// offset it returns.
func sparse(t testing.TB, dir string, size int64) int64 {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "large"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	middle := size / 2
	lines := bytes.Repeat([]byte("\n0123456789abcde"), 64<<10)
	if _, err := f.WriteAt(lines, middle); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	return middle
}

// BenchmarkShuffledPieces reads pieces of 256 KiB at random places, as a shuffled pass does. While a
// file is less than two seconds old, each of them also hashes the ends of the file.
func BenchmarkShuffledPieces(b *testing.B) {
	const piece = 256 << 10
	s := benchSource(b, Framing{Kind: Lines}, strings.Repeat("x", 99)+"\n")
	g := sourcetest.Segments(b, s, s.partition, 1)[0]
	b.SetBytes(piece)
	var batch sources.Batch
	for i := int64(0); b.Loop(); i++ {
		at := (i * 7919 * piece) % (g.End - piece)
		r := sources.Range{Partition: s.partition, Segment: g.ID, Start: at, End: at + piece}
		c, err := s.Open(b.Context(), r, sources.Position{Segment: g.ID, Offset: at}, g.Locator)
		if err != nil {
			b.Fatal(err)
		}
		for err == nil {
			err = c.Next(b.Context(), &batch)
		}
		c.Close()
	}
}

package files

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
)

func rngOf(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, seed))
}

// openPacked writes a compressed file and opens its unpacked content.
func openPacked(t testing.TB, name string, packed []byte, c codec, cache string) *unpacked {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, packed, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	id := identity{Size: int64(len(packed)), Print: uint64(len(packed))}
	u := newUnpacked(localFile{f}, id.Size, c, newPoints(&trimmer{cache: cache, limit: cacheLimit}, c, id, slog.New(slog.DiscardHandler)))
	u.points.every = 128 << 10
	t.Cleanup(func() { _ = u.Close() })
	return u
}

func TestEveryRestartPointGivesTheRestOfTheContent(t *testing.T) {
	rng := rngOf(t)
	text := logLines(rng, 2<<20)
	for _, c := range []struct {
		codec codec
		n     int
	}{{gzipCodec, 1}, {gzipCodec, 3}, {gzipCodec, 4}, {gzipCodec, 6}, {gzipCodec, 9}, {zstdCodec, 3}, {zstdCodec, 7}} {
		cache := t.TempDir()
		packed := packGzip(t, c.n, text)
		if c.codec == zstdCodec {
			packed = packZstd(t, c.n, text)
		}
		u := openPacked(t, "a", packed, c.codec, cache)
		if got := unpackAll(t, io.NewSectionReader(u, 0, unknownSize)); !bytes.Equal(got, text) {
			t.Fatalf("%v: the content differs", c)
		}
		places := u.points.places
		if least := 3; len(places) < least {
			t.Errorf("%v: only %d points", c, len(places))
		}
		// Another process finds the same points. Reading from each gives the same rest, whose CRC is checked
		// in each member.
		again := openPacked(t, "a", packed, c.codec, cache)
		if len(again.points.places) == 0 {
			t.Errorf("%v: no point was stored", c)
		}
		for _, out := range places {
			p, err := u.points.load(out)
			if err != nil || p.Out != out {
				t.Fatalf("%v: point %d: %+v %v", c, out, p, err)
			}
			r, err := c.codec.begin(u.raw, u.packed, *p, noNotes{})
			if err != nil {
				t.Fatal(err)
			}
			if got := unpackAll(t, r); !bytes.Equal(got, text[out:]) {
				t.Errorf("%v: from %d on the content differs", c, out)
			}
			r.Close()
		}
		for range 20 {
			at := rng.Int64N(int64(len(text)))
			b := make([]byte, 1+rng.IntN(1<<19))
			n, err := again.ReadAt(b, at)
			want := text[at:min(int64(len(text)), at+int64(len(b)))]
			if !bytes.Equal(b[:n], want) || n < len(b) && err != io.EOF {
				t.Fatalf("%v: %d bytes at %d: %d, %v", c, len(b), at, n, err)
			}
		}
	}
}

// Writers such as pigz end their blocks with an empty stored block. Text that does not compress is in
// stored blocks.
func TestRestartPointsAfterStoredBlocksGiveTheRestOfTheContent(t *testing.T) {
	rng := rngOf(t)
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	for level := 1; level <= 9; level++ {
		text := make([]byte, 1<<18)
		var b bytes.Buffer
		w, err := gzip.NewWriterLevel(&b, level)
		if err != nil {
			t.Fatal(err)
		}
		for part := text; len(part) > 0; {
			k := min(len(part), 1+rng.IntN(1<<13))
			for i, any := 0, rng.IntN(4) == 0; i < k; i++ {
				part[i] = letters[rng.IntN(len(letters))]
				if any {
					part[i] = byte(rng.Uint32())
				}
			}
			if _, err := w.Write(part[:k]); err != nil {
				t.Fatal(err)
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			part = part[k:]
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		u := openPacked(t, "a", b.Bytes(), gzipCodec, "")
		u.points.every = 1 << 10
		if got := unpackAll(t, io.NewSectionReader(u, 0, unknownSize)); !bytes.Equal(got, text) {
			t.Fatalf("level %d: the content differs", level)
		}
		if len(u.points.places) < 20 {
			t.Errorf("level %d: only %d points", level, len(u.points.places))
		}
		for _, out := range u.points.places {
			p, err := u.points.load(out)
			if err != nil {
				t.Fatal(err)
			}
			r, err := u.codec.begin(u.raw, u.packed, *p, noNotes{})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, text[out:]) {
				t.Fatalf("level %d: from %d on the content differs: %v", level, out, err)
			}
			r.Close()
		}
	}
}

func TestReadingInTheMiddleDoesNotUnpackWhatComesBefore(t *testing.T) {
	text := logLines(rngOf(t), 4<<20)
	packed, cache := packGzip(t, 1, text), t.TempDir()
	first := openPacked(t, "a", packed, gzipCodec, cache)
	unpackAll(t, io.NewSectionReader(first, 0, unknownSize))

	u := openPacked(t, "a", packed, gzipCodec, cache)
	if _, err := u.ReadAt(make([]byte, 1), 3<<20); err != nil {
		t.Fatal(err)
	}
	if read := u.r.(*gunzip).in.at - u.points.before(3<<20).In; read > int64(len(packed))/3 {
		t.Errorf("%d of %d bytes were read for one byte in the middle", read, len(packed))
	}
}

func TestADamagedOrMissingRestartPointIsMadeAgain(t *testing.T) {
	text := logLines(rngOf(t), 2<<20)
	packed, cache := packGzip(t, 1, text), t.TempDir()
	first := openPacked(t, "a", packed, gzipCodec, cache)
	unpackAll(t, io.NewSectionReader(first, 0, unknownSize))
	names, err := filepath.Glob(filepath.Join(cache, "points", "*", "*"))
	if err != nil || len(names) < 4 {
		t.Fatal(names, err)
	}
	for i, name := range names {
		if i%2 == 0 {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			b[len(b)/2] ^= 1
			err = os.WriteFile(name, b, 0o600)
			if err != nil {
				t.Fatal(err)
			}
		} else if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		u := openPacked(t, "a", packed, gzipCodec, cache)
		b := make([]byte, 1000)
		if _, err := u.ReadAt(b, 15<<17); err != nil || !bytes.Equal(b, text[15<<17:][:1000]) {
			t.Fatalf("what was read differs, %v", err)
		}
	}
	if now, _ := filepath.Glob(filepath.Join(cache, "points", "*", "*")); len(now) < len(names)-1 {
		t.Errorf("there are %d points, want %d as before", len(now), len(names))
	}
}

// readFolder lists and reads a whole folder.
func readFolder(t *testing.T, dir string, spec Spec, framing Framing) ([]string, error) {
	t.Helper()
	spec.Root, spec.MaxRecord, spec.Verify = dir, 1<<20, "fast"
	s, err := Open(Options{Dataset: "d", Spec: &spec, Framing: framing, AllowedRoots: []string{dir}, Cache: t.TempDir()})
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	return readSource(s)
}

// readSource lists and reads a whole source.
func readSource(s *Source) ([]string, error) {
	var records []string
	ctx := context.Background()
	for after := int64(-1); ; {
		segs, err := s.Segments(ctx, s.partition, after, 1)
		if err != nil {
			return records, err
		}
		if len(segs) == 0 {
			return records, nil
		}
		g := segs[0]
		after = g.ID
		cur, err := s.Open(ctx, sources.Range{Partition: s.partition, Segment: g.ID, Start: g.Start, End: g.End}, sources.Position{Segment: g.ID, Offset: g.Start}, g.Locator)
		if err != nil {
			return records, err
		}
		var b sources.Batch
		for err = cur.Next(ctx, &b); err == nil; err = cur.Next(ctx, &b) {
			for _, r := range b.Recs {
				records = append(records, string(b.Arena[r.Value[0]:r.Value[1]]))
			}
		}
		_ = cur.Close()
		if err != io.EOF {
			return records, err
		}
	}
}

func absolute(t *testing.T, path string) string {
	p, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestBzip2OfSeveralStreamsIsRead(t *testing.T) {
	got, err := readFolder(t, absolute(t, "testdata/bzip2"), Spec{}, Framing{Kind: Lines, Header: true, Text: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 5000 || got[0] != "0,value 0" || got[4999] != "4999,value 4999" {
		t.Errorf("%d records, from %q to %q", len(got), got[:min(1, len(got))], got[max(0, len(got)-1):])
	}
}

func TestCompressedFilesThatCannotBeReadAreNamed(t *testing.T) {
	text := []byte(strings.Repeat("a line of text\n", 10_000))
	gz, zst := packGzip(t, 3, text), packZstd(t, 1, text)
	bz, err := os.ReadFile("testdata/bzip2/lines.csv.bz2")
	if err != nil {
		t.Fatal(err)
	}
	flip := func(b []byte, at int) []byte {
		c := bytes.Clone(b)
		c[at] ^= 0x10
		return c
	}
	lines := Framing{Kind: Lines}
	for _, c := range []struct {
		name    string
		content []byte
		spec    Spec
		framing Framing
		want    string
	}{
		{"a.gz", gz[:len(gz)-200], Spec{}, lines, "cut short"},
		{"a.gz", gz[:5], Spec{}, lines, "cut short"},
		{"a.gz", flip(gz, len(gz)-6), Spec{}, lines, "CRC"},
		{"a.gz", text, Spec{}, lines, "does not begin with a gzip header"},
		{"a.gz", append(bytes.Clone(gz), "more"...), Spec{}, lines, "cut short"},
		{"a.gz", append(bytes.Clone(gz), "more, and longer than a header"...), Spec{}, lines, "what follows a member is no gzip header"},
		{"a.zst", zst[:len(zst)-30], Spec{}, lines, "cut short"},
		{"a.zst", text, Spec{}, lines, "does not begin with a zstd frame"},
		{"a.zst", flip(zst, 20), Spec{}, lines, "zstd data cannot be read"},
		{"a.bz2", bz[:len(bz)-100], Spec{}, lines, "cut short"},
		{"a.bz2", text, Spec{}, lines, "bzip2 data cannot be read"},
		{"a.txt", gz, Spec{}, lines, "files.compression: gzip"},
		{"a.txt", gz, Spec{Compression: "none"}, lines, "files.compression: gzip"},
		{"a.txt", text, Spec{Compression: "gzip"}, lines, "does not begin with a gzip header"},
		{"a.gz", gz, Spec{}, Framing{Kind: Fixed, Size: 7, EmptyLines: true}, "is decode.record_size right?"},
		{"a.gz", packGzip(t, 1, bytes.Repeat([]byte("x"), 3<<20)), Spec{Compression: "gzip"}, Framing{Kind: Whole}, "longer than max_record"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, c.name), c.content, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := readFolder(t, dir, c.spec, c.framing)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.name) {
			t.Errorf("%s, %s: %v", c.name, c.want, err)
		}
	}
}

func TestRawFilesAreUnpackedOnlyIfTheSpecSaysSo(t *testing.T) {
	dir, text := t.TempDir(), []byte("one picture\n")
	gz := packGzip(t, 1, text)
	if err := os.WriteFile(filepath.Join(dir, "a.gz"), gz, 0o600); err != nil {
		t.Fatal(err)
	}
	for compression, want := range map[string]string{"": string(gz), "auto": string(gz), "none": string(gz), "gzip": string(text)} {
		got, err := readFolder(t, dir, Spec{Compression: compression}, Framing{Kind: Whole})
		if err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("compression %q: %q, %v", compression, got, err)
		}
	}
}

func TestTheLineOfARecordInACompressedFileIsKnown(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.tsv.gz"), packGzip(t, 3, []byte("one\ntwo\nthree\nfour\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	f := Spec{Root: dir}
	if got := f.Place(&dataset.Spec{Decode: dataset.DecodeSpec{Format: "tsv", Quote: dataset.NoQuote}}, "a.tsv.gz", 8); got != "a.tsv.gz:3" {
		t.Errorf("got %v, want %v", got, "a.tsv.gz:3")
	}
}

func TestAMasterThatStartsAgainGoesOnListingACompressedFile(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	text := logLines(rngOf(t), 200_000)
	if err := os.WriteFile(filepath.Join(dir, "a.gz"), packGzip(t, 3, text), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(known []sources.Segment) *Source {
		s, err := Open(Options{Dataset: "d", Spec: &Spec{Root: dir, MaxRecord: 1 << 20}, Framing: Framing{Kind: Lines}, AllowedRoots: []string{dir}, Cache: cache, Known: known})
		if err != nil {
			t.Fatal(err)
		}
		s.blocks = blocks{read: 64, records: 5, overrun: 8, segment: 20_000, every: 150, scan: 1000}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	ctx := context.Background()
	all, err := open(nil).Segments(ctx, "files:d", -1, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 { // its length is known at once, because it is smaller than a header may be
		t.Fatalf("%d segments", len(all))
	}
	big := logLines(rngOf(t), 3<<20)
	if err := os.WriteFile(filepath.Join(dir, "b.gz"), packGzip(t, 5, big), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err = open(nil).Segments(ctx, "files:d", -1, 1000); err != nil {
		t.Fatal(err)
	}
	if len(all) < 100 || all[len(all)-1].End != int64(len(big)) {
		t.Fatalf("%d segments, the last ends at %d of %d", len(all), all[len(all)-1].End, len(big))
	}
	for _, n := range []int{1, 2, 50, len(all) - 1, len(all)} {
		again, err := open(all[:n]).Segments(ctx, "files:d", -1, 1000)
		if err != nil || len(again) != len(all) {
			t.Fatalf("after %d of %d segments: %d, %v", n, len(all), len(again), err)
		}
		for i := range all {
			if again[i].Start != all[i].Start || again[i].End != all[i].End {
				t.Fatalf("after %d: segment %d is [%d, %d), was [%d, %d)", n, i, again[i].Start, again[i].End, all[i].Start, all[i].End)
			}
		}
	}
}

// FuzzUnpack checks that reading any bytes ends, and that reading in pieces gives the same as reading at once.
func FuzzUnpack(f *testing.F) {
	text := []byte(strings.Repeat("some text, ", 100))
	for n := range 6 {
		f.Add(packGzip(f, n, text), uint8(gzipCodec), uint16(77))
		f.Add(packZstd(f, n, text), uint8(zstdCodec), uint16(77))
	}
	if bz, err := os.ReadFile("testdata/bzip2/lines.csv.bz2"); err == nil {
		f.Add(bz, uint8(bzip2Codec), uint16(1))
	}
	f.Fuzz(func(t *testing.T, packed []byte, c uint8, from uint16) {
		how := codec(c)
		if how < gzipCodec || how > bzip2Codec || len(packed) == 0 {
			return
		}
		const most = 1 << 20
		read := func(at int64) ([]byte, error) {
			u := openPacked(t, "a", packed, how, "")
			b := make([]byte, most)
			n, err := u.ReadAt(b, at)
			return b[:n], err
		}
		all, err := read(0)
		if err != nil && err != io.EOF && !errors.As(err, new(*damage)) {
			t.Fatalf("the error is %v, want one of a damaged file", err)
		}
		part, again := read(int64(from))
		if err == io.EOF && again != io.EOF || err != nil && err != io.EOF && again == nil {
			t.Fatalf("from %d: %v, from 0: %v", from, again, err)
		}
		if err == io.EOF && int(from) < len(all) && !bytes.Equal(part, all[from:]) {
			t.Fatalf("from %d there are other bytes", from)
		}
	})
}

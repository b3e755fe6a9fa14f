package files

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// countedFile counts the bytes that are read from a file.
type countedFile struct {
	file
	read *int64
}

func (c countedFile) ReadAt(p []byte, at int64) (int, error) {
	n, err := c.file.ReadAt(p, at)
	*c.read += int64(n)
	return n, err
}

// The master lists a file of many small frames or members. An agent on the same machine then reads in its
// middle, and begins near there. The content does not compress, so as many bytes are read as unpacked.
func TestAReaderFindsThePointsBetweenFramesThatListingMade(t *testing.T) {
	rng := rngOf(t)
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(rng.Uint32())
	}
	text := make([]byte, 40<<20)
	if _, err := rand.NewChaCha8(seed).Read(text); err != nil {
		t.Fatal(err)
	}
	zstdFrames := func(sized bool) []byte {
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		for at := 0; at < len(text); at += 1 << 20 {
			part := text[at:][:1<<20]
			if sized {
				b.Write(enc.EncodeAll(part, nil))
				continue
			}
			enc.Reset(&b)
			for _, half := range [][]byte{part[:1<<19], part[1<<19:]} {
				if _, err := enc.Write(half); err != nil {
					t.Fatal(err)
				}
				if err := enc.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			if err := enc.Close(); err != nil {
				t.Fatal(err)
			}
		}
		return b.Bytes()
	}
	// Each member has one block, as zlib and bgzip write.
	var members []byte
	for at := 0; at < len(text); at += 32 << 10 {
		part := text[at:][:32<<10]
		members = append(members, 0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1)
		members = binary.LittleEndian.AppendUint16(members, 32<<10)
		members = binary.LittleEndian.AppendUint16(members, ^uint16(32<<10))
		members = binary.LittleEndian.AppendUint32(append(members, part...), crc32.ChecksumIEEE(part))
		members = binary.LittleEndian.AppendUint32(members, 32<<10)
	}
	for name, packed := range map[string][]byte{"sized.zst": zstdFrames(true), "unsized.zst": zstdFrames(false), "members.gz": members} {
		t.Run(name, func(t *testing.T) {
			dir, cache := t.TempDir(), t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, name), packed, 0o600); err != nil {
				t.Fatal(err)
			}
			open := func() *Source {
				s, err := Open(Options{Dataset: "d", Spec: &Spec{Root: dir, MaxRecord: 1 << 20}, Framing: Framing{Kind: Fixed, Size: 64}, AllowedRoots: []string{dir}, Cache: cache})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = s.Close() })
				return s
			}
			lists, reads := open(), open()
			segs, err := lists.Segments(context.Background(), lists.partition, -1, 100)
			if err != nil || len(segs) == 0 {
				t.Fatal(segs, err)
			}
			l, err := decodeLocator(segs[0].Locator)
			if err != nil {
				t.Fatal(err)
			}
			points, err := filepath.Glob(filepath.Join(cache, pointsFolder, "*", "*"))
			if most := len(text) / pointsEvery; err != nil || len(points) > most {
				t.Errorf("%d points are stored, and at most %d were expected: %v", len(points), most, err)
			}
			f, err := os.Open(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			read := int64(0)
			u := newUnpacked(countedFile{localFile{f}, &read}, l.Identity.Size, l.Codec, reads.pointsFor(l))
			defer func() { _ = u.Close() }()
			got, at := make([]byte, 1000), int64(len(text)-3<<19) // 38.5 MiB
			if _, err := u.ReadAt(got, at); err != nil || !bytes.Equal(got, text[at:][:1000]) {
				t.Fatalf("what was read differs, %v", err)
			}
			// The nearest point is at most 4 MiB and one frame before it. Some bytes are read ahead.
			if read > 6<<20 {
				t.Errorf("%d MiB of the file were read for one record", read>>20)
			}
		})
	}
}

// Without a folder for points, few points that need a window are kept, and many others.
func TestPointsThatCannotBeStoredStayBoundedInMemory(t *testing.T) {
	rng := rngOf(t)
	notAFolder := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(notAFolder, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, cache := range []string{"", notAFolder} {
		p := newPoints(&trimmer{cache: cache, limit: cacheLimit}, gzipCodec, identity{Size: 1 << 40}, slog.New(slog.DiscardHandler))
		window := pointAt(rng, 1)
		for i := range maxLightWindows + 10 {
			at := *window
			at.Out = int64(i+1) * pointsEvery
			p.note(&at)
		}
		if len(p.light) != maxLightWindows {
			t.Errorf("cache %q: %d points with windows are kept", cache, len(p.light))
		}
		p.note(&point{Out: 1 << 39, In: 1 << 38})
		if at := p.before(1 << 39); at.Out != 1<<39 {
			t.Errorf("cache %q: the nearest point is at %d", cache, at.Out)
		}
	}
}

// A point that cannot be read just now, for example because the process has too many open files, stays,
// and reading begins at the start of the file. A damaged point is deleted.
func TestAPointThatCannotBeReadJustNowIsKept(t *testing.T) {
	p := pointsIn(t, &trimmer{cache: t.TempDir(), limit: cacheLimit}, 1)
	for i := range int64(2) {
		p.note(pointAt(rngOf(t), (i+1)*pointsEvery))
	}
	name := p.name(2 * pointsEvery)
	if err := os.Rename(name, name+"-away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(name, name); err != nil { // a link to itself cannot be opened
		t.Fatal(err)
	}
	if at := p.before(3 * pointsEvery); at.Out != 0 {
		t.Errorf("with an unreadable point, reading begins at %d, want the start of the file", at.Out)
	}
	if err := os.Rename(name+"-away", name); err != nil {
		t.Fatal(err)
	}
	if at := p.before(3 * pointsEvery); at.Out != 2*pointsEvery {
		t.Errorf("once the point can be read again, reading begins at %d, want %d", at.Out, 2*pointsEvery)
	}
	if err := os.Truncate(name, 100); err != nil {
		t.Fatal(err)
	}
	if at := p.before(3 * pointsEvery); at.Out != pointsEvery {
		t.Errorf("with a damaged point, reading begins at %d, want the one before it, %d", at.Out, pointsEvery)
	}
	if _, err := os.Lstat(name); !os.IsNotExist(err) {
		t.Error("the damaged point is still there", err)
	}
}

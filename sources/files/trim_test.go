package files

import (
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// pointAt is a restart point with a window that does not compress.
func pointAt(rng *rand.Rand, out int64) *point {
	p := &point{Out: out, In: out / 2, Inside: true, Member: out, Window: make([]byte, 32<<10)}
	for i := range p.Window {
		p.Window[i] = byte(rng.Uint32())
	}
	return p
}

func pointsIn(t *testing.T, tr *trimmer, file uint64) *pointsOf {
	t.Helper()
	return newPoints(tr, gzipCodec, identity{Size: 1 << 30, Print: file}, slog.New(slog.DiscardHandler))
}

// stored returns how many bytes the cache has.
func stored(t *testing.T, cache string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(cache, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		bytes += info.Size()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// The Source of a growing folder stays open as long as its process runs, so points must be trimmed meanwhile.
func TestRestartPointsStayBelowTheLimitWhileASourceIsOpen(t *testing.T) {
	rng, cache := rngOf(t), t.TempDir()
	dir := t.TempDir()
	s, err := Open(Options{Dataset: "d", Spec: &Spec{Root: dir, MaxRecord: 1 << 20, End: endNever}, Framing: Framing{Kind: Lines}, AllowedRoots: []string{dir}, Cache: cache})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	s.trimmer.limit = 1 << 20
	for file := range 60 {
		p := s.pointsFor(&locator{Codec: gzipCodec, Identity: identity{Size: 1 << 30, Print: uint64(file)}})
		for i := range 4 {
			p.note(pointAt(rng, int64(i+1)*pointsEvery))
		}
		if most := s.trimmer.limit + s.trimmer.limit/trimShare + 36<<10; stored(t, cache) > most {
			t.Fatalf("after %d files the points take %d bytes, want at most %d", file+1, stored(t, cache), most)
		}
		if at := p.before(5 * pointsEvery); at.Out != 4*pointsEvery {
			t.Fatalf("the nearest point of the file that was read last is at %d", at.Out)
		}
		// Folders that are used one right after the other may get the same time from the file system.
		at := time.Now().Add(time.Duration(file-100) * time.Hour)
		if err := os.Chtimes(p.folder, at, at); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRestartPointsOfFilesReadLongestAgoAreDeletedFirst(t *testing.T) {
	rng, tr := rngOf(t), &trimmer{cache: t.TempDir(), limit: 1 << 30}
	var all []*pointsOf
	for file := range 4 {
		p := pointsIn(t, tr, uint64(file))
		p.note(pointAt(rng, pointsEvery))
		at := time.Now().Add(time.Duration(file-10) * time.Hour)
		if err := os.Chtimes(p.folder, at, at); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	// Another process reads with the oldest points, so they are not the oldest any more.
	if at := pointsIn(t, tr, 0).before(2 * pointsEvery); at.Out != pointsEvery {
		t.Fatalf("the nearest point is at %d", at.Out)
	}
	tr.limit = 80 << 10 // room for two points
	tr.trim()
	for file, p := range all {
		_, err := os.Stat(p.folder)
		if left := file == 0 || file == 3; left != (err == nil) {
			t.Errorf("points of file %d: %v", file, err)
		}
	}
	// A point that is trimmed while its file is being read is made again.
	all[1].note(pointAt(rng, 2*pointsEvery))
	if at := all[1].before(2 * pointsEvery); at.Out != 2*pointsEvery {
		t.Errorf("the nearest point is at %d", at.Out)
	}
}

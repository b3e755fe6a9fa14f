package files

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// limitFiles makes the system refuse to write a file beyond size, as a full disk would.
func limitFiles(t *testing.T, size uint64) (lift func()) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	now := was
	now.Cur = size
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &now); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
			t.Error(err)
		}
	}
}

// Without room for restart points a file is still listed and read. A warning comes, and no part of a point
// is left. The next process writes the points when there is room.
func TestRestartPointsThatFindNoRoomStopNobody(t *testing.T) {
	if os.Getenv("HEADRACE_TEST_ALONE") == "" { // use another process: the limit would also stop the log that go test keeps of this one
		alone := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		alone.Env = append(os.Environ(), "HEADRACE_TEST_ALONE=1")
		if out, err := alone.CombinedOutput(); err != nil || !bytes.HasPrefix(out, []byte("PASS")) {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	rng := rngOf(t)
	var content []byte
	var blocks [][]byte
	for range 60 { // runs make large blocks out of few bytes
		b := append(logLines(rng, 3000), bytes.Repeat([]byte("="), 200_000)...)
		blocks = append(blocks, append(b, '\n'))
		content = append(content, blocks[len(blocks)-1]...)
	}
	var gz bytes.Buffer
	w := gzip.NewWriter(&gz)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string][]byte{"a.gz": gz.Bytes(), "a.bz2": packBzip2('9', blocks...)} {
		t.Run(name, func(t *testing.T) {
			dir, cache := t.TempDir(), t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, name), file, 0o600); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			stored := func() (n int) {
				err := filepath.WalkDir(cache, func(_ string, e fs.DirEntry, err error) error {
					if err == nil && !e.IsDir() {
						n++
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			reads := func() {
				t.Helper()
				s, err := Open(Options{Dataset: "d", Spec: &Spec{Root: dir, MaxRecord: 1 << 20}, Framing: Framing{Kind: Lines},
					AllowedRoots: []string{dir}, Cache: cache, Logger: slog.New(slog.NewTextHandler(&log, nil))})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = s.Close() }()
				segs, err := s.Segments(t.Context(), s.partition, -1, 100)
				if err != nil || len(segs) != 1 || segs[0].End != int64(len(content)) {
					t.Fatalf("%+v, %v", segs, err)
				}
				at := int64(len(content)) - 1<<20
				if part, err := readRange(t, s, segs[0], at, at+400_000); err != nil || len(part) == 0 {
					t.Fatalf("%d records, %v", len(part), err)
				}
			}
			lift := limitFiles(t, 50) // a point needs more
			reads()
			lift()
			if n := strings.Count(log.String(), "restart points of compressed files cannot be stored"); n == 0 || n > 2 {
				t.Errorf("%d warnings for one listing and one reading: %s", n, log.String())
			}
			if n := stored(); n != 0 {
				t.Errorf("%d files of points are left, want none", n)
			}
			log.Reset()
			reads()
			if n := stored(); n < 2 || log.Len() > 0 {
				t.Errorf("with room, %d points are stored; the log says: %s", n, log.String())
			}
		})
	}
}

// A point of another version is never used. Points of bzip2 have a form and a folder of their own, because
// older versions cannot begin at them. Points of gzip have too, because older versions made wrong ones.
func TestPointsOfAnotherVersionAreNotUsed(t *testing.T) {
	for c, form := range map[codec]string{gzipCodec: "HRP3", zstdCodec: "HRP1", bzip2Codec: "HRP2"} {
		p := newPoints(&trimmer{cache: t.TempDir(), limit: cacheLimit}, c, identity{Size: 1 << 40}, slog.New(slog.DiscardHandler))
		if got := string(p.owner[:4]); got != form {
			t.Errorf("codec %v: the points are %s, want %s", c, got, form)
		}
		other := append([]byte("HRP1"), p.owner[4:]...)
		if c == zstdCodec {
			copy(other, "HRP4")
		}
		if filepath.Base(p.folder) == fmt.Sprintf("%016x", xxhash.Sum64(other)) {
			t.Errorf("codec %v: points of other versions are in the same folder", c)
		}
		at := pointAt(rngOf(t), pointsEvery)
		p.note(at)
		if got := p.before(2 * pointsEvery); got.Out != pointsEvery {
			t.Fatalf("codec %v: reading begins at %d", c, got.Out)
		}
		text, err := os.ReadFile(p.name(pointsEvery))
		if err != nil {
			t.Fatal(err)
		}
		body := append(other, text[len(other):len(text)-4]...)
		text = binary.LittleEndian.AppendUint32(body, crc32.Checksum(body, castagnoli))
		if err := os.WriteFile(p.name(pointsEvery), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := p.before(2 * pointsEvery); got.Out != 0 {
			t.Errorf("codec %v: reading begins at a point of another version", c)
		}
		if _, err := os.Stat(p.name(pointsEvery)); err == nil {
			t.Errorf("codec %v: a point of another version is still there", c)
		}
	}
}

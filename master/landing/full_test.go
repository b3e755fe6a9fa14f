package landing

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/headrace/headrace/internal/store/memstore"
)

// limitFiles makes the system refuse to write a file beyond size. A part of the write may be done, as
// on a full disk.
func limitFiles(t *testing.T, size int) (lift func()) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	now := was
	now.Cur = uint64(size)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &now); err != nil {
		t.Fatal(err)
	}
	lift = func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(lift) // in case the test ends early
	return lift
}

// If there is no room on the disk for a chunk, its call fails and leaves nothing. The producer is told
// to try again. When there is room, the same call lands once.
func TestACallThatFindsNoRoomOnTheDiskLandsWhenThereIsRoom(t *testing.T) {
	place := folder(t)
	s, _ := life(t, memstore.New(), place, strings.Replace(spec, "max_bytes: 1MiB", "max_bytes: 64MiB", 1))
	// The limit is larger than any file that the testing package may write meanwhile.
	small, large := lines("a"), lines(noise(8000))
	last := []NewChunk{{0, small}, {1, large}, {1, small}}
	path, text := oneCall(t, "over-http", nil, last...)

	lift := limitFiles(t, len(large)/2)
	_, staging := s.Stage(t.Context(), "clicks", "t", 1, large)
	_, landing := s.Land(t.Context(), "clicks", "t", nil, last)
	code, a := s.post(t, path, "", text)
	lift()
	for what, err := range map[string]error{"Stage": staging, "Land": landing} {
		if !errors.Is(err, ErrNotReady) || !errors.Is(err, syscall.EFBIG) || !strings.Contains(err.Error(), "dataset clicks: a chunk could not be stored") {
			t.Errorf("%s on a full disk got %v", what, err)
		}
	}
	if code != http.StatusServiceUnavailable || !strings.Contains(a.Error, "a chunk could not be stored") {
		t.Errorf("the call over HTTP on a full disk got %d %+v", code, a)
	}
	if l, err := s.Layout(t.Context(), "clicks"); err != nil || l.Stored != 0 || s.held(t) != 0 {
		t.Errorf("%d chunks are stored, %d bytes are counted, %v", s.held(t), l.Stored, err)
	}
	if err := fs.WalkDir(os.DirFS(fmt.Sprint(place)), ".", func(path string, _ fs.DirEntry, err error) error {
		if strings.Contains(path, ".new-") {
			t.Errorf("the failed calls have left the file %s", path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}

	for again := range 2 {
		if done, err := s.Land(t.Context(), "clicks", "t", nil, last); err != nil || done.Already != (again > 0) || done.Records != 3 {
			t.Errorf("with room, call %d got %+v (%v), want 3 records", again, done, err)
		}
		if code, a := s.post(t, path, "", text); code != http.StatusOK || a.Already != (again > 0) || a.Records != 3 {
			t.Errorf("with room, call %d over HTTP got %d %+v, want 3 records", again, code, a)
		}
	}
	if s.held(t) != 6 {
		t.Errorf("%d chunks are stored, want 6", s.held(t))
	}
}

package deadletter

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// limitFiles makes the system refuse to write a file beyond size. A part of the write is done, as on a full
// disk.
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
	return func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
			t.Error(err)
		}
	}
}

// Letters that find no room are written again later. So the failed try must leave none of them in the file.
func TestLettersThatFoundNoRoomComeOnce(t *testing.T) {
	f := Folder{Root: t.TempDir(), Path: "bad"}
	first := line(t, 1, "first")
	if err := f.Append("d", [][]byte{first}); err != nil {
		t.Fatal(err)
	}
	three := [][]byte{line(t, 2, "second"), line(t, 3, "third"), line(t, 4, "fourth")}
	lift := limitFiles(t, len(first)+len(three[0])+len(three[1])+5)
	err := f.Append("d", three)
	lift()
	if !errors.Is(err, syscall.EFBIG) {
		t.Fatalf("Append without room: %v", err)
	}
	got, err := os.ReadFile(filepath.Join(f.Root, "bad", "d.jsonl"))
	if err != nil || !bytes.Equal(got, first) {
		t.Errorf("after a try without room the file contains %q, %v", got, err)
	}
	if err := f.Append("d", three); err != nil {
		t.Fatal(err)
	}
	if lines, _, err := f.Read("d", 0, 10); err != nil || len(lines) != 4 {
		t.Errorf("%d lines, %v, want 4", len(lines), err)
	}
}

package deadletter

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func line(t *testing.T, offset int64, value string) []byte {
	t.Helper()
	l := Letter{Dataset: "d", Partition: "p", Offset: offset, Value: []byte(value), Size: int64(len(value))}
	l.Fill(1_700_000_000_123)
	b, err := l.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A crash in the middle of a write leaves a part of a line. The letter is written again, so the part is cut off,
// and every line can be read.
func TestATornLineIsCutOff(t *testing.T) {
	whole := line(t, 7, "second")
	for n := range whole {
		f := Folder{Root: t.TempDir(), Path: "bad"}
		if err := f.Append("d", [][]byte{line(t, 3, "first\xff<&>")}); err != nil {
			t.Fatal(err)
		}
		file, err := os.OpenFile(filepath.Join(f.Root, "bad", "d.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write(whole[:n]); err != nil {
			t.Fatal(err)
		}
		file.Close()
		if lines, next, err := f.Read("d", 0, 10); err != nil || len(lines) != 1 || next != 0 {
			t.Fatalf("cut at %d: %d lines, next %d, %v", n, len(lines), next, err)
		}
		if err := f.Append("d", [][]byte{whole, line(t, 9, "third")}); err != nil {
			t.Fatal(err)
		}
		lines, next, err := f.Read("d", 0, 2)
		if err != nil || len(lines) != 2 || next == 0 {
			t.Fatalf("cut at %d: %d lines, next %d, %v", n, len(lines), next, err)
		}
		more, end, err := f.Read("d", next, 10)
		if err != nil || len(more) != 1 || end != 0 {
			t.Fatalf("cut at %d: %d more lines, end %d, %v", n, len(more), end, err)
		}
		for i, want := range []string{"first\xff<&>", "second", "third"} {
			l, err := Decode(append(lines[:2:2], more...)[i])
			if err != nil || string(l.Value) != want || !l.Whole() || l.ID == "" || l.Time != "2023-11-14T22:13:20.123Z" {
				t.Fatalf("cut at %d: line %d is %+v (%v), want %q", n, i, l, err, want)
			}
		}
	}
}

func TestAFolderCannotBeLeft(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	for _, dir := range []string{outside, root + "/../x", root + "2"} {
		if f, err := FolderIn([]string{root}, dir); err == nil || !strings.Contains(err.Error(), "--allow-root") {
			t.Errorf("%s: %+v, %v", dir, f, err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	f, err := FolderIn([]string{outside + "/none", root}, root+"/link")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Append("d", [][]byte{line(t, 1, "x")}); err == nil {
		t.Error("a link leads out of the allowed root")
	}
	if lines, next, err := (Folder{Root: root, Path: "none"}).Read("d", 0, 10); lines != nil || next != 0 || err != nil {
		t.Error(lines, next, err)
	}
}

// Masters of several jobs may have the same dataset and the same dead_letter.files.
func TestSeveralMastersWriteOneFile(t *testing.T) {
	was := aloneWithin
	aloneWithin = time.Hour // however slow this machine is
	defer func() { aloneWithin = was }()
	root := t.TempDir()
	const masters, each = 4, 25
	var writers sync.WaitGroup
	for m := range masters {
		writers.Go(func() {
			f := Folder{Root: root, Path: "bad"}
			for i := range each {
				if err := f.Append("d", [][]byte{line(t, int64(m*each+i), strings.Repeat("x", 10*m+i))}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	lines, _, err := (Folder{Root: root, Path: "bad"}).Read("d", 0, 2*masters*each)
	if err != nil {
		t.Fatal(err)
	}
	r := Reading{Dataset: "d"}
	if err := r.Add(lines); err != nil || len(r.All) != masters*each {
		t.Errorf("%d letters, %v, want %d", len(r.All), err, masters*each)
	}
}

// A process that is frozen while it writes a file does not hold up the others for ever.
func TestAFrozenWriterHoldsUpNobodyForEver(t *testing.T) {
	was := aloneWithin
	aloneWithin = 0
	defer func() { aloneWithin = was }()
	f := Folder{Root: t.TempDir(), Path: "bad"}
	if err := f.Append("d", [][]byte{line(t, 3, "first")}); err != nil {
		t.Fatal(err)
	}
	frozen, err := os.Open(filepath.Join(f.Root, "bad", "d.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer frozen.Close()
	if err := unix.Flock(int(frozen.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := f.Append("d", [][]byte{line(t, 7, "second")}); err == nil || !strings.Contains(err.Error(), "another process has been writing it") {
		t.Errorf("while another process holds the file, Append says %v", err)
	}
	if err := frozen.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Append("d", [][]byte{line(t, 7, "second")}); err != nil {
		t.Errorf("after that, Append says %v", err)
	}
}

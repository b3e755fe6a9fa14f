package stepfile_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/headrace/headrace/agent/stepfile"
)

// A frame that does not fit into the rest of the memory is written beyond it. Whole pages before it
// may never have been written, and the frame counts all the same.
func TestAFrameBeyondMemoryThatWasNeverWrittenIsRead(t *testing.T) {
	t.Setenv(stepfile.RootVariable, t.TempDir())
	f, err := stepfile.Open("/run/a.sock", "node-1")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	v := vectors(t)["stepped.json"]
	first := bytes.Index(v.File, []byte("FRM1"))
	second := first + 1 + bytes.Index(v.File[first+1:], []byte("FRM1"))
	const far, most = 1 << 20, 64 << 20
	binary.LittleEndian.PutUint64(v.File[first+40:], far) // where the next frame lies
	file, err := os.OpenFile(filepath.Join(f.Path, "00c0ffee00c0ffee-2"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(most); err != nil {
		t.Fatal(err)
	}
	for at, part := range map[int64][]byte{0: v.File[:second], far: v.File[second:]} {
		if _, err := file.WriteAt(part, at); err != nil {
			t.Fatal(err)
		}
	}
	all, err := f.List()
	if err != nil || len(all) != 1 {
		t.Fatalf("the folder lists %v (%v), want 1 file", all, err)
	}
	s, err := all[0].Read()
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Batches) != len(v.Batches) || s.Through != v.Through || s.Missing != 0 {
		t.Errorf("the file has %d batches, %d of them stepped and %d missing; want %d, %d and 0", len(s.Batches), s.Through, s.Missing, len(v.Batches), v.Through)
	}
}

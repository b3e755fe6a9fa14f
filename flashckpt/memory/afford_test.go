package memory

import (
	"os"
	"path/filepath"
	"testing"
)

// A container that has read many files has used all of its memory, as its cgroup counts.
func TestFilesThatWereReadDoNotCountAsUsedMemory(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("memory.max", "max\n")
	write("memory.current", "990\n")
	write("memory.stat", "anon 5\nfile 700\ninactive_file 400\nactive_file 200\n")
	if free, known := freeOf(dir); known {
		t.Errorf("without a limit %d bytes are free, want no number", free)
	}
	write("memory.max", "1000\n")
	if free, known := freeOf(dir); !known || free != 610 {
		t.Errorf("%d bytes are free (%v), want 610", free, known)
	}
	if free, known := affordable(); !known || free <= 0 {
		t.Errorf("this machine has %d bytes free (%v)", free, known)
	}
}

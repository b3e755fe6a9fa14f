package memory

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// An agent with --replicas 1 looks at its own slots ten times a second. A description has the cut, with its table of
// segments: megabytes.
func TestASlotThatDidNotChangeIsNotReadAgain(t *testing.T) {
	root := t.TempDir()
	for rank := range uint32(4) {
		writeSlot(t, root, "/ckpt", rank, 1, tensors(100))
		writeSlot(t, root, "/ckpt", rank, 2, tensors(100))
	}
	folders, err := Folders(root, "")
	if err != nil || len(folders) != 1 {
		t.Fatal(folders, err)
	}
	var s Seen
	look := func(held, reads int, newest int64) {
		t.Helper()
		before := s.Reads()
		all, err := s.Own(&folders[0])
		if err != nil || len(all) != held || s.Reads() != before+reads || all[0].About.Manifest.Step != newest {
			t.Fatalf("%d slots were seen (%v), and %d were read; the newest is of step %d. Want %d, %d and %d", len(all), err, s.Reads()-before, all[0].About.Manifest.Step, held, reads, newest)
		}
	}
	look(8, 8, 2)
	look(8, 0, 2)
	slot, _ := writeSlot(t, root, "/ckpt", 0, 3, tensors(100))
	look(8, 1, 3)

	// A slot that its trainer writes cannot be opened, and one that is only looked at can be written.
	trainer, err := os.OpenFile(slot, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer trainer.Close()
	if err := unix.Flock(int(trainer.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatalf("the slot is pinned after a look: %v", err)
	}
	if _, err := trainer.WriteAt(make([]byte, 8), endAt); err != nil { // it takes the end mark away first
		t.Fatal(err)
	}
	look(7, 0, 2)
	if err := trainer.Close(); err != nil {
		t.Fatal(err)
	}
	writeSlot(t, root, "/ckpt", 0, 3, tensors(100))
	look(8, 1, 3)

	// The same head in another file: a trainer that begins anew counts from the start.
	b, err := os.ReadFile(slot)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(slot+".new", b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(slot+".new", slot); err != nil {
		t.Fatal(err)
	}
	look(8, 1, 3)

	// A damaged description is read once.
	at := bytes.Index(b, []byte(`"manifest"`))
	f, err := os.OpenFile(slot, os.O_RDWR, 0)
	if err == nil {
		_, err = f.WriteAt([]byte{'x'}, int64(at))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s = Seen{}
	look(7, 8, 2)
	look(7, 0, 2)
	if err := os.Remove(slot); err != nil {
		t.Fatal(err)
	}
	look(7, 0, 2)
	if _, known := s.slots[filepath.Clean(slot)]; known {
		t.Error("a slot that is not there any more is remembered")
	}
}

package manifest

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/headrace/headrace/shardsvc/cut"
)

// TestAPinAndARemovalAtTheSameTime plays every order of the calls of a person who pins a
// checkpoint and of a process that removes it.
func TestAPinAndARemovalAtTheSameTime(t *testing.T) {
	path := filepath.Join(checkpoints, Folder(100, nil, 100), FileName)
	pinned, removed, neither, played := 0, 0, 0, 0
	for order := []int{}; order != nil; played++ {
		mem := memory{vfs.NewMem()}
		if err := saveNoFiles(mem, 100); err != nil {
			t.Fatal(err)
		}
		all, err := Find(mem, checkpoints)
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		var pin, removal error
		order = inTurns(mem, order,
			func(on FS) { pin = SetPin(on, path, Pin{}) },
			func(on FS) {
				if removal = all[0].BeginRemoval(on); removal == nil { // here the master would drop the cut
					removal = all[0].Delete(on)
				}
			})
		_, gone := mem.ReadFile(path)
		switch {
		case pin == nil && gone != nil:
			t.Fatalf("the pin succeeded, but the checkpoint is gone; the removal returned %v", removal)
		case pin == nil && !errors.Is(removal, ErrPinned):
			t.Fatalf("the pin succeeded, but the removal returned %v, want ErrPinned", removal)
		case pin == nil:
			pinned++
		case !errors.Is(pin, ErrRemoved) && !errors.Is(pin, fs.ErrNotExist):
			t.Fatalf("the pin failed with %v", pin)
		case gone != nil:
			removed++
		default:
			neither++
		}
		if _, err := mem.ReadFile(RemovalPath(path)); err == nil && (pin == nil || gone != nil) {
			t.Fatalf("the mark of the removal is still there: the pin returned %v, the removal %v", pin, removal)
		}
	}
	t.Logf("%d orders: pinned %d, removed %d, each saw the other %d", played, pinned, removed, neither)
	if pinned == 0 || removed == 0 || neither == 0 {
		t.Error("one of the three results did not occur in any order")
	}
}

// saveNoFiles writes a checkpoint without files. Each file would be one more call of the removal, and there are enough orders.
func saveNoFiles(on memory, step int64) error {
	c := cutOf("replicated", files())
	c.ID, c.Step = cut.ID(step), step
	folder := filepath.Join(checkpoints, Folder(step, nil, c.ID))
	return errors.Join(on.MkdirAll(folder, 0o777), WriteManifest(on, filepath.Join(folder, FileName), of(c)))
}

// turn is an FS whose calls each wait for their turn.
type turn struct {
	FS
	at, turn chan struct{}
}

func (f turn) wait() { f.at <- struct{}{}; <-f.turn }

func (f turn) Create(path string) (Writer, error) { f.wait(); return f.FS.Create(path) }
func (f turn) Rename(from, to string) error       { f.wait(); return f.FS.Rename(from, to) }
func (f turn) Remove(path string) error           { f.wait(); return f.FS.Remove(path) }

func (f turn) ReadFile(path string) ([]byte, error)  { f.wait(); return f.FS.ReadFile(path) }
func (f turn) ReadDir(folder string) ([]Name, error) { f.wait(); return f.FS.ReadDir(folder) }
func (f turn) RemoveIn(folder, path string) error    { f.wait(); return f.FS.RemoveIn(folder, path) }

// inTurns runs two programs, one call at a time. order says which program's call is next. After its end,
// the calls of the first program come first. inTurns returns the next order to play, and nil after the
// last one.
func inTurns(on FS, order []int, programs ...func(FS)) (next []int) {
	var of []turn
	var ended []chan struct{}
	for _, program := range programs {
		f := turn{on, make(chan struct{}), make(chan struct{})}
		end := make(chan struct{})
		go func() { defer close(end); program(f) }()
		of, ended = append(of, f), append(ended, end)
	}
	waits := make([]bool, len(of)) // by program: its next call waits for its turn
	arrive := func(k int) {
		select {
		case <-of[k].at:
			waits[k] = true
		case <-ended[k]:
			waits[k] = false
		}
	}
	for k := range of {
		arrive(k)
	}
	var chosen []int
	var both []bool
	for n := 0; waits[0] || waits[1]; n++ {
		k := 0
		if n < len(order) {
			k = order[n]
		} else if !waits[0] {
			k = 1
		}
		chosen, both = append(chosen, k), append(both, waits[0] && waits[1])
		of[k].turn <- struct{}{}
		arrive(k)
	}
	for n := len(chosen) - 1; n >= 0; n-- {
		if both[n] && chosen[n] == 0 {
			return append(chosen[:n:n], 1)
		}
	}
	return nil
}

func TestARemovalThatDoesNotGoOnLetsTheCheckpointBePinned(t *testing.T) {
	dir := t.TempDir()
	path := made(t, dir, func(*Manifest) {})
	one := found(t, path)[0]
	if err := one.BeginRemoval(OS{}); err != nil {
		t.Fatal(err)
	}
	if err := SetPin(OS{}, path, Pin{}); !errors.Is(err, ErrRemoved) {
		t.Fatal(err)
	}
	if found(t, path)[0].Pin != nil {
		t.Fatal("SetPin was refused, but the checkpoint is pinned")
	}
	if err := errors.Join(one.CancelRemoval(OS{}), SetPin(OS{}, path, Pin{Reason: "for the paper"})); err != nil {
		t.Fatal(err)
	}
	if err := one.BeginRemoval(OS{}); !errors.Is(err, ErrPinned) {
		t.Fatal(err)
	}
	if err := SetPin(OS{}, path, Pin{Reason: "for ever"}); err != nil {
		t.Fatal(err)
	}
	if got := found(t, path)[0].Pin; got == nil || got.Reason != "for ever" {
		t.Fatal(got)
	}
}

func TestTheMarkOfAnotherCheckpointOfThatNameDoesNotCount(t *testing.T) {
	path := made(t, t.TempDir(), func(*Manifest) {})
	for content, counts := range map[string]bool{"00000000000000ff\n": false, "": true, "?": true} {
		if _, err := put(OS{}, RemovalPath(path), strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
		err := SetPin(OS{}, path, Pin{})
		if errors.Is(err, ErrRemoved) != counts {
			t.Errorf("with a removal's mark of the content %q, SetPin got %v, want refused: %v", content, err, counts)
		}
		if err == nil {
			if err := Unpin(OS{}, path); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// full is a disk on which a file can be made, and has no room for a byte.
type full struct{ FS }

type noRoom struct{ Writer }

func (f full) Create(path string) (Writer, error) {
	w, err := f.FS.Create(path)
	return noRoom{w}, err
}

func (noRoom) Write([]byte) (int, error) { return 0, &fs.PathError{Op: "write", Err: syscall.ENOSPC} }

func TestACheckpointOnAFullDiskCanBeRemoved(t *testing.T) {
	path := made(t, t.TempDir(), func(*Manifest) {})
	one := found(t, path)[0]
	if err := one.BeginRemoval(full{OS{}}); err != nil {
		t.Fatalf("a removal on a full disk: %v", err)
	}
	if err := SetPin(OS{}, path, Pin{}); !errors.Is(err, ErrRemoved) {
		t.Errorf("a pin after that removal has begun: %v, want ErrRemoved", err)
	}
	if err := one.Delete(full{OS{}}); err != nil {
		t.Error(err)
	}
}

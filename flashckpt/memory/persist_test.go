package memory

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/crc64nvme"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/shardsvc/cut"
)

// writeSlot writes a slot as a trainer does. It returns the paths of the slot and of its manifest.
func writeSlot(t testing.TB, root, dir string, rank uint32, step int64, image []byte) (slot, path string) {
	t.Helper()
	return writeSlotAs(t, root, dir, rank, step, image, func(*About) {})
}

// writeSlotAs is writeSlot, but the caller can change the slot's description of its checkpoint.
func writeSlotAs(t testing.TB, root, dir string, rank uint32, step int64, image []byte, change func(*About)) (slot, path string) {
	t.Helper()
	id := cut.ID(step)
	folder := manifest.Folder(step, nil, id)
	about := About{Version: version, Path: manifest.Join(dir, folder, manifest.FileName), Rank: rank, Node: "here", Run: "r",
		Manifest: manifest.Manifest{Format: manifest.Format, Version: manifest.Version, Job: "default", Model: "replicated", Step: step, WorldSize: 1,
			Created: time.Date(2026, 11, 23, 5, 0, 0, 0, time.UTC), Files: []manifest.File{},
			State: json.RawMessage(`{"format":"headrace-python-state","version":1,"tree":{"dict":[]},"file":"state.safetensors"}`),
			Cut: cut.Cut{Version: cut.Version, ID: id, Job: "default", Model: "replicated", Epoch: 1, Generation: 1, Rank: cut.Group, WorldSize: 1,
				Step: step, Order: uint64(step), Exact: true, Datasets: []cut.Dataset{}}}}
	change(&about)
	text, err := json.Marshal(about)
	if err != nil {
		t.Fatal(err)
	}
	control := []byte(magic)
	for _, v := range []uint64{uint64(step), uint64(step), uint64(len(image)), crc64nvme.Checksum(image), uint64(len(text)), crc64nvme.Checksum(text)} {
		control = binary.LittleEndian.AppendUint64(control, v)
	}
	control = binary.LittleEndian.AppendUint64(control, crc64nvme.Checksum(control))
	all := make([]byte, page+(len(image)+page-1)/page*page)
	copy(all, control)
	copy(all[page:], image)
	slots := filepath.Join(root, "0123456789abcdef-0000000000000001")
	if err := os.MkdirAll(slots, 0o700); err != nil {
		t.Fatal(err)
	}
	job, err := json.Marshal(Folder{Dir: dir, ID: "0123456789abcdef", Job: "default"})
	if err != nil {
		t.Fatal(err)
	}
	slot = filepath.Join(slots, fmt.Sprintf("rank-%d-slot-%d", rank, step%2))
	if err := errors.Join(os.WriteFile(filepath.Join(slots, aboutFile), job, 0o600), os.WriteFile(slot, append(all, text...), 0o600)); err != nil {
		t.Fatal(err)
	}
	return slot, about.Path
}

func image(n int) []byte { return bytes.Repeat([]byte("weights "), n/8) }

// change flips one bit of the byte at `at` in a file.
func change(t *testing.T, path string, at int64) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTheNewestCompleteCheckpointOfAKilledTrainerGoesToStorage(t *testing.T) {
	root, dir := t.TempDir(), filepath.Join(t.TempDir(), "ckpt")
	_, old := writeSlot(t, root, dir, 0, 1, image(5000))
	_, path := writeSlot(t, root, dir, 0, 2, image(9000))
	writeSlot(t, root, dir, 1, 3, image(9000)) // rank 1 of a replicated group has the same state as rank 0, so only rank 0 writes
	saved, err := PersistNewest(t.Context(), func(string) manifest.FS { return manifest.OS{} }, root, Left{Job: "default", Run: "r"})
	if err != nil || len(saved) != 1 || saved[0].Err != nil || saved[0].Checkpoint.About.Path != path {
		t.Fatalf("%+v, %v", saved, err)
	}
	m, err := manifest.Load(manifest.OS{}, path)
	if err != nil {
		t.Fatal(err)
	}
	faults, err := manifest.Verify(t.Context(), filepath.Dir(path), m, manifest.Verifying{})
	if err != nil || len(faults) > 0 {
		t.Fatalf("%v, %v", faults, err)
	}
	if b, err := os.ReadFile(filepath.Join(filepath.Dir(path), "state.safetensors")); err != nil || !bytes.Equal(b, image(9000)) {
		t.Errorf("the file on storage has %d bytes (%v), or differs from the slot", len(b), err)
	}
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the older checkpoint was written too (%v)", err)
	}
	if saved, err := PersistNewest(t.Context(), func(string) manifest.FS { return manifest.OS{} }, root, Left{Job: "default", Run: "r"}); err != nil || len(saved) != 0 {
		t.Errorf("a second call has written %+v (%v), want none", saved, err)
	}
}

func TestWhatOthersHaveLeftInMemoryStaysThere(t *testing.T) {
	root, dir := t.TempDir(), filepath.Join(t.TempDir(), "ckpt")
	writeSlot(t, root, dir, 0, 1, image(5000))
	for _, left := range []Left{{Job: "another", Run: "r"}, {Job: "default", Run: "another"}, {Job: "default"}} {
		if saved, err := PersistNewest(t.Context(), func(string) manifest.FS { return manifest.OS{} }, root, left); err != nil || len(saved) != 0 {
			t.Errorf("a run left by %+v has written %+v (%v), want none", left, saved, err)
		}
	}
}

func TestASlotThatIsNotWholeIsNoCheckpoint(t *testing.T) {
	for name, at := range map[string]int64{"magic": 0, "begin": 8, "end": 16, "bytes": 24, "checksum of the control page": controlSize} {
		slot, _ := writeSlot(t, t.TempDir(), "/ckpt", 0, 1, image(5000))
		change(t, slot, at)
		if s, err := Open(slot); !errors.Is(err, ErrIncomplete) {
			t.Errorf("%s was changed, and Open returned %+v (%v), want ErrIncomplete", name, s, err)
		}
	}
	slot, _ := writeSlot(t, t.TempDir(), "/ckpt", 0, 1, image(5000))
	if err := os.Truncate(slot, 3*page); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(slot); err == nil {
		t.Errorf("a slot that was cut off was opened: %+v", s)
	}
}

func TestChangedMemoryNeverBecomesACheckpoint(t *testing.T) {
	root, dir := t.TempDir(), filepath.Join(t.TempDir(), "ckpt")
	slot, path := writeSlot(t, root, dir, 0, 1, image(50000))
	change(t, slot, page+31000)
	saved, err := PersistNewest(t.Context(), func(string) manifest.FS { return manifest.OS{} }, root, Left{Job: "default", Run: "r"})
	if err != nil || len(saved) != 1 || saved[0].Err == nil || !strings.Contains(saved[0].Err.Error(), "its memory was changed") {
		t.Fatalf("%+v, %v", saved, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the save failed, but its manifest is there (%v)", err)
	}
}

func TestASlotThatIsCutOffWhileItIsReadIsAnError(t *testing.T) {
	root, dir := t.TempDir(), filepath.Join(t.TempDir(), "ckpt")
	slot, path := writeSlot(t, root, dir, 0, 1, image(1<<20))
	s, err := Open(slot)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(slot, page); err != nil {
		t.Fatal(err)
	}
	if err := Persist(t.Context(), manifest.OS{}, s); err == nil || !strings.Contains(err.Error(), "cut off") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the save failed, but its manifest is there (%v)", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestPersistingEndsWithItsContext(t *testing.T) {
	slot, path := writeSlot(t, t.TempDir(), t.TempDir(), 0, 1, image(5000))
	s, err := Open(slot)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Persist(ctx, manifest.OS{}, s); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the save failed, but its manifest is there (%v)", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Large images are written to the disk in another way (Direct).
func TestALargeImageOfAnyLengthIsOnStorageAsItWasInMemory(t *testing.T) {
	for _, n := range []int{directFrom, directFrom + 8, 3*stride + 5000} {
		dir := filepath.Join(t.TempDir(), "ckpt")
		slot, path := writeSlot(t, t.TempDir(), dir, 0, 1, image(n))
		s, err := Open(slot)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 3 { // several calls at the same time, as after a reconnection
			wg.Go(func() {
				if err := Persist(t.Context(), Direct{}, s); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		m, err := manifest.Load(manifest.OS{}, path)
		if err != nil {
			t.Fatal(err)
		}
		if faults, err := manifest.Verify(t.Context(), filepath.Dir(path), m, manifest.Verifying{}); err != nil || len(faults) > 0 || m.Files[0].Size != int64(n/8*8) {
			t.Errorf("an image of %d bytes has the faults %v (%v), files %+v", n, faults, err, m.Files)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	slot, path := writeSlot(t, t.TempDir(), filepath.Join(t.TempDir(), "ckpt"), 0, 1, image(directFrom))
	change(t, slot, page+directFrom-1)
	s, err := Open(slot)
	if err != nil {
		t.Fatal(err)
	}
	if err := Persist(t.Context(), Direct{}, s); err == nil || !strings.Contains(err.Error(), "its memory was changed") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the save failed, but its manifest is there (%v)", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// recorded notes the calls to the disk, in order.
type recorded struct {
	manifest.OS
	calls *[]string
}

func (r recorded) note(what, path string) { *r.calls = append(*r.calls, what+" "+filepath.Base(path)) }

func (r recorded) Create(path string) (manifest.Writer, error) {
	w, err := r.OS.Create(path)
	return syncing{w, r, path}, err
}

func (r recorded) Rename(from, to string) error {
	r.note("rename", to)
	return r.OS.Rename(from, to)
}

func (r recorded) SyncDir(folder string) error {
	r.note("sync", folder)
	return r.OS.SyncDir(folder)
}

type syncing struct {
	manifest.Writer
	r    recorded
	path string
}

func (s syncing) Sync() error {
	s.r.note("sync", s.path)
	return s.Writer.Sync()
}

// The calls must have the order of docs/CHECKPOINTS.md, "Writing one". The tests of flashckpt/manifest
// show that a power failure in this order does no harm.
func TestAPersistedSlotHasTheOrderOfACheckpoint(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ckpt")
	slot, path := writeSlot(t, t.TempDir(), dir, 0, 1, image(5000))
	s, err := Open(slot)
	if err != nil {
		t.Fatal(err)
	}
	var calls []string
	if err := errors.Join(Persist(t.Context(), recorded{calls: &calls}, s), s.Close()); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Base(filepath.Dir(path))
	calls = slices.DeleteFunc(calls, func(c string) bool {
		return strings.HasPrefix(c, "sync ") && !slices.Contains([]string{"sync ckpt", "sync " + folder, "sync state.safetensors"}, c) && !strings.Contains(c, "manifest")
	})
	want := []string{"sync ckpt", "sync state.safetensors", "sync " + folder, "sync .headrace-manifest.json.0000000000000001.tmp", "rename headrace-manifest.json", "sync " + folder}
	if !slices.Equal(calls, want) {
		t.Errorf("the calls are\n  %s\nwant\n  %s", strings.Join(calls, "\n  "), strings.Join(want, "\n  "))
	}
}

package memory

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/headrace/headrace/flashckpt/manifest"
)

// tensors is a safetensors image with one array of n bytes.
func tensors(n int) []byte {
	header := fmt.Sprintf(`{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}`, n, n)
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), bytes.Repeat([]byte{7}, n)...)
}

// newRoot returns a folder for a user's slots that no other user may use.
func newRoot(t testing.TB) string { return filepath.Join(t.TempDir(), "headrace-1") }

var job = Folder{Dir: "/ckpt", ID: "0123456789abcdef", Job: "default"}

// sent opens a slot as a sender does, and returns its bytes.
func sent(t *testing.T, path string) (*Slot, []byte) {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	all := make([]byte, s.Head().Image+s.Head().Text)
	for at := 0; at < len(all); {
		n, err := s.ReadAt(all[at:min(at+1000, len(all))], int64(at))
		if err != nil {
			t.Fatal(err)
		}
		at += n
	}
	return s, all
}

// keep copies the checkpoint of a step into root. with returns the bytes that arrive.
func keep(t *testing.T, root string, step int64, with func([]byte) []byte) error {
	t.Helper()
	path, _ := writeSlot(t, t.TempDir(), job.Dir, 3, step, tensors(5000))
	s, all := sent(t, path)
	r, err := Keep(root, job, 3, uint64(s.About.Manifest.Cut.ID), s.About.Manifest.Cut.Order, s.Head())
	if err != nil {
		return err
	}
	for part := with(all); len(part) > 0 && err == nil; {
		n := min(len(part), 700)
		_, err = r.Write(part[:n])
		part = part[n:]
	}
	if err == nil {
		err = r.Done()
	}
	return errors.Join(err, r.Close())
}

func same(b []byte) []byte { return b }

func steps(t *testing.T, root string) (all []int64) {
	t.Helper()
	f := job
	held, err := f.Both(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range held {
		all = append(all, h.About.Manifest.Step)
	}
	return all
}

func TestAReplicaIsItsSlotAndTheOlderOneMakesRoom(t *testing.T) {
	root := newRoot(t)
	for step := int64(1); step <= 4; step++ {
		if err := keep(t, root, step, same); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(steps(t, root)); got != "[4 3]" {
		t.Fatal(got)
	}
	path, _ := writeSlot(t, t.TempDir(), job.Dir, 3, 4, tensors(5000))
	_, want := sent(t, path)
	f := job
	held, err := f.Both(root)
	if err != nil {
		t.Fatal(err)
	}
	s, got := sent(t, held[0].Slot)
	if !bytes.Equal(got, want) || s.Fault() != nil {
		t.Error("the replica differs from its slot")
	}
	if own, err := f.Own(); err != nil || len(own) != 0 {
		t.Errorf("the replica counts as a slot of this node's trainers: %v (%v)", own, err)
	}
}

func TestWhatIsNotWholeNeverCountsAndNeverCostsTheNewestReplica(t *testing.T) {
	root := newRoot(t)
	for step := int64(1); step <= 2; step++ {
		if err := keep(t, root, step, same); err != nil {
			t.Fatal(err)
		}
	}
	for name, with := range map[string]func([]byte) []byte{
		"cut off": func(b []byte) []byte { return b[:len(b)-1] },
		"nothing": func([]byte) []byte { return nil },
		"longer":  func(b []byte) []byte { return append(bytes.Clone(b), 0) },
		"a bit":   func(b []byte) []byte { c := bytes.Clone(b); c[300] ^= 1; return c },
		"a bit of the text": func(b []byte) []byte {
			c := bytes.Clone(b)
			c[len(c)-9] ^= 1
			return c
		},
	} {
		if err := keep(t, root, 3, with); !errors.Is(err, ErrWrong) {
			t.Errorf("a copy with the fault %q got %v, want ErrWrong", name, err)
		}
		if got := fmt.Sprint(steps(t, root)); got != "[2]" {
			t.Errorf("after a copy with the fault %q the replicas are of the steps %s, want [2]", name, got)
		}
	}
	if err := keep(t, root, 3, same); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(steps(t, root)); got != "[3 2]" {
		t.Error(got)
	}
	if err := keep(t, root, 3, same); !errors.Is(err, ErrAsNew) {
		t.Error(err)
	}
	if err := keep(t, root, 1, same); !errors.Is(err, ErrAsNew) {
		t.Error(err)
	}
}

func TestAnImageWithHolesIsNoReplica(t *testing.T) {
	for name, header := range map[string]string{
		"hole":    `{"w":{"data_offsets":[1,8]}}`,
		"overlap": `{"w":{"data_offsets":[0,8]},"v":{"data_offsets":[2,8]}}`,
		"short":   `{"w":{"data_offsets":[0,7]}}`,
		"beyond":  `{"w":{"data_offsets":[0,9]}}`,
		"nothing": `{}`,
		"no JSON": `{"w"`,
	} {
		b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
		b = append(append(b, header...), make([]byte, 8)...)
		if checkImage(b) == nil {
			t.Errorf("an image with the fault %q was accepted", name)
		}
	}
	if err := checkImage(tensors(100)); err != nil {
		t.Error(err)
	}
}

func TestAPinnedReplicaIsNotWritten(t *testing.T) {
	root := newRoot(t)
	for step := int64(1); step <= 2; step++ {
		if err := keep(t, root, step, same); err != nil {
			t.Fatal(err)
		}
	}
	f := job
	held, err := f.Both(root)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(held[1].Slot) // as while a trainer restores from the older one
	if err != nil {
		t.Fatal(err)
	}
	if err := keep(t, root, 3, same); !errors.Is(err, ErrPinned) {
		t.Error(err)
	}
	if err := errors.Join(s.Close(), keep(t, root, 3, same)); err != nil {
		t.Error(err)
	}
}

func TestAMachineWithoutRoomKeepsNoReplica(t *testing.T) {
	path, _ := writeSlot(t, t.TempDir(), job.Dir, 3, 1, tensors(100))
	s, _ := sent(t, path)
	h := s.Head()
	h.Image = 1 << 44 // 16 TiB
	root := newRoot(t)
	_, err := Keep(root, job, 3, 1, 1, h)
	if !errors.Is(err, ErrNoRoom) {
		t.Error(err)
	}
	if err := keep(t, root, 2, same); err != nil {
		t.Error(err)
	}
}

func TestNamesFromOtherNodesStayInTheirFolder(t *testing.T) {
	for _, f := range []Folder{
		{Dir: "/c", ID: "../../../etc/pass", Job: "j"}, {Dir: "/c", ID: "0123456789ABCDEF", Job: "j"}, {Dir: "c", ID: job.ID, Job: "j"},
		{Dir: "/c", ID: job.ID}, {Dir: "/c", ID: job.ID, Job: "a\nb"}, {Dir: "/c\x00", ID: job.ID, Job: "j"},
	} {
		if _, err := Keep(newRoot(t), f, 0, 1, 1, Head{Number: 1, Image: 100, Text: 10}); !errors.Is(err, ErrNoShape) {
			t.Errorf("the folder %+v got %v, want ErrNoShape", f, err)
		}
	}
	for _, h := range []Head{{}, {Number: 1, Image: 7, Text: 10}, {Number: 1, Image: math.MaxUint64, Text: 10}, {Number: 1, Image: 100, Text: manifest.MaxBytes + 1}} {
		if _, err := Keep(newRoot(t), job, 0, 1, 1, h); !errors.Is(err, ErrNoShape) {
			t.Errorf("the head %+v got %v, want ErrNoShape", h, err)
		}
	}
}

func TestReplicasThatAreOldAreDropped(t *testing.T) {
	root := newRoot(t)
	for step := int64(1); step <= 2; step++ {
		if err := keep(t, root, step, same); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		below uint64
		left  string
	}{{1, "[2 1]"}, {2, "[2]"}, {math.MaxUint64, "[]"}} {
		if err := DropReplicas(root, job, 3, c.below); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(steps(t, root)); got != c.left {
			t.Errorf("after a drop below %d the replicas are of the steps %s, want %s", c.below, got, c.left)
		}
	}
}

// begun begins to copy the checkpoint of a step into root.
func begun(t *testing.T, root string, step int64) (*Receiving, []byte) {
	t.Helper()
	path, _ := writeSlot(t, t.TempDir(), job.Dir, 3, step, tensors(5000))
	s, all := sent(t, path)
	r, err := Keep(root, job, 3, uint64(s.About.Manifest.Cut.ID), s.About.Manifest.Cut.Order, s.Head())
	if err != nil {
		t.Fatal(err)
	}
	return r, all
}

func TestAReplicaThatIsBeingWrittenIsNotDropped(t *testing.T) {
	root := newRoot(t)
	r, all := begun(t, root, 1)
	if err := DropReplicas(root, job, 3, math.MaxUint64); err != nil {
		t.Fatal(err)
	}
	_, err := r.Write(all)
	if err := errors.Join(err, r.Done(), r.Close()); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(steps(t, root)); got != "[1]" {
		t.Errorf("the sender was told that its copy is kept, and the replicas are of the steps %s", got)
	}
	r, _ = begun(t, root, 2) // its sender ends
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := DropReplicas(root, job, 3, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(r.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an incomplete replica that nobody writes was not removed (%v)", err)
	}
}

// A process that has no file descriptor left for a moment knows nothing of its replicas.
func TestAReplicaThatCannotBeReadNowStays(t *testing.T) {
	root := newRoot(t)
	if err := keep(t, root, 1, same); err != nil {
		t.Fatal(err)
	}
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	dropped := DropReplicas(root, job, 3, math.MaxUint64)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(dropped, syscall.EMFILE) {
		t.Errorf("the drop returned %v, want EMFILE", dropped)
	}
	if got := fmt.Sprint(steps(t, root)); got != "[1]" {
		t.Errorf("the replicas are of the steps %s, want the one of step 1", got)
	}
}

// The memory of the node is full, and a sender tries again and again.
func TestAFolderThatFindsNoRoomLeavesNoFiles(t *testing.T) {
	root := newRoot(t)
	if err := Prepare(root); err != nil {
		t.Fatal(err)
	}
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 0, Max: was.Max}); err != nil { // a file can be made, and no byte written
		t.Fatal(err)
	}
	f := job
	made := f.make(root)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(f.in(root))
	if err != nil || len(left) != 0 || !errors.Is(made, syscall.EFBIG) {
		t.Errorf("the folder: %v; %d files are left: %v (%v)", made, len(left), left, err)
	}
}

func TestRoomIsTakenAlsoIfASignalComes(t *testing.T) {
	real := fallocate
	defer func() { fallocate = real }()
	signals := 3
	fallocate = func(fd int, mode uint32, at, size int64) error {
		if signals--; signals >= 0 {
			return syscall.EINTR
		}
		return real(fd, mode, at, size)
	}
	if err := keep(t, newRoot(t), 1, same); err != nil {
		t.Error(err)
	}
}

func TestAFolderOfAnotherUserIsNotUsed(t *testing.T) {
	root := t.TempDir()
	if err := os.Chmod(root, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := keep(t, root, 1, same); err == nil {
		t.Error("a folder that other users may write to was accepted")
	}
	if err := Prepare(filepath.Join(root, "own")); err != nil {
		t.Error(err)
	}
}

// FuzzKeep: any description of a slot from another node is refused, or leads to a slot that can be read.
func FuzzKeep(f *testing.F) {
	path, _ := writeSlot(f, f.TempDir(), job.Dir, 3, 1, tensors(200))
	s, err := Open(path)
	if err != nil {
		f.Fatal(err)
	}
	defer s.Close()
	h := s.Head()
	all := make([]byte, h.Image+h.Text)
	n, _ := s.ReadAt(all, 0)
	f.Add(h.Number, h.Image, h.ImageCRC, h.Text, h.TextCRC, all[:n])
	f.Add(h.Number, h.Image+1, h.ImageCRC, h.Text, h.TextCRC, all[:n])
	f.Add(uint64(1), uint64(8), uint64(0), uint64(2), uint64(0), []byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	root := newRoot(f)
	f.Fuzz(func(t *testing.T, number, image, imageCRC, text, textCRC uint64, b []byte) {
		if image > 1<<20 || text > 1<<20 {
			t.Skip("it would only take room")
		}
		h := Head{number, image, imageCRC, text, textCRC}
		r, err := Keep(root, job, 3, 1, math.MaxUint64-1, h)
		if err != nil {
			return
		}
		defer func() { _ = r.Close() }()
		if _, err = r.Write(b); err == nil {
			err = r.Done()
		}
		if err == nil { // an accepted slot must be readable
			if s, err := Open(r.Path); err != nil && !errors.Is(err, ErrIncomplete) {
				t.Error(err)
			} else if err == nil {
				_ = s.Close()
			}
			_ = os.Remove(r.Path)
		}
	})
}

// FuzzCheckImage: an image's header comes from another node, and must not make checkImage panic.
func FuzzCheckImage(f *testing.F) {
	f.Add(tensors(100))
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		if len(b) >= 8 {
			_ = checkImage(b)
		}
	})
}

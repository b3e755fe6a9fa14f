package memory

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/minio/crc64nvme"
	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/flashckpt/manifest"
)

// replicaSlots is how many replicas of a rank a node keeps: one is written while the other
// one stays whole.
const replicaSlots = 2

// Check returns an error if no folder of slots can have these values.
func (f *Folder) Check() error {
	switch {
	case len(f.ID) != 16 || strings.Trim(f.ID, "0123456789abcdef") != "":
		return fmt.Errorf("%w: the folder's id is %.40q, and should be 16 hex digits", ErrNoShape, f.ID)
	case f.Job == "" || len(f.Job) > 256 || strings.ContainsFunc(f.Job, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("%w: %.40q is no name of a job", ErrNoShape, f.Job)
	case !manifest.Absolute(f.Dir) || len(f.Dir) > 4096 || strings.ContainsRune(f.Dir, 0):
		return fmt.Errorf("%w: %.40q is no absolute path of checkpoints", ErrNoShape, f.Dir)
	}
	return nil
}

// in is where the slots of the folder lie below root.
func (f *Folder) in(root string) string {
	return filepath.Join(root, fmt.Sprintf("%s-%016x", f.ID, crc64nvme.Checksum([]byte(f.Job))))
}

// make makes the folder below root, if it is not there.
func (f *Folder) make(root string) error {
	f.Path = f.in(root)
	for _, path := range []string{root, f.Path} {
		if err := own(path); err != nil {
			return err
		}
	}
	about := filepath.Join(f.Path, aboutFile)
	if _, err := os.Stat(about); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	temp := fmt.Sprintf("%s.%d.tmp", about, time.Now().UnixNano())
	err = os.WriteFile(temp, text, 0o600)
	if err == nil {
		err = os.Rename(temp, about)
	}
	if err != nil { // on a full tmpfs each try would leave a file
		return errors.Join(err, os.Remove(temp))
	}
	return nil
}

// own makes a folder that only this user can use, or checks that it is one.
func own(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(st.Uid) != os.Getuid() || info.Mode().Perm()&0o077 != 0 {
		return &os.PathError{Op: "use", Path: path, Err: errors.New("it is no folder that only this user can use")}
	}
	return nil
}

// Prepare makes the folder that this user's slots lie in.
func Prepare(root string) error { return own(root) }

// Both lists the complete checkpoints of a folder below root: replicas, and this node's own.
func (f *Folder) Both(root string) ([]Checkpoint, error) {
	f.Path = f.in(root)
	own, err := f.Own()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	replicas, err := f.Replicas()
	return append(own, replicas...), err
}

func replicaName(rank uint32, slot int) string { return fmt.Sprintf("replica-%d-slot-%d", rank, slot) }

// Keep begins a replica of another node's slot. The newest complete one is never written
// while no other one is complete. Errors: ErrNoShape, ErrNoRoom, ErrPinned, ErrAsNew, and those of
// reading the replicas that are there.
func Keep(root string, f Folder, rank uint32, cutID, order uint64, h Head) (*Receiving, error) {
	if err := errors.Join(f.Check(), h.check()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoShape, err)
	}
	if err := f.make(root); err != nil {
		return nil, err
	}
	var orders [replicaSlots]uint64 // 0: it is not complete
	newest := 0
	for i := range replicaSlots {
		s, err := Open(filepath.Join(f.Path, replicaName(rank, i)))
		if _, bad := errors.AsType[*spoiled](err); bad || errors.Is(err, ErrIncomplete) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		orders[i] = s.About.Manifest.Cut.Order + 1
		if orders[i] > orders[newest] {
			newest = i
		}
		if err := s.Close(); err != nil {
			return nil, err
		}
	}
	if orders[newest] > order {
		return nil, fmt.Errorf("%w: %s", ErrAsNew, replicaName(rank, newest))
	}
	to := 0
	if orders[0] > orders[1] {
		to = 1
	}
	path := filepath.Join(f.Path, replicaName(rank, to))
	file, err := locked(path)
	if err != nil {
		return nil, err
	}
	return receive(path, file, rank, cutID, h)
}

// Bring begins a copy of another node's checkpoint, which rank `from` wrote, for the trainer
// of `rank` on this node. The trainer reads it when it is complete, and removes it.
func Bring(folder string, rank, from uint32, cutID uint64, h Head) (*Receiving, error) {
	if err := h.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoShape, err)
	}
	path := filepath.Join(folder, fmt.Sprintf("rank-%d-brought-%016x", rank, cutID))
	file, err := locked(path)
	if err != nil {
		return nil, err
	}
	return receive(path, file, from, cutID, h)
}

// locked opens a file for writing. Errors: ErrPinned.
func locked(path string) (*os.File, error) {
	for {
		f, err := lock(path, os.O_CREATE)
		if err != nil {
			return nil, err
		}
		if named, err := isAt(f, path); err != nil || named {
			return f, err
		}
		_ = f.Close() // nothing was written; another process removed it before it was locked
	}
}

// lock opens a file and locks it. Errors: ErrPinned.
func lock(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errors.Join(fmt.Errorf("%w: %s", ErrPinned, path), f.Close())
	} else if err != nil {
		return nil, errors.Join(&os.PathError{Op: "lock", Path: path, Err: err}, f.Close())
	}
	return f, nil
}

// isAt says whether an open file still lies at path.
func isAt(f *os.File, path string) (bool, error) {
	open, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(open, there), err
}

// DropReplicas removes a rank's replicas whose cuts are older than below, and incomplete ones that
// nobody writes. One that cannot be read stays, and is in the error.
func DropReplicas(root string, f Folder, rank uint32, below uint64) error {
	if err := f.Check(); err != nil {
		return err
	}
	var errs []error
	for i := range replicaSlots {
		errs = append(errs, dropReplica(filepath.Join(f.in(root), replicaName(rank, i)), below))
	}
	return errors.Join(errs...)
}

func dropReplica(path string, below uint64) error {
	s, err := Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, ErrIncomplete):
		return dropIncomplete(path)
	case err != nil:
		return err
	}
	if s.About.Manifest.Cut.Order < below { // nobody writes it while it is pinned; those who read it go on
		err = removeLocked(s.file, path)
	}
	return errors.Join(err, s.Close())
}

// dropIncomplete removes a replica unless somebody writes it, or has just completed it.
func dropIncomplete(path string) error {
	f, err := lock(path, 0)
	if errors.Is(err, ErrPinned) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err = readControl(f); errors.Is(err, ErrIncomplete) {
		err = removeLocked(f, path)
	}
	return errors.Join(err, f.Close())
}

// removeLocked removes a file that is locked, unless another one lies at its path by now.
func removeLocked(f *os.File, path string) error {
	named, err := isAt(f, path)
	if err != nil || !named {
		return err
	}
	return os.Remove(path)
}

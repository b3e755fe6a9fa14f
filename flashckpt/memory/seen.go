package memory

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Seen lists slots for somebody who looks again and again. Of a slot that did not change it reads
// the control page only, and pins nothing: a description may have megabytes, and a slot that is
// pinned cannot be written. The zero value is ready.
type Seen struct {
	mu    sync.Mutex
	slots map[string]seen // by path
	reads int
}

type seen struct {
	inode uint64
	head  Head
	held  *Checkpoint // nil: it cannot be read
}

// Own does what Folder.Own does. The cuts have no datasets.
func (s *Seen) Own(f *Folder) ([]Checkpoint, error) { return s.list(f, "rank-") }

// Replicas does what Folder.Replicas does. The cuts have no datasets.
func (s *Seen) Replicas(f *Folder) ([]Checkpoint, error) { return s.list(f, "replica-") }

// Reads is how many descriptions of slots were read.
func (s *Seen) Reads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

func (s *Seen) list(f *Folder, kind string) ([]Checkpoint, error) {
	there := map[string]bool{}
	all, err := f.held(kind, func(path string) (*Checkpoint, error) {
		there[path] = true
		return s.look(path)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for path := range s.slots {
		if folder, name := filepath.Split(path); filepath.Clean(folder) == filepath.Clean(f.Path) && strings.HasPrefix(name, kind) && !there[path] {
			delete(s.slots, path)
		}
	}
	return all, err
}

func (s *Seen) look(path string) (*Checkpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	inode, head, err := control(path)
	if err != nil {
		delete(s.slots, path)
		return nil, err
	}
	if was, ok := s.slots[path]; ok && was.inode == inode && was.head == head {
		return was.held, nil
	}
	s.reads++
	h, err := slotAt(path)
	if _, bad := errors.AsType[*spoiled](err); err != nil && !bad {
		delete(s.slots, path)
		return nil, err
	}
	if h != nil {
		h.About.Manifest.Cut.Datasets = nil
		if head != h.head { // it was written over in between: the next look reads it
			return h, nil
		}
	}
	if s.slots == nil {
		s.slots = map[string]seen{}
	}
	s.slots[path] = seen{inode, head, h}
	return h, nil
}

// control reads a slot's control page, without a lock: its checksum says whether it is whole.
func control(path string) (inode uint64, h Head, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, h, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, h, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, h, ErrIncomplete
	}
	h, err = readControl(f)
	return st.Ino, h, err
}

package stepfile

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/internal/frame"
)

// RootVariable names another tmpfs than /dev/shm. Checkpoints in memory lie there too.
const RootVariable = "HEADRACE_MEMORY_DIR"

// Folder is where the trainers of one agent write their step files.
type Folder struct {
	Path string
	lock *os.File // the folder itself: it says that an agent lives
}

// Open makes the folder of the agent that listens on a socket: the same one for each agent
// of this name on it. It is for its owner alone.
func Open(socket, agent string) (*Folder, error) {
	socket, err := filepath.Abs(socket)
	if err != nil {
		return nil, err
	}
	base := filepath.Join(cmp.Or(os.Getenv(RootVariable), "/dev/shm"), fmt.Sprintf("headrace-%d", os.Getuid()))
	sum := sha256.Sum256([]byte(socket + "\x00" + agent))
	f := &Folder{Path: filepath.Join(base, fmt.Sprintf("%s%x", prefix, sum[:8]))}
	if err := own(base); err != nil {
		return nil, err
	}
	for range 100 { // another agent may remove it before it is locked
		if err = own(f.Path); err == nil {
			f.lock, err = locked(f.Path, unix.LOCK_SH)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Close removes the folder, unless trainers have something in it, or the next agent of this
// name has opened it: that one may begin while this one still waits for its connections.
func (f *Folder) Close() {
	defer f.lock.Close()
	if unix.Flock(int(f.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && isAt(f.lock, f.Path) == nil {
		_ = os.Remove(f.Path)
	}
}

// own makes a folder, or checks that the one that is there is ours alone.
func own(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("folder %s: %w", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o077 != 0 || int(st.Uid) != os.Getuid() {
		return fmt.Errorf("%s is not a folder for us alone (mode %04o, uid %d): remove it, or name another place with %s", dir, st.Mode&0o7777, st.Uid, RootVariable)
	}
	return nil
}

// File is one step file by its name.
type File struct {
	Path        string
	Incarnation frame.Incarnation
	Stream      uint32
}

// List gives the step files that lie in the folder. Files with other names are left alone.
func (f *Folder) List() ([]File, error) {
	entries, err := os.ReadDir(f.Path)
	if err != nil {
		return nil, err
	}
	var all []File
	for _, e := range entries {
		file := File{Path: filepath.Join(f.Path, e.Name())}
		who, number, ok := strings.Cut(e.Name(), "-")
		n, err := strconv.ParseUint(number, 10, 32)
		if !ok || err != nil || file.Incarnation.UnmarshalText([]byte(who)) != nil {
			continue
		}
		file.Stream = uint32(n)
		all = append(all, file)
	}
	return all, nil
}

// Ended says whether the process that wrote the file has ended: nobody holds its lock.
func (f File) Ended() (bool, error) {
	file, err := f.open()
	if err != nil {
		return false, err
	}
	defer file.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(file.Fd(), unix.F_GETLK, &lock); err != nil {
		return false, fmt.Errorf("%s: %w", f.Path, err)
	}
	return lock.Type == unix.F_UNLCK, nil
}

// Read gives what the file says. It must be of a process that has ended.
func (f File) Read() (*Stream, error) {
	file, err := f.open()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size, err := written(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	if size > maxBytes {
		return nil, fmt.Errorf("%s: %w: it has more than %d bytes", f.Path, ErrDamaged, maxBytes)
	}
	b := make([]byte, size)
	if _, err := file.ReadAt(b, 0); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	s, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	if s.Incarnation != f.Incarnation || s.Stream != f.Stream {
		return nil, fmt.Errorf("%s: %w: it is of stream %d of process %s", f.Path, ErrDamaged, s.Stream, s.Incarnation)
	}
	return s, nil
}

// written is where the last bytes end that were written. The rest of the file is one hole. There may
// be others before it: a frame that does not fit into the rest of the memory lies beyond that rest.
func written(file *os.File) (end int64, err error) {
	for {
		data, err := file.Seek(end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // there is no more
			return end, nil
		}
		if err != nil {
			return 0, err
		}
		if end, err = file.Seek(data, unix.SEEK_HOLE); err != nil {
			return 0, err
		}
	}
}

// Remove ends the file.
func (f File) Remove() error { return os.Remove(f.Path) }

// open opens a regular file of ours or root's, and follows no link.
func (f File) open() (*os.File, error) {
	fd, err := unix.Open(f.Path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: f.Path, Err: err}
	}
	file := os.NewFile(uintptr(fd), f.Path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = file.Close()
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Getuid() && st.Uid != 0 {
		_ = file.Close()
		return nil, fmt.Errorf("%s: %w: it is no file of ours (uid %d)", f.Path, ErrDamaged, st.Uid)
	}
	return file, nil
}

package stepfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	prefix = "steps-" // of a folder's name; the rest is of the agent's socket and name
	// sweepAfter is how long step files of ended processes wait for an agent. No master
	// still keeps their leases then.
	sweepAfter = 24 * time.Hour
)

// Sweep removes folders of agents that never came back: folders that no agent
// has locked, if they are empty, or if all processes that wrote there have ended and
// nothing has changed for a day.
func (f *Folder) Sweep() error {
	all, err := filepath.Glob(filepath.Join(filepath.Dir(f.Path), prefix+"*"))
	for _, path := range all {
		if path != f.Path {
			err = errors.Join(err, sweep(path, time.Now().Add(-sweepAfter)))
		}
	}
	return err
}

func sweep(path string, before time.Time) error {
	lock, err := locked(path, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
		return nil // an agent has it; or another one has swept it
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	left := &Folder{Path: path}
	files, err := left.List()
	if err != nil {
		return err
	}
	for _, file := range files {
		about, err := os.Lstat(file.Path)
		if err != nil || about.ModTime().After(before) {
			return err
		}
		if ended, err := file.Ended(); err != nil || !ended {
			return err
		}
	}
	for _, file := range files {
		if err := file.Remove(); err != nil {
			return err
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, unix.ENOTEMPTY) { // something that is not ours lies there
		return err
	}
	return nil
}

// locked opens a folder with a lock. Its error is fs.ErrNotExist if the folder is not there,
// or was removed meanwhile.
func locked(path string, how int) (*os.File, error) {
	dir, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(dir.Fd()), how); err != nil {
		_ = dir.Close()
		return nil, &fs.PathError{Op: "flock", Path: path, Err: err}
	}
	if err := isAt(dir, path); err != nil {
		_ = dir.Close()
		return nil, err
	}
	return dir, nil
}

// isAt returns fs.ErrNotExist if an open folder lies no more at path.
func isAt(dir *os.File, path string) error {
	mine, err := dir.Stat()
	there, errThere := os.Lstat(path)
	if err = errors.Join(err, errThere); err == nil && !os.SameFile(mine, there) {
		err = &fs.PathError{Op: "flock", Path: path, Err: fs.ErrNotExist}
	}
	return err
}

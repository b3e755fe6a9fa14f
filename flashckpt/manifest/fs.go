package manifest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// FS is the interface that storage must offer. Rename replaces its target atomically. A file's
// bytes are durable after Sync. The changes that Rename, Create, Mkdir and Remove make to a
// folder are durable after SyncDir. Errors wrap fs.ErrNotExist if something is missing.
type FS interface {
	Mkdir(folder string) error // one level; fs.ErrExist where it is there
	Create(path string) (Writer, error)
	Rename(from, to string) error
	Remove(path string) error // a file, or an empty folder
	// RemoveIn removes a file of a folder, or an empty folder in it; links do not
	// lead out of the folder.
	RemoveIn(folder, path string) error
	SyncDir(folder string) error
	ReadFile(path string) ([]byte, error) // may stop after MaxBytes+1
	ReadDir(folder string) ([]Name, error)
}

// Writer is a file that is being written.
type Writer interface {
	io.WriteCloser
	Sync() error
}

// Bucket is an FS of objects: a file appears whole, or not at all, and is durable then. So
// a manifest there needs no temporary name, no rename and no sync. Folders are only a part
// of names.
type Bucket interface {
	FS
	// PutNew writes size bytes of r to a path where nothing is. If something is there, it
	// returns fs.ErrExist. Of two calls at the same time one succeeds.
	PutNew(path string, r io.Reader, size int64) error
	// Open reads a file. fs.ErrNotExist.
	Open(path string) (r io.ReadCloser, size int64, err error)
}

// Name is one entry of a folder.
type Name struct {
	Name   string
	Folder bool // or a link to one
	Link   bool
}

// OS is this machine's file system.
type OS struct{}

func (OS) Mkdir(folder string) error { return os.Mkdir(folder, 0o777) }

func (OS) Create(path string) (Writer, error) { return os.Create(path) }

func (OS) Rename(from, to string) error { return os.Rename(from, to) }

func (OS) Remove(path string) error { return os.Remove(path) }

func (OS) RemoveIn(folder, path string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	return errors.Join(root.Remove(filepath.FromSlash(path)), root.Close())
}

func (OS) SyncDir(folder string) error {
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // it was only read
	return d.Sync()
}

func (OS) ReadFile(path string) ([]byte, error) {
	f, err := regular(os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(f, MaxBytes+1))
}

// regular refuses what may block a reader for ever, such as a pipe.
func regular(f *os.File, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: not a file but %s", f.Name(), info.Mode().Type())
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func (OS) ReadDir(folder string) ([]Name, error) {
	all, err := os.ReadDir(folder)
	names := make([]Name, 0, len(all))
	for _, e := range all {
		n := Name{Name: e.Name(), Folder: e.IsDir(), Link: e.Type()&os.ModeSymlink != 0}
		if n.Link {
			info, err := os.Stat(filepath.Join(folder, n.Name))
			n.Folder = err == nil && info.IsDir()
		}
		names = append(names, n)
	}
	return names, err
}

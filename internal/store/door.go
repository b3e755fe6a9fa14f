package store

import (
	"errors"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// door stands between pebble and the file system. When a call that changes the folder
// fails, the store fails: that call and every later one never return to pebble. Pebble
// would try a failed write again, panic with its locks held, or exit; stopped here, it
// does none of that. The goroutines that wait here end with the process.
//
// Reads, removals of obsolete files and preallocation may fail without stopping the
// store: nothing that was answered is lost by one of them.
type door struct {
	vfs.FS
	s *Pebble
}

func (d door) check(what, path string, err error) error {
	return d.s.check(what, path, err)
}

// check returns while the store is well. Once it has failed, check never returns.
func (s *Pebble) check(what, path string, err error) error {
	if errors.Is(err, vfs.ErrUnsupported) {
		return err
	}
	if err != nil {
		s.fail(what+" "+path, err)
	}
	select {
	case <-s.failed:
		select {}
	default:
		return nil
	}
}

func (d door) Unwrap() vfs.FS { return d.FS }

func (d door) file(f vfs.File, what, name string, err error) (vfs.File, error) {
	if err := d.check(what, name, err); err != nil {
		return nil, err
	}
	return doorFile{File: f, s: d.s, name: name}, nil
}

func (d door) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, c)
	return d.file(f, "create", name, err)
}

func (d door) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.OpenReadWrite(name, c, opts...)
	return d.file(f, "open", name, err)
}

func (d door) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.ReuseForWrite(oldname, newname, c)
	return d.file(f, "reuse", newname, err)
}

func (d door) OpenDir(name string) (vfs.File, error) {
	f, err := d.FS.OpenDir(name)
	return d.file(f, "open folder", name, err)
}

func (d door) Link(oldname, newname string) error {
	return d.check("link", newname, d.FS.Link(oldname, newname))
}

func (d door) Rename(oldname, newname string) error {
	return d.check("rename", newname, d.FS.Rename(oldname, newname))
}

func (d door) MkdirAll(name string, perm os.FileMode) error {
	return d.check("make folder", name, d.FS.MkdirAll(name, perm))
}

type doorFile struct {
	vfs.File
	s    *Pebble
	name string
}

func (f doorFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.s.check("write", f.name, err)
}

func (f doorFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	return n, f.s.check("write", f.name, err)
}

func (f doorFile) Sync() error { return f.s.check("sync", f.name, f.File.Sync()) }

func (f doorFile) SyncData() error { return f.s.check("sync", f.name, f.File.SyncData()) }

func (f doorFile) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	return full, f.s.check("sync", f.name, err)
}

func (f doorFile) Close() error { return f.s.check("close", f.name, f.File.Close()) }

package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/storage"
)

// FS is buckets as a manifest.FS. Its paths are s3://bucket/prefix/...
type FS struct {
	ctx    context.Context
	places *Places
}

var _ manifest.Bucket = (*FS)(nil)

// readAtOnce is how much one request of a reader asks for.
const readAtOnce = 8 << 20

// failed turns an error of package storage into one of package fs.
func failed(op, path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, storage.ErrNotFound):
		err = fs.ErrNotExist
	case errors.Is(err, storage.ErrExists):
		err = fs.ErrExist
	default:
		return err // it names the object
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// Mkdir has nothing to do.
func (f *FS) Mkdir(string) error { return nil }

// SyncDir has nothing to do: an object that is there stays.
func (f *FS) SyncDir(string) error { return nil }

// Rename fails, because buckets cannot rename.
func (f *FS) Rename(from, to string) error {
	return fmt.Errorf("%s: a bucket cannot rename", from)
}

// Create gives a file that appears at Sync, whole, and replaces what is there.
func (f *FS) Create(path string) (manifest.Writer, error) { return &writer{f: f, path: path}, nil }

type writer struct {
	f    *FS
	path string
	data bytes.Buffer
}

func (w *writer) Write(b []byte) (int, error) { return w.data.Write(b) }
func (w *writer) Close() error                { return nil }

func (w *writer) Sync() error {
	c, key, err := w.f.places.file(w.path)
	if err != nil {
		return err
	}
	return failed("write", w.path, c.Put(w.f.ctx, key, w.data.Bytes()))
}

func (f *FS) PutNew(path string, r io.Reader, size int64) error {
	c, key, err := f.places.file(path)
	if err != nil {
		return err
	}
	return failed("write", path, c.PutFrom(f.ctx, key, r, size, true))
}

func (f *FS) Remove(path string) error {
	c, key, err := f.places.file(path)
	if err != nil {
		return err
	}
	return failed("remove", path, c.Delete(f.ctx, key))
}

func (f *FS) RemoveIn(folder, path string) error { return f.Remove(manifest.Join(folder, path)) }

func (f *FS) ReadFile(path string) ([]byte, error) {
	c, key, err := f.places.file(path)
	if err != nil {
		return nil, err
	}
	b, err := c.Get(f.ctx, key, 0, manifest.MaxBytes+1)
	return b, failed("open", path, err)
}

// ReadDir returns fs.ErrNotExist for an empty folder: buckets have none.
func (f *FS) ReadDir(folder string) ([]manifest.Name, error) {
	c, prefix, err := f.places.folder(folder)
	if err != nil {
		return nil, err
	}
	all, err := c.List(f.ctx, prefix, "", 0)
	if err != nil {
		return nil, failed("open", folder, err)
	}
	var names []manifest.Name
	last := ""
	for _, o := range all {
		name, _, below := strings.Cut(strings.TrimPrefix(o.Key, prefix), "/")
		if name != last {
			names = append(names, manifest.Name{Name: name, Folder: below})
		}
		last = name
	}
	if len(names) == 0 {
		return nil, &fs.PathError{Op: "open", Path: folder, Err: fs.ErrNotExist}
	}
	return names, nil
}

func (f *FS) Open(path string) (io.ReadCloser, int64, error) {
	c, key, err := f.places.file(path)
	if err != nil {
		return nil, 0, err
	}
	o, err := c.Stat(f.ctx, key)
	if err != nil {
		return nil, 0, failed("open", path, err)
	}
	return &reading{ctx: f.ctx, c: c, key: key, size: o.Size}, o.Size, nil
}

// reading asks for one range after the other.
type reading struct {
	ctx      context.Context
	c        Client
	key      string
	at, size int64
	have     []byte
}

func (r *reading) Close() error { return nil }

func (r *reading) Read(b []byte) (int, error) {
	if len(r.have) == 0 {
		if r.at >= r.size {
			return 0, io.EOF
		}
		part, err := r.c.Get(r.ctx, r.key, r.at, min(readAtOnce, r.size-r.at))
		if err != nil {
			return 0, err
		}
		if len(part) == 0 {
			return 0, io.ErrUnexpectedEOF
		}
		r.have, r.at = part, r.at+int64(len(part))
	}
	n := copy(b, r.have)
	r.have = r.have[n:]
	return n, nil
}

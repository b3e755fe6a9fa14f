package storage

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// Folder is a Store in a folder of a local file system.
type Folder struct {
	root *os.Root
	at   string

	mu    sync.Mutex
	known map[string]bool // folders that are durable in their parents
}

var _ Store = (*Folder)(nil)

// pending begins the name of a file that is being written. A crash may leave some.
const pending = ".new-"

// OpenFolder makes the folder if it is not there. Only its owner can read it then.
func OpenFolder(at string) (*Folder, error) {
	if err := os.MkdirAll(at, 0o700); err != nil {
		return nil, fmt.Errorf("storage: %w", err)
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return nil, fmt.Errorf("storage: %w", err)
	}
	return &Folder{root: root, at: at, known: map[string]bool{}}, nil
}

// Close ends the use of the folder.
func (f *Folder) Close() error { return f.root.Close() }

// String is the folder's path.
func (f *Folder) String() string { return f.at }

func (f *Folder) Put(ctx context.Context, key string, data []byte) error {
	return f.put(ctx, key, data, f.root.Rename)
}

func (f *Folder) PutNew(ctx context.Context, key string, data []byte) error {
	return f.put(ctx, key, data, func(from, to string) error {
		err := f.root.Link(from, to) // unlike a rename it replaces nothing
		return errors.Join(err, f.root.Remove(from))
	})
}

// PutFresh is Put for a key that was drawn at random just now, so that nobody reads it before
// PutFresh returns. It takes one commit of the file system's journal, and Put takes two: the
// file is moved to its place first, and then the file and its name become durable together.
//
// A killed process leaves the whole object or none. If the machine loses power before PutFresh
// returns, a part of the object may lie under its key, where nobody looks for it.
func (f *Folder) PutFresh(ctx context.Context, key string, data []byte) error {
	if err := errors.Join(CheckKey(key), ctx.Err()); err != nil {
		return err
	}
	dir := path.Dir(key)
	from := path.Join(dir, pending+rand.Text())
	file, err := f.begin(dir, from, data)
	if err == nil {
		err = f.root.Rename(from, key)
	}
	if err != nil {
		_ = f.root.Remove(from)
		return f.failed(key, errors.Join(err, shut(file)))
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		_ = f.root.Remove(key)
		return f.failed(key, err)
	}
	return f.named(key)
}

// put writes a file beside its place, makes it durable, and moves it there.
func (f *Folder) put(ctx context.Context, key string, data []byte, move func(from, to string) error) error {
	if err := errors.Join(CheckKey(key), ctx.Err()); err != nil {
		return err
	}
	dir := path.Dir(key)
	from := path.Join(dir, pending+rand.Text())
	file, err := f.begin(dir, from, data)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, shut(file)); err == nil {
		err = move(from, key)
	}
	if err != nil {
		_ = f.root.Remove(from)
		return f.failed(key, err)
	}
	return f.named(key)
}

// named makes the name of an object durable. If its folder has gone, somebody has deleted the
// object since it was put.
func (f *Folder) named(key string) error {
	err := f.sync(path.Dir(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return f.failed(key, err)
}

// begin writes a file, which the caller makes durable, and makes its folder. The file is nil
// after an error. A deletion, also one by another process, may remove an empty folder at any
// moment. Then begin makes the folder again.
func (f *Folder) begin(dir, name string, data []byte) (file *os.File, err error) {
	const tries = 10
	for range tries {
		if err = f.folder(dir); err == nil {
			file, err = f.write(name, data)
		}
		if err == nil {
			if err = f.folder(dir); err != nil { // another put may have made it again just now: wait until it is durable
				return nil, errors.Join(err, file.Close())
			}
			return file, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
		f.forget(dir)
	}
	return nil, err
}

func shut(file *os.File) error {
	if file == nil {
		return nil
	}
	return file.Close()
}

// forget says that a folder may not be there any more, nor those above it.
func (f *Folder) forget(dir string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ; dir != "."; dir = path.Dir(dir) {
		delete(f.known, dir)
	}
}

func (f *Folder) write(name string, data []byte) (*os.File, error) {
	file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := file.Write(data); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// folder makes a folder, durably, with those above it.
func (f *Folder) folder(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.make(dir)
}

func (f *Folder) make(dir string) error {
	if dir == "." || f.known[dir] {
		return nil
	}
	above := path.Dir(dir)
	if err := f.make(above); err != nil {
		return err
	}
	if err := f.root.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := f.sync(above); err != nil {
		return err
	}
	f.known[dir] = true
	return nil
}

func (f *Folder) sync(dir string) error {
	d, err := f.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (f *Folder) Get(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	if err := errors.Join(CheckKey(key), ctx.Err()); err != nil {
		return nil, err
	}
	file, err := f.root.Open(key)
	if err != nil {
		return nil, f.failed(key, err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, f.failed(key, err)
	}
	rest := max(info.Size()-offset, 0)
	if length < 0 || length > rest {
		length = rest
	}
	data := make([]byte, length)
	_, err = io.ReadFull(io.NewSectionReader(file, offset, length), data)
	return data, f.failed(key, err)
}

func (f *Folder) Stat(ctx context.Context, key string) (Object, error) {
	if err := errors.Join(CheckKey(key), ctx.Err()); err != nil {
		return Object{}, err
	}
	info, err := f.root.Stat(key)
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return Object{}, f.failed(key, err)
	}
	return Object{Key: key, Size: info.Size()}, nil
}

func (f *Folder) List(ctx context.Context, prefix, after string, most int) ([]Object, error) {
	dir := strings.TrimSuffix(prefix, "/")
	if dir != "" {
		if err := CheckKey(dir); err != nil || dir == prefix {
			return nil, errors.Join(fmt.Errorf("storage: prefix %q must end with a slash", prefix), err)
		}
	}
	var all []Object
	err := fs.WalkDir(f.root.FS(), cmp.Or(dir, "."), func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // it went while we looked
		case err != nil || ctx.Err() != nil:
			return errors.Join(err, ctx.Err())
		case !d.Type().IsRegular() || strings.HasPrefix(path.Base(name), ".") || name <= after:
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			all = append(all, Object{Key: name, Size: info.Size()})
		}
		return err
	})
	if err != nil {
		return nil, f.failed(prefix, err)
	}
	slices.SortFunc(all, func(a, b Object) int { return strings.Compare(a.Key, b.Key) })
	if most > 0 && len(all) > most {
		all = all[:most]
	}
	return all, nil
}

func (f *Folder) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := errors.Join(CheckKey(key), ctx.Err()); err != nil {
			return err
		}
		if err := f.root.Remove(key); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return f.failed(key, err)
		}
		f.prune(path.Dir(key))
	}
	return nil
}

// DeleteDurably is Delete of one object. A crash does not bring it back.
func (f *Folder) DeleteDurably(ctx context.Context, key string) error {
	if err := errors.Join(CheckKey(key), ctx.Err()); err != nil {
		return err
	}
	dir := path.Dir(key)
	if err := f.root.Remove(key); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return f.failed(key, err)
	}
	if err := f.sync(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return f.failed(key, err)
	}
	f.prune(dir)
	return nil
}

// prune removes a folder that is empty, and those above it that become empty.
func (f *Folder) prune(dir string) {
	for ; dir != "."; dir = path.Dir(dir) {
		if f.root.Remove(dir) != nil { // it is not empty
			return
		}
		f.forget(dir)
	}
}

// Sweep removes what killed writers have left: unfinished files that were begun before a time,
// and empty folders. All living writers must have begun their files later.
func (f *Folder) Sweep(ctx context.Context, before time.Time) error {
	var dirs []string
	err := fs.WalkDir(f.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // it went while we looked
		case err != nil || ctx.Err() != nil:
			return errors.Join(err, ctx.Err())
		case d.IsDir():
			dirs = append(dirs, name)
			return nil
		case !strings.HasPrefix(path.Base(name), pending):
			return nil
		}
		info, err := d.Info()
		if err == nil && info.ModTime().Before(before) {
			err = f.root.Remove(name)
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	})
	if err != nil {
		return f.failed("the files of killed writers", err)
	}
	for _, dir := range slices.Backward(dirs) {
		f.prune(dir)
	}
	return nil
}

// failed names the object and replaces errors of the system by ours.
func (f *Folder) failed(key string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		err = ErrNotFound
	case errors.Is(err, fs.ErrExist):
		err = ErrExists
	}
	return fmt.Errorf("%s in %s: %w", key, f.at, err)
}

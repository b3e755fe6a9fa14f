package landing

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/sources"
)

// Folder is where chunks lie in a master's state folder.
func Folder(state string) string { return filepath.Join(state, "landing") }

// nameKey is the key under which the id of a dataset's stream is stored.
func nameKey(name string) string { return "names/" + name }

// streamOf returns the id of a dataset's stream. The id is made at the first question, and
// stays until the dataset is deleted.
func streamOf(ctx context.Context, store storage.Store, name string) (string, error) {
	for {
		b, err := store.Get(ctx, nameKey(name), 0, -1)
		if err == nil {
			return string(b), nil
		}
		if !errors.Is(err, storage.ErrNotFound) {
			return "", err
		}
		id := "s" + strings.ToLower(rand.Text()[:20])
		if err := store.PutNew(ctx, nameKey(name), []byte(id)); err != nil && !errors.Is(err, storage.ErrExists) {
			return "", err
		}
	}
}

// Local reads chunks without a master: from a folder on this machine, or from a bucket. It
// opens the place when it first needs it.
type Local struct {
	At   string                        // the folder
	Open func() (storage.Store, error) // the bucket; nil: the folder

	mu     sync.Mutex
	opened storage.Store
}

var _ dataset.Chunks = (*Local)(nil)

func (c *Local) open() (storage.Store, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opened != nil {
		return c.opened, nil
	}
	open := c.Open
	if open == nil {
		open = func() (storage.Store, error) { return storage.OpenFolder(c.At) }
	}
	f, err := open()
	if err != nil {
		return nil, err
	}
	c.opened = f
	return f, nil
}

// There says whether the place is there, so that a chunk may be in it.
func (c *Local) There() bool {
	if c.Open != nil {
		return true
	}
	info, err := os.Stat(c.At)
	return err == nil && info.IsDir()
}

// Stream makes the id of a dataset's stream if there is none.
func (c *Local) Stream(ctx context.Context, name string) (string, error) {
	f, err := c.open()
	if err != nil {
		return "", err
	}
	return streamOf(ctx, f, name)
}

func (c *Local) Get(ctx context.Context, key string) ([]byte, error) {
	f, err := c.open()
	if err != nil {
		return nil, err
	}
	return readChunk(ctx, f, key)
}

func (c *Local) Has(ctx context.Context, key string) (bool, error) {
	f, err := c.open()
	if err == nil {
		_, err = f.Stat(ctx, key)
	}
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return false, nil
	case err != nil && ctx.Err() == nil:
		return false, &sources.Temporary{Err: err, Backoff: 200 * time.Millisecond}
	}
	return err == nil, err
}

func readChunk(ctx context.Context, store storage.Store, key string) ([]byte, error) {
	if _, err := chunk.ParseKey(key); err != nil {
		return nil, err
	}
	b, err := store.Get(ctx, key, 0, -1)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return nil, fmt.Errorf("%s: %w", key, dataset.ErrNoChunk)
	case err != nil && ctx.Err() == nil:
		return nil, &sources.Temporary{Err: err, Backoff: 200 * time.Millisecond}
	}
	return b, err
}

// durable is a store whose Delete may be undone by a crash (storage.Folder).
type durable interface {
	DeleteDurably(ctx context.Context, key string) error
}

// Release deletes the stream of a dataset, its name first. If Release is cut short after that, a
// dataset of the same name gets a new stream, and Run deletes the rest of the old one.
func (c *Local) Release(ctx context.Context, name string) error {
	f, err := c.open()
	if err != nil {
		return err
	}
	b, err := f.Get(ctx, nameKey(name), 0, -1)
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	remove := func(ctx context.Context, key string) error { return f.Delete(ctx, key) }
	if d, ok := f.(durable); ok {
		remove = d.DeleteDurably
	}
	if err := remove(ctx, nameKey(name)); err != nil {
		return err
	}
	return deleteStream(ctx, f, string(b))
}

func deleteStream(ctx context.Context, store storage.Store, stream string) error {
	for _, prefix := range []string{stream + "/", notesOf(stream)} {
		all, err := store.List(ctx, prefix, "", 0)
		if err != nil {
			return err
		}
		for _, o := range all {
			if err := store.Delete(ctx, o.Key); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close ends the use of the place.
func (c *Local) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.opened.(io.Closer)
	c.opened = nil
	if !ok {
		return nil
	}
	return f.Close()
}

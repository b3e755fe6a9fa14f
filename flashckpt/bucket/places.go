package bucket

import (
	"context"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/storage"
)

// Client is one prefix of a bucket.
type Client interface {
	storage.Store
	// PutFrom is Put of size bytes of r, or PutNew.
	PutFrom(ctx context.Context, key string, r io.Reader, size int64, onlyNew bool) error
	// Sum is the size of an object, and its CRC-64/NVME if the service has that of all of it.
	// It does not read the object. storage.ErrNotFound.
	Sum(ctx context.Context, key string) (size int64, crc *uint64, err error)
	// EndUploads gives up the uploads that began before a time and whose key is wanted. It
	// returns how many there were.
	EndUploads(ctx context.Context, before time.Time, wanted func(key string) bool) (int, error)
}

// Places opens buckets. It is safe for concurrent use.
type Places struct {
	open func(url string) (Client, error)

	mu    sync.Mutex
	known map[string]Client
}

// New makes Places that open s3://bucket/prefix by open.
func New(open func(url string) (Client, error)) *Places {
	return &Places{open: open, known: map[string]Client{}}
}

// None opens no bucket.
func None() *Places {
	return New(func(url string) (Client, error) { return nil, fmt.Errorf("%s: this process opens no buckets", url) })
}

// On returns the FS that a path lies on: its bucket, or else local. ctx ends the calls to it.
func (p *Places) On(ctx context.Context, path string, local manifest.FS) manifest.FS {
	if !manifest.InBucket(path) {
		return local
	}
	return &FS{ctx: ctx, places: p}
}

// at returns the client for a folder of checkpoints.
func (p *Places) at(folder string) (Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, ok := p.known[folder]; ok {
		return c, nil
	}
	c, err := p.open(folder)
	if err == nil {
		p.known[folder] = c
	}
	return c, err
}

// file returns the client and the key of a file. The file lies in a folder of checkpoints, or in
// the folder of one checkpoint.
func (p *Places) file(of string) (c Client, key string, err error) {
	folder, key := manifest.Dir(of), path.Base(of)
	for at := folder; at != manifest.Dir(at); at = manifest.Dir(at) {
		if manifest.IsFolder(path.Base(at)) {
			folder = manifest.Dir(at)
			key = strings.TrimPrefix(of, folder+"/")
			break
		}
	}
	c, err = p.at(folder)
	return c, key, err
}

// folder returns the client for a folder, and the prefix of the keys in it.
func (p *Places) folder(of string) (c Client, prefix string, err error) {
	if !manifest.IsFolder(path.Base(of)) {
		c, err = p.at(of)
		return c, "", err
	}
	c, err = p.at(manifest.Dir(of))
	return c, path.Base(of) + "/", err
}

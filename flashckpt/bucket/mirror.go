package bucket

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/minio/crc64nvme"
	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/storage"
)

const (
	// idKey is the object that has the id of a folder of checkpoints. A folder that was
	// emptied and filled again gets another id.
	idKey     = "headrace-memory-id"
	fetchSize = 16 << 20 // of one range
	fetchers  = 4
)

// Identify returns the id of a folder of checkpoints, 16 hex digits. The first call draws it.
func (p *Places) Identify(ctx context.Context, folder string) (string, error) {
	c, err := p.at(folder)
	if err != nil {
		return "", err
	}
	for range 2 {
		b, err := c.Get(ctx, idKey, 0, 64)
		id := strings.TrimSpace(string(b))
		switch _, bad := hex.DecodeString(id); {
		case err == nil && (bad != nil || len(id) != 16):
			return "", fmt.Errorf("%s/%s should be 16 hex digits, and is %.40q: remove it", folder, idKey, id)
		case err == nil:
			return id, nil
		case !errors.Is(err, storage.ErrNotFound):
			return "", err
		}
		var drawn [8]byte
		if _, err := rand.Read(drawn[:]); err != nil {
			return "", err
		}
		if err := c.PutNew(ctx, idKey, []byte(hex.EncodeToString(drawn[:])+"\n")); err != nil && !errors.Is(err, storage.ErrExists) {
			return "", err
		}
	}
	return "", fmt.Errorf("%s/%s cannot be read after it was written", folder, idKey)
}

// Mirror copies the manifests and pins that lie in a folder of checkpoints, and one level below
// it, to the local folder `into`, and removes all others there. A manifest never changes, so one
// that is there with the right size is kept. A pin may get another reason.
func (p *Places) Mirror(ctx context.Context, folder, into string) error {
	c, err := p.at(folder)
	if err != nil {
		return err
	}
	all, err := c.List(ctx, "", "", 0)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(into)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	there := map[string]bool{}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(fetchers)
	for _, o := range all {
		if strings.Count(o.Key, "/") > 1 || !manifest.IsManifest(strings.TrimSuffix(path.Base(o.Key), manifest.PinPath(""))) {
			continue
		}
		there[o.Key] = true
		if info, err := root.Stat(o.Key); err == nil && info.Size() == o.Size && manifest.IsManifest(path.Base(o.Key)) {
			continue
		}
		work.Go(func() error {
			b, err := c.Get(ctx, o.Key, 0, manifest.MaxBytes+1)
			if errors.Is(err, storage.ErrNotFound) {
				return nil // it was removed since it was listed
			}
			if err != nil {
				return err
			}
			return replace(root, o.Key, b)
		})
	}
	return errors.Join(work.Wait(), removeOthers(root, there))
}

func replace(root *os.Root, name string, b []byte) error {
	if dir := path.Dir(name); dir != "." {
		if err := root.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	temp := path.Join(path.Dir(name), "."+rand.Text())
	if err := root.WriteFile(temp, b, 0o600); err != nil {
		return errors.Join(err, ignoreMissing(root.Remove(temp)))
	}
	return root.Rename(temp, name)
}

// removeOthers removes manifests and pins that are not there any more.
func removeOthers(root *os.Root, there map[string]bool) error {
	var gone []string
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.Contains(path.Base(name), manifest.FileName) && !there[name] {
			gone = append(gone, name)
		}
		return ignoreMissing(err)
	})
	for _, name := range gone {
		err = errors.Join(err, ignoreMissing(root.Remove(name)))
	}
	return err
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Fetch downloads the files of a checkpoint into a local folder, and compares them with its
// manifest. If rank is set, it downloads only that rank's part of a sharded checkpoint. For the
// files of other ranks it compares the size and the checksum that the service knows.
func (p *Places) Fetch(ctx context.Context, of, into string, rank *uint32) error {
	on := &FS{ctx: ctx, places: p}
	m, err := manifest.Load(on, of)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(into)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for i := range m.Files {
		f, get := &m.Files[i], p.fetch
		if rank != nil && f.Rank != nil && *f.Rank != *rank {
			get = p.compare
		}
		if err := get(ctx, manifest.Join(manifest.Dir(of), f.Path), root, f); err != nil {
			return err
		}
	}
	return nil
}

// compare is fetch without a download. If the service has no checksum of an object, compare
// reads the object to compute it.
func (p *Places) compare(ctx context.Context, from string, _ *os.Root, want *manifest.File) error {
	c, key, err := p.file(from)
	if err != nil {
		return err
	}
	size, crc, err := c.Sum(ctx, key)
	if err != nil {
		return failed("open", from, err)
	}
	if size != want.Size {
		return wrongSize(from, size, want)
	}
	if crc == nil {
		sum := crc64nvme.New()
		if _, err := io.Copy(sum, &reading{ctx: ctx, c: c, key: key, size: size}); err != nil {
			return err
		}
		crc = new(sum.Sum64())
	}
	return wrongSum(from, manifest.CRC64(*crc), want)
}

func wrongSize(of string, size int64, want *manifest.File) error {
	return fmt.Errorf("%s: it has %d bytes, its manifest says %d", of, size, want.Size)
}

// wrongSum returns nil if the checksum is right.
func wrongSum(of string, got manifest.CRC64, want *manifest.File) error {
	if got == want.CRC {
		return nil
	}
	return fmt.Errorf("%s: its checksum is %v, its manifest says %v", of, got, want.CRC)
}

func (p *Places) fetch(ctx context.Context, from string, root *os.Root, want *manifest.File) (err error) {
	c, key, err := p.file(from)
	if err != nil {
		return err
	}
	o, err := c.Stat(ctx, key)
	if err != nil {
		return failed("open", from, err)
	}
	if o.Size != want.Size {
		return wrongSize(from, o.Size, want)
	}
	if dir := path.Dir(want.Path); dir != "." {
		if err := root.MkdirAll(filepath.FromSlash(dir), 0o700); err != nil {
			return err
		}
	}
	f, err := root.OpenFile(filepath.FromSlash(want.Path), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := download(ctx, c, key, f, want.Size); err != nil {
		return err
	}
	sum := crc64nvme.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, want.Size)); err != nil {
		return err
	}
	return wrongSum(from, manifest.CRC64(sum.Sum64()), want)
}

// download asks for some ranges at a time.
func download(ctx context.Context, c Client, key string, to io.WriterAt, size int64) error {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(fetchers)
	for at := int64(0); at < size && ctx.Err() == nil; at += fetchSize {
		work.Go(func() error {
			b, err := c.Get(ctx, key, at, min(fetchSize, size-at))
			if err != nil {
				return err
			}
			_, err = to.WriteAt(b, at)
			return err
		})
	}
	return work.Wait()
}

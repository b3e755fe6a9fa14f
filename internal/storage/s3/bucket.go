package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/internal/storage"
)

// Bucket is a prefix of a bucket.
type Bucket struct {
	client         *minio.Client
	creds          *credentials.Credentials
	transport      *http.Transport
	bucket, prefix string
	host, region   string
}

var (
	_ storage.Store   = (*Bucket)(nil)
	_ storage.Objects = (*Bucket)(nil)
)

// String is s3://bucket/prefix.
func (b *Bucket) String() string { return b.url("") }

func (b *Bucket) url(key string) string {
	return strings.TrimSuffix("s3://"+b.bucket+"/"+b.full(key), "/")
}

// full is the object's key in the bucket.
func (b *Bucket) full(key string) string {
	if b.prefix == "" {
		return key
	}
	return b.prefix + "/" + key
}

// Close closes idle connections. Running requests go on.
func (b *Bucket) Close() error {
	b.transport.CloseIdleConnections()
	return nil
}

func (b *Bucket) Get(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	if err := storage.CheckKey(key); err != nil {
		return nil, err
	}
	var opts minio.GetObjectOptions
	switch {
	case length == 0:
		_, err := b.Stat(ctx, key)
		return nil, err
	case offset == 0 && length < 0: // all of it
	case length < 0:
		if err := opts.SetRange(offset, 0); err != nil {
			return nil, err
		}
	default:
		if err := opts.SetRange(offset, offset+length-1); err != nil {
			return nil, err
		}
	}
	data, err := b.get(ctx, key, opts)
	if minio.ToErrorResponse(err).StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return []byte{}, nil // it ends before the range
	}
	return data, b.failed(ctx, key, err)
}

// get asks again, for all of it, if the connection breaks.
func (b *Bucket) get(ctx context.Context, key string, opts minio.GetObjectOptions) ([]byte, error) {
	core := minio.Core{Client: b.client}
	var err error
	for range tries {
		var body io.ReadCloser
		var info minio.ObjectInfo
		var head http.Header
		body, info, head, err = core.GetObject(ctx, b.bucket, b.full(key), opts)
		if err != nil {
			return nil, err
		}
		if err := inRange(opts, head); err != nil && info.Size != 0 {
			_ = body.Close()
			return nil, err
		}
		var data []byte
		if info.Size < 0 { // no length was said: a proxy may send it in chunks
			data, err = io.ReadAll(body)
		} else {
			data = make([]byte, info.Size)
			_, err = io.ReadFull(body, data)
		}
		_ = body.Close()
		if err == nil || ctx.Err() != nil {
			return data, err
		}
	}
	return nil, err
}

func (b *Bucket) Stat(ctx context.Context, key string) (storage.Object, error) {
	if err := storage.CheckKey(key); err != nil {
		return storage.Object{}, err
	}
	return b.Head(ctx, key)
}

func (b *Bucket) List(ctx context.Context, prefix, after string, most int) ([]storage.Object, error) {
	if dir := strings.TrimSuffix(prefix, "/"); dir != "" {
		if err := storage.CheckKey(dir); err != nil || dir == prefix {
			return nil, errors.Join(fmt.Errorf("storage: prefix %q must end with a slash", prefix), err)
		}
	}
	all := []storage.Object{}
	err := b.walk(ctx, prefix, after, most, func(o storage.Object) bool {
		if storage.CheckKey(o.Key) == nil { // the marks of folders that some tools make are no objects
			all = append(all, o)
		}
		return most == 0 || len(all) < most
	})
	return all, err
}

// walk lists, page by page, until fn returns false.
func (b *Bucket) walk(ctx context.Context, prefix, after string, most int, fn func(storage.Object) bool) error {
	opts := minio.ListObjectsOptions{Prefix: b.full(prefix), Recursive: true, MaxKeys: listedAtOnce, FetchOwner: new(bool)}
	if most > 0 {
		opts.MaxKeys = min(most, listedAtOnce)
	}
	if after != "" {
		opts.StartAfter = b.full(after)
	}
	cut := len(b.full(""))
	for o := range b.client.ListObjectsIter(ctx, b.bucket, opts) {
		if o.Err != nil {
			return b.failed(ctx, prefix, o.Err)
		}
		if !fn(storage.Object{Key: o.Key[cut:], Size: o.Size, Tag: strings.Trim(o.ETag, `"`), Modified: o.LastModified}) {
			return nil
		}
	}
	return b.failed(ctx, prefix, ctx.Err())
}

// EndUploads gives up uploads in parts that began before a time and whose key is wanted.
// Otherwise their parts would stay, and cost money.
func (b *Bucket) EndUploads(ctx context.Context, before time.Time, wanted func(key string) bool) (n int, err error) {
	cut := len(b.full(""))
	var late []minio.ObjectMultipartInfo
	// To the end, also after an error: a goroutine of the library sends until everything is received.
	for u := range b.client.ListIncompleteUploads(ctx, b.bucket, b.full(""), true) {
		switch {
		case u.Err != nil:
			err = b.failed(ctx, "", u.Err)
		case err == nil && u.Initiated.Before(before) && wanted(u.Key[cut:]):
			late = append(late, u)
		}
	}
	if err != nil {
		return 0, err
	}
	for _, u := range late {
		core := minio.Core{Client: b.client}
		if err := b.failed(ctx, u.Key[cut:], core.AbortMultipartUpload(ctx, b.bucket, u.Key, u.UploadID)); err != nil && !errors.Is(err, storage.ErrNotFound) {
			return n, err
		}
		n++
	}
	return n, nil
}

func (b *Bucket) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := storage.CheckKey(key); err != nil {
			return err
		}
	}
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(deletesAtOnce)
	for _, key := range keys {
		all.Go(func() error {
			err := b.failed(ctx, key, b.client.RemoveObject(ctx, b.bucket, path.Clean(b.full(key)), minio.RemoveObjectOptions{}))
			if errors.Is(err, storage.ErrNotFound) {
				return nil
			}
			return err
		})
	}
	return all.Wait()
}

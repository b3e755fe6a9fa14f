package s3

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/headrace/headrace/internal/storage"
)

// Head asks for an object's size, ETag and time.
func (b *Bucket) Head(ctx context.Context, key string) (storage.Object, error) {
	info, err := b.stat(ctx, key, minio.StatObjectOptions{})
	if err != nil {
		return storage.Object{}, err
	}
	return storage.Object{Key: key, Size: info.Size, Tag: strings.Trim(info.ETag, `"`), Modified: info.LastModified}, nil
}

// Sum asks for an object's size, and for its CRC-64/NVME as the service has verified it. crc is
// nil if the service has none of the whole object.
func (b *Bucket) Sum(ctx context.Context, key string) (size int64, crc *uint64, err error) {
	info, err := b.stat(ctx, key, minio.StatObjectOptions{Checksum: true})
	if err != nil {
		return 0, nil, err
	}
	raw, err := base64.StdEncoding.DecodeString(info.ChecksumCRC64NVME)
	if err == nil && len(raw) == 8 { // else it is missing, or that of parts
		crc = new(binary.BigEndian.Uint64(raw))
	}
	return info.Size, crc, nil
}

// stat sends a HEAD. If somebody puts the object after the HEAD has missed it, it sends another one.
func (b *Bucket) stat(ctx context.Context, key string, opts minio.StatObjectOptions) (minio.ObjectInfo, error) {
	for try := 1; ; try++ {
		info, err := b.client.StatObject(ctx, b.bucket, b.full(key), opts)
		if err == nil {
			return info, nil
		}
		if err = b.whatIsMissing(ctx, key, err); errors.Is(err, errAppeared) && try < 3 {
			continue
		}
		return minio.ObjectInfo{}, b.failed(ctx, key, err)
	}
}

// errAppeared is busy for those who do not try again.
var errAppeared = minio.ErrorResponse{StatusCode: http.StatusServiceUnavailable, Code: "SlowDown", Message: "the object is missing for one request, and there for the next"}

// whatIsMissing takes the error of a HEAD. The answer to a HEAD has no body: after a 404, only a
// GET says whether the object is missing, or the bucket, or whether a proxy answers. An object
// that is gone may be given up as lost, a bucket may not.
func (b *Bucket) whatIsMissing(ctx context.Context, key string, err error) error {
	if minio.ToErrorResponse(err).StatusCode != http.StatusNotFound {
		return err
	}
	var opts minio.GetObjectOptions
	if err := opts.SetRange(0, 0); err != nil {
		return err
	}
	core := minio.Core{Client: b.client}
	body, _, _, asked := core.GetObject(ctx, b.bucket, b.full(key), opts)
	if asked == nil {
		_ = body.Close()
	}
	if asked == nil || minio.ToErrorResponse(asked).StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return errAppeared
	}
	return asked
}

// ReadAt sends the ETag as a condition, so that no byte of another object is ever given.
func (b *Bucket) ReadAt(ctx context.Context, key, tag string, p []byte, offset int64) error {
	if len(p) == 0 {
		return nil
	}
	core := minio.Core{Client: b.client}
	done := 0
	for try := 1; ; try++ {
		var opts minio.GetObjectOptions
		if err := opts.SetMatchETag(tag); err != nil {
			return err
		}
		if err := opts.SetRange(offset+int64(done), offset+int64(len(p))-1); err != nil {
			return err
		}
		body, _, head, err := core.GetObject(ctx, b.bucket, b.full(key), opts)
		if err != nil {
			if err = b.failed(ctx, key, err); errors.Is(err, errPrecondition) {
				return fmt.Errorf("%s: %w", b.url(key), storage.ErrChanged)
			}
			return err
		}
		if err := inRange(opts, head); err != nil {
			_ = body.Close()
			return b.failed(ctx, key, err)
		}
		n, err := io.ReadFull(body, p[done:])
		_ = body.Close()
		if done += n; err == nil {
			return nil
		}
		// The connection broke: go on after the bytes that came.
		if ctx.Err() != nil || try == tries {
			return b.failed(ctx, key, err)
		}
	}
}

// Remove sends the ETag as a condition.
func (b *Bucket) Remove(ctx context.Context, key, tag string) error {
	err := b.client.RemoveObject(onlyIf(ctx, tag), b.bucket, b.full(key), minio.RemoveObjectOptions{})
	if minio.ToErrorResponse(err).StatusCode == http.StatusNotImplemented {
		err = b.client.RemoveObject(ctx, b.bucket, b.full(key), minio.RemoveObjectOptions{})
	}
	if err = b.failed(ctx, key, err); errors.Is(err, errPrecondition) {
		return fmt.Errorf("%s: %w", b.url(key), storage.ErrChanged)
	}
	return err
}

// conditions adds a condition that the client's library does not support: a deletion is only
// for the object with this ETag.
type conditions struct{ http.RoundTripper }

type onlyIfKey struct{}

func onlyIf(ctx context.Context, tag string) context.Context {
	return context.WithValue(ctx, onlyIfKey{}, tag)
}

func (c conditions) RoundTrip(r *http.Request) (*http.Response, error) {
	if tag, is := r.Context().Value(onlyIfKey{}).(string); is && r.Method == http.MethodDelete {
		r = r.Clone(r.Context()) // its signature stays valid, because it does not cover this header
		r.Header.Set("If-Match", `"`+tag+`"`)
	}
	return c.RoundTripper.RoundTrip(r)
}

// Page lists what others wrote. Keys that end with a slash are the
// marks of folders that some tools make.
func (b *Bucket) Page(ctx context.Context, prefix, after string) ([]storage.Object, error) {
	var page []storage.Object
	err := b.walk(ctx, prefix, after, listedAtOnce, func(o storage.Object) bool {
		page = append(page, o)
		return len(page) < listedAtOnce
	})
	return page, err
}

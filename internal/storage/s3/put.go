package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/minio/crc64nvme"
	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/internal/storage"
)

// Headers of S3: the sum of an object or a part, which the server verifies.
const (
	sumHeader     = "X-Amz-Checksum-Crc64nvme"
	sumAlgorithm  = "X-Amz-Checksum-Algorithm"
	sumType       = "X-Amz-Checksum-Type"
	putName       = "headrace-put" // metadata of an object: who put it
	mostParts     = 9000           // S3 allows 10,000
	abortedWithin = 10 * time.Second
)

func (b *Bucket) Put(ctx context.Context, key string, data []byte) error {
	return b.PutFrom(ctx, key, bytes.NewReader(data), int64(len(data)), false)
}

func (b *Bucket) PutNew(ctx context.Context, key string, data []byte) error {
	return b.PutFrom(ctx, key, bytes.NewReader(data), int64(len(data)), true)
}

// PutFrom is Put of what r gives; a size that is not known is negative. It holds a few
// parts of 16 MiB at a time. onlyNew makes it PutNew.
func (b *Bucket) PutFrom(ctx context.Context, key string, r io.Reader, size int64, onlyNew bool) error {
	if err := storage.CheckKey(key); err != nil {
		return err
	}
	return b.put(ctx, key, r, size, onlyNew)
}

// put tries again if another conditional request for the object is under way. That ends soon, and
// S3's reference says to send everything again. If r cannot go back, the caller must do so.
func (b *Bucket) put(ctx context.Context, key string, r io.Reader, size int64, onlyNew bool) error {
	back, ok := r.(io.Seeker)
	var start int64
	if ok {
		var err error
		start, err = back.Seek(0, io.SeekCurrent)
		ok = err == nil
	}
	mine := rand.Text()
	for try := 1; ; try++ {
		err := b.putOnce(ctx, key, r, size, onlyNew, mine)
		if !errors.Is(err, errConflict) || !ok || try == tries {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(min(time.Second, 50*time.Millisecond<<try)):
		}
		if _, failed := back.Seek(start, io.SeekStart); failed != nil {
			return err
		}
	}
}

func (b *Bucket) putOnce(ctx context.Context, key string, r io.Reader, size int64, onlyNew bool, mine string) error {
	part := max(partSize, (size/mostParts+1<<20)>>20<<20)
	first, err := readPart(r, firstPart(size, part))
	if err != nil {
		return fmt.Errorf("%s: %w", b.url(key), err)
	}
	p := putting{b: b, key: key, mine: mine, onlyNew: onlyNew, part: part}
	if size < 0 && int64(len(first)) < part || int64(len(first)) == size {
		err = p.whole(ctx, first)
	} else {
		err = p.inParts(ctx, first, r, size)
	}
	switch err = b.failed(ctx, key, err); {
	case err == nil || ctx.Err() != nil:
		return err
	case p.isOurs(ctx):
		// The answer to the try that worked was lost.
		return nil
	case onlyNew && errors.Is(err, errPrecondition):
		return fmt.Errorf("%s: %w", b.url(key), storage.ErrExists)
	}
	return err
}

// readPart reads n bytes, or less at the end of r.
func readPart(r io.Reader, n int64) ([]byte, error) {
	if known, ok := r.(interface{ Len() int }); ok {
		n = min(n, int64(known.Len()))
	}
	data := make([]byte, n)
	k, err := io.ReadFull(r, data)
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return data[:k], err
}

// putting is one object on its way.
type putting struct {
	b       *Bucket
	key     string
	mine    string // names this call, so that its object is known again
	onlyNew bool
	part    int64
}

func (p *putting) core() minio.Core { return minio.Core{Client: p.b.client} }

func (p *putting) options(headers map[string]string) minio.PutObjectOptions {
	opts := minio.PutObjectOptions{UserMetadata: headers}
	if p.onlyNew {
		opts.SetMatchETagExcept("*")
	}
	return opts
}

func (p *putting) whole(ctx context.Context, data []byte) error {
	opts := p.options(map[string]string{putName: p.mine, sumHeader: sum(crc64nvme.Checksum(data))})
	opts.ContentType = "application/octet-stream"
	_, err := p.core().PutObject(ctx, p.b.bucket, p.b.full(p.key), bytes.NewReader(data), int64(len(data)), "", "", opts)
	return err
}

// isOurs reports whether the object that is there is the one of this call. Any error
// means that nothing is known.
func (p *putting) isOurs(ctx context.Context) bool {
	info, err := p.b.client.StatObject(ctx, p.b.bucket, p.b.full(p.key), minio.StatObjectOptions{})
	return err == nil && info.Metadata.Get("X-Amz-Meta-"+putName) == p.mine
}

func (p *putting) inParts(ctx context.Context, first []byte, r io.Reader, size int64) (err error) {
	full := p.b.full(p.key)
	id, err := p.core().NewMultipartUpload(ctx, p.b.bucket, full, minio.PutObjectOptions{ContentType: "application/octet-stream",
		UserMetadata: map[string]string{putName: p.mine, sumAlgorithm: "CRC64NVME", sumType: "FULL_OBJECT"}})
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		// Parts of an upload that was given up would stay, and cost.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortedWithin)
		defer cancel()
		_ = p.core().AbortMultipartUpload(ctx, p.b.bucket, full, id)
	}()
	parts, total, err := p.send(ctx, id, first, r, size)
	if err != nil {
		return err
	}
	_, err = p.core().CompleteMultipartUpload(ctx, p.b.bucket, full, id, parts,
		p.options(map[string]string{sumHeader: sum(total), sumType: "FULL_OBJECT"}))
	return err
}

// send uploads the parts, a few at once, and gives the sum of all.
func (p *putting) send(ctx context.Context, id string, data []byte, r io.Reader, size int64) ([]minio.CompletePart, uint64, error) {
	crc, sent := crc64nvme.New(), int64(0)
	var parts []*minio.CompletePart
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(partsAtOnce)
	for len(data) > 0 && ctx.Err() == nil {
		_, _ = crc.Write(data) // a hash returns no error
		sent += int64(len(data))
		part, body := &minio.CompletePart{PartNumber: len(parts) + 1}, data
		parts = append(parts, part)
		all.Go(func() error {
			check := sum(crc64nvme.Checksum(body))
			got, err := p.core().PutObjectPart(ctx, p.b.bucket, p.b.full(p.key), id, part.PartNumber, bytes.NewReader(body), int64(len(body)),
				minio.PutObjectPartOptions{CustomHeader: http.Header{sumHeader: {check}}})
			part.ETag, part.ChecksumCRC64NVME = got.ETag, check
			return err
		})
		var err error
		if data, err = readPart(r, p.part); err != nil {
			return nil, 0, errors.Join(err, all.Wait())
		}
	}
	if err := all.Wait(); err != nil {
		return nil, 0, err
	}
	if size >= 0 && sent != size {
		return nil, 0, fmt.Errorf("%d bytes came, but the size was given as %d", sent, size)
	}
	done := make([]minio.CompletePart, len(parts))
	for i, part := range parts {
		done[i] = *part
	}
	return done, crc.Sum64(), nil
}

// sum is how S3 writes a CRC64-NVME.
func sum(crc uint64) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, crc))
}

// firstPart is how much to read before it is known whether there is more.
func firstPart(size, part int64) int64 {
	if size < 0 {
		return part
	}
	return min(size, part)
}

package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// inflate appends the decompressed records of a batch to dst. It returns an error if they
// have more than limit bytes.
func inflate(codec int16, dst, src []byte, limit int) ([]byte, error) {
	switch codec {
	case 0:
		return append(dst, src...), nil
	case 1:
		return inflateGzip(dst, src, limit)
	case 2:
		return inflateSnappy(dst, src, limit)
	case 3:
		r := lz4Readers.Get().(*lz4.Reader)
		defer lz4Readers.Put(r)
		r.Reset(bytes.NewReader(src))
		return readAll(dst, r, limit)
	case 4:
		return inflateZstd(dst, src, limit)
	}
	return dst, fmt.Errorf("codec %d is not known: %w", codec, errBatch)
}

var (
	errInflated = errors.New("it has too many bytes when it is decompressed")
	lz4Readers  = sync.Pool{New: func() any { return lz4.NewReader(nil) }}
	gzipReaders = sync.Pool{New: func() any { return new(gzip.Reader) }}
	// zstdReader decodes on the caller's goroutine. Many callers may use it at once.
	zstdReader = sync.OnceValues(func() (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(inflatedMost))
	})
)

func inflateGzip(dst, src []byte, limit int) ([]byte, error) {
	r := gzipReaders.Get().(*gzip.Reader)
	defer gzipReaders.Put(r)
	if err := r.Reset(bytes.NewReader(src)); err != nil {
		return dst, err
	}
	return readAll(dst, r, limit)
}

func inflateZstd(dst, src []byte, limit int) ([]byte, error) {
	d, err := zstdReader()
	if err != nil {
		return dst, err
	}
	var h zstd.Header
	if err := h.Decode(src); err == nil && h.HasFCS && h.FrameContentSize > uint64(limit) {
		return dst, errInflated
	}
	out, err := d.DecodeAll(src, dst)
	if err != nil {
		return dst, err
	}
	if len(out)-len(dst) > limit {
		return dst, errInflated
	}
	return out, nil
}

// xerial is the frame that Java's snappy streams have, and librdkafka reads.
var xerial = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

func inflateSnappy(dst, src []byte, limit int) ([]byte, error) {
	if len(src) < 16 || !bytes.Equal(src[:8], xerial) {
		return snappyBlock(dst, src, limit)
	}
	begin := len(dst)
	for src = src[16:]; len(src) > 0; {
		if len(src) < 4 {
			return dst, io.ErrUnexpectedEOF
		}
		n := binary.BigEndian.Uint32(src)
		if src = src[4:]; uint64(n) > uint64(len(src)) {
			return dst, io.ErrUnexpectedEOF
		}
		var err error
		if dst, err = snappyBlock(dst, src[:n], limit-(len(dst)-begin)); err != nil {
			return dst, err
		}
		src = src[n:]
	}
	return dst, nil
}

func snappyBlock(dst, src []byte, limit int) ([]byte, error) {
	n, err := snappy.DecodedLen(src)
	if err != nil {
		return dst, err
	}
	if n > limit {
		return dst, errInflated
	}
	dst = grow(dst, n)
	out, err := snappy.Decode(dst[len(dst):len(dst)+n], src)
	if err != nil {
		return dst, err
	}
	return dst[:len(dst)+len(out)], nil
}

func readAll(dst []byte, r io.Reader, limit int) ([]byte, error) {
	begin := len(dst)
	for {
		if len(dst)-begin > limit {
			return dst[:begin], errInflated
		}
		dst = grow(dst, 1)
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if errors.Is(err, io.EOF) {
			return dst, nil
		}
		if err != nil {
			return dst[:begin], err
		}
	}
}

// grow makes room for n more bytes. If it must move b, it at least doubles the capacity.
func grow(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b
	}
	more := make([]byte, len(b), max(len(b)+n, 2*cap(b), 64<<10))
	copy(more, b)
	return more
}

package rocketmq

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// errLong means that a body is longer than max_record.
var errLong = errors.New("too long")

// windowLargest is the largest window of a ZSTD frame that is accepted. A decoder takes memory
// for the whole window before it reads a byte, and frames of ten bytes may claim gigabytes.
// Compression levels up to 19 need no more (RFC 8878 recommends this limit).
const windowLargest = 8 << 20

// errWindow means that a body claims a larger window.
var errWindow = fmt.Errorf("its ZSTD frame has a window of more than %d MiB, for which no memory is taken: compress with a level up to 19", windowLargest>>20)

// inflaters keeps decompressors for the next messages.
var inflaters = struct{ zlib, lz4, zstd sync.Pool }{
	zlib: sync.Pool{},
	lz4:  sync.Pool{New: func() any { return lz4.NewReader(nil) }},
	zstd: sync.Pool{New: func() any {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(windowLargest))
		if err != nil {
			panic(err) // the options are wrong
		}
		return d
	}},
}

// inflate appends the decompressed body to b. (The official client knows only zlib. It
// returns bodies that are compressed with LZ4 or ZSTD as they are.)
func inflate(flags int, b, body []byte, most int64) ([]byte, error) {
	switch kind := flags >> 8 & 7; kind {
	case 0, 3: // messages of old clients name no kind
		r, ok := inflaters.zlib.Get().(io.ReadCloser)
		if !ok {
			var err error
			if r, err = zlib.NewReader(bytes.NewReader(body)); err != nil {
				return b, err
			}
		} else if err := r.(zlib.Resetter).Reset(bytes.NewReader(body), nil); err != nil {
			return b, err
		}
		defer inflaters.zlib.Put(r)
		return readMost(r, b, most)
	case 1:
		r := inflaters.lz4.Get().(*lz4.Reader)
		defer inflaters.lz4.Put(r)
		r.Reset(bytes.NewReader(body))
		return readMost(r, b, most)
	case 2:
		d := inflaters.zstd.Get().(*zstd.Decoder)
		defer inflaters.zstd.Put(d)
		defer func() { _ = d.Reset(nil) }() // it does not keep the body
		var h zstd.Header
		if h.Decode(body) == nil && h.HasFCS && h.FrameContentSize > uint64(most) {
			return b, errLong
		}
		err := d.Reset(bytes.NewReader(body))
		if err == nil {
			b, err = readMost(d, b, most)
		}
		if errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded) { // the second: of a frame of one segment
			err = errWindow
		}
		return b, err
	default:
		return b, fmt.Errorf("compression of kind %d is not known", kind)
	}
}

// readMost appends the bytes of r to b. More than most bytes are errLong.
func readMost(r io.Reader, b []byte, most int64) ([]byte, error) {
	from := len(b)
	for {
		if cap(b)-len(b) < 512 {
			more := make([]byte, len(b), 2*cap(b)+4096)
			copy(more, b)
			b = more
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case int64(len(b)-from) > most:
			return b, errLong
		case errors.Is(err, io.EOF):
			return b, nil
		case err != nil:
			return b, err
		}
	}
}

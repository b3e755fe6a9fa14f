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

// inflaters keeps decompressors for the next messages.
var inflaters = struct{ zlib, lz4, zstd sync.Pool }{
	zlib: sync.Pool{},
	lz4:  sync.Pool{New: func() any { return lz4.NewReader(nil) }},
	zstd: sync.Pool{New: func() any {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
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
		if err := d.Reset(bytes.NewReader(body)); err != nil {
			return b, err
		}
		return readMost(d, b, most)
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

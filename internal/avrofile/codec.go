package avrofile

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// codecs are those of the Avro specification that are read.
var codecs = []string{"null", "deflate", "snappy", "zstandard"}

var errTooLarge = fmt.Errorf("it unpacks to more than %d bytes", MaxBlock)

func unpack(codec string, packed, into []byte) ([]byte, error) {
	switch codec {
	case "deflate":
		return inflate(packed, into)
	case "snappy":
		return unsnap(packed, into)
	case "zstandard":
		d, err := unzstd()
		if err != nil {
			return nil, err
		}
		plain, err := d.DecodeAll(packed, into[:0])
		if errors.Is(err, zstd.ErrDecoderSizeExceeded) {
			err = errTooLarge
		}
		return plain, err
	}
	return packed, nil
}

// unzstd is one decoder for all: DecodeAll may run several times at once.
var unzstd = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderMaxMemory(MaxBlock))
})

var inflaters = sync.Pool{New: func() any { return flate.NewReader(nil) }}

// inflate reads raw deflate, without the header of zlib.
func inflate(packed, into []byte) ([]byte, error) {
	z := inflaters.Get().(io.ReadCloser)
	defer inflaters.Put(z)
	if err := z.(flate.Resetter).Reset(bytes.NewReader(packed), nil); err != nil {
		return nil, err
	}
	plain := into[:0]
	for {
		if len(plain) == cap(plain) {
			plain = slices.Grow(plain, max(4*len(packed), 4<<10))
		}
		n, err := z.Read(plain[len(plain):cap(plain)])
		switch plain = plain[:len(plain)+n]; {
		case len(plain) > MaxBlock:
			return nil, errTooLarge
		case err == io.EOF:
			return plain, nil
		case err != nil:
			return nil, err
		}
	}
}

// unsnap reads a snappy block and the checksum after it: CRC32 of what it unpacks to.
func unsnap(packed, into []byte) ([]byte, error) {
	n := len(packed) - crc32.Size
	if n < 0 {
		return nil, errors.New("it has no checksum")
	}
	size, err := s2.DecodedLen(packed[:n])
	if err != nil {
		return nil, err
	}
	if size > MaxBlock {
		return nil, errTooLarge
	}
	plain, err := s2.Decode(into[:cap(into)], packed[:n])
	if err != nil {
		return nil, err
	}
	if got, want := crc32.ChecksumIEEE(plain), binary.BigEndian.Uint32(packed[n:]); got != want {
		return nil, fmt.Errorf("its checksum is %08x, and %08x is written after it", got, want)
	}
	return plain, nil
}

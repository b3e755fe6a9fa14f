package parquet

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// maxPage is the most that a page may unpack to; writers make pages of about 1 MiB.
const maxPage = 256 << 20

// Codecs, as the format numbers them.
const (
	uncompressed = 0
	snappyCodec  = 1
	gzipCodec    = 2
	brotliCodec  = 4
	zstdCodec    = 6
	lz4RawCodec  = 7
)

var codecNames = []string{"none", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4 (the old form)", "ZSTD", "LZ4_RAW"}

func checkCodec(c int32) error {
	switch c {
	case uncompressed, snappyCodec, gzipCodec, brotliCodec, zstdCodec, lz4RawCodec:
		return nil
	}
	name := fmt.Sprint(c)
	if c >= 0 && int(c) < len(codecNames) {
		name = codecNames[c]
	}
	return fmt.Errorf("its compression %s is not supported; write the file with ZSTD, SNAPPY, GZIP, BROTLI, LZ4_RAW or none", name)
}

var errUnpacked = errors.New("a page unpacks to another size than it says")

// unpacker unpacks pages. It keeps its decoders. The columns of a Reader share one.
type unpacker struct {
	check  func() error // called before each page; nil: never
	taken  int64        // bytes that the columns' pages and dictionaries take
	most   int64        // bytes that these and packed may take
	packed []byte       // a large page, while it is unpacked
	zstd   *zstd.Decoder
	gzip   *gzip.Reader
	brotli *brotli.Reader
}

func (u *unpacker) close() {
	if u.zstd != nil {
		u.zstd.Close()
		u.zstd = nil
	}
	leave(u.packed)
	u.packed = nil
}

// fits reports whether src may unpack to size bytes. Of BROTLI it is not known, and fits returns
// true.
func fits(codec int32, src []byte, size int) bool {
	switch codec {
	case uncompressed, brotliCodec:
		return true
	case zstdCodec: // a block has at least 4 bytes and makes at most 128 KiB of them
		return size>>17 <= len(src)/4
	}
	return size <= 1<<20 || size/1100 <= len(src)
}

// unpack returns the size bytes that src unpacks to, in dst's memory if it is large enough. It
// takes memory only if src may have so many bytes (fits).
func (u *unpacker) unpack(codec int32, dst, src []byte, size int) ([]byte, error) {
	if !fits(codec, src, size) {
		return nil, errUnpacked
	}
	if size == 0 && len(src) == 0 {
		return dst[:0], nil
	}
	switch codec {
	case uncompressed:
		if len(src) != size {
			return nil, errUnpacked
		}
		return src, nil
	case snappyCodec:
		if n, err := snappy.DecodedLen(src); err != nil || n != size {
			return nil, errUnpacked
		}
		return snappy.Decode(room(dst, size), src)
	case gzipCodec:
		return u.gunzip(room(dst, size), src)
	case brotliCodec:
		return u.unbrotli(dst[:0], src, size)
	case zstdCodec:
		if u.zstd == nil {
			var err error
			if u.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxPage), zstd.WithDecoderLowmem(true)); err != nil {
				return nil, err
			}
		}
		out, err := u.zstd.DecodeAll(src, room(dst, size)[:0])
		if err == nil && len(out) != size {
			err = errUnpacked
		}
		return out, err
	case lz4RawCodec:
		out := room(dst, size)
		n, err := lz4.UncompressBlock(src, out)
		if err == nil && n != size {
			err = errUnpacked
		}
		return out, err
	}
	return nil, checkCodec(codec)
}

func (u *unpacker) gunzip(out, src []byte) ([]byte, error) {
	in := bytes.NewReader(src)
	var err error
	if u.gzip == nil {
		u.gzip, err = gzip.NewReader(in)
	} else {
		err = u.gzip.Reset(in)
	}
	if err != nil {
		u.gzip = nil
		return nil, err
	}
	if _, err := io.ReadFull(u.gzip, out); err != nil {
		return nil, err
	}
	var more [1]byte
	if n, err := u.gzip.Read(more[:]); n > 0 {
		return nil, errUnpacked
	} else if err != io.EOF {
		return nil, err
	}
	return out, nil
}

// unbrotli takes memory piece by piece as it unpacks, because a few bytes of BROTLI may unpack
// to very many.
func (u *unpacker) unbrotli(out, src []byte, size int) ([]byte, error) {
	in := bytes.NewReader(src)
	if u.brotli == nil {
		u.brotli = brotli.NewReader(in)
	} else if err := u.brotli.Reset(in); err != nil {
		return nil, err
	}
	for {
		if len(out) == cap(out) {
			out = slices.Grow(out, min(max(len(out), 64<<10), size+1-len(out)))
		}
		n, err := u.brotli.Read(out[len(out):min(cap(out), size+1)])
		out = out[:len(out)+n]
		switch {
		case len(out) > size:
			return nil, errUnpacked
		case err == io.EOF && len(out) < size:
			return nil, errUnpacked
		case err == io.EOF && in.Len() > 0:
			return nil, errUnpacked
		case err == io.EOF:
			return out, nil
		case err != nil:
			return nil, err
		}
	}
}

// window reads the bytes of a column chunk, and some ahead.
type window struct {
	r    io.ReaderAt
	at   int64 // place in the file of the next byte that is wanted
	end  int64 // of the chunk
	from int64 // place in the file of b
	b    []byte
}

// readAhead is how many bytes are read for a page's header. The rest of a larger page is read
// only if the page is wanted.
const readAhead = 64 << 10

// had returns the bytes from at on that the window has.
func (w *window) had() []byte {
	if w.at < w.from || w.at > w.from+int64(len(w.b)) {
		return nil
	}
	return w.b[w.at-w.from:]
}

// peek returns n bytes from at on, or fewer at the chunk's end.
func (w *window) peek(n int) ([]byte, error) {
	n = int(min(int64(n), w.end-w.at))
	had := w.had()
	if len(had) >= n {
		return had[:n], nil
	}
	size := int(min(int64(max(n, readAhead)), w.end-w.at))
	b := w.b
	if cap(b) < size {
		b = take(size)
	}
	b = b[:size]
	k := copy(b, had) // no byte is read twice
	if cap(w.b) < size {
		leave(w.b)
	}
	w.from, w.b = w.at, b
	if err := readAt(w.r, b[k:], w.at+int64(k)); err != nil {
		w.b = b[:0]
		return nil, err
	}
	return b[:n], nil
}

// close leaves the window's memory to others. The next peek reads again.
func (w *window) close() {
	leave(w.b)
	w.b = nil
}

var errPageHeader = errors.New("a page's header is damaged")

// header reads the next page's header and passes it.
func (w *window) header() (pageHeader, error) {
	for n := 256; ; n *= 8 {
		b, err := w.peek(n)
		if err != nil {
			return pageHeader{}, err
		}
		h, more := parsePageHeader(b)
		if !more {
			if h.packed < 0 || h.unpacked < 0 || h.unpacked > maxPage || h.packed > maxPage || h.values < 0 || h.rows < 0 {
				return h, errPageHeader
			}
			w.at += int64(h.size)
			if int64(h.packed) > w.end-w.at {
				return h, errPageHeader
			}
			return h, nil
		}
		if len(b) < n || n > 16<<20 {
			return pageHeader{}, errPageHeader
		}
	}
}

// body returns the page's bytes as the file has them, and passes them. The values of a page that is
// not compressed are read from these bytes until the next page, so they lie in the column's
// window. A compressed page of version 1 is unpacked at once. If it is large, its bytes lie in
// memory that all columns share.
func (c *chunk) body(h pageHeader) ([]byte, error) {
	w, n := &c.win, int(h.packed)
	var b []byte
	var err error
	if n > readAhead && c.codec != uncompressed && h.typ != dataPageV2 {
		c.un.packed = room(c.un.packed, n) // header has seen that the chunk has so many bytes
		b = c.un.packed
		k := copy(b, w.had())
		err = readAt(w.r, b[k:], w.at+int64(k))
		w.close()
	} else {
		b, err = w.peek(n)
	}
	if err != nil {
		return nil, err
	}
	if len(b) < n {
		return nil, errPageHeader
	}
	w.at += int64(n)
	if h.hasCRC && crc32.ChecksumIEEE(b) != h.crc {
		return nil, errors.New("a page's CRC is not that of its bytes: the file is damaged")
	}
	return b, nil
}

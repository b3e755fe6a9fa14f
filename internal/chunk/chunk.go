package chunk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// HeaderSize is the bytes before the body.
const HeaderSize = 28

// MaxBytes bounds a chunk and its records before compression. Most bounds its records.
const (
	MaxBytes = 64 << 20
	Most     = 1 << 24
)

// Codecs of a body.
const (
	None byte = iota
	Zstd
	Zlib
)

const magic = "HRC1"

var le = binary.LittleEndian

// Many goroutines may use zstd's coders at once. They are made at their first use.
var (
	encoder = sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
		if err != nil {
			panic("chunk: " + err.Error()) // the options are constants
		}
		return e
	})
	decoder = sync.OnceValue(func() *zstd.Decoder {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxBytes), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			panic("chunk: " + err.Error())
		}
		return d
	})
)

// Builder gathers records. The zero value is ready.
type Builder struct {
	raw     []byte
	records uint32
}

// Size is the bytes of the records so far; Records their number.
func (b *Builder) Size() int    { return len(b.raw) }
func (b *Builder) Records() int { return int(b.records) }

// Reset makes it empty and keeps its memory.
func (b *Builder) Reset() { b.raw, b.records = b.raw[:0], 0 }

// Add appends a record.
func (b *Builder) Add(r Record) {
	b.raw = r.append(b.raw)
	b.records++
}

// Chunk is what was gathered, compressed with zstd where that makes it smaller. The result
// is new memory.
func (b *Builder) Chunk() []byte { return seal(b.raw, b.records) }

func seal(raw []byte, records uint32) []byte {
	out := make([]byte, HeaderSize, HeaderSize+len(raw))
	codec := Zstd
	if out = encoder().EncodeAll(raw, out); len(out)-HeaderSize >= len(raw) {
		codec, out = None, append(out[:HeaderSize], raw...)
	}
	copy(out, magic)
	out[4] = codec
	le.PutUint32(out[8:], records)
	le.PutUint32(out[12:], uint32(len(raw)))
	le.PutUint32(out[16:], uint32(len(out)-HeaderSize))
	le.PutUint32(out[20:], crc32.ChecksumIEEE(out[HeaderSize:]))
	le.PutUint32(out[24:], crc32.ChecksumIEEE(out[:24]))
	return out
}

// Header is what the first bytes of a chunk say.
type Header struct {
	Codec     byte
	Records   int
	Raw, Body int // bytes
	Sum       uint32
	bodySum   uint32
}

// ReadHeader reads the first HeaderSize bytes of a chunk.
func ReadHeader(b []byte) (h Header, err error) {
	if len(b) < HeaderSize || string(b[:4]) != magic {
		return h, errors.New("it does not begin as a chunk does")
	}
	h = Header{Codec: b[4], Records: int(le.Uint32(b[8:])), Raw: int(le.Uint32(b[12:])), Body: int(le.Uint32(b[16:])),
		bodySum: le.Uint32(b[20:]), Sum: le.Uint32(b[24:])}
	switch {
	case crc32.ChecksumIEEE(b[:24]) != h.Sum:
		return h, errors.New("its header does not have its checksum")
	case h.Records < 1 || h.Records > Most || h.Raw > MaxBytes || h.Body > MaxBytes || h.Records > h.Raw:
		return h, fmt.Errorf("it says %d records in %d bytes, stored in %d: at least one record, and at most %d bytes", h.Records, h.Raw, h.Body, MaxBytes)
	}
	return h, nil
}

// Memory is about what Open and Pack take for the chunk, with its bytes.
func (h *Header) Memory() int64 { return int64(h.Body) + int64(h.Raw) + 4*int64(h.Records) }

// Opened is a chunk whose records can be read. It does not change: many may read it.
type Opened struct {
	Header
	raw    []byte
	starts []int32 // of the records, and the end
}

// Size is the memory that it takes.
func (o *Opened) Size() int { return len(o.raw) + 4*len(o.starts) }

// Open checks all of a chunk and makes its records readable. It may keep b.
func Open(b []byte) (*Opened, error) {
	h, err := ReadHeader(b)
	if err != nil {
		return nil, err
	}
	body := b[HeaderSize:]
	if len(body) != h.Body {
		return nil, fmt.Errorf("it has %d bytes after its header, which says %d", len(body), h.Body)
	}
	if crc32.ChecksumIEEE(body) != h.bodySum {
		return nil, errors.New("its records do not have their checksum")
	}
	o := &Opened{Header: h}
	if o.raw, err = inflate(h, body); err != nil {
		return nil, err
	}
	if len(o.raw) != h.Raw {
		return nil, fmt.Errorf("its records have %d bytes, and its header says %d", len(o.raw), h.Raw)
	}
	o.starts = make([]int32, 0, h.Records+1)
	at := 0
	for i := range h.Records {
		o.starts = append(o.starts, int32(at))
		var r Record
		n, err := r.read(o.raw[at:])
		if err != nil {
			return nil, fmt.Errorf("its record %d: %w", i, err)
		}
		at += n
	}
	if at != len(o.raw) {
		return nil, fmt.Errorf("it has %d bytes after its last record", len(o.raw)-at)
	}
	o.starts = append(o.starts, int32(at))
	return o, nil
}

func inflate(h Header, body []byte) ([]byte, error) {
	switch h.Codec {
	case None:
		return body, nil
	case Zstd: // no frame gets more memory than our header says
		raw, err := decoder().DecodeAll(body, make([]byte, 0, h.Raw))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		return raw, nil
	case Zlib:
		raw, err := unzlib(body, h.Raw)
		if err != nil {
			return nil, fmt.Errorf("zlib: %w", err)
		}
		return raw, nil
	}
	return nil, fmt.Errorf("codec %d is not known to this version", h.Codec)
}

// zlibMost is about the highest ratio at which zlib compresses. A header that claims a higher
// one gets no memory for it.
const zlibMost = 1100

var unzlibers sync.Pool // zlib's readers: each has a window of 32 KiB and its tables

// unzlib inflates body. The result has at most size+1 bytes; size+1 means that body has more
// than size.
func unzlib(body []byte, size int) (raw []byte, err error) {
	in := bytes.NewReader(body)
	r, _ := unzlibers.Get().(io.ReadCloser)
	if r == nil {
		r, err = zlib.NewReader(in)
	} else {
		err = r.(zlib.Resetter).Reset(in, nil)
	}
	if err != nil {
		return nil, err // a reader that did not begin is dropped
	}
	defer unzlibers.Put(r)
	raw = make([]byte, min(size, zlibMost*len(body))+1)
	n := 0
	for n < len(raw) && err == nil { // up to its end, where its checksum is compared
		var k int
		k, err = r.Read(raw[n:])
		n += k
	}
	if err != nil && err != io.EOF {
		return nil, err
	}
	return raw[:n], nil
}

// Record returns record i. Its slices are parts of the chunk: do not change them.
func (o *Opened) Record(i int) Record {
	var r Record
	_, _ = r.read(o.raw[o.starts[i]:o.starts[i+1]]) // Open has read it
	return r
}

// Pack gives the bytes to store for the chunk. It compresses them if the writer did not.
func (o *Opened) Pack(b []byte) []byte {
	const small = 512
	if o.Codec == None && o.Raw > small {
		if packed := seal(o.raw, uint32(o.Records)); len(packed) < len(b) {
			return packed
		}
	}
	return b
}

package avrofile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/headrace/headrace/internal/schema"
)

// Bounds of what comes from a file.
const (
	maxHeader = schema.MaxText + 1<<20
	// MaxBlock is the most bytes of a block, packed or unpacked. Writers make blocks of some
	// 16 KiB to some MiB.
	MaxBlock = 256 << 20

	magic    = "Obj\x01"
	syncSize = 16
)

// File is the header of a container.
type File struct {
	Schema []byte // of the writer, JSON
	Data   int64  // where the first block begins

	size  int64
	typ   *schema.Type
	empty bool // a record may have no bytes
	codec string
	sync  [syncSize]byte
}

// Open reads the header of a file of that size.
func Open(r io.ReaderAt, size int64) (*File, error) {
	f := &File{size: size}
	meta, err := f.header(r)
	if err != nil {
		return nil, err
	}
	if f.codec = string(meta["avro.codec"]); f.codec == "" {
		f.codec = "null"
	}
	if !slices.Contains(codecs, f.codec) {
		return nil, fmt.Errorf("its blocks are compressed with %.40q, which is not read: write it with one of %v", f.codec, codecs)
	}
	if f.Schema = meta["avro.schema"]; f.Schema == nil {
		return nil, errors.New("its header names no schema")
	}
	s, err := schema.ParseAvro(f.Schema)
	if err != nil {
		return nil, fmt.Errorf("its schema: %w", err)
	}
	f.typ, f.empty = s.Avro, noBytes(s.Avro, map[*schema.Type]bool{})
	return f, nil
}

// header reads the metadata: the first bytes, and more if that is not enough.
func (f *File) header(r io.ReaderAt) (map[string][]byte, error) {
	for n := int64(64 << 10); ; n *= 8 {
		b := make([]byte, min(n, f.size, maxHeader))
		if err := readAt(r, b, 0); err != nil {
			return nil, err
		}
		if len(b) < len(magic) || string(b[:len(magic)]) != magic {
			return nil, fmt.Errorf("it is no Avro file: it begins with %.8q, and Avro files begin with %q", b[:min(len(b), 8)], magic)
		}
		meta, at, err := metadata(b, len(magic))
		if err == nil && at+syncSize <= len(b) {
			f.Data = int64(at + copy(f.sync[:], b[at:at+syncSize]))
			return meta, nil
		}
		if err != nil && !errors.Is(err, errShort) {
			return nil, err
		}
		if int64(len(b)) == f.size {
			return nil, errors.New("it ends within its header: it was cut short")
		}
		if int64(len(b)) >= maxHeader {
			return nil, fmt.Errorf("its header has more than %d bytes", maxHeader)
		}
	}
}

var errShort = errors.New("it ends too early")

// metadata reads a map of bytes.
func metadata(b []byte, p int) (map[string][]byte, int, error) {
	meta := map[string][]byte{}
	for {
		n, q, err := long(b, p)
		if err != nil {
			return nil, 0, err
		}
		if p = q; n == 0 {
			return meta, p, nil
		}
		if n < 0 { // the size of the block follows
			if _, p, err = long(b, p); err != nil || n == math.MinInt64 {
				return nil, 0, errors.Join(err, errOfHeader(n == math.MinInt64))
			}
			n = -n
		}
		for ; n > 0; n-- {
			var key, value []byte
			if key, p, err = text(b, p); err == nil {
				value, p, err = text(b, p)
			}
			if err != nil {
				return nil, 0, err
			}
			meta[string(key)] = value
		}
	}
}

func errOfHeader(is bool) error {
	if is {
		return errors.New("its header is damaged")
	}
	return nil
}

// long reads a number as Avro writes it.
func long(b []byte, p int) (int64, int, error) {
	u, n := binary.Uvarint(b[p:])
	switch {
	case n == 0:
		return 0, p, errShort
	case n < 0:
		return 0, p, fmt.Errorf("at byte %d is no number: it has more than 64 bits", p)
	}
	return int64(u>>1) ^ -int64(u&1), p + n, nil
}

func text(b []byte, p int) ([]byte, int, error) {
	n, p, err := long(b, p)
	switch {
	case err != nil:
		return nil, p, err
	case n < 0:
		return nil, p, fmt.Errorf("at byte %d is a negative length", p)
	case n > int64(len(b)-p):
		return nil, p, errShort
	}
	return b[p : p+int(n)], p + int(n), nil
}

// Block is where some records lie.
type Block struct {
	At   int64 // where it begins in the file
	Rows int64
	Next int64 // where the next one begins

	body int64
}

// maxRows is the most records of a block: their offsets must not overflow.
const maxRows = 1 << 60

// maxEmpty is the most records of a block if a record may have no bytes.
const maxEmpty = 1 << 16

// Block reads the head of the block that begins at a place, and compares the marker at its
// end. It returns io.EOF itself at the end of the file.
func (f *File) Block(r io.ReaderAt, at int64) (Block, error) {
	if at == f.size {
		return Block{}, io.EOF
	}
	wrong := func(format string, args ...any) (Block, error) {
		return Block{}, fmt.Errorf("the block at byte %d %s", at, fmt.Sprintf(format, args...))
	}
	if at < f.Data || at > f.size {
		return wrong("lies outside of the file's %d bytes", f.size)
	}
	head := make([]byte, min(2*binary.MaxVarintLen64, f.size-at))
	if err := readAt(r, head, at); err != nil {
		return Block{}, err
	}
	rows, p, err := long(head, 0)
	var size int64
	if err == nil {
		size, p, err = long(head, p)
	}
	switch {
	case errors.Is(err, errShort):
		return wrong("ends too early: the file was cut short, or is not written to its end yet")
	case err != nil || rows < 0 || rows > maxRows || size < 0:
		return wrong("is damaged: it has %d records in %d bytes", rows, size)
	case f.empty && rows > maxEmpty:
		return wrong("has %d records; if records may have no bytes, at most %d of a block are read", rows, maxEmpty)
	case !f.empty && (rows > MaxBlock || f.codec == "null" && rows > size):
		return wrong("is damaged: it has %d records in %d bytes, and each has one at least", rows, size)
	case size > MaxBlock:
		return wrong("has %d bytes, and at most %d are read", size, MaxBlock)
	}
	b := Block{At: at, Rows: rows, body: at + int64(p)}
	if b.Next = b.body + size + syncSize; b.Next > f.size {
		return wrong("ends at byte %d, and the file has %d: it was cut short, or is not written to its end yet", b.Next, f.size)
	}
	var marker [syncSize]byte
	if err := readAt(r, marker[:], b.Next-syncSize); err != nil {
		return Block{}, err
	}
	if marker != f.sync {
		return wrong("does not end with the file's marker: it is damaged")
	}
	return b, nil
}

// Read gives the records of a block, one after the other. The result may use the memory of
// `into`.
func (f *File) Read(r io.ReaderAt, b Block, into []byte) ([]byte, error) {
	packed := into[:0]
	if f.codec != "null" {
		packed = nil
	}
	size := int(b.Next - syncSize - b.body)
	packed = slices.Grow(packed, size)[:size]
	if err := readAt(r, packed, b.body); err != nil {
		return nil, err
	}
	plain, err := unpack(f.codec, packed, into)
	if err != nil {
		return nil, fmt.Errorf("the block at byte %d cannot be unpacked (%s): %w", b.At, f.codec, err)
	}
	if !f.empty && b.Rows > int64(len(plain)) {
		return nil, fmt.Errorf("the block at byte %d is damaged: it has %d records in %d bytes, and each has one at least", b.At, b.Rows, len(plain))
	}
	return plain, nil
}

// readAt fills b.
func readAt(r io.ReaderAt, b []byte, at int64) error {
	n, err := r.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("reading byte %d: %w", at+int64(n), err)
}

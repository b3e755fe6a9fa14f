package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/headrace/headrace/internal/tfrecord"
)

// magics begin files that are not text. Cutting them at line ends would give
// records of noise. format: the one in which such files are read; "": none.
type magic struct{ bytes, what, format string }

var magics = []magic{
	{"\x1f\x8b", "compressed with gzip", ""},
	{"\x28\xb5\x2f\xfd", "compressed with zstd", ""},
	{"BZh", "compressed with bzip2", ""},
	{"\xfd7zXZ\x00", "compressed with xz", ""},
	{"\x04\x22\x4d\x18", "compressed with lz4", ""},
	{"PAR1", "a Parquet file", "parquet"},
	{"ORC", "an ORC file", ""},
	{"Obj\x01", "an Avro file", "avro"},
	{"\xff\xfe", "UTF-16 text", ""},
	{"\xfe\xff", "UTF-16 text", ""},
}

// looksLikeTFRecord: the length of a first record has the right CRC. One of four billion texts
// has it by chance.
func looksLikeTFRecord(f io.ReaderAt, size int64) bool {
	head := make([]byte, min(size, tfrecord.Head))
	if _, err := readFull(f, head, 0); err != nil {
		return false
	}
	fr := framer{framing: Framing{Kind: TFRecord}}
	_, _, st := fr.tfrecord(head, 0)
	return st != damaged && size >= tfrecord.Head
}

// tfrecordStart refuses a compressed file whose name does not say so.
func (s *Source) tfrecordStart(f io.ReaderAt, name string, head []byte, packed codec) error {
	if looksLikeTFRecord(f, int64(unknownSize)) {
		return nil
	}
	for _, m := range magics {
		if how := m.codec(); how != noCodec && packed == noCodec && bytes.HasPrefix(head, []byte(m.bytes)) {
			return s.fileError(name, fmt.Errorf("is %s, and its name does not end in %s: rename it, or set files.compression: %s", m.what, how.suffixes(), how))
		}
	}
	return nil // listing says which record it is
}

const byteOrderMark = "\xef\xbb\xbf"

// maxHeader is the longest header line, in bytes.
const maxHeader = 1 << 20

// dataStart finds where the first record may begin: after a byte order mark
// and the header line.
func (s *Source) dataStart(ctx context.Context, f content, name string, packed codec) (int64, error) {
	size := f.Size()
	if s.framing.Kind == Whole || size == 0 {
		return 0, nil
	}
	if s.framing.Kind == Fixed {
		if record := int64(s.framing.Size); size != unknownSize && size%record != 0 {
			return 0, s.fileError(name, wrongMultiple(size, record))
		}
		return 0, nil
	}
	head := make([]byte, min(size, 8))
	if _, err := readFull(f, head, 0); err != nil {
		return 0, s.fileError(name, err)
	}
	if s.framing.Kind == TFRecord {
		return 0, s.tfrecordStart(f, name, head, packed)
	}
	if s.framing.Kind == Delimited { // a message may begin with any bytes; listing finds what is wrong
		return 0, nil
	}
	if looksLikeTFRecord(f, size) {
		return 0, s.fileError(name, errors.New("is a TFRecord file; set decode.format: tfrecord"))
	}
	for _, m := range magics {
		if bytes.HasPrefix(head, []byte(m.bytes)) {
			if how := m.codec(); how != noCodec && packed == noCodec {
				return 0, s.fileError(name, fmt.Errorf("is %s, and its name does not end in %s: rename it, or set files.compression: %s", m.what, how.suffixes(), how))
			}
			if m.format != "" {
				return 0, s.fileError(name, fmt.Errorf("is %s; set decode.format: %s", m.what, m.format))
			}
			return 0, s.fileError(name, fmt.Errorf("is %s, which cannot be read as lines; convert it to plain text", m.what))
		}
	}
	start := int64(0)
	if s.framing.Text && bytes.HasPrefix(head, []byte(byteOrderMark)) {
		start = int64(len(byteOrderMark))
	}
	if !s.framing.Header {
		return start, nil
	}
	return s.headerEnd(ctx, f, name, start, size)
}

func (s *Source) headerEnd(ctx context.Context, f io.ReaderAt, name string, start, size int64) (int64, error) {
	limit := min(size-start, maxHeader)
	for read := min(limit, 4<<10); ; read = min(limit, read*8) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		buf := make([]byte, read)
		if _, err := readFull(f, buf, start); err != nil {
			return 0, s.fileError(name, err)
		}
		if end, ok := s.headerIn(buf, start+read == size); ok {
			return start + int64(end), nil
		}
		if read == limit {
			return 0, s.fileError(name, fmt.Errorf("its header line does not end within %d bytes", limit))
		}
	}
}

// headerIn gives the end of the first record of buf that is not an empty line,
// line end included. A file of empty lines has no header and no records.
func (s *Source) headerIn(buf []byte, last bool) (int, bool) {
	fr := framer{framing: s.framing}
	for at := 0; at < len(buf); {
		value, next, state := fr.record(buf, at, last)
		if state != complete {
			return 0, false
		}
		if value > at {
			return next, true
		}
		at = next
	}
	return len(buf), last
}

// header reads the line that names the fields.
func (s *Source) header(f io.ReaderAt, l *locator) ([]byte, error) {
	if !s.framing.Header || l.Data > maxHeader+int64(len(byteOrderMark)) {
		return nil, nil
	}
	buf := make([]byte, l.Data)
	if _, err := readFull(f, buf, 0); err != nil {
		return nil, err
	}
	return bytes.Trim(bytes.TrimPrefix(buf, []byte(byteOrderMark)), "\r\n"), nil
}

// codec returns the compression of a magic, if such files can be read.
func (m *magic) codec() codec {
	for _, k := range compressions {
		if m.what == "compressed with "+k.name {
			return k.codec
		}
	}
	return noCodec
}

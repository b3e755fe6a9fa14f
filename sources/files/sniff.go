package files

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/headrace/headrace/internal/tfrecord"
)

// magics begin files that are not text. Cutting them at line ends would give
// records of noise.
type magic struct {
	bytes, what string
	format      string // in which such files are read; "": none
	// sure: a text may begin with the bytes too (ORCID,name). sure looks at more of the file.
	sure func(f io.ReaderAt, size int64, head []byte) (bool, error)
}

var magics = []magic{
	{bytes: "\x1f\x8b", what: "compressed with gzip"},
	{bytes: "\x28\xb5\x2f\xfd", what: "compressed with zstd"},
	{bytes: "BZh", what: "compressed with bzip2", sure: isBzip2},
	{bytes: "\xfd7zXZ\x00", what: "compressed with xz"},
	{bytes: "\x04\x22\x4d\x18", what: "compressed with lz4"},
	{bytes: "PAR1", what: "a Parquet file", format: "parquet", sure: isParquet},
	{bytes: "ORC", what: "an ORC file", sure: isORC},
	{bytes: "Obj\x01", what: "an Avro file", format: "avro"},
	{bytes: "\xff\xfe", what: "UTF-16 text"},
	{bytes: "\xfe\xff", what: "UTF-16 text"},
}

// headMost is how many bytes of a file's beginning are looked at.
const headMost = 512

// magicOf returns the magic that a file begins with; nil: it begins with none.
func magicOf(f io.ReaderAt, size int64, head []byte) (*magic, error) {
	for i := range magics {
		m := &magics[i]
		if !bytes.HasPrefix(head, []byte(m.bytes)) {
			continue
		}
		if m.sure == nil {
			return m, nil
		}
		if sure, err := m.sure(f, size, head); sure || err != nil {
			return m, err
		}
	}
	return nil, nil
}

// isBzip2: after BZh come the size of blocks and the beginning of a block, or the end of an
// empty stream.
func isBzip2(_ io.ReaderAt, _ int64, head []byte) (bool, error) {
	return len(head) >= 10 && head[3] >= '1' && head[3] <= '9' && (string(head[4:10]) == "1AY&SY" || string(head[4:10]) == "\x17rE8P\x90"), nil
}

// isParquet: the file ends as Parquet does. If it was cut short, it has zero bytes near its
// beginning, which a text does not have: each header of a page ends with one.
func isParquet(f io.ReaderAt, size int64, head []byte) (bool, error) {
	if bytes.IndexByte(head, 0) >= 0 {
		return true, nil
	}
	end, err := endOf(f, size, 8)
	return len(end) == 8 && string(end[4:]) == "PAR1" && int64(binary.LittleEndian.Uint32(end)) <= size-12, err
}

// isORC: the last message of an ORC file ends with the magic as its field 8000. One byte
// follows, the length of that message.
func isORC(f io.ReaderAt, size int64, head []byte) (bool, error) {
	if bytes.IndexByte(head, 0) >= 0 {
		return true, nil
	}
	end, err := endOf(f, size, 8)
	return bytes.HasPrefix(end, []byte("\x82\xf4\x03\x03ORC")), err
}

// endOf reads the last n bytes; nil: there are fewer. The end of compressed content is not read,
// because all of it would be unpacked for that.
func endOf(f io.ReaderAt, size, n int64) ([]byte, error) {
	if _, packed := f.(*unpacked); packed || size < n {
		return nil, nil
	}
	b := make([]byte, n)
	if _, err := readFull(f, b, size-n); err != nil {
		return nil, err
	}
	return b, nil
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
	m, err := magicOf(f, unknownSize, head)
	if err != nil {
		return s.fileError(name, err)
	}
	if m != nil && m.codec() != noCodec && packed == noCodec {
		return s.fileError(name, m.packed())
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
	head := make([]byte, min(size, headMost))
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
	m, err := magicOf(f, size, head)
	switch {
	case err != nil:
		return 0, s.fileError(name, err)
	case m == nil:
	case m.codec() != noCodec && packed == noCodec:
		return 0, s.fileError(name, m.packed())
	case m.format != "":
		return 0, s.fileError(name, fmt.Errorf("is %s; set decode.format: %s", m.what, m.format))
	default:
		return 0, s.fileError(name, fmt.Errorf("is %s, which cannot be read as lines; convert it to plain text", m.what))
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

// packed says what to do about a compressed file whose name does not say so.
func (m *magic) packed() error {
	how := m.codec()
	return fmt.Errorf("is %s, and its name does not end in %s: rename it, or set files.compression: %s", m.what, how.suffixes(), how)
}

package files

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"

	"github.com/headrace/headrace/internal/tfrecord"
	"github.com/headrace/headrace/sources"
)

// over describes a record that is longer than max_record. It depends on the file's bytes only,
// not on where a reader began.
type over struct {
	end   int64  // where the next record begins; 0: not known
	size  int64  // of its value, as far as it was seen
	value []byte // what the value begins with
}

// overRoom is how much of such a record is read at once. It is more than a dead letter keeps.
const overRoom = 256 << 10

// over reads on from at, where such a record begins, without keeping its bytes. read gives
// less than it is asked for only at the content's end.
func (s *Source) over(ctx context.Context, at int64, read func(b []byte, at int64) (int, error)) (o over, err error) {
	buf := make([]byte, overRoom)
	n, err := read(buf, at)
	if err != nil {
		return o, err
	}
	if s.framing.Kind == Fixed || s.framing.measured() {
		head, size, end := s.framing.extent(buf[:n], at)
		return over{end, size, sources.ValueOf(buf[head:min(int64(n), int64(head)+size)])}, nil
	}
	o.value = sources.ValueOf(buf[:n])
	walk := fields{framing: &s.framing}
	// If a quote is still open there, it may be a stray one, and the good records after it
	// would be taken for a part of this record.
	openUpTo := at + 2*int64(s.spec.MaxRecord)
	for p, last := at, byte(0); ; {
		if i := walk.end(buf[:n]); i >= 0 {
			if i > 0 {
				last = buf[i-1]
			}
			o.end, o.size = p+int64(i)+1, p+int64(i)-at
			return o.trimmed(last), nil
		}
		p += int64(n)
		o.size = p - at
		if n > 0 {
			last = buf[n-1]
		}
		if n < len(buf) && !walk.open() { // the content ends here, and the record with it
			o.end = p
			return o.trimmed(last), nil
		}
		if n < len(buf) || p >= openUpTo && walk.open() || o.size >= s.blocks.far {
			return o, nil
		}
		if err := ctx.Err(); err != nil {
			return o, err
		}
		if n, err = read(buf, p); err != nil {
			return o, err
		}
	}
}

// trimmed takes away the \r of a line end, if that was the last byte.
func (o over) trimmed(last byte) over {
	if last == '\r' && o.size > 0 {
		o.size--
	}
	o.value = o.value[:min(int64(len(o.value)), o.size)]
	return o
}

// extent says where a record's value begins in buf, its length and where the next record
// begins, for records whose lengths are known from their first bytes. The record begins at
// offset at.
func (f *Framing) extent(buf []byte, at int64) (head int, size, next int64) {
	length, tail := uint64(f.Size), int64(0)
	switch f.Kind {
	case TFRecord:
		head, length, tail = tfrecord.Head, binary.LittleEndian.Uint64(buf), tfrecord.Tail
	case Delimited:
		length, head = binary.Uvarint(buf)
	}
	if length > math.MaxInt64/4 { // no file is as large
		return head, math.MaxInt64 / 4, 0
	}
	return head, int64(length), at + int64(head) + int64(length) + tail
}

// fields walks over a record of lines or of quoted CSV part by part, by the rules of
// framer.quoted.
type fields struct {
	framing *Framing
	state   fieldState
}

type fieldState uint8

const (
	fieldBegins fieldState = iota
	quoteOpen
	quoteSeen // within quotes: it closes the field, or is the first of two
	fieldGoesOn
)

func (w *fields) open() bool { return w.state == quoteOpen }

// end returns the place of the record's line end in b, the next part of the record; -1: it is
// not in b.
func (w *fields) end(b []byte) int {
	if w.framing.Kind != Quoted {
		return bytes.IndexByte(b, '\n')
	}
	quote, delimiter := w.framing.Quote, w.framing.Delimiter
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case w.state == quoteOpen:
			n := bytes.IndexByte(b[i:], quote)
			if n < 0 {
				return -1
			}
			i += n
			w.state = quoteSeen
		case c == quote && w.state == quoteSeen, c == quote && w.state == fieldBegins:
			w.state = quoteOpen
		case c == delimiter:
			w.state = fieldBegins
		case c == '\n':
			return i
		default:
			w.state = fieldGoesOn
		}
	}
	return -1
}

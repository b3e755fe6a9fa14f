package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// errShort means that an answer ends before a length that it announces.
var errShort = errors.New("the broker's answer is cut short")

// reader reads an answer. After the first error it returns only zeros.
type reader struct {
	b   []byte
	at  int
	err error
}

func (r *reader) take(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.b)-r.at {
		if r.err == nil {
			r.err = fmt.Errorf("%w: %d bytes wanted at %d of %d", errShort, n, r.at, len(r.b))
		}
		return nil
	}
	r.at += n
	return r.b[r.at-n : r.at]
}

func (r *reader) i8() int8 {
	if b := r.take(1); b != nil {
		return int8(b[0])
	}
	return 0
}

func (r *reader) i16() int16 {
	if b := r.take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *reader) i32() int32 {
	if b := r.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *reader) i64() int64 {
	if b := r.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (r *reader) id() (id topicID) {
	copy(id[:], r.take(len(id)))
	return id
}

func (r *reader) uvarint() uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.b[r.at:])
	if n <= 0 {
		r.err = fmt.Errorf("%w: no number at %d", errShort, r.at)
		return 0
	}
	r.at += n
	return v
}

// length reads the length of a compact string, bytes or list; -1 is null. Each element has
// at least size bytes, so a length that the rest of the answer cannot hold is an error.
func (r *reader) length(size int) int {
	n := r.uvarint()
	if n == 0 {
		return -1
	}
	if left := len(r.b) - r.at; n-1 > uint64(left/size) {
		if r.err == nil {
			r.err = fmt.Errorf("%w: %d elements in %d bytes", errShort, n-1, left)
		}
		return -1
	}
	return int(n - 1)
}

func (r *reader) text() string { return string(r.take(max(0, r.length(1)))) }

// tags skips the tagged fields at the end of a struct.
func (r *reader) tags() {
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		r.uvarint()
		size := r.uvarint()
		if size > uint64(len(r.b)) {
			size = uint64(len(r.b)) // take sets the error
		}
		r.take(int(size))
	}
}

// writer writes the same encoding.
type writer struct{ b []byte }

func (w *writer) i8(v int8)      { w.b = append(w.b, byte(v)) }
func (w *writer) i16(v int16)    { w.b = binary.BigEndian.AppendUint16(w.b, uint16(v)) }
func (w *writer) i32(v int32)    { w.b = binary.BigEndian.AppendUint32(w.b, uint32(v)) }
func (w *writer) i64(v int64)    { w.b = binary.BigEndian.AppendUint64(w.b, uint64(v)) }
func (w *writer) id(id topicID)  { w.b = append(w.b, id[:]...) }
func (w *writer) length(n int)   { w.b = binary.AppendUvarint(w.b, uint64(n)+1) }
func (w *writer) text(s string)  { w.length(len(s)); w.b = append(w.b, s...) }
func (w *writer) tags()          { w.b = append(w.b, 0) }
func (w *writer) short(s string) { w.i16(int16(len(s))); w.b = append(w.b, s...) }

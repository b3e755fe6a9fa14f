package cut

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var errShort = errors.New("it ends too early")

func appendUint[T ~uint8 | ~uint32 | ~uint64 | ~int](b []byte, x T) []byte {
	return binary.AppendUvarint(b, uint64(x))
}

func appendInt(b []byte, x int64) []byte { return binary.AppendVarint(b, x) }

func appendBool(b []byte, x bool) []byte {
	if x {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendText[T ~string | ~[]byte](b []byte, x T) []byte {
	return append(appendUint(b, len(x)), x...)
}

// reader reads the binary form. After the first error it returns only zeros, and done
// returns that error.
type reader struct {
	b       []byte
	version byte
	err     error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

func (r *reader) uint() uint64 {
	x, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail(errShort)
		return 0
	}
	r.b = r.b[n:]
	return x
}

func (r *reader) int() int64 {
	x, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail(errShort)
		return 0
	}
	r.b = r.b[n:]
	return x
}

func (r *reader) u32() uint32 {
	x := r.uint()
	if x > 1<<32-1 {
		r.fail(fmt.Errorf("%d does not fit 32 bits", x))
		return 0
	}
	return uint32(x)
}

func (r *reader) bool() bool {
	x := r.uint()
	if x > 1 {
		r.fail(fmt.Errorf("%d is not a bool", x))
	}
	return x == 1
}

// bytes returns a copy: the store takes its buffer back after the load.
func (r *reader) bytes() []byte {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.fail(errShort)
		return nil
	}
	x := append([]byte(nil), r.b[:n]...)
	r.b = r.b[n:]
	return x
}

func (r *reader) text() string {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.fail(errShort)
		return ""
	}
	x := string(r.b[:n])
	r.b = r.b[n:]
	return x
}

// count reads the length of a list whose items take at least size bytes each, so
// that a short text cannot ask for much memory.
func (r *reader) count(size int) int {
	n := r.uint()
	if n > uint64(len(r.b)/size) {
		r.fail(errShort)
		return 0
	}
	return int(n)
}

// list reads a list whose items take at least size bytes each. Memory grows with
// what was read, not with what the length promises.
func list[T any](r *reader, size int, item func() T) []T {
	n := r.count(size)
	if n == 0 {
		return nil
	}
	all := make([]T, 0, min(n, 1<<14))
	for range n {
		if all = append(all, item()); r.err != nil {
			return nil
		}
	}
	return all
}

func (r *reader) done() error {
	if r.err == nil && len(r.b) > 0 {
		r.err = fmt.Errorf("%d bytes too many", len(r.b))
	}
	return r.err
}

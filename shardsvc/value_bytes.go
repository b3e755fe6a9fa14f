package shardsvc

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
)

// Every stored value begins with the version of its layout.
const valueVersion = 1

// recordsVersion of `p`, `s` and `a` counts the records of what is settled. In older
// values they are untold.
const recordsVersion = 2

var errShort = errors.New("value is cut short")

// decoder reads a value; the first error sticks and later reads give zeros.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

func (d *decoder) uint() uint64 {
	x, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail(errShort)
		return 0
	}
	d.b = d.b[n:]
	return x
}

func (d *decoder) int() int64 {
	x, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail(errShort)
		return 0
	}
	d.b = d.b[n:]
	return x
}

func (d *decoder) u32() uint32 {
	x := d.uint()
	if x > 1<<32-1 {
		d.fail(fmt.Errorf("%d does not fit 32 bits", x))
		return 0
	}
	return uint32(x)
}

func (d *decoder) bool() bool {
	x := d.uint()
	if x > 1 {
		d.fail(fmt.Errorf("%d is not a bool", x))
	}
	return x == 1
}

func (d *decoder) fixed32() uint32 {
	if len(d.b) < 4 {
		d.fail(errShort)
		return 0
	}
	x := be.Uint32(d.b)
	d.b = d.b[4:]
	return x
}

func (d *decoder) fixed64() uint64 {
	if len(d.b) < 8 {
		d.fail(errShort)
		return 0
	}
	x := be.Uint64(d.b)
	d.b = d.b[8:]
	return x
}

// bytes copies, because a stored value is valid during Load only.
func (d *decoder) bytes() []byte {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.fail(errShort)
		return nil
	}
	x := append([]byte(nil), d.b[:n]...)
	d.b = d.b[n:]
	return x
}

func (d *decoder) string() string { return string(d.bytes()) }

// count reads the length of a list whose items take at least size bytes each.
func (d *decoder) count(size int) int {
	n := d.uint()
	if n > uint64(len(d.b)/size) {
		d.fail(errShort)
		return 0
	}
	return int(n)
}

func (d *decoder) done() error {
	if d.err == nil && len(d.b) > 0 {
		d.err = fmt.Errorf("%d bytes too many", len(d.b))
	}
	return d.err
}

func open(b []byte) decoder {
	d, _ := openUpTo(b, valueVersion)
	return d
}

// openUpTo opens a value whose layout has grown. Fields that its version did not have keep
// their zero values.
func openUpTo(b []byte, newest byte) (d decoder, version byte) {
	if len(b) == 0 {
		return decoder{err: errShort}, 0
	}
	d = decoder{b: b[1:]}
	if b[0] < valueVersion || b[0] > newest {
		d.fail(fmt.Errorf("version %d, this binary knows %d: start the newer binary", b[0], newest))
	}
	return d, b[0]
}

func appendBool(b []byte, x bool) []byte {
	if x {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendString[S ~string | ~[]byte](b []byte, s S) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendUint[T ~uint32 | ~uint64 | ~int](b []byte, x T) []byte {
	return binary.AppendUvarint(b, uint64(x))
}

func appendInt[T ~int64 | ~int](b []byte, x T) []byte { return binary.AppendVarint(b, int64(x)) }

func appendPlace(b []byte, p line.Place) []byte { return appendInt(appendInt(b, p.Segment), p.Offset) }

func (d *decoder) place() line.Place { return line.Place{Segment: d.int(), Offset: d.int()} }

// tally reads what cut.Tally.Append wrote, of so many units.
func (d *decoder) tally(units int64) cut.Tally {
	t := cut.Tally{Rows: d.int(), Untold: d.int(), Oldest: d.int()}
	t.Newest = t.Oldest + d.int()
	if d.err == nil {
		if err := t.Check(units); err != nil {
			d.fail(fmt.Errorf("its records cannot be: %w", err))
		}
	}
	return t
}

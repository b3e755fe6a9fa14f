package decode

import (
	"bytes"
	"math"
	"unsafe"
)

// The fast path takes CSV and TSV records without quotes straight into columns, in the
// order of their fields, in one pass. It knows only the common cases. At anything else
// (too few fields, a number that does not parse, a missing value without a default) it
// gives the record up. slowRow then does the whole record again and makes the error.

// aim points the ops at a builder's columns.
func (d *Decoder) aim(b *Builder) {
	for i := range d.ops {
		if o := &d.ops[i]; o.kind != opAny && o.kind != opTime {
			o.values = b.Columns[o.column.index].Values
		}
	}
}

// fastRow fills row, or returns false with parts of it written.
func (d *Decoder) fastRow(b *Builder, row int) bool {
	if d.quote != 0 && bytes.IndexByte(d.buf[d.start:d.end], d.quote) >= 0 {
		return false
	}
	d.scratch = d.scratch[:0]
	d.broken = false
	pattern := uint64(d.delimiter) * ones
	p, f := d.start, 0
	for i := range d.ops {
		o := &d.ops[i]
		for ; f < o.field; f++ {
			if p > d.end {
				return false
			}
			p = nextDelimiter(d.base, p, d.end, pattern) + 1
		}
		switch o.kind {
		case opHash:
			p = o.hashes(d.base, p, d.end, pattern, row)
		case opInt32:
			p = o.ints32(d, p, pattern, row)
		case opInt64:
			p = o.ints64(d, p, pattern, row)
		case opFloat32:
			p = o.floats32(d, p, pattern, row)
		case opFloat64:
			p = o.floats64(d, p, pattern, row)
		default:
			if p = d.viaSlot(b, o, p, pattern, row); o.again {
				f--
			}
		}
		if p < 0 {
			return false
		}
		f += o.count
	}
	if d.exact > 0 {
		for ; p <= d.end; f++ {
			p = nextDelimiter(d.base, p, d.end, pattern) + 1
		}
		return f == d.exact
	}
	return true
}

// nextDelimiter is the place of the first delimiter at p or later; end if there is none.
func nextDelimiter(base unsafe.Pointer, p, end int, pattern uint64) int {
	for ; p < end; p += 8 {
		if m := zeros(load(base, p) ^ pattern); m != 0 {
			return min(p+lowest(m), end)
		}
	}
	return end
}

// The run loops below take count fields from p on and return where the next
// field begins (beyond end when there is none), or -1 to give the record up.
// They read at most 24 bytes beyond end: p <= end holds before each field.
//
// The end of a field decides where the next field begins, so this chain of operations
// bounds their speed. A length that the processor predicts at a branch is not part of the
// chain, because it goes on with its prediction. So the usual lengths are compared, not
// computed, and there is an if instead of min.

func (o *op) hashes(base unsafe.Pointer, p, end int, pattern uint64, row int) int {
	h, missing, hasDefault := o.column.hash.tail, int64(o.column.defaultBits), o.column.hasDefault
	dst := at[int64](o, row)
	for e := range dst {
		if p > end {
			return -1
		}
		w := load(base, p)
		m := zeros(w ^ pattern)
		if m == 0 && h.short8 && byte(load(base, p+8)) == byte(pattern) && p+8 < end {
			// The usual id of 8 hex digits: hasher.sum for that length.
			s := mixWord(h.start8, h.rest|w<<(h.restBits&63))
			dst[e] = int64(h.remainder(finish(s, w>>(-h.restBits&63), h.restBytes)))
			p += 9
			continue
		}
		n := lowest(m)
		if n == 8 {
			n = nextDelimiter(base, p+8, end, pattern) - p
		}
		if n >= end-p {
			if n = end - p; e+1 < len(dst) {
				return -1
			}
		}
		if n == 0 && hasDefault {
			dst[e] = missing
		} else {
			dst[e] = int64(h.remainder(o.column.hash.sum(base, p, n)))
		}
		p += n + 1
	}
	return p
}

// at is the op's elements of row. The builder's Fixed columns have room for its
// limit of rows, and row is below it.
func at[T int32 | int64 | float32 | float64](o *op, row int) []T {
	var t T
	i := row*o.width + o.element
	size := int(unsafe.Sizeof(t))
	v := o.values[i*size : (i+o.count)*size]
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(v))), o.count)
}

// digits returns the length of the field that begins w, or 8 if it is longer than 7. For a
// length up to 7 it also returns the values of the digits, the last digit in the highest
// byte.
func digits(w, pattern uint64) (n int, t uint64) {
	n = lowest(zeros(w ^ pattern))
	return n, (w ^ 0x3030303030303030) << 8 << (uint(56-8*n) & 63)
}

// lastDigits is digits for a field that ends with the record.
func (o *op) lastDigits(base unsafe.Pointer, p, end int) (n int, t uint64) {
	if n = end - p; n > 7 {
		return n, 0
	}
	return n, (load(base, p) ^ 0x3030303030303030) << 8 << (uint(56-8*n) & 63)
}

func notDigits(t uint64) bool { return (t&^highs+0x7676767676767676|t)&highs != 0 }

func (o *op) ints32(d *Decoder, p int, pattern uint64, row int) int {
	base, end, missing, least := d.base, d.end, uint32(o.column.defaultBits), o.least
	dst := at[int32](o, row)
	for e := range dst {
		if p > end {
			return -1
		}
		n, t := digits(load(base, p), pattern)
		if n >= end-p {
			if n, t = o.lastDigits(base, p, end); e+1 < len(dst) {
				return -1
			}
		}
		if n < least {
			return -1
		}
		if n > 7 || notDigits(t) {
			bits, n, ok := o.other(d, p, n, pattern)
			if !ok {
				return -1
			}
			dst[e] = int32(bits)
			p += n + 1
			continue
		}
		v := uint32(eightDigits(t))
		if n == 0 {
			v = missing
		}
		dst[e] = int32(v)
		p += n + 1
	}
	return p
}

func (o *op) ints64(d *Decoder, p int, pattern uint64, row int) int {
	base, end, missing, least := d.base, d.end, o.column.defaultBits, o.least
	dst := at[int64](o, row)
	for e := range dst {
		if p > end {
			return -1
		}
		n, t := digits(load(base, p), pattern)
		if n >= end-p {
			if n, t = o.lastDigits(base, p, end); e+1 < len(dst) {
				return -1
			}
		}
		if n < least {
			return -1
		}
		if n > 7 || notDigits(t) {
			bits, n, ok := o.other(d, p, n, pattern)
			if !ok {
				return -1
			}
			dst[e] = int64(bits)
			p += n + 1
			continue
		}
		v := eightDigits(t)
		if n == 0 {
			v = missing
		}
		dst[e] = int64(v)
		p += n + 1
	}
	return p
}

func (o *op) floats32(d *Decoder, p int, pattern uint64, row int) int {
	base, end, missing, least := d.base, d.end, uint32(o.column.defaultBits), o.least
	dst := at[float32](o, row)
	for e := range dst {
		if p > end {
			return -1
		}
		n, t := digits(load(base, p), pattern)
		if n >= end-p {
			if n, t = o.lastDigits(base, p, end); e+1 < len(dst) {
				return -1
			}
		}
		if n < least {
			return -1
		}
		if n > 7 || notDigits(t) {
			bits, n, ok := o.other(d, p, n, pattern)
			if !ok {
				return -1
			}
			dst[e] = math.Float32frombits(uint32(bits))
			p += n + 1
			continue
		}
		v := math.Float32bits(float32(int64(eightDigits(t))))
		if n == 0 {
			v = missing
		}
		dst[e] = math.Float32frombits(v)
		p += n + 1
	}
	return p
}

func (o *op) floats64(d *Decoder, p int, pattern uint64, row int) int {
	base, end, missing, least := d.base, d.end, o.column.defaultBits, o.least
	dst := at[float64](o, row)
	for e := range dst {
		if p > end {
			return -1
		}
		n, t := digits(load(base, p), pattern)
		if n >= end-p {
			if n, t = o.lastDigits(base, p, end); e+1 < len(dst) {
				return -1
			}
		}
		if n < least {
			return -1
		}
		if n > 7 || notDigits(t) {
			bits, n, ok := o.other(d, p, n, pattern)
			if !ok {
				return -1
			}
			dst[e] = math.Float64frombits(bits)
			p += n + 1
			continue
		}
		v := math.Float64bits(float64(int64(eightDigits(t))))
		if n == 0 {
			v = missing
		}
		dst[e] = math.Float64frombits(v)
		p += n + 1
	}
	return p
}

// other reads a field that is not 1 to 7 digits. n is its length if that is below 8.
func (o *op) other(d *Decoder, p, n int, pattern uint64) (bits uint64, length int, ok bool) {
	c := o.column
	if n > 7 {
		n = nextDelimiter(d.base, p, d.end, pattern) - p
	}
	bits, reason := c.parse(d.buf[p : p+n])
	return bits, n, reason == ""
}

// viaSlot handles one field as slowRow would.
func (d *Decoder) viaSlot(b *Builder, o *op, p int, pattern uint64, row int) int {
	s := &d.slots[o.source]
	if !o.again {
		if p > d.end {
			return -1
		}
		q := nextDelimiter(d.base, p, d.end, pattern)
		*s = slot{start: int32(p), end: int32(q), kind: text}
		p = q + 1
	}
	// A value that on_error: default replaces gives the record up too, so that slowRow
	// counts it, once.
	lenient := d.lenient
	d.lenient = false
	var f *fault
	switch c := o.column; {
	case o.kind == opTime:
		f = d.putTime(b, row, *s)
	case c.ragged:
		f = d.putRagged(b, c, row)
	case c.text():
		f = d.putBytes(b, c, row, *s)
	default:
		f = d.putElement(b, c, row, o.element, *s)
	}
	d.lenient = lenient
	if f != nil {
		return -1
	}
	return p
}

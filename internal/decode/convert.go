package decode

import (
	"encoding/binary"
	"math"
	"unicode/utf8"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/frame"
)

// convert fills row of every column from the slots.
func (d *Decoder) convert(b *Builder, row int) *fault {
	for _, c := range d.columns {
		var f *fault
		switch {
		case len(c.sources) == 0, c.walked: // putPieces or a walk has filled it
		case c.feature:
			f = d.putFeature(b, c, row)
		case c.ragged:
			f = d.putRagged(b, c, row)
		case c.shaped:
			f = d.putShaped(b, c, row)
		case c.text():
			f = d.putBytes(b, c, row, d.slots[c.sources[0]])
		case c.run && c.fast == opHash:
			f = d.putHashes(b, c, row)
		case c.run && c.fast == opFloat32:
			f = d.putFloats32(b, c, row)
		default:
			for e, src := range c.sources {
				if f = d.putElement(b, c, row, e, d.slots[src]); f != nil {
					break
				}
			}
		}
		if f != nil {
			return f
		}
	}
	if d.eventTime != nil && d.eventTime.feature {
		return d.putFeatureTime(b, row)
	}
	if d.eventTime != nil && !d.eventTime.walked {
		return d.putTime(b, row, d.slots[d.eventTime.sources[0]])
	}
	return nil
}

// putHashes and putFloats32 do putElement's work for the two kinds of large matrix. The
// usual cases are written in line.

func (d *Decoder) putHashes(b *Builder, c *column, row int) *fault {
	h := c.hash.tail
	slots := d.slots[c.sources[0]:][:len(c.sources)]
	dst := frame.View[int64](b.Columns[c.index].Values)[row*len(slots):][:len(slots)]
	for e := range slots {
		s := &slots[e]
		if s.kind == str && s.end-s.start == 8 && h.short8 {
			w := load(d.base, int(s.start))
			v := mixWord(h.start8, h.rest|w<<(h.restBits&63))
			dst[e] = int64(h.remainder(finish(v, w>>(-h.restBits&63), h.restBytes)))
		} else if s.kind == str && !s.scratch {
			dst[e] = int64(h.remainder(c.hash.sum(d.base, int(s.start), int(s.end-s.start))))
		} else if f := d.putElement(b, c, row, e, *s); f != nil {
			return f
		}
	}
	return nil
}

func (d *Decoder) putFloats32(b *Builder, c *column, row int) *fault {
	slots, missingBits := d.slots[c.sources[0]:][:len(c.sources)], uint32(c.defaultBits)
	dst := frame.View[uint32](b.Columns[c.index].Values)[row*len(slots):][:len(slots)]
	for e := range slots {
		s := &slots[e]
		if s.ready && (c.hasDefault || s.kind == number) {
			v := math.Float32bits(float32(int32(s.value)))
			if s.kind == missing {
				v = missingBits // a conditional move, because absent values come at random
			}
			dst[e] = v
		} else if f := d.putElement(b, c, row, e, *s); f != nil {
			return f
		}
	}
	return nil
}

func (c *column) text() bool { return c.dtype == dataset.String || c.dtype == dataset.Bytes }

// absent reports whether s counts as missing. An empty field is, for numbers and
// where the user said what missing means; else it is the empty string.
func (c *column) absent(s slot) bool {
	if s.kind == text && s.start == s.end {
		return c.hasDefault || c.mask || (c.hash == nil && !c.text())
	}
	return s.isMissing()
}

// putElement writes element e of row of a fixed column of numbers or bools.
func (d *Decoder) putElement(b *Builder, c *column, row, e int, s slot) *fault {
	i := row*len(c.sources) + e
	col := &b.Columns[c.index]
	if c.absent(s) {
		if !c.hasDefault && !c.mask && !d.broken {
			return d.missing(c, e, s)
		}
		c.putMask(col.Mask, i, 0)
		putBits(col.Values, c.size, i, c.defaultBits)
		return nil
	}
	bits, reason := d.number(c, s)
	if reason != "" {
		if !d.lenient {
			return d.bad(c, e, s, reason)
		}
		c.errors++
		c.putMask(col.Mask, i, 0)
		putBits(col.Values, c.size, i, c.defaultBits)
		return nil
	}
	c.putMask(col.Mask, i, 1)
	putBits(col.Values, c.size, i, bits)
	return nil
}

func (c *column) putMask(mask []byte, i int, v byte) {
	if c.mask {
		mask[i] = v
	}
}

func putBits(values []byte, size, i int, bits uint64) {
	switch size {
	case 8:
		binary.LittleEndian.PutUint64(values[8*i:], bits)
	case 4:
		binary.LittleEndian.PutUint32(values[4*i:], uint32(bits))
	default:
		values[i] = byte(bits)
	}
}

func (d *Decoder) missing(c *column, e int, s slot) *fault {
	return &fault{column: c, source: c.sources[e], at: d.place(s), none: true, reason: "is missing"}
}

func (d *Decoder) bad(c *column, e int, s slot, reason string) *fault {
	return &fault{column: c, source: c.sources[e], at: d.place(s), value: d.bytesOf(s), reason: reason}
}

// number is a slot as the bits of one element of the column's dtype.
func (d *Decoder) number(c *column, s slot) (bits uint64, reason string) {
	if c.hash != nil {
		switch s.kind {
		case object, array:
			return 0, "is " + kindNames[s.kind] + "; only strings, numbers and bools are hashed"
		case escaped:
			return uint64(c.hash.bytes(d.unescape(s))), ""
		}
		if !s.scratch {
			return c.hash.remainder(c.hash.sum(d.base, int(s.start), int(s.end-s.start))), ""
		}
		return uint64(c.hash.bytes(d.bytesOf(s))), ""
	}
	switch s.kind {
	case text:
	case number:
		if c.dtype == dataset.Bool {
			return 0, "is a number, not true or false"
		}
	case truth, falsehood:
		if c.dtype != dataset.Bool {
			return 0, "is a bool, not a number"
		}
	default:
		return 0, "is " + kindNames[s.kind] + ", not " + c.wants()
	}
	if s.ready && s.kind == number {
		return c.integer(uint64(s.value)), ""
	}
	if n := s.end - s.start; n <= 8 && !s.scratch && n > 0 && c.dtype != dataset.Bool {
		if v, ok := shortDigits(load(d.base, int(s.start)), int(n)); ok {
			return c.integer(v), ""
		}
	}
	return c.parse(d.bytesOf(s))
}

func (c *column) wants() string {
	if c.dtype == dataset.Bool {
		return "true or false"
	}
	return "a number"
}

// shortDigits is the value of the first n bytes of w, 1 to 8, if all are digits.
func shortDigits(w uint64, n int) (uint64, bool) {
	t := (w ^ 0x3030303030303030) << uint(64-8*n)
	if notDigits(t) {
		return 0, false
	}
	return eightDigits(t), true
}

// integer is v < 10^8 as an element. Above 2^24 float32 is not exact, but the conversion
// rounds once and correctly.
func (c *column) integer(v uint64) uint64 {
	switch c.dtype {
	case dataset.Float32:
		return uint64(math.Float32bits(float32(v)))
	case dataset.Float64:
		return math.Float64bits(float64(v))
	}
	return v
}

const noFloat32 = "is out of the range of float32"

// fitsFloat32 reports whether a float64, given by its bits, becomes a float32 without becoming
// infinite. Infinities and NaN stay what they are.
func fitsFloat32(bits uint64) bool {
	const least, infinite = 0x47EFFFFFF0000000, 0x7FF0000000000000 // least: 0x1.ffffffp127, which is rounded up to 2^128
	abs := bits &^ (1 << 63)
	return abs < least || abs >= infinite
}

// parse reads text as one element.
func (c *column) parse(b []byte) (bits uint64, reason string) {
	switch c.dtype {
	case dataset.Bool:
		v, reason := parseBool(b)
		if v {
			bits = 1
		}
		return bits, reason
	case dataset.Int32:
		v, reason := parseInt(b)
		if reason == "" && v != int64(int32(v)) {
			reason = "is out of the range of int32"
		}
		return uint64(uint32(v)), reason
	case dataset.Int64:
		v, reason := parseInt(b)
		return uint64(v), reason
	case dataset.Float32:
		v, reason := parseFloat32(b)
		return uint64(math.Float32bits(v)), reason
	case dataset.Float64:
		v, reason := parseFloat64(b)
		return math.Float64bits(v), reason
	}
	return 0, "is not a number"
}

// putBytes writes row of a string or bytes column.
func (d *Decoder) putBytes(b *Builder, c *column, row int, s slot) *fault {
	col := &b.Columns[c.index]
	v, present := c.defaultBytes, byte(0)
	if c.absent(s) {
		if !c.hasDefault && !c.mask && !d.broken {
			return d.missing(c, 0, s)
		}
	} else {
		got, reason := d.textOf(c, s)
		switch {
		case reason == "":
			v, present = got, 1
		case !d.lenient:
			return d.bad(c, 0, s, reason)
		default:
			c.errors++
		}
	}
	col.Values = append(col.Values, v...)
	col.RowOffsets[row+1] = int64(len(col.Values))
	c.putMask(col.Mask, row, present)
	return nil
}

// textOf is a slot as a string or bytes. JSON is UTF-8 when its scanner is done
// with it.
func (d *Decoder) textOf(c *column, s slot) (v []byte, reason string) {
	switch s.kind {
	case text:
		v = d.bytesOf(s)
		if c.dtype == dataset.String && !utf8.Valid(v) {
			return nil, "is not UTF-8; use dtype: bytes"
		}
		return v, ""
	case str:
		return d.bytesOf(s), ""
	case escaped:
		return d.unescape(s), ""
	}
	return nil, "is " + kindNames[s.kind] + ", not a string"
}

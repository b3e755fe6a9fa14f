package decode

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/frame"
)

// putFeature fills row of a column from the features of a tf.Example.
func (d *Decoder) putFeature(b *Builder, c *column, row int) *fault {
	switch {
	case c.ragged:
		return d.putFeatureList(b, c, row)
	case c.text():
		return d.putFeatureText(b, c, row)
	case len(c.sources) < c.width:
		return d.putFeatureShape(b, c, row)
	}
	col := &b.Columns[c.index]
	at := row * len(c.sources)
	for e, src := range c.sources {
		f := d.features.found[d.features.of[src]]
		bits, ok := d.plainFeature(c, f)
		if !ok {
			var fa *fault
			if bits, ok, fa = d.oneFeature(c, src, f); fa != nil {
				return fa
			}
			if !ok {
				c.putMask(col.Mask, at+e, 0)
				putBits(col.Values, c.size, at+e, c.defaultBits)
				continue
			}
		}
		c.putMask(col.Mask, at+e, 1)
		putBits(col.Values, c.size, at+e, bits)
	}
	return nil
}

// plainFeature is a feature of one value as writers write it, as an element of the column.
func (d *Decoder) plainFeature(c *column, f found) (bits uint64, ok bool) {
	p, end := int(f.start), int(f.end)
	if end-p < 3 || d.buf[p] != field1 || int(d.buf[p+1]) != end-p-2 || d.buf[p+1] >= 0x80 {
		return 0, false
	}
	p += 2
	switch {
	case f.kind == floatList && end-p == 4 && c.hash == nil:
		v := binary.LittleEndian.Uint32(d.buf[p:])
		if c.dtype == dataset.Float32 {
			return uint64(v), true
		}
		return math.Float64bits(float64(math.Float32frombits(v))), c.dtype == dataset.Float64
	case f.kind == int64List && c.hash == nil:
		v, next := d.uvarint(p, end)
		if next != end {
			return 0, false
		}
		bits, reason := c.ofInt(int64(v))
		return bits, reason == ""
	case f.kind == bytesList && c.hash != nil:
		return c.hash.remainder(c.hash.sum(d.base, p, end-p)), true
	}
	return 0, false
}

// oneFeature is a feature that must have one value; ok is false where it is missing, or bad
// and replaced.
func (d *Decoder) oneFeature(c *column, src int, f found) (bits uint64, ok bool, _ *fault) {
	if f.kind == noFeature {
		return 0, false, d.missingFeature(c, src)
	}
	n, kind, reason := d.read(f)
	if reason == "" && n != 1 {
		reason = fmt.Sprintf("has %d values, not one; write /NAME/* for all of them", n)
	}
	if reason == "" {
		bits, reason = d.featureElement(c, kind, 0)
	}
	return bits, reason == "", d.badFeature(c, src, f, reason)
}

func (d *Decoder) missingFeature(c *column, src int) *fault {
	if c.hasDefault || c.mask || d.broken {
		return nil
	}
	return &fault{column: c, source: src, none: true, reason: "is missing"}
}

// badFeature counts a value that is replaced, or makes its fault.
func (d *Decoder) badFeature(c *column, src int, f found, reason string) *fault {
	if reason == "" {
		return nil
	}
	if d.lenient {
		c.errors++
		return nil
	}
	return &fault{column: c, source: src, at: int(f.start) - d.start, value: d.buf[f.start:f.end], reason: reason}
}

// featureElement is value i of the feature that was read, as an element of the column.
func (d *Decoder) featureElement(c *column, kind featureKind, i int) (bits uint64, reason string) {
	s := &d.features
	switch kind {
	case int64List:
		if c.hash != nil {
			var room [20]byte
			return uint64(c.hash.bytes(strconv.AppendInt(room[:0], s.ints[i], 10))), ""
		}
		return c.ofInt(s.ints[i])
	case floatList:
		switch {
		case c.hash != nil:
		case c.dtype == dataset.Float32:
			return uint64(s.floats[i]), ""
		case c.dtype == dataset.Float64:
			return math.Float64bits(float64(math.Float32frombits(s.floats[i]))), ""
		}
	case bytesList:
		if t := s.texts[i]; c.hash != nil {
			return c.hash.remainder(c.hash.sum(d.base, int(t[0]), int(t[1]-t[0]))), ""
		}
	}
	return 0, c.unfit(kind)
}

func (c *column) unfit(kind featureKind) string {
	if c.hash != nil {
		return fmt.Sprintf("is %s; only bytes and int64 are hashed", featureNames[kind])
	}
	return fmt.Sprintf("is %s, which does not become %s; choose another dtype", featureNames[kind], c.dtype)
}

// ofInt is v as an element of the column.
func (c *column) ofInt(v int64) (bits uint64, reason string) {
	switch c.dtype {
	case dataset.Int64:
		return uint64(v), ""
	case dataset.Int32:
		if v != int64(int32(v)) {
			return 0, "is out of the range of int32"
		}
		return uint64(uint32(v)), ""
	case dataset.Float32:
		return uint64(math.Float32bits(float32(v))), ""
	case dataset.Float64:
		return math.Float64bits(float64(v)), ""
	case dataset.Bool:
		if v != 0 && v != 1 {
			return 0, "is no bool: it is neither 0 nor 1"
		}
		return uint64(v), ""
	}
	return 0, c.unfit(int64List)
}

// putFeatureShape writes a feature of a fixed number of values.
func (d *Decoder) putFeatureShape(b *Builder, c *column, row int) *fault {
	col, src := &b.Columns[c.index], c.sources[0]
	f := d.features.found[d.features.of[src]]
	at, there := row*c.width, byte(0)
	if f.kind == noFeature {
		if fa := d.missingFeature(c, src); fa != nil {
			return fa
		}
	} else {
		n, kind, reason := d.read(f)
		if reason == "" && n != c.width {
			reason = fmt.Sprintf("has %d values, and its shape has %d", n, c.width)
		}
		if reason == "" {
			reason = d.putElements(c, kind, col.Values[at*c.size:(at+c.width)*c.size])
		}
		if fa := d.badFeature(c, src, f, reason); fa != nil {
			return fa
		}
		if reason == "" {
			there = 1
		}
	}
	for e := at; e < at+c.width; e++ {
		c.putMask(col.Mask, e, there)
		if there == 0 {
			putBits(col.Values, c.size, e, c.defaultBits)
		}
	}
	return nil
}

// putElements writes the values that were read to dst, which has room for them.
func (d *Decoder) putElements(c *column, kind featureKind, dst []byte) (reason string) {
	n := len(dst) / c.size
	if kind == floatList && c.dtype == dataset.Float32 {
		copy(frame.View[uint32](dst), d.features.floats)
		return ""
	}
	for i := range n {
		bits, reason := d.featureElement(c, kind, i)
		if reason != "" {
			return reason
		}
		putBits(dst, c.size, i, bits)
	}
	return ""
}

// putFeatureText writes row of a column of strings or bytes.
func (d *Decoder) putFeatureText(b *Builder, c *column, row int) *fault {
	col, src := &b.Columns[c.index], c.sources[0]
	f := d.features.found[d.features.of[src]]
	v, there := c.defaultBytes, byte(0)
	if f.kind == noFeature {
		if fa := d.missingFeature(c, src); fa != nil {
			return fa
		}
	} else {
		n, kind, reason := d.read(f)
		if reason == "" && n != 1 {
			reason = fmt.Sprintf("has %d values, not one; write /NAME/* for all of them", n)
		}
		var got []byte
		if reason == "" {
			got, reason = d.textAt(c, kind, 0)
		}
		if fa := d.badFeature(c, src, f, reason); fa != nil {
			return fa
		}
		if reason == "" {
			v, there = got, 1
		}
	}
	col.Values = append(col.Values, v...)
	col.RowOffsets[row+1] = int64(len(col.Values))
	c.putMask(col.Mask, row, there)
	return nil
}

func (d *Decoder) textAt(c *column, kind featureKind, i int) (v []byte, reason string) {
	if kind != bytesList {
		return nil, c.unfit(kind)
	}
	t := d.features.texts[i]
	v = d.buf[t[0]:t[1]]
	if c.dtype == dataset.String && !utf8.Valid(v) {
		return nil, "is not UTF-8; use dtype: bytes"
	}
	return v, ""
}

// putFeatureList writes row of a ragged column. A row without any value holds the default,
// if there is one, else nothing. With on_error: default a bad value without a default is
// left out.
func (d *Decoder) putFeatureList(b *Builder, c *column, row int) *fault {
	col, src := &b.Columns[c.index], c.sources[0]
	f := d.features.found[d.features.of[src]]
	had := c.count(col)
	if f.kind != noFeature {
		n, kind, reason := d.read(f)
		if fa := d.badFeature(c, src, f, reason); fa != nil {
			return fa
		}
		if reason == "" {
			if fa := d.appendElements(c, col, src, f, kind, min(n, c.max)); fa != nil {
				return fa
			}
		}
	}
	there := byte(1)
	if c.count(col) == had {
		if there = 0; c.hasDefault {
			c.appendDefault(col, nil)
		}
	}
	col.RowOffsets[row+1] = int64(c.count(col))
	c.putMask(col.Mask, row, there)
	return nil
}

// appendElements appends the first n of the values that were read.
func (d *Decoder) appendElements(c *column, col *frame.Buffers, src int, f found, kind featureKind, n int) *fault {
	for i := range n {
		var bits uint64
		var v []byte
		var reason string
		if c.text() {
			v, reason = d.textAt(c, kind, i)
		} else {
			bits, reason = d.featureElement(c, kind, i)
		}
		switch fa := d.badFeature(c, src, f, reason); {
		case fa != nil:
			return fa
		case reason != "":
			if c.hasDefault {
				c.appendDefault(col, nil)
			}
		case c.text():
			c.appendText(col, v)
		default:
			col.Values = appendBits(col.Values, c.size, bits)
		}
	}
	return nil
}

// putFeatureTime sets the row's event time; 0 where it is missing.
func (d *Decoder) putFeatureTime(b *Builder, row int) *fault {
	src := d.eventTime.sources[0]
	f := d.features.found[d.features.of[src]]
	b.Times[row] = 0
	if f.kind == noFeature {
		return nil
	}
	n, kind, reason := d.read(f)
	if reason == "" && n == 1 {
		var room [20]byte
		text := room[:0]
		switch kind {
		case int64List:
			text = strconv.AppendInt(text, d.features.ints[0], 10)
		case bytesList:
			t := d.features.texts[0]
			text = d.buf[t[0]:t[1]]
		}
		if ms, ok := parseTime(text); ok {
			b.Times[row] = ms
			return nil
		}
	}
	return d.badFeature(d.eventTime, src, f, "is not a time")
}

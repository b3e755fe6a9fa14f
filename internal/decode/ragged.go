package decode

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/headrace/headrace/internal/frame"
)

// putRagged writes row of a ragged column and of its weights. A row without any
// value holds the default, if there is one, else nothing. With on_error: default
// a bad value without a default is left out.
func (d *Decoder) putRagged(b *Builder, c *column, row int) *fault {
	col := &b.Columns[c.index]
	had := c.count(col)
	var w *frame.Buffers
	if c.weights >= 0 {
		w = &b.Columns[c.weights]
	}
	src := c.sources[0]
	if d.sources[src].star {
		for _, s := range d.lists[src].slots {
			if f := d.putValues(c, col, w, s, had); f != nil {
				return f
			}
		}
	} else if s := d.slots[src]; !s.isMissing() && (s.kind != text || s.start < s.end) {
		if f := d.putValues(c, col, w, s, had); f != nil {
			return f
		}
	}
	present := byte(1)
	if c.count(col) == had {
		present = 0
		if c.hasDefault {
			c.appendDefault(col, w)
		}
	}
	col.RowOffsets[row+1] = int64(c.count(col))
	if w != nil {
		w.RowOffsets[row+1] = col.RowOffsets[row+1]
	}
	c.putMask(col.Mask, row, present)
	return nil
}

// count is the number of values in the column.
func (c *column) count(col *frame.Buffers) int {
	if c.text() {
		return len(col.Elements) - 1
	}
	return len(col.Values) / c.size
}

// putValues appends what one slot holds: one value, or several with split.
func (d *Decoder) putValues(c *column, col, w *frame.Buffers, s slot, had int) *fault {
	if s.isMissing() {
		if c.count(col)-had >= c.max || d.lenient && !c.hasDefault {
			return nil
		}
		if !c.hasDefault {
			f := d.missing(c, 0, s)
			f.reason = "an element of the array has no value"
			return f
		}
		c.appendDefault(col, w)
		return nil
	}
	if c.split == 0 && c.weight == 0 {
		if c.count(col)-had >= c.max {
			return nil
		}
		return d.putValue(c, col, w, s, nil)
	}
	// A part is a slot of its own in the same bytes.
	switch s.kind {
	case escaped:
		from := len(d.scratch)
		n := len(d.unescape(s))
		s = slot{start: int32(from), end: int32(from + n), kind: str, scratch: true}
	case object, array:
		return d.putValue(c, col, w, s, nil)
	}
	rest := s
	for c.count(col)-had < c.max {
		part, more := rest, false
		if c.split != 0 {
			if i := bytes.IndexByte(d.bytesOf(rest), c.split); i >= 0 {
				part.end, more = rest.start+int32(i), true
				rest.start = part.end + 1
			}
		}
		if f := d.putPart(c, col, w, part); f != nil {
			return f
		}
		if !more {
			break
		}
	}
	return nil
}

// putPart appends one value of a split, with its weight.
func (d *Decoder) putPart(c *column, col, w *frame.Buffers, part slot) *fault {
	part.kind = text
	if w == nil {
		return d.putValue(c, col, nil, part, nil)
	}
	b := d.bytesOf(part)
	i := bytes.LastIndexByte(b, c.weight)
	if i < 0 {
		return d.putValue(c, col, w, part, nil)
	}
	part.end = part.start + int32(i)
	return d.putValue(c, col, w, part, b[i+1:])
}

// putValue appends one value and its weight, 1 unless written.
func (d *Decoder) putValue(c *column, col, w *frame.Buffers, s slot, weight []byte) *fault {
	heavy, reason := float32(1), ""
	if weight != nil {
		if heavy, reason = parseFloat32(weight); reason != "" {
			reason = "its weight " + reason
		}
	}
	var bits uint64
	var v []byte
	switch {
	case reason != "":
	case s.kind == text && s.start == s.end && c.hasDefault:
		bits, v = c.defaultBits, c.defaultBytes
	case c.text():
		v, reason = d.textOf(c, s)
	default:
		bits, reason = d.number(c, s)
	}
	if reason != "" {
		if !d.lenient {
			return d.bad(c, 0, s, reason)
		}
		c.errors++
		if c.hasDefault {
			c.appendDefault(col, w)
		}
		return nil
	}
	if c.text() {
		c.appendText(col, v)
	} else {
		col.Values = appendBits(col.Values, c.size, bits)
	}
	if w != nil {
		w.Values = binary.LittleEndian.AppendUint32(w.Values, math.Float32bits(heavy))
	}
	return nil
}

func (c *column) appendDefault(col, w *frame.Buffers) {
	if c.text() {
		c.appendText(col, c.defaultBytes)
	} else {
		col.Values = appendBits(col.Values, c.size, c.defaultBits)
	}
	if w != nil {
		w.Values = binary.LittleEndian.AppendUint32(w.Values, math.Float32bits(1))
	}
}

func (c *column) appendText(col *frame.Buffers, v []byte) {
	col.Values = append(col.Values, v...)
	col.Elements = append(col.Elements, int64(len(col.Values)))
}

func appendBits(values []byte, size int, bits uint64) []byte {
	switch size {
	case 8:
		return binary.LittleEndian.AppendUint64(values, bits)
	case 4:
		return binary.LittleEndian.AppendUint32(values, uint32(bits))
	}
	return append(values, byte(bits))
}

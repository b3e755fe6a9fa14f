package decode

import (
	"fmt"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/sources"
)

// Lists of a fixed length (an embedding of 128 numbers) fill a column with a shape.

// shapedRows writes such a column.
func (d *Decoder) shapedRows(b *Builder, c *column, row, n, base int) (int, *fault) {
	values := b.Columns[c.index].Values
	switch {
	case c.dtype == dataset.Float64:
		return shapedOf(d, b, c, frame.View[float64](values), row, n, base)
	case c.dtype == dataset.Float32:
		return shapedOf(d, b, c, frame.View[float32](values), row, n, base)
	case c.dtype == dataset.Int32:
		return shapedOf(d, b, c, frame.View[int32](values), row, n, base)
	case c.size == 8:
		return shapedOf(d, b, c, frame.View[int64](values), row, n, base)
	}
	return shapedOf(d, b, c, values, row, n, base)
}

func shapedOf[D element](d *Decoder, b *Builder, c *column, dst []D, row, n, base int) (int, *fault) {
	src := c.sources[0]
	f := &d.columnar.feeds[src]
	var valid []byte
	var dense []D
	var errs []string
	if !f.col.Absent {
		slots := f.slotEnd(base, n) - f.slot
		valid = f.valid(slots)
		dense, errs = convertValues[D](d, c, 0, f, f.values(slots))
	}
	slot, k := 0, 0 // of valid, of dense
	for i := range n {
		length := 0
		if !f.col.Absent {
			length = int(f.col.Ends[base+i]) - f.slot - slot
		}
		out := dst[(row+i)*c.width:][:c.width]
		var nulls []byte
		has := length
		if valid != nil {
			nulls = valid[slot : slot+length]
			has = sources.CountValid(nulls)
		}
		if length == c.width && has == length && errs == nil {
			copy(out, dense[k:])
			c.maskRow(b, row+i, 1)
		} else if fa := shapedRow(d, b, c, f, out, row+i, length, nulls, k, dense, errs); fa != nil {
			fa.source = src
			return i, fa
		}
		slot, k = slot+length, k+has
	}
	return n, nil
}

// shapedRow writes a row that may lack values, or have wrong ones. Its values are dense from
// k on.
func shapedRow[D element](d *Decoder, b *Builder, c *column, f *feed, out []D, row, length int, nulls []byte, k int, dense []D, errs []string) *fault {
	missing, fill := defaultOf[D](c), c.hasDefault || c.mask
	if length != c.width {
		switch {
		case length == 0 && !fill:
			return &fault{column: c, none: true, reason: "is missing"}
		case length > 0 && !d.lenient:
			return &fault{column: c, reason: fmt.Sprintf("has %d values, and its shape has %d", length, c.width)}
		case length > 0:
			c.errors++
		}
		for e := range out {
			out[e] = missing
		}
		c.maskRow(b, row, 0)
		return nil
	}
	mask := b.Columns[c.index].Mask
	for e := range out {
		present := byte(1)
		if nulls != nil && nulls[e] == 0 {
			if !fill {
				return &fault{column: c, none: true, reason: "an element of the list has no value"}
			}
			out[e], present = missing, 0
		} else {
			out[e] = dense[k]
			if errs != nil && errs[k] != "" {
				if !d.lenient {
					return &fault{column: c, value: f.excerpt(f.value + k), reason: errs[k]}
				}
				c.errors++
				out[e], present = missing, 0
			}
			k++
		}
		c.putMask(mask, row*c.width+e, present)
	}
	return nil
}

// gather is a row of a shaped column while a walk finds its elements.
type gather struct {
	frame.Buffers
	nulls []int // elements that have no value
}

// of is where cells append. Each row begins with nothing.
func (g *gather) of(rows int) *frame.Buffers {
	for len(g.RowOffsets) <= rows {
		g.RowOffsets = append(g.RowOffsets, 0)
	}
	return &g.Buffers
}

func (g *gather) shorten(n int) {
	for len(g.nulls) > 0 && g.nulls[len(g.nulls)-1] >= n {
		g.nulls = g.nulls[:len(g.nulls)-1]
	}
}

func (d *Decoder) clearShaped() {
	for _, c := range d.walking.lists {
		if c.shaped {
			c.gather.Values, c.gather.nulls = c.gather.Values[:0], c.gather.nulls[:0]
		}
	}
}

// lacks notes an element without a value.
func (c *column) lacks(col *frame.Buffers) {
	c.gather.nulls = append(c.gather.nulls, c.count(col))
	c.appendDefault(col, nil)
}

// putGathered writes the row that a walk has found.
func (d *Decoder) putGathered(c *column) *fault {
	w := &d.walking
	n := c.count(&c.gather.Buffers)
	if n != c.width {
		return d.notShaped(w.b, c, w.row, n)
	}
	copy(w.b.Columns[c.index].Values[w.row*c.width*c.size:], c.gather.Values)
	c.maskRow(w.b, w.row, 1)
	for _, e := range c.gather.nulls {
		c.putMask(w.b.Columns[c.index].Mask, w.row*c.width+e, 0)
	}
	return nil
}

// notShaped is for a row that has another number of values than the shape.
func (d *Decoder) notShaped(b *Builder, c *column, row, n int) *fault {
	switch {
	case n == 0 && !c.hasDefault && !c.mask && !d.broken:
		return &fault{column: c, source: c.sources[0], none: true, reason: "is missing"}
	case n > 0 && !d.lenient:
		return &fault{column: c, source: c.sources[0], reason: fmt.Sprintf("has %d values, and its shape has %d", n, c.width)}
	case n > 0:
		c.errors++
	}
	values := b.Columns[c.index].Values
	for e := row * c.width; e < (row+1)*c.width; e++ {
		putBits(values, c.size, e, c.defaultBits)
	}
	c.maskRow(b, row, 0)
	return nil
}

// putShaped writes a row from the slots of its list.
func (d *Decoder) putShaped(b *Builder, c *column, row int) *fault {
	slots := d.lists[c.sources[0]].slots
	if len(slots) != c.width {
		return d.notShaped(b, c, row, len(slots))
	}
	col := &b.Columns[c.index]
	for e, s := range slots {
		at, bits, present, reason := row*c.width+e, c.defaultBits, byte(0), ""
		switch {
		case !s.isMissing():
			if bits, reason = d.number(c, s); reason == "" {
				present = 1
			} else if !d.lenient {
				return d.bad(c, 0, s, reason)
			} else {
				c.errors++
				bits = c.defaultBits
			}
		case !c.hasDefault && !c.mask && !d.lenient:
			f := d.missing(c, 0, s)
			f.reason = "an element of the array has no value"
			return f
		}
		c.putMask(col.Mask, at, present)
		putBits(col.Values, c.size, at, bits)
	}
	return nil
}

// maskRow marks all elements of a row as present or missing.
func (c *column) maskRow(b *Builder, row int, present byte) {
	if !c.mask {
		return
	}
	mask := b.Columns[c.index].Mask[row*c.width:][:c.width]
	for e := range mask {
		mask[e] = present
	}
}

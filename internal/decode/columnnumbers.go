package decode

import (
	"unsafe"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/frame"
)

// Numbers and bools of rows of columns go straight to their place in the frame, a column of
// many rows at a time.

// numberRows writes a fixed column of numbers or bools.
func (d *Decoder) numberRows(b *Builder, c *column, row, n int) (int, *fault) {
	values := b.Columns[c.index].Values
	switch c.size {
	case 8:
		if c.dtype == dataset.Float64 {
			return fixedRows(d, b, c, frame.View[float64](values), row, n)
		}
		return fixedRows(d, b, c, frame.View[int64](values), row, n)
	case 4:
		if c.dtype == dataset.Float32 {
			return fixedRows(d, b, c, frame.View[float32](values), row, n)
		}
		return fixedRows(d, b, c, frame.View[int32](values), row, n)
	}
	return fixedRows(d, b, c, values, row, n)
}

func fixedRows[D element](d *Decoder, b *Builder, c *column, dst []D, row, n int) (int, *fault) {
	width := len(c.sources)
	mask := b.Columns[c.index].Mask
	missing := defaultOf[D](c)
	var bad *fault
	for e, src := range c.sources {
		f := &d.columnar.feeds[src]
		var valid []byte
		count := n
		switch {
		case f.col.Absent:
			valid, count = noValues(n), 0
		default:
			if valid, count = f.valid(n), f.values(n); count == n {
				valid = nil
			}
		}
		out, k := dst[row*width+e:], 0
		if width == 1 && (valid == nil || c.hasDefault || c.mask) && plainRows(d, c, e, f, out[:n], valid, count, missing) {
			if c.mask {
				setMask(mask[row:row+n], valid)
			}
			continue
		}
		dense, errs := convertValues[D](d, c, e, f, count)
		for i := range n {
			at := i * width
			switch {
			case valid != nil && valid[i] == 0:
				if !c.hasDefault && !c.mask {
					n, bad = i, &fault{column: c, source: src, none: true, reason: "is missing"}
				} else {
					out[at] = missing
					c.putMask(mask, (row+i)*width+e, 0)
				}
			case errs != nil && errs[k] != "":
				if !d.lenient {
					n, bad = i, &fault{column: c, source: src, value: f.excerpt(f.value + k), reason: errs[k]}
				} else {
					c.errors++
					out[at] = missing
					c.putMask(mask, (row+i)*width+e, 0)
				}
				k++
			default:
				out[at] = dense[k]
				c.putMask(mask, (row+i)*width+e, 1)
				k++
			}
			if i >= n {
				break
			}
		}
	}
	return n, bad
}

// plainRows fills out with one value for each of the count rows that are valid, or all rows if
// valid is nil, and missing for other rows. It returns false if a value is bad.
func plainRows[D element](d *Decoder, c *column, e int, f *feed, out []D, valid []byte, count int, missing D) bool {
	if count == 0 { // a column with a dictionary has no Values to look at
		for i := range out {
			out[i] = missing
		}
		return true
	}
	if f.col.Dict != nil {
		known := dictionaryOf[D](c, e, f.col)
		if known.errs != nil {
			return false
		}
		if len(f.col.Short) > 0 {
			lookUpAll(known, out, f.col.Short[f.value:f.value+count], valid, missing)
		} else {
			lookUpAll(known, out, f.col.Entries[f.value:f.value+count], valid, missing)
		}
		return true
	}
	if valid == nil {
		return convert(c, f.col.Kind, f.col.Values, f.col.Offsets, f.value, out) == nil
	}
	dense, errs := convertValues[D](d, c, e, f, count)
	if errs == nil {
		spread(out, dense, valid, missing)
	}
	return errs == nil
}

// entryNumber is the number of an entry of a dictionary.
type entryNumber interface{ uint16 | uint32 }

// lookUpAll fills out with the values that index names, for the rows that are valid, or for all
// of them if valid is nil. The other rows become missing.
func lookUpAll[D element, E entryNumber](known *converted[D], out []D, index []E, valid []byte, missing D) {
	switch {
	case valid != nil:
		lookUpValid(out, known.vals, index, valid, missing)
	case len(known.tiny) > 0:
		lookUpShort(bitsAs[int64](out), known.tiny, index)
	case len(known.short) > 0:
		lookUpShort(bitsAs[int64](out), known.short, index)
	default:
		lookUp(out, known.vals, index)
	}
}

// lookUp fills out with the values that index names.
func lookUp[D element, E entryNumber](out, vals []D, index []E) {
	for ; len(index) >= 8 && len(out) >= 8; index, out = index[8:], out[8:] {
		i, o := (*[8]E)(index), (*[8]D)(out)
		o[0], o[1], o[2], o[3] = vals[i[0]], vals[i[1]], vals[i[2]], vals[i[3]]
		o[4], o[5], o[6], o[7] = vals[i[4]], vals[i[5]], vals[i[6]], vals[i[7]]
	}
	for i, k := range index {
		out[i] = vals[k]
	}
}

// lookUpShort is lookUp for numbers that are kept in fewer bytes.
func lookUpShort[S uint16 | int32, E entryNumber](out []int64, vals []S, index []E) {
	for ; len(index) >= 8 && len(out) >= 8; index, out = index[8:], out[8:] {
		i, o := (*[8]E)(index), (*[8]int64)(out)
		o[0], o[1], o[2], o[3] = int64(vals[i[0]]), int64(vals[i[1]]), int64(vals[i[2]]), int64(vals[i[3]])
		o[4], o[5], o[6], o[7] = int64(vals[i[4]]), int64(vals[i[5]]), int64(vals[i[6]]), int64(vals[i[7]])
	}
	for i, k := range index {
		out[i] = int64(vals[k])
	}
}

// lookUpValid is lookUp for the rows that are valid; the other ones become missing.
func lookUpValid[D element, E entryNumber](out, vals []D, index []E, valid []byte, missing D) {
	switch unsafe.Sizeof(missing) {
	case 8:
		lookUpBits(bitsAs[uint64](out), bitsAs[uint64](vals), index, valid, uint64(bitsOf(missing)))
	case 4:
		lookUpBits(bitsAs[uint32](out), bitsAs[uint32](vals), index, valid, uint32(bitsOf(missing)))
	default:
		lookUpBits(bitsAs[uint8](out), bitsAs[uint8](vals), index, valid, uint8(bitsOf(missing)))
	}
}

func lookUpBits[U uint64 | uint32 | uint8, E entryNumber](out, vals []U, index []E, valid []byte, missing U) {
	out = out[:len(valid)]
	i, k := 0, uint(0)
	for ; i < len(valid) && k < uint(len(index)); i++ {
		here := -U(valid[i]) // all bits, or none
		out[i] = missing ^ (vals[index[k]]^missing)&here
		k += uint(valid[i])
	}
	for ; i < len(valid); i++ {
		out[i] = missing
	}
}

// spread writes values where there are some, and missing elsewhere. dense has room for one
// value more, so that nothing depends on what is there.
func spread[D element](out, dense []D, valid []byte, missing D) {
	switch unsafe.Sizeof(missing) {
	case 8:
		spreadBits(bitsAs[uint64](out), bitsAs[uint64](dense[:cap(dense)]), valid, uint64(bitsOf(missing)))
	case 4:
		spreadBits(bitsAs[uint32](out), bitsAs[uint32](dense[:cap(dense)]), valid, uint32(bitsOf(missing)))
	default:
		spreadBits(bitsAs[uint8](out), bitsAs[uint8](dense[:cap(dense)]), valid, uint8(bitsOf(missing)))
	}
}

func spreadBits[U uint64 | uint32 | uint8](out, dense []U, valid []byte, missing U) {
	out = out[:len(valid)]
	k := 0
	for i, v := range valid {
		here := -U(v) // all bits, or none
		out[i] = dense[k]&here | missing&^here
		k += int(v)
	}
}

// bitsAs is the same memory as numbers of another type, whose size divides that of D.
func bitsAs[U, D any](s []D) []U {
	return unsafe.Slice((*U)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(D))/unsafe.Sizeof(*new(U))))
}

// setMask marks the rows that have a value; valid is nil if all have.
func setMask(mask, valid []byte) {
	if valid != nil {
		copy(mask, valid)
		return
	}
	for i := range mask {
		mask[i] = 1
	}
}

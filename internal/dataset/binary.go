package dataset

import (
	"fmt"
	"slices"
	"strconv"
)

// Format binary: every record has the same bytes at the same places, in
// little-endian order.

const maxDimensions = 8

// InRecord reports whether the column is a piece of a binary record, and not one
// of the $ paths that every format has.
func (c *Column) InRecord(format string) bool { return format == "binary" && c.Path == "" }

// Bytes is what the column takes of a binary record; 0 if that cannot be said.
func (c *Column) Bytes() int {
	dtype := dtypeByName[c.DType]
	n := dtype.Size()
	if dtype == Bytes {
		n = 1
	}
	for _, d := range c.Shape {
		if d < 1 || d > int(MaxRecord) || n*d > int(MaxRecord) {
			return 0
		}
		n *= d
	}
	return n
}

func (c *Column) binaryField(dtype DType) Field {
	f := Field{Name: c.Name, DType: dtype, Shape: []int{}, Mask: c.Missing == "mask"}
	if dtype != Bytes {
		f.Shape = append(f.Shape, c.Shape...)
	}
	return f
}

// fillBinary places each column without an offset right after the column before it.
func (d *DecodeSpec) fillBinary() {
	next, end := 0, 0
	for i := range d.Columns {
		c := &d.Columns[i]
		if !c.InRecord(d.Format) {
			continue
		}
		if c.Offset == nil {
			at := next
			c.Offset = &at
		}
		next = *c.Offset + c.Bytes()
		end = max(end, next)
	}
	if d.RecordSize == 0 {
		d.RecordSize = Size(end)
	}
}

func (c *Check) binaryColumn(at string, col *Column, d *DecodeSpec) {
	if !c.Among(at+".dtype", col.DType, slices.DeleteFunc(slices.Clone(dtypeNames), func(n string) bool { return n == "string" })...) {
		return
	}
	if col.Paths != nil {
		c.Fail(at+".paths", "", "is not for binary, whose columns have an offset", "write shape for elements that follow each other")
	}
	for _, f := range []struct {
		name string
		set  bool
	}{{"hash", col.Hash != nil}, {"split", col.Split != ""}, {"weights", col.Weights != ""}, {"max", col.Max != 0}} {
		if f.set {
			c.Fail(at+"."+f.name, "", "is for text, and decode.format is binary", "remove it")
		}
	}
	if len(col.Shape) > maxDimensions {
		c.Fail(at+".shape", "", fmt.Sprintf("has %d dimensions; at most %d", len(col.Shape), maxDimensions), "")
		return
	}
	for i, n := range col.Shape {
		if n < 1 {
			c.Fail(fmt.Sprintf("%s.shape[%d]", at, i), strconv.Itoa(n), "must be 1 or more", "")
			return
		}
	}
	size := col.Bytes()
	switch {
	case size == 0:
		c.Fail(at+".shape", "", "takes more than "+MaxRecord.String(), "")
	case col.DType == "bytes" && len(col.Shape) == 0:
		c.Fail(at+".shape", "", "must be given: how many bytes", "as in shape: [16], or path: $value for the whole record")
	case *col.Offset < 0 || *col.Offset > int(MaxRecord):
		c.Fail(at+".offset", strconv.Itoa(*col.Offset), "must be from 0 to "+MaxRecord.String(), "")
	case Size(*col.Offset+size) > d.RecordSize:
		c.Fail(at+".offset", strconv.Itoa(*col.Offset), fmt.Sprintf("plus the %d bytes of the column is more than decode.record_size, %d", size, d.RecordSize), "")
	}
	if col.Missing != "" {
		c.Among(at+".missing", col.Missing, "mask")
	}
	c.defaultValue(at, col, d, dtypeByName[col.DType], false)
}

// notBinary: what only the columns of binary records have.
func (c *Check) notBinary(at string, col *Column, d *DecodeSpec) {
	for _, f := range []struct {
		name string
		set  bool
	}{{"offset", col.Offset != nil}, {"shape", len(col.Shape) > 0 && !d.Shaped()}} {
		if f.set {
			c.Fail(at+"."+f.name, "", "is only for columns of decode.format binary that have no path", "remove it")
		}
	}
}

func (c *Check) recordSize(d *DecodeSpec) {
	switch {
	case d.Format != "binary":
		if d.RecordSize != 0 {
			c.Fail("decode.record_size", d.RecordSize.String(), "is only for binary, and decode.format is "+d.Format, "remove it")
		}
	case d.RecordSize < 1:
		c.Fail("decode.record_size", d.RecordSize.String(), "must be 1 or more", "leave it out where columns fill the record")
	case d.RecordSize > c.maxRecord:
		c.Fail("decode.record_size", d.RecordSize.String(), "is larger than the source's max_record, "+c.maxRecord.String(), "")
	}
}

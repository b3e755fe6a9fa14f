package dataset

import (
	"fmt"
	"strconv"
)

// Format tfrecord: a record is a tf.Example, or a tf.SequenceExample whose context is read
// as an Example's features are.

const featurePathHint = "a feature's name for one value, /name/* for all its values, /name/*/* for all values of a feature list"

// feature reports whether the path can be one of a tf.Example.
func (p Path) feature() bool {
	switch len(p.Tokens) {
	case 1:
		return !p.Stars[0]
	case 2:
		return !p.Stars[0] && p.Stars[1]
	case 3:
		return !p.Stars[0] && p.Stars[1] && p.Stars[2]
	}
	return false
}

// fixedShape: a feature, or a list, of a fixed number of values.
func (c *Check) fixedShape(at string, col *Column, d *DecodeSpec, dtype DType, paths []Path) {
	for i, n := range col.Shape {
		if n < 1 {
			c.Fail(fmt.Sprintf("%s.shape[%d]", at, i), strconv.Itoa(n), "must be 1 or more", "")
			return
		}
	}
	what, hint := "a feature", "write its name alone as the path"
	if !d.Features() {
		what, hint = "a list", "write a path with *, as in /embedding/*"
	}
	switch {
	case len(col.Shape) > maxDimensions:
		c.Fail(at+".shape", "", fmt.Sprintf("has %d dimensions; at most %d", len(col.Shape), maxDimensions), "")
	case dtype == String || dtype == Bytes:
		c.Fail(at+".shape", "", "is for numbers, and dtype is "+col.DType, "write a path /name/*, which gives any number of them")
	case col.Paths != nil || paths[0].Kind != Pointer || paths[0].Ragged() == d.Features():
		c.Fail(at+".shape", "", "is for "+what+" of a fixed number of values", hint)
	case col.Bytes() == 0:
		c.Fail(at+".shape", "", "takes more than "+MaxRecord.String(), "")
	}
}

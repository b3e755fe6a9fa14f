package parquet

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/headrace/headrace/sources"
)

// kind returns what the values of a leaf become, and the ticks of a time or a date (Leaf).
func (n *node) kind() (sources.ValueKind, int64, error) {
	switch n.logical {
	case logicalDecimal:
		if n.scale < 0 || n.scale > 300 || n.typ == fixedBytes && (n.length < 1 || n.length > 64) {
			return 0, 0, fmt.Errorf("is a decimal of scale %d in %d bytes, which is not supported", n.scale, n.length)
		}
		switch n.typ {
		case int32Type, int64Type, byteArray, fixedBytes:
			return sources.Float64Values, 0, nil
		}
	case logicalFloat16:
		if n.typ == fixedBytes && n.length == 2 {
			return sources.Float32Values, 0, nil
		}
	case logicalUnsigned32:
		if n.typ == int32Type {
			return sources.Int64Values, 0, nil
		}
	case logicalUnsigned64:
		if n.typ == int64Type {
			return sources.Uint64Values, 0, nil
		}
	case logicalDate:
		if n.typ == int32Type {
			return sources.Int32Values, sources.PerDay, nil
		}
	case logicalTimestampMillis, logicalTimestampMicros, logicalTimestampNanos:
		if n.typ == int64Type {
			return sources.Int64Values, [...]int64{1e3, 1e6, 1e9}[n.logical-logicalTimestampMillis], nil
		}
	}
	switch n.typ {
	case boolean:
		return sources.BoolValues, 0, nil
	case int32Type:
		return sources.Int32Values, 0, nil
	case int64Type:
		return sources.Int64Values, 0, nil
	case int96Type:
		return sources.Int64Values, 1e9, nil
	case floatType:
		return sources.Float32Values, 0, nil
	case doubleType:
		return sources.Float64Values, 0, nil
	case fixedBytes:
		if n.length < 1 || n.length > 1<<20 {
			return 0, 0, fmt.Errorf("has values of %d bytes; they may have 1 to %d", n.length, 1<<20)
		}
	}
	return sources.BytesValues, 0, nil
}

// width is how many bytes a value takes in a page; 0: it is a bool, or the length varies.
func (n *node) width() int {
	switch n.typ {
	case int32Type, floatType:
		return 4
	case int64Type, doubleType:
		return 8
	case int96Type:
		return 12
	case fixedBytes:
		return int(n.length)
	}
	return 0
}

// values are decoded values of a page or of a dictionary, as they lie in a
// sources.Column: numbers of the leaf's kind, or bytes with offsets.
type values struct {
	n       int
	data    []byte
	offsets []int32
	own     bool // data and offsets have memory of their own, and do not lie in a page
}

// leave leaves the values' own memory to others.
func (v *values) leave() {
	if v.own {
		leave(v.data)
		leaveOffsets(v.offsets)
	}
	*v = values{}
}

// normalize turns values as they lie in a page into those of the leaf's kind.
func (n *node) normalize(v *values) error {
	switch {
	case n.typ == int96Type:
		out := make([]byte, 8*v.n)
		for i := range v.n {
			ns, err := nanoseconds(v.data[12*i:])
			if err != nil {
				return err
			}
			binary.LittleEndian.PutUint64(out[8*i:], uint64(ns))
		}
		v.data = out
	case n.logical == logicalDecimal:
		return n.decimals(v)
	case n.logical == logicalFloat16 && n.typ == fixedBytes && n.length == 2:
		out := make([]byte, 4*v.n)
		for i := range v.n {
			binary.LittleEndian.PutUint32(out[4*i:], half(binary.LittleEndian.Uint16(v.data[2*i:])))
		}
		v.data = out
	case n.logical == logicalUnsigned32 && n.typ == int32Type:
		out := make([]byte, 8*v.n)
		for i := range v.n {
			binary.LittleEndian.PutUint64(out[8*i:], uint64(binary.LittleEndian.Uint32(v.data[4*i:])))
		}
		v.data = out
	case n.typ == fixedBytes:
		v.offsets = make([]int32, v.n+1)
		for i := range v.offsets {
			v.offsets[i] = int32(i) * n.length
		}
	}
	return nil
}

// nanoseconds is an INT96, the nanoseconds of a day and the Julian day, in ns since 1970. Spark and
// Hive write 9999-12-31 for "without an end", and int64 has no such time.
func nanoseconds(b []byte) (int64, error) {
	const perDay, mostDays = 86400e9, 106751                  // about 292 years
	day := int64(binary.LittleEndian.Uint32(b[8:])) - 2440588 // Julian day of 1970-01-01
	if of := binary.LittleEndian.Uint64(b); day >= -mostDays && day < mostDays && of <= perDay {
		return day*perDay + int64(of), nil
	}
	return 0, fmt.Errorf("has a time of the year %d: an INT96 is read in ns, and those of int64 end in 1677 and 2262; write the column as TIMESTAMP of micros, or leave it out",
		time.Unix(day*86400, 0).UTC().Year())
}

func (n *node) decimals(v *values) error {
	out := make([]byte, 8*v.n)
	unit := math.Pow10(int(n.scale))
	for i := range v.n {
		var f float64
		switch n.typ {
		case int32Type:
			f = float64(int32(binary.LittleEndian.Uint32(v.data[4*i:]))) / unit
		case int64Type:
			f = decimal(big.NewInt(int64(binary.LittleEndian.Uint64(v.data[8*i:]))), n.scale)
		case fixedBytes:
			f = decimal(twos(v.data[i*int(n.length):(i+1)*int(n.length)]), n.scale)
		case byteArray:
			f = decimal(twos(v.data[v.offsets[i]:v.offsets[i+1]]), n.scale)
		default:
			return fmt.Errorf("is a decimal of the physical type %d, which is not supported", n.typ)
		}
		binary.LittleEndian.PutUint64(out[8*i:], math.Float64bits(f))
	}
	v.data, v.offsets = out, nil
	return nil
}

// twos is a big-endian number in two's complement.
func twos(b []byte) *big.Int {
	x := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0]&0x80 != 0 {
		x.Sub(x, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return x
}

// decimal is x / 10^scale, rounded once.
func decimal(x *big.Int, scale int32) float64 {
	if x.IsInt64() && scale <= 22 {
		if v := x.Int64(); v > -1<<53 && v < 1<<53 {
			return float64(v) / math.Pow10(int(scale)) // both are exact
		}
	}
	r := new(big.Rat).SetFrac(x, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil))
	f, _ := r.Float64()
	return f
}

// half is a float16 as the bits of a float32.
func half(h uint16) uint32 {
	sign, exp, frac := uint32(h>>15)<<31, uint32(h>>10&31), uint32(h&1023)
	switch {
	case exp == 31:
		return sign | 0xFF<<23 | frac<<13
	case exp > 0:
		return sign | (exp+112)<<23 | frac<<13
	case frac == 0:
		return sign
	}
	return sign | math.Float32bits(float32(frac)/(1<<24))
}

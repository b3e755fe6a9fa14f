package decode

import (
	"errors"
	"math"
	"strconv"
	"unsafe"
)

// parseInt reads [+-]digits as strconv.ParseInt(s, 10, 64) does. Integers never
// pass through a float.
func parseInt(b []byte) (int64, string) {
	i, neg := 0, false
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		i, neg = 1, b[0] == '-'
	}
	if i == len(b) {
		return 0, "is not an integer"
	}
	const cut = math.MaxUint64 / 10
	var n uint64
	for ; i < len(b); i++ {
		c := b[i] - '0'
		if c > 9 {
			return 0, "is not an integer"
		}
		if n > cut || (n == cut && c > 5) {
			return 0, outOfRange(b[i:], "int64")
		}
		n = n*10 + uint64(c)
	}
	switch {
	case neg && n <= 1<<63:
		return -int64(n), ""
	case !neg && n < 1<<63:
		return int64(n), ""
	}
	return 0, "is out of the range of int64"
}

// outOfRange: more digits follow, or what is there is no number at all.
func outOfRange(rest []byte, dtype string) string {
	for _, c := range rest {
		if c-'0' > 9 {
			return "is not an integer"
		}
	}
	return "is out of the range of " + dtype
}

// decimal is a number as digits * 10^exp.
type decimal struct {
	digits uint64
	exp    int
	neg    bool
	exact  bool // digits holds all of them
}

// parseDecimal reads the decimal grammar of strconv: [+-] digits [. digits]
// [e [+-] digits], with a digit on at least one side of the point.
func parseDecimal(b []byte) (d decimal, ok bool) {
	i := 0
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		i, d.neg = 1, b[0] == '-'
	}
	seen, significant, point := 0, 0, -1
	for ; i < len(b); i++ {
		c := b[i] - '0'
		if c > 9 {
			if b[i] == '.' && point < 0 {
				point = seen
				continue
			}
			break
		}
		seen++
		if significant > 0 || c > 0 {
			significant++
		}
		if significant <= 19 {
			d.digits = d.digits*10 + uint64(c)
		}
	}
	if seen == 0 {
		return d, false
	}
	d.exact = significant <= 19
	if point >= 0 {
		d.exp = point - seen
	}
	if i == len(b) {
		return d, true
	}
	if b[i]|0x20 != 'e' {
		return d, false
	}
	return d, d.exponent(b[i+1:])
}

func (d *decimal) exponent(b []byte) bool {
	neg := false
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		neg = b[0] == '-'
		b = b[1:]
	}
	if len(b) == 0 {
		return false
	}
	e := 0
	for _, c := range b {
		c -= '0'
		if c > 9 {
			return false
		}
		if e < 1e6 { // far beyond any float, far below overflow
			e = e*10 + int(c)
		}
	}
	if neg {
		e = -e
	}
	d.exp += e
	return true
}

var tens64 = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
	1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// exact64: both operands are exact in float64, so the one operation rounds once
// and correctly (W. Clinger, "How to read floating point numbers accurately",
// 1990).
func (d *decimal) exact64() (float64, bool) {
	if !d.exact || d.digits >= 1<<53 || d.exp < -22 || d.exp > 22 {
		return 0, false
	}
	f := float64(d.digits)
	if d.exp < 0 {
		f /= tens64[-d.exp]
	} else {
		f *= tens64[d.exp]
	}
	if d.neg {
		f = -f
	}
	return f, true
}

// parseFloat64 reads a number correctly rounded, as strconv does, and nan, inf
// and infinity in any case. Hexadecimal floats and underscores are refused.
func parseFloat64(b []byte) (float64, string) {
	d, ok := parseDecimal(b)
	if ok {
		if f, ok := d.exact64(); ok {
			return f, ""
		}
	} else if !named(b) {
		return 0, "is not a number"
	}
	return slowFloat(b, 64)
}

// parseFloat32 rounds once: through a correctly rounded float64 only where that
// cannot change the result. Float32's midpoints are float64s; unless the
// float64 is one, the true value lies on the same side of it.
func parseFloat32(b []byte) (float32, string) {
	d, ok := parseDecimal(b)
	if ok {
		if f, ok := d.exact64(); ok {
			const midpoint, lowBits = 1 << 28, 1<<29 - 1
			abs := math.Abs(f)
			if math.Float64bits(f)&lowBits != midpoint && (abs >= 0x1p-126 && abs < math.MaxFloat32 || f == 0) {
				return float32(f), ""
			}
		}
	} else if !named(b) {
		return 0, "is not a number"
	}
	f, reason := slowFloat(b, 32)
	return float32(f), reason
}

func slowFloat(b []byte, bits int) (float64, string) {
	f, err := strconv.ParseFloat(unsafe.String(unsafe.SliceData(b), len(b)), bits) // not kept: ParseFloat clones it for errors
	if errors.Is(err, strconv.ErrRange) {
		return 0, "is out of the range of float" + strconv.Itoa(bits)
	}
	if err != nil {
		return 0, "is not a number"
	}
	return f, ""
}

// named reports whether b is one of the names of what is not a finite number.
func named(b []byte) bool {
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		b = b[1:]
		if len(b) == 3 && lower(b[0]) == 'n' {
			return false // strconv knows no signed nan
		}
	}
	return foldEqual(b, "nan") || foldEqual(b, "inf") || foldEqual(b, "infinity")
}

func lower(c byte) byte {
	if c-'A' < 26 {
		c |= 0x20
	}
	return c
}

func foldEqual(b []byte, s string) bool {
	if len(b) != len(s) {
		return false
	}
	for i := range b {
		if lower(b[i]) != s[i] {
			return false
		}
	}
	return true
}

// parseBool reads what strconv.ParseBool does.
func parseBool(b []byte) (bool, string) {
	v, err := strconv.ParseBool(unsafe.String(unsafe.SliceData(b), len(b)))
	if err != nil {
		return false, "is not a bool (true, false, 1, 0)"
	}
	return v, ""
}

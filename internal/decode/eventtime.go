package decode

import (
	"math"
	"time"
	"unsafe"
)

// Numbers below this are seconds (it is the year 5138), others milliseconds
// (from March 1973 on).
const secondsBelow = 1e11

// putTime sets the row's event time, in ms; 0 where it is missing.
func (d *Decoder) putTime(b *Builder, row int, s slot) *fault {
	b.Times[row] = 0
	if s.isMissing() || s.start == s.end {
		return nil
	}
	v := d.bytesOf(s)
	if s.kind == escaped {
		v = d.unescape(s)
	}
	if s.kind <= number {
		if ms, ok := parseTime(v); ok {
			b.Times[row] = ms
			return nil
		}
	}
	if d.lenient {
		d.eventTime.errors++
		return nil
	}
	return d.bad(d.eventTime, 0, s, "is not a time")
}

func parseTime(b []byte) (ms int64, ok bool) {
	if n, reason := parseInt(b); reason == "" {
		if n > -secondsBelow && n < secondsBelow {
			n *= 1000
		}
		return n, true
	}
	if f, reason := parseFloat64(b); reason == "" && math.Abs(f) < 1e15 {
		if math.Abs(f) < secondsBelow {
			f *= 1000
		}
		return int64(math.Round(f)), true
	}
	t, err := time.Parse(time.RFC3339Nano, unsafe.String(unsafe.SliceData(b), len(b)))
	if err != nil {
		return 0, false
	}
	return t.UnixMilli(), true
}

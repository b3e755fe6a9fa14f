package parquet

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"
)

// A time that int64 does not hold in ns is an error. It must not become another time.
func TestAnINT96IsTheTimeThatWasWrittenOrAnError(t *testing.T) {
	n := &node{element: element{typ: int96Type}}
	read := func(at ...time.Time) (values, error) {
		v := values{n: len(at)}
		for _, x := range at {
			day := x.Unix() / 86400
			if x.Unix()%86400 < 0 {
				day--
			}
			v.data = binary.LittleEndian.AppendUint64(v.data, uint64(x.Unix()-day*86400)*1e9+uint64(x.Nanosecond()))
			v.data = binary.LittleEndian.AppendUint32(v.data, uint32(day+2440588))
		}
		return v, n.normalize(&v)
	}
	day := func(y, m, d int) time.Time { return time.Date(y, time.Month(m), d, 23, 59, 59, 999999999, time.UTC) }
	all := []time.Time{day(1969, 12, 31), day(1970, 1, 1), day(2026, 11, 30), day(1677, 9, 22), day(2262, 4, 10)}
	v, err := read(all...)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range all {
		if got := int64(binary.LittleEndian.Uint64(v.data[8*i:])); got != want.UnixNano() {
			t.Errorf("%v is read as %v", want, time.Unix(0, got).UTC())
		}
	}
	for _, x := range []time.Time{day(9999, 12, 31), day(1, 1, 1), day(1677, 9, 20), day(2262, 4, 12)} {
		if v, err := read(day(2026, 1, 1), x); err == nil || !strings.Contains(err.Error(), "INT96") || !strings.Contains(err.Error(), x.Format("2006")[:2]) && x.Year() > 1000 {
			t.Errorf("%v is read as %v, %v", x, v.data, err)
		}
	}
	damaged := values{n: 1, data: append(binary.LittleEndian.AppendUint64(nil, 1<<63), 0x8c, 0x3d, 0x25, 0)}
	if err := n.normalize(&damaged); err == nil {
		t.Error("a day of 2^63 ns is read")
	}
}

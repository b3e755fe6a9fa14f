package decode

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"unsafe"
)

var numberSeeds = []string{"", "0", "-0", "+1", "-", "1.", ".5", ".", "1e5", "1e", "1e+", "9223372036854775807", "9223372036854775808",
	"-9223372036854775808", "-9223372036854775809", "18446744073709551616", "00012", "1_0", "0x1p-2", "nan", "NaN", "-nan", "+Inf", "-infinity", "inf1",
	"16777217", "16777216.5", "0.1", "3.4028236e38", "3.4028235e38", "1e-45", "7e-46", "1.00000017881393421514957253748434595763683319091796875001", "123456789012345678901234567890",
	"2.2250738585072011e-308", "1e400", "1e-400", "9007199254740993", "1\x00", "12a4", " 1", "1 ", "33554433.0", "8388608.5", "0e999999999999", "1e999999999999999999999"}

func FuzzIntegersAreStrconvs(f *testing.F) {
	for _, s := range numberSeeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { sameInteger(t, s) })
}

func sameInteger(t *testing.T, s string) {
	t.Helper()
	want, err := strconv.ParseInt(s, 10, 64)
	got, reason := parseInt([]byte(s))
	if (reason == "") != (err == nil) || (err == nil && got != want) {
		t.Fatalf("%q: got %d %q, strconv %d %v", s, got, reason, want, err)
	}
	if digits := strings.Trim(s, "0123456789+-") == ""; strings.Contains(reason, "range") && !digits {
		t.Fatalf("%q is no integer, but the reason is %q", s, reason)
	}
}

func FuzzFloatsAreStrconvs(f *testing.F) {
	for _, s := range numberSeeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { sameFloat(t, s) })
}

func sameFloat(t *testing.T, s string) {
	t.Helper()
	if strings.ContainsAny(s, "xX_") {
		return // we refuse hexadecimal floats, which strconv accepts
	}
	want, err := strconv.ParseFloat(s, 64)
	got, reason := parseFloat64([]byte(s))
	if (reason == "") != (err == nil) || (err == nil && math.Float64bits(got) != math.Float64bits(want)) {
		t.Fatalf("float64 %q: got %v %q, strconv %v %v", s, got, reason, want, err)
	}
	want, err = strconv.ParseFloat(s, 32)
	got32, reason := parseFloat32([]byte(s))
	if (reason == "") != (err == nil) || (err == nil && math.Float32bits(got32) != math.Float32bits(float32(want))) {
		t.Fatalf("float32 %q: got %v %q, strconv %v %v", s, got32, reason, want, err)
	}
}

// Rounding is hard for decimals at and around the midpoint of two float32s or of two float64s.
func TestFloatsNextToMidpointsRoundAsStrconvDoes(t *testing.T) {
	r := seeded(t)
	for range 20000 {
		a := math.Float32frombits(r.Uint32())
		if a != a || math.IsInf(float64(a), 0) {
			continue
		}
		mid := (float64(a) + float64(math.Nextafter32(a, math.MaxFloat32))) / 2
		for _, v := range []float64{mid, math.Nextafter(mid, 0), math.Nextafter(mid, math.MaxFloat64)} {
			sameFloat(t, strconv.FormatFloat(v, 'g', -1, 64))
			sameFloat(t, strconv.FormatFloat(v, 'e', 16+r.IntN(4), 64))
			sameFloat(t, strconv.FormatFloat(v, 'f', r.IntN(12), 64))
		}
		sameFloat(t, strconv.FormatInt(r.Int64()>>r.IntN(64), 10))
	}
}

func TestEveryIntegerOfUpToEightDigitsIsReadBranchFree(t *testing.T) {
	r := seeded(t)
	var buf [8 + pad]byte
	for range 200000 {
		n := 1 + r.IntN(8)
		for i := range n {
			buf[i] = '0' + byte(r.IntN(10))
		}
		if r.IntN(4) == 0 {
			buf[r.IntN(n)] = byte(r.IntN(256))
		}
		got, ok := shortDigits(load(unsafe.Pointer(&buf), 0), n)
		want, err := strconv.ParseUint(string(buf[:n]), 10, 64)
		if ok != (err == nil) || (ok && got != want) {
			t.Fatalf("%q: got %d %v, strconv %d %v", buf[:n], got, ok, want, err)
		}
	}
}

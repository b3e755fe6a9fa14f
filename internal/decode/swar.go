package decode

import (
	"math/bits"
	"unsafe"
)

// The scanners look at 8 bytes in one word (SWAR; the tests for bytes are those
// of "Bit Twiddling Hacks", "determine if a word has a zero byte"). The first
// byte in memory is the lowest of the word; frame.NewLayout refuses a machine
// where it is not.

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// pad is how many bytes after a record must be readable: the scanners load
// whole words, the JSON scanner up to 16 bytes of a key and 17 after it.
const pad = 64

// load reads 8 bytes at base+at. It is the one unsafe read of the scanners.
// Invariant of every caller: 0 <= at <= end of the record, and at least pad bytes
// after that end are readable (Decoder.take copies a record where the arena ends too early).
func load(base unsafe.Pointer, at int) uint64 {
	return *(*uint64)(unsafe.Add(base, at))
}

// zeros marks with 0x80 the zero bytes of w. The lowest mark is always true;
// above it there may be false ones.
func zeros(w uint64) uint64 { return (w - ones) &^ w & highs }

// nonDigits marks the bytes of w that are not '0' to '9', exactly.
func nonDigits(w uint64) uint64 {
	t := w ^ 0x3030303030303030
	return (t&^highs + 0x7676767676767676 | t) & highs
}

// lowest is the index, 0 to 7, of the lowest marked byte; 8 if there is none.
func lowest(marks uint64) int { return bits.TrailingZeros64(marks) >> 3 }

// eightDigits is the number that the digits of w are, the first byte being the
// highest digit. The bytes are already digits' values, 0 to 9. (D. Lemire,
// "Quickly parsing eight digits", 2018)
func eightDigits(w uint64) uint64 {
	w = w*10 + w>>8
	return ((w&0x000000FF000000FF)*0x000F424000000064 + (w>>16&0x000000FF000000FF)*0x0000271000000001) >> 32
}

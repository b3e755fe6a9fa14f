package decode

import (
	"math/bits"
	"unsafe"

	"github.com/cespare/xxhash/v2"
)

// hash64 of docs/PROTOCOL.md: XXH64 with seed 0 over salt + 0x1F + value, then
// the remainder by buckets, or all 64 bits. XXH64 is specified in
// github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md. Values here are mostly
// shorter than the 32 bytes where its wide loop begins, so the short case is
// written out with the salt's part computed once; longer inputs go to the
// library.

const (
	prime1 = 11400714785074694791
	prime2 = 14029467366897019727
	prime3 = 1609587929392839161
	prime4 = 9650029242287828579
	prime5 = 2870177450012600261
)

type hasher struct {
	prefix []byte     // salt + 0x1F
	table  [32]uint64 // state after the whole words of the prefix, by total length (< 32)
	start  []uint64   // table from len(prefix) on: by length of the value
	tail
}

// tail is what the loops keep in registers.
type tail struct {
	rest       uint64 // the prefix's bytes after its whole words
	restBytes  int
	restBits   uint
	start8     uint64 // hasher.start of values of 8 bytes
	short8     bool   // and there is one
	mask       uint64 // buckets - 1 for powers of two, all bits for 0 buckets, else 0
	buckets    uint64
	reciprocal uint64 // floor(2^64 / buckets); see remainder
}

func newHasher(buckets int64, salt string) *hasher {
	h := &hasher{prefix: append([]byte(salt), 0x1F), tail: tail{buckets: uint64(buckets)}}
	if buckets > 1 {
		h.reciprocal, _ = bits.Div64(1, 0, h.buckets)
	}
	if h.buckets&(h.buckets-1) == 0 {
		h.mask = h.buckets - 1
	}
	words := len(h.prefix) / 8
	for i, c := range h.prefix[words*8:] {
		h.rest |= uint64(c) << (8 * i)
	}
	h.restBytes = len(h.prefix) - words*8
	h.restBits = uint(8 * h.restBytes)
	h.start = h.table[min(len(h.prefix), len(h.table)):]
	for n := len(h.prefix); n < len(h.table); n++ {
		s := uint64(prime5) + uint64(n)
		for w := range words {
			s = mixWord(s, load(unsafe.Pointer(unsafe.SliceData(h.prefix)), 8*w))
		}
		h.table[n] = s
	}
	if h.short8 = len(h.start) > 8; h.short8 {
		h.start8 = h.start[8]
	}
	return h
}

func mixWord(s, w uint64) uint64 {
	s ^= bits.RotateLeft64(w*prime2, 31) * prime1
	return bits.RotateLeft64(s, 27)*prime1 + prime4
}

// remainder is v mod buckets. With m = floor(2^64/buckets), floor(v*m / 2^64) is
// the quotient or one less, so one correction is enough and no division needed.
func (h *tail) remainder(v uint64) uint64 {
	if h.mask != 0 {
		return v & h.mask
	}
	if h.buckets == 1 {
		return 0
	}
	q, _ := bits.Mul64(v, h.reciprocal)
	r := v - q*h.buckets
	if r >= h.buckets {
		r -= h.buckets
	}
	return r
}

// sum is the hash of the n bytes at base+at. 8 bytes more can be read.
func (h *hasher) sum(base unsafe.Pointer, at, n int) uint64 {
	total := len(h.prefix) + n
	if total >= 32 {
		return h.long(unsafe.Slice((*byte)(unsafe.Add(base, at)), n))
	}
	s := h.table[total]
	left := h.restBytes + n
	if left < 8 {
		return finish(s, h.rest|load(base, at)&(1<<(8*uint(n))-1)<<h.restBits, left)
	}
	s = mixWord(s, h.rest|load(base, at)<<h.restBits)
	at -= h.restBytes
	for left -= 8; left >= 8; left -= 8 {
		at += 8
		s = mixWord(s, load(base, at))
	}
	return finish(s, load(base, at+8), left)
}

// finish takes in the last n < 8 bytes, the low ones of w, and mixes.
func finish(s, w uint64, n int) uint64 {
	if n&4 != 0 {
		s ^= w & 0xFFFFFFFF * prime1
		s = bits.RotateLeft64(s, 23)*prime2 + prime3
		w >>= 32
	}
	for n &= 3; n > 0; n-- {
		s ^= w & 0xFF * prime5
		s = bits.RotateLeft64(s, 11) * prime1
		w >>= 8
	}
	s = (s ^ s>>33) * prime2
	s = (s ^ s>>29) * prime3
	return s ^ s>>32
}

func (h *hasher) long(b []byte) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(0)
	_, _ = d.Write(h.prefix)
	_, _ = d.Write(b)
	return d.Sum64()
}

// bytes hashes b to the column's value. It reads nothing beyond b.
func (h *hasher) bytes(b []byte) int64 {
	if len(b) >= 32 {
		return int64(h.remainder(h.long(b)))
	}
	var room [32 + pad]byte
	n := copy(room[:], b)
	return int64(h.remainder(h.sum(unsafe.Pointer(&room), 0, n)))
}

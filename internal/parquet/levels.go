package parquet

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

var errLevels = errors.New("its run lengths are damaged")

// hybrid reads the RLE and bit-packed runs of levels, indices and bools. Numbers have up
// to 32 bits.
type hybrid struct {
	b     []byte
	width uint
	run   uint64 // numbers that are left in the current run
	value uint32 // of a run of one value
	pack  bool   // the run is bit-packed
	bit   uint   // of a bit-packed run: the next bit of b to read
}

func newHybrid(b []byte, width uint) hybrid { return hybrid{b: b, width: width} }

// endPack moves b past the bits of a bit-packed run that were read.
func (h *hybrid) endPack() {
	if h.pack {
		h.b, h.pack, h.bit = h.b[min(len(h.b), int((h.bit+7)/8)):], false, 0
	}
}

// next begins a run.
func (h *hybrid) next() error {
	h.endPack()
	head, n := binary.Uvarint(h.b)
	if n <= 0 {
		return errLevels
	}
	h.b = h.b[n:]
	if h.pack = head&1 == 1; h.pack {
		if head>>1 > 1<<32 {
			return errLevels
		}
		h.run, h.bit = head>>1*8, 0
		return nil
	}
	h.run = head >> 1
	size := int(h.width+7) / 8
	if len(h.b) < size {
		return errLevels
	}
	h.value = 0
	for i := range size {
		h.value |= uint32(h.b[i]) << (8 * i)
	}
	if h.width < 32 && h.value>>h.width != 0 {
		return errLevels
	}
	h.b = h.b[size:]
	return nil
}

// number is the type that numbers are read into: uint16 for entries of a dictionary that has
// at most sources.ShortEntries of them, else uint32.
type number interface{ uint16 | uint32 }

// read fills out, and reports whether one of the numbers is n or more. It returns an error if
// fewer numbers are left: the caller has checked the length before it took memory for out.
// n is at most 2^31, or 2^16 if T is uint16. If beyond is true, numbers in out may be wrong.
func read[T number](h *hybrid, out []T, n int) (beyond bool, err error) {
	beyond = n == 0 && len(out) > 0
	most := uint32(max(n, 1) - 1)
	for len(out) > 0 {
		if h.run == 0 {
			if err := h.next(); err != nil {
				return beyond, err
			}
			continue
		}
		k := int(min(uint64(len(out)), h.run))
		if !h.pack {
			v := T(h.value)
			for i := range out[:k] {
				out[i] = v
			}
			beyond = beyond || h.value > most
		} else if more, err := unpack(h, out[:k], most); err != nil {
			return beyond, err
		} else if more {
			beyond = true
		}
		h.run -= uint64(k)
		out = out[k:]
	}
	return beyond, nil
}

// allFull reports whether the first n levels are one run, and all of them are most. A column
// without nulls has such levels.
func allFull(b []byte, n, most int) bool {
	h := newHybrid(b, uint(bits.Len(uint(most))))
	return n > 0 && h.next() == nil && !h.pack && h.value == uint32(most) && h.run >= uint64(n)
}

// bytesOfBits[b] has the eight bits of b in eight bytes, the lowest bit first.
var bytesOfBits = func() (t [256]uint64) {
	for b := range t {
		for i := range 8 {
			t[b] |= uint64(b>>i&1) << (8 * i)
		}
	}
	return t
}()

// flags reads levels of one bit, whole runs at a time. It ends at a long run, or when fewer than
// 64 levels are still wanted. It returns how many levels it has read, and how many of them are 1.
//
// Where nulls are rare, most runs are short and their lengths vary. The processor would guess
// each branch that depends on a length wrong. So flags writes at least 40 levels of a run of one
// value, and 32 of a bit-packed run, even if the run is shorter. The next run overwrites the
// surplus.
// Example: after a run of 5 levels, 40 are written, and the next run begins at the sixth.
func (h *hybrid) flags(out []byte) (read, full int) {
	b := h.b
	for len(b) >= 5 && b[0] < 0x80 && len(out)-read >= 64 {
		n, o := int(b[0]>>1), (*[64]byte)(out[read:])
		if b[0]&1 == 0 {
			if n > 64 || b[1] > 1 {
				break
			}
			eight := uint64(b[1]) * 0x0101010101010101
			binary.LittleEndian.PutUint64(o[0:], eight)
			binary.LittleEndian.PutUint64(o[8:], eight)
			binary.LittleEndian.PutUint64(o[16:], eight)
			binary.LittleEndian.PutUint64(o[24:], eight)
			binary.LittleEndian.PutUint64(o[32:], eight)
			for i := 40; i < n; i += 8 {
				binary.LittleEndian.PutUint64(o[i&56:], eight)
			}
			full += n * int(b[1])
			read, b = read+n, b[2:]
			continue
		}
		if n > 4 {
			break
		}
		binary.LittleEndian.PutUint64(o[0:], bytesOfBits[b[1]])
		binary.LittleEndian.PutUint64(o[8:], bytesOfBits[b[2]])
		binary.LittleEndian.PutUint64(o[16:], bytesOfBits[b[3]])
		binary.LittleEndian.PutUint64(o[24:], bytesOfBits[b[4]])
		full += bits.OnesCount32(binary.LittleEndian.Uint32(b[1:]) & uint32(1<<(8*n)-1))
		read, b = read+8*n, b[1+n:]
	}
	h.b = b
	return read, full
}

// ones reads levels of one bit from the run's next byte on, eight at a time.
func (h *hybrid) ones(out []byte) (read, full int) {
	b := h.b[min(h.bit/8, uint(len(h.b))):]
	n := min(len(out)/8, len(b))
	for i, x := range b[:n] {
		binary.LittleEndian.PutUint64(out[8*i:], bytesOfBits[x])
		full += bits.OnesCount8(x)
	}
	h.bit += uint(8 * n)
	return 8 * n, full
}

// countLevels counts how many of n levels are equal to most. It keeps none of them.
func countLevels(b []byte, n, most int) (full int, err error) {
	h := newHybrid(b, uint(bits.Len(uint(most))))
	var room [4096]byte
	for n > 0 {
		k := min(n, len(room))
		more, err := h.levels(room[:k], most)
		if err != nil {
			return 0, err
		}
		full, n = full+more, n-k
	}
	return full, nil
}

// levels fills out, and counts the levels that are equal to most. A higher one is an error.
func (h *hybrid) levels(out []byte, most int) (full int, err error) {
	var room [1024]uint32
	for len(out) > 0 {
		if h.run == 0 {
			h.endPack()
			if h.width == 1 {
				n, more := h.flags(out)
				if out, full = out[n:], full+more; len(out) == 0 {
					break
				}
			}
			if err := h.next(); err != nil {
				return 0, err
			}
			continue
		}
		n := int(min(uint64(len(out)), h.run))
		if !h.pack {
			if h.value > uint32(most) {
				return 0, errLevels
			}
			for i := range out[:n] {
				out[i] = byte(h.value)
			}
			if h.value == uint32(most) {
				full += n
			}
		} else if h.width == 1 && h.bit%8 == 0 && n >= 8 && uint(len(h.b)) > h.bit/8 {
			var more int
			n, more = h.ones(out[:n])
			full += more
		} else {
			n = min(n, len(room))
			if _, err := unpack(h, room[:n], 0); err != nil { // the loop finds levels that are too high
				return 0, err
			}
			for i, v := range room[:n] {
				if v >= uint32(most) {
					if v > uint32(most) {
						return 0, errLevels
					}
					full++
				}
				out[i] = byte(v)
			}
		}
		h.run -= uint64(n)
		out = out[n:]
	}
	return full, nil
}

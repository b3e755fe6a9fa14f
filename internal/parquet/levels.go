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
	run   uint64 // left of the current run
	value uint32 // of a run of one value
	pack  bool   // the run is bit-packed: bit is the next one of b
	bit   uint
}

func newHybrid(b []byte, width uint) hybrid { return hybrid{b: b, width: width} }

// endPack passes what was read of a bit-packed run.
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

// read fills out, and reports whether one of the numbers is n or more. What is read must be
// there: memory was taken for out by the caller, who has checked its length. n is at most 2^31.
func (h *hybrid) read(out []uint32, n int) (beyond bool, err error) {
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
			for i := range out[:k] {
				out[i] = h.value
			}
			beyond = beyond || h.value > most
		} else if more, err := h.unpack(out[:k], most); err != nil {
			return beyond, err
		} else if more {
			beyond = true
		}
		h.run -= uint64(k)
		out = out[k:]
	}
	return beyond, nil
}

// unpack reads numbers of a bit-packed run, and reports whether one of them is more than most.
func (h *hybrid) unpack(out []uint32, most uint32) (beyond bool, err error) {
	if h.width == 0 {
		clear(out)
		return false, nil
	}
	if uint(len(h.b))*8 < h.bit+uint(len(out))*h.width {
		return false, errLevels
	}
	w, mask := h.width&63, uint64(1)<<h.width-1
	b, bit, i := h.b, h.bit, 0
	over := uint64(0) // bit 63 or 31 is set if a number was too large
	for ; i < len(out) && bit&7 != 0 && bit>>3+8 <= uint(len(b)); i++ {
		v := binary.LittleEndian.Uint64(b[bit>>3:]) >> (bit & 7) & mask
		over |= uint64(most) - v
		out[i] = uint32(v)
		bit += w
	}
	if bit&7 == 0 {
		n, o := eights(w, out[i:], b[min(bit>>3, uint(len(b))):], uint64(most)*(1<<32+1))
		over |= o
		bit += uint(n) * w
		i += n
	}
	for ; i < len(out) && bit>>3+8 <= uint(len(b)); i++ {
		v := binary.LittleEndian.Uint64(b[bit>>3:]) >> (bit & 7) & mask
		over |= uint64(most) - v
		out[i] = uint32(v)
		bit += w
	}
	for ; i < len(out); i++ {
		var word [8]byte
		copy(word[:], b[bit>>3:])
		v := binary.LittleEndian.Uint64(word[:]) >> (bit & 7) & mask
		over |= uint64(most) - v
		out[i] = uint32(v)
		bit += w
	}
	h.bit = bit
	return over&(1<<63|1<<31) != 0, nil
}

// eights read groups of eight numbers of so many bits each, which take as many whole bytes, as
// long as out has room for one. They return how many numbers that were. Two neighbours are moved
// apart in one word, to where they lie in out. Both are taken from the two largest ones allowed:
// bit 63 or 31 of over is set if one was larger.
//
// Each width has a function of its own, so that the compiler knows by how many bits it shifts.
// They are called by name: what a table of functions is given would be allocated on the heap.
func eights(w uint, out []uint32, b []byte, most uint64) (n int, over uint64) {
	switch w {
	case 1:
		return narrowEights[[1]byte](out, b, most)
	case 2:
		return narrowEights[[2]byte](out, b, most)
	case 3:
		return narrowEights[[3]byte](out, b, most)
	case 4:
		return narrowEights[[4]byte](out, b, most)
	case 5:
		return narrowEights[[5]byte](out, b, most)
	case 6:
		return narrowEights[[6]byte](out, b, most)
	case 7:
		return narrowEights[[7]byte](out, b, most)
	case 8:
		return narrowEights[[8]byte](out, b, most)
	case 9:
		return narrowEights[[9]byte](out, b, most)
	case 10:
		return narrowEights[[10]byte](out, b, most)
	case 11:
		return narrowEights[[11]byte](out, b, most)
	case 12:
		return narrowEights[[12]byte](out, b, most)
	case 13:
		return narrowEights[[13]byte](out, b, most)
	case 14:
		return narrowEights[[14]byte](out, b, most)
	case 15:
		return narrowEights[[15]byte](out, b, most)
	case 16:
		return narrowEights[[16]byte](out, b, most)
	case 17:
		return wideEights[[17]byte](out, b, most)
	case 18:
		return wideEights[[18]byte](out, b, most)
	case 19:
		return wideEights[[19]byte](out, b, most)
	case 20:
		return wideEights[[20]byte](out, b, most)
	case 21:
		return wideEights[[21]byte](out, b, most)
	case 22:
		return wideEights[[22]byte](out, b, most)
	case 23:
		return wideEights[[23]byte](out, b, most)
	case 24:
		return wideEights[[24]byte](out, b, most)
	case 25:
		return wideEights[[25]byte](out, b, most)
	case 26:
		return wideEights[[26]byte](out, b, most)
	case 27:
		return wideEights[[27]byte](out, b, most)
	case 28:
		return wideEights[[28]byte](out, b, most)
	}
	return 0, 0
}

// narrowEights is for numbers of up to 16 bits: a word of 8 bytes holds four. G is a group.
func narrowEights[G [1]byte | [2]byte | [3]byte | [4]byte | [5]byte | [6]byte | [7]byte | [8]byte |
	[9]byte | [10]byte | [11]byte | [12]byte | [13]byte | [14]byte | [15]byte | [16]byte](out []uint32, b []byte, most uint64) (n int, over uint64) {
	w := len(*new(G))
	low := uint64(1)<<w - 1
	high, apart, two := low<<32, 32-w, 2*w
	half, shift := 4*w/8, 4*w%8 // where the fifth number begins
	for ; n+8 <= len(out) && len(b) >= 24; n, b = n+8, b[w:] {
		o := (*[8]uint32)(out[n:])
		x := binary.LittleEndian.Uint64(b)
		p := x&low | x<<apart&high
		over |= most - p
		o[0], o[1] = uint32(p), uint32(p>>32)
		x >>= two
		p = x&low | x<<apart&high
		over |= most - p
		o[2], o[3] = uint32(p), uint32(p>>32)
		x = binary.LittleEndian.Uint64(b[half:]) >> shift
		p = x&low | x<<apart&high
		over |= most - p
		o[4], o[5] = uint32(p), uint32(p>>32)
		x >>= two
		p = x&low | x<<apart&high
		over |= most - p
		o[6], o[7] = uint32(p), uint32(p>>32)
	}
	return n, over
}

// wideEights is for numbers of 17 to 28 bits: a word of 8 bytes holds two, wherever in its
// first byte they begin.
func wideEights[G [17]byte | [18]byte | [19]byte | [20]byte | [21]byte | [22]byte | [23]byte | [24]byte |
	[25]byte | [26]byte | [27]byte | [28]byte](out []uint32, b []byte, most uint64) (n int, over uint64) {
	w := len(*new(G))
	low := uint64(1)<<w - 1
	high, apart := low<<32, 32-w
	at2, at4, at6 := 2*w/8, 4*w/8, 6*w/8
	s2, s4, s6 := 2*w%8, 4*w%8, 6*w%8
	for ; n+8 <= len(out) && len(b) >= 40; n, b = n+8, b[w:] {
		o := (*[8]uint32)(out[n:])
		x := binary.LittleEndian.Uint64(b)
		p := x&low | x<<apart&high
		over |= most - p
		o[0], o[1] = uint32(p), uint32(p>>32)
		x = binary.LittleEndian.Uint64(b[at2:]) >> s2
		p = x&low | x<<apart&high
		over |= most - p
		o[2], o[3] = uint32(p), uint32(p>>32)
		x = binary.LittleEndian.Uint64(b[at4:]) >> s4
		p = x&low | x<<apart&high
		over |= most - p
		o[4], o[5] = uint32(p), uint32(p>>32)
		x = binary.LittleEndian.Uint64(b[at6:]) >> s6
		p = x&low | x<<apart&high
		over |= most - p
		o[6], o[7] = uint32(p), uint32(p>>32)
	}
	return n, over
}

// allFull says whether n levels are one run of the highest level, as of a column without nulls.
func allFull(b []byte, n, most int) bool {
	h := newHybrid(b, uint(bits.Len(uint(most))))
	return n > 0 && h.next() == nil && !h.pack && h.value == uint32(most) && h.run >= uint64(n)
}

// bytesOfBits are eight levels of one bit, one in each byte.
var bytesOfBits = func() (t [256]uint64) {
	for b := range t {
		for i := range 8 {
			t[b] |= uint64(b>>i&1) << (8 * i)
		}
	}
	return t
}()

// flags reads levels of one bit, whole runs at a time, as long as runs are short and more than 64
// levels are wanted. Where nulls are rare, most runs are short, and no two of one length: what
// depends on the length would be guessed wrong by the processor each time. So it writes more
// levels than a run has, which the next run writes over.
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

// countLevels counts those of n levels that are most. It keeps none of them.
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

// levels fills out with levels of at most most, and counts those that are most.
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
			if _, err := h.unpack(room[:n], 0); err != nil { // the loop sees what is too large
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

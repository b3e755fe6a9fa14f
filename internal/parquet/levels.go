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

// next begins a run.
func (h *hybrid) next() error {
	if h.pack {
		h.b, h.pack, h.bit = h.b[min(len(h.b), int((h.bit+7)/8)):], false, 0
	}
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

// read fills out. What is read must be there: memory was taken for out by the caller,
// who has checked its length.
func (h *hybrid) read(out []uint32) error {
	for len(out) > 0 {
		if h.run == 0 {
			if err := h.next(); err != nil {
				return err
			}
			continue
		}
		n := int(min(uint64(len(out)), h.run))
		if !h.pack {
			for i := range out[:n] {
				out[i] = h.value
			}
		} else if err := h.unpack(out[:n]); err != nil {
			return err
		}
		h.run -= uint64(n)
		out = out[n:]
	}
	return nil
}

func (h *hybrid) unpack(out []uint32) error {
	if h.width == 0 {
		clear(out)
		return nil
	}
	if uint(len(h.b))*8 < h.bit+uint(len(out))*h.width {
		return errLevels
	}
	w, mask := h.width&63, uint64(1)<<h.width-1
	b, bit, i := h.b, h.bit, 0
	for ; i < len(out) && bit&7 != 0 && bit>>3+8 <= uint(len(b)); i++ {
		out[i] = uint32(binary.LittleEndian.Uint64(b[bit>>3:]) >> (bit & 7) & mask)
		bit += w
	}
	if bit&7 == 0 {
		n := 0
		switch from := b[min(bit>>3, uint(len(b))):]; {
		case w <= 16:
			n = narrowEights(out[i:], from, w)
		case w <= 28:
			n = wideEights(out[i:], from, w)
		}
		bit += uint(n) * w
		i += n
	}
	for ; i < len(out) && bit>>3+8 <= uint(len(b)); i++ {
		out[i] = uint32(binary.LittleEndian.Uint64(b[bit>>3:]) >> (bit & 7) & mask)
		bit += w
	}
	for ; i < len(out); i++ {
		var word [8]byte
		copy(word[:], b[bit>>3:])
		out[i] = uint32(binary.LittleEndian.Uint64(word[:]) >> (bit & 7) & mask)
		bit += w
	}
	h.bit = bit
	return nil
}

// narrowEights and wideEights read groups of eight numbers, which take w whole bytes, as long
// as out has room for one. They return how many numbers that were. Two neighbours are moved
// apart in one word, to where they lie in out.

// narrowEights is for numbers of up to 16 bits: a word of 8 bytes holds four.
func narrowEights(out []uint32, b []byte, w uint) int {
	low := uint64(1)<<(w&63) - 1
	high, apart, two := low<<32, (32-w)&63, (2*w)&63
	half, shift := (4*w/8)&15, (4*w)&7 // where the fifth number begins
	i := 0
	for ; i+8 <= len(out) && len(b) >= 24; i, b = i+8, b[w:] {
		o := (*[8]uint32)(out[i:])
		x := binary.LittleEndian.Uint64(b)
		p := x&low | x<<apart&high
		o[0], o[1] = uint32(p), uint32(p>>32)
		x >>= two
		p = x&low | x<<apart&high
		o[2], o[3] = uint32(p), uint32(p>>32)
		x = binary.LittleEndian.Uint64(b[half:]) >> shift
		p = x&low | x<<apart&high
		o[4], o[5] = uint32(p), uint32(p>>32)
		x >>= two
		p = x&low | x<<apart&high
		o[6], o[7] = uint32(p), uint32(p>>32)
	}
	return i
}

// wideEights is for numbers of 17 to 28 bits: a word of 8 bytes holds two, wherever in its
// first byte they begin.
func wideEights(out []uint32, b []byte, w uint) int {
	low := uint64(1)<<(w&63) - 1
	high, apart := low<<32, (32-w)&63
	at2, at4, at6 := (2*w/8)&31, (4*w/8)&31, (6*w/8)&31
	s2, s4, s6 := (2*w)&7, (4*w)&7, (6*w)&7
	i := 0
	for ; i+8 <= len(out) && len(b) >= 40; i, b = i+8, b[w:] {
		o := (*[8]uint32)(out[i:])
		x := binary.LittleEndian.Uint64(b)
		p := x&low | x<<apart&high
		o[0], o[1] = uint32(p), uint32(p>>32)
		x = binary.LittleEndian.Uint64(b[at2:]) >> s2
		p = x&low | x<<apart&high
		o[2], o[3] = uint32(p), uint32(p>>32)
		x = binary.LittleEndian.Uint64(b[at4:]) >> s4
		p = x&low | x<<apart&high
		o[4], o[5] = uint32(p), uint32(p>>32)
		x = binary.LittleEndian.Uint64(b[at6:]) >> s6
		p = x&low | x<<apart&high
		o[6], o[7] = uint32(p), uint32(p>>32)
	}
	return i
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
			if err := h.unpack(room[:n]); err != nil {
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

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
	mask := uint64(1)<<h.width - 1
	b, bit, i := h.b, h.bit, 0
	for ; i < len(out) && bit>>3+8 <= uint(len(b)); i++ {
		out[i] = uint32(binary.LittleEndian.Uint64(b[bit>>3:]) >> (bit & 7) & mask)
		bit += h.width
	}
	for ; i < len(out); i++ {
		var word [8]byte
		copy(word[:], b[bit>>3:])
		out[i] = uint32(binary.LittleEndian.Uint64(word[:]) >> (bit & 7) & mask)
		bit += h.width
	}
	h.bit = bit
	return nil
}

// readLevels fills out with levels of at most most, and counts those that are most.
func readLevels(b []byte, out []byte, most int) (full int, err error) {
	h := newHybrid(b, uint(bits.Len(uint(most))))
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

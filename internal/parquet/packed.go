package parquet

import "encoding/binary"

// unpack reads numbers of a bit-packed run, and reports whether one of them is larger than most.
func unpack[T number](h *hybrid, out []T, most uint32) (beyond bool, err error) {
	if h.width == 0 {
		clear(out)
		return false, nil
	}
	if uint(len(h.b))*8 < h.bit+uint(len(out))*h.width {
		return false, errLevels
	}
	w, mask := h.width&63, uint64(1)<<h.width-1
	b, bit, i := h.b, h.bit, 0
	over := uint64(0) // its highest bit is set if a number was too large
	for ; i < len(out) && bit&7 != 0 && bit>>3+8 <= uint(len(b)); i++ {
		v := binary.LittleEndian.Uint64(b[bit>>3:]) >> (bit & 7) & mask
		over |= uint64(most) - v
		out[i] = T(v)
		bit += w
	}
	if bit&7 == 0 {
		n := 0
		groups := b[min(bit>>3, uint(len(b))):]
		switch o := any(out[i:]).(type) {
		case []uint16:
			n, beyond = shortEights(w, o, groups, most)
		case []uint32:
			n, beyond = eights(w, o, groups, most)
		}
		bit += uint(n) * w
		i += n
	}
	for ; i < len(out) && bit>>3+8 <= uint(len(b)); i++ {
		v := binary.LittleEndian.Uint64(b[bit>>3:]) >> (bit & 7) & mask
		over |= uint64(most) - v
		out[i] = T(v)
		bit += w
	}
	for ; i < len(out); i++ {
		var word [8]byte
		copy(word[:], b[bit>>3:])
		v := binary.LittleEndian.Uint64(word[:]) >> (bit & 7) & mask
		over |= uint64(most) - v
		out[i] = T(v)
		bit += w
	}
	h.bit = bit
	return beyond || over>>63 != 0, nil
}

// eights reads groups of eight numbers of w bits, which take w bytes, as long as out has room for
// a group. It returns how many numbers it has read.
//
// It moves two neighbours apart in one word, to where they lie in out. Example with w = 3: bits
// [0, 3) stay, and bits [3, 6) move to [32, 35). Then it subtracts the word from one that has the
// largest number allowed in both halves. Bit 31 or 63 of the difference is set if a number is
// larger.
//
// Each width has a function of its own, so that the compiler knows by how many bits it shifts.
// The functions are called by name: if they were called through a table, their arguments would
// be allocated on the heap.
func eights(w uint, out []uint32, b []byte, largest uint32) (n int, beyond bool) {
	over, most := uint64(0), uint64(largest)*(1<<32+1)
	switch w {
	case 1:
		n, over = narrowEights[[1]byte](out, b, most)
	case 2:
		n, over = narrowEights[[2]byte](out, b, most)
	case 3:
		n, over = narrowEights[[3]byte](out, b, most)
	case 4:
		n, over = narrowEights[[4]byte](out, b, most)
	case 5:
		n, over = narrowEights[[5]byte](out, b, most)
	case 6:
		n, over = narrowEights[[6]byte](out, b, most)
	case 7:
		n, over = narrowEights[[7]byte](out, b, most)
	case 8:
		n, over = narrowEights[[8]byte](out, b, most)
	case 9:
		n, over = narrowEights[[9]byte](out, b, most)
	case 10:
		n, over = narrowEights[[10]byte](out, b, most)
	case 11:
		n, over = narrowEights[[11]byte](out, b, most)
	case 12:
		n, over = narrowEights[[12]byte](out, b, most)
	case 13:
		n, over = narrowEights[[13]byte](out, b, most)
	case 14:
		n, over = narrowEights[[14]byte](out, b, most)
	case 15:
		n, over = narrowEights[[15]byte](out, b, most)
	case 16:
		n, over = narrowEights[[16]byte](out, b, most)
	case 17:
		n, over = wideEights[[17]byte](out, b, most)
	case 18:
		n, over = wideEights[[18]byte](out, b, most)
	case 19:
		n, over = wideEights[[19]byte](out, b, most)
	case 20:
		n, over = wideEights[[20]byte](out, b, most)
	case 21:
		n, over = wideEights[[21]byte](out, b, most)
	case 22:
		n, over = wideEights[[22]byte](out, b, most)
	case 23:
		n, over = wideEights[[23]byte](out, b, most)
	case 24:
		n, over = wideEights[[24]byte](out, b, most)
	case 25:
		n, over = wideEights[[25]byte](out, b, most)
	case 26:
		n, over = wideEights[[26]byte](out, b, most)
	case 27:
		n, over = wideEights[[27]byte](out, b, most)
	case 28:
		n, over = wideEights[[28]byte](out, b, most)
	}
	return n, over&(1<<63|1<<31) != 0
}

// narrowEights is for numbers of up to 16 bits: a word of 8 bytes holds four. G has the size of a
// group.
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

// wideEights is for numbers of 17 to 28 bits: a word of 8 bytes holds two, at whatever bit of its
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

// shortEights is like eights, for numbers of up to 16 bits that become uint16: it moves four
// neighbours apart in one word.
func shortEights(w uint, out []uint16, b []byte, largest uint32) (n int, beyond bool) {
	if w == 16 {
		return wholeShorts(out, b, largest)
	}
	over, most := uint64(0), min(uint64(largest), 1<<(w&63)-1)*(1<<48+1<<32+1<<16+1)
	switch w {
	case 1:
		n, over = apartEights[[1]byte](out, b, most)
	case 2:
		n, over = apartEights[[2]byte](out, b, most)
	case 3:
		n, over = apartEights[[3]byte](out, b, most)
	case 4:
		n, over = apartEights[[4]byte](out, b, most)
	case 5:
		n, over = apartEights[[5]byte](out, b, most)
	case 6:
		n, over = apartEights[[6]byte](out, b, most)
	case 7:
		n, over = apartEights[[7]byte](out, b, most)
	case 8:
		n, over = apartEights[[8]byte](out, b, most)
	case 9:
		n, over = apartEights[[9]byte](out, b, most)
	case 10:
		n, over = apartEights[[10]byte](out, b, most)
	case 11:
		n, over = apartEights[[11]byte](out, b, most)
	case 12:
		n, over = apartEights[[12]byte](out, b, most)
	case 13:
		n, over = apartEights[[13]byte](out, b, most)
	case 14:
		n, over = apartEights[[14]byte](out, b, most)
	case 15:
		n, over = apartEights[[15]byte](out, b, most)
	}
	return n, over&(1<<63|1<<47|1<<31|1<<15) != 0
}

// apartEights is for numbers of up to 15 bits, which leave bit 15 of the differences free. G has
// the size of a group.
func apartEights[G [1]byte | [2]byte | [3]byte | [4]byte | [5]byte | [6]byte | [7]byte | [8]byte |
	[9]byte | [10]byte | [11]byte | [12]byte | [13]byte | [14]byte | [15]byte](out []uint16, b []byte, most uint64) (n int, over uint64) {
	w := len(*new(G))
	two := uint64(1)<<(2*w) - 1
	one := (uint64(1)<<w - 1) * (1<<32 + 1)
	half, shift := 4*w/8, 4*w%8 // where the fifth number begins
	for ; n+8 <= len(out) && len(b) >= 24; n, b = n+8, b[w:] {
		o := (*[8]uint16)(out[n:])
		x := binary.LittleEndian.Uint64(b)
		x = x&two | x<<(32-2*w)&(two<<32)
		x = x&one | x<<(16-w)&(one<<16)
		over |= most - x
		o[0], o[1], o[2], o[3] = uint16(x), uint16(x>>16), uint16(x>>32), uint16(x>>48)
		x = binary.LittleEndian.Uint64(b[half:]) >> shift
		x = x&two | x<<(32-2*w)&(two<<32)
		x = x&one | x<<(16-w)&(one<<16)
		over |= most - x
		o[4], o[5], o[6], o[7] = uint16(x), uint16(x>>16), uint16(x>>32), uint16(x>>48)
	}
	return n, over
}

// wholeShorts is for numbers of 16 bits. It compares every second number of a word, so that each
// difference has 32 bits.
func wholeShorts(out []uint16, b []byte, largest uint32) (n int, beyond bool) {
	const odd = 0xffff<<32 | 0xffff
	over, most := uint64(0), uint64(largest)*(1<<32+1)
	for ; n+8 <= len(out) && len(b) >= 16; n, b = n+8, b[16:] {
		o := (*[8]uint16)(out[n:])
		x := binary.LittleEndian.Uint64(b)
		over |= (most - x&odd) | (most - x>>16&odd)
		o[0], o[1], o[2], o[3] = uint16(x), uint16(x>>16), uint16(x>>32), uint16(x>>48)
		x = binary.LittleEndian.Uint64(b[8:])
		over |= (most - x&odd) | (most - x>>16&odd)
		o[4], o[5], o[6], o[7] = uint16(x), uint16(x>>16), uint16(x>>32), uint16(x>>48)
	}
	return n, over&(1<<63|1<<31) != 0
}

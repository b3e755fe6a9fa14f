package files

import (
	"cmp"
	"math/bits"
	"slices"
)

// packBzip2 writes the contents as a stream with a block for each. Its form is that of the bzip2
// program, but it does not choose good Huffman codes. Go has no other encoder.
func packBzip2(level byte, blocks ...[]byte) []byte {
	w := &bitWriter{bytes: []byte{'B', 'Z', 'h', level}}
	sum := uint32(0)
	for _, content := range blocks {
		crc := bzip2CRC(content)
		sum = bits.RotateLeft32(sum, 1) ^ crc
		w.block(content, crc)
	}
	w.put(streamMark, 48)
	w.put(uint64(sum), 32)
	for w.free > 0 {
		w.put(0, 1)
	}
	return w.bytes
}

type bitWriter struct {
	bytes []byte
	free  int // free bits in the last byte
}

func (w *bitWriter) put(v uint64, n int) {
	for i := n - 1; i >= 0; i-- {
		if w.free == 0 {
			w.bytes, w.free = append(w.bytes, 0), 8
		}
		w.free--
		w.bytes[len(w.bytes)-1] |= byte(v>>i&1) << w.free
	}
}

func bzip2CRC(content []byte) uint32 {
	sum := ^uint32(0)
	for _, c := range content {
		sum ^= uint32(c) << 24
		for range 8 {
			sum = sum<<1 ^ uint32(int32(sum)>>31)&0x04c11db7
		}
	}
	return ^sum
}

// runs replaces each run of four or more equal bytes by four of them and a count.
func runs(content []byte) (out []byte) {
	for i := 0; i < len(content); {
		n := 1
		for n < 259 && i+n < len(content) && content[i+n] == content[i] {
			n++
		}
		for range min(n, 4) {
			out = append(out, content[i])
		}
		if n >= 4 {
			out = append(out, byte(n-4))
		}
		i += n
	}
	return out
}

// rotations returns the last column of the sorted rotations, and the place of the unrotated text.
func rotations(text []byte) (last []byte, first int) {
	n := len(text)
	rank, order := make([]int, n), make([]int, n)
	for i, c := range text {
		rank[i], order[i] = int(c), i
	}
	for ordered := 1; ordered < 2*n; ordered *= 2 { // ranks order rotations by their first `ordered` bytes
		compare := func(a, b int) int {
			return cmp.Or(cmp.Compare(rank[a], rank[b]), cmp.Compare(rank[(a+ordered)%n], rank[(b+ordered)%n]))
		}
		slices.SortFunc(order, compare)
		next := make([]int, n)
		for i := 1; i < n; i++ {
			next[order[i]] = next[order[i-1]]
			if compare(order[i-1], order[i]) != 0 {
				next[order[i]]++
			}
		}
		if rank = next; rank[order[n-1]] == n-1 {
			break
		}
	}
	for i, at := range order {
		last = append(last, text[(at+n-1)%n])
		if at == 0 {
			first = i
		}
	}
	return last, first
}

func (w *bitWriter) block(content []byte, crc uint32) {
	w.put(blockMark, 48)
	w.put(uint64(crc), 32)
	last, first := rotations(runs(content))
	w.put(0, 1)
	w.put(uint64(first), 24)
	var used [256]bool
	for _, c := range last {
		used[c] = true
	}
	var front []byte
	ranges := uint64(0)
	for i := range 256 {
		if used[i] {
			front = append(front, byte(i))
			ranges |= 1 << (15 - i/16)
		}
	}
	w.put(ranges, 16)
	for i := range 16 {
		if ranges>>(15-i)&1 == 1 {
			for k := range 16 {
				w.put(map[bool]uint64{true: 1}[used[16*i+k]], 1)
			}
		}
	}
	n := len(front) + 2
	var symbols []int
	zeros := 0
	flush := func() {
		for ; zeros > 0; zeros = (zeros - 1) / 2 {
			symbols = append(symbols, (zeros-1)%2)
		}
	}
	for _, c := range last {
		at := slices.Index(front, c)
		if at == 0 {
			zeros++
			continue
		}
		flush()
		copy(front[1:at+1], front[:at])
		front[0] = c
		symbols = append(symbols, at+1)
	}
	flush()
	symbols = append(symbols, n-1)
	w.put(2, 3) // two code tables, of which only one is used
	selectors := (len(symbols) + 49) / 50
	w.put(uint64(selectors), 15)
	for range selectors {
		w.put(0, 1)
	}
	// A complete Huffman code, in which the first symbols have the shorter codes.
	short := bits.Len(uint(n)) - 1
	long := 2 * (n - 1<<short)
	for range 2 {
		length := short
		w.put(uint64(length), 5)
		for i := range n {
			if want := short + map[bool]int{true: 1}[i >= n-long]; want > length {
				w.put(0b10, 2)
				length = want
			}
			w.put(0, 1)
		}
	}
	for _, s := range symbols {
		if s < n-long {
			w.put(uint64(s), short)
		} else {
			w.put(uint64((n-long)*2+s-(n-long)), short+1)
		}
	}
}

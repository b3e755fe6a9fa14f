package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var errDelta = errors.New("a page of deltas is damaged")

// deltas reads DELTA_BINARY_PACKED: a header, then blocks of miniblocks. It returns the n
// numbers, and the bytes after them. n comes from the page's header; that of the deltas must
// have the same number.
func deltas(b []byte, n int) ([]int64, []byte, error) {
	t := &thrift{b: b}
	block, minis, total, last := t.uvarint(), t.uvarint(), t.uvarint(), t.int()
	switch {
	case t.bad, block == 0, block > 1<<20, block%128 != 0, minis == 0, minis > block/32, block%minis != 0, block/minis%32 != 0:
		return nil, nil, errDelta
	case total != uint64(n):
		return nil, nil, errShortPage
	}
	// If all deltas are the same, blocks of the usual 128 to 2,048 numbers have 26 to 230
	// numbers for each byte. More are refused, so memory stays in proportion to the page's bytes.
	if uint64(n) > 1<<20+256*uint64(len(b)) {
		return nil, nil, fmt.Errorf("a page of %d bytes has %d deltas, which is too many to unpack at once; write the file with smaller pages", len(b), n)
	}
	perMini := int(block / minis)
	// A block takes at least one byte, and one for each miniblock.
	if n > 1 && uint64(n-1) > (uint64(len(t.b))/(minis+1)+1)*block {
		return nil, nil, errShortPage
	}
	out := make([]int64, 0, n)
	if n > 0 {
		out = append(out, last)
	}
	room := make([]uint64, perMini)
	for len(out) < n {
		least := t.int()
		widths := t.take(int(minis))
		if t.bad {
			return nil, nil, errDelta
		}
		for _, width := range widths {
			if len(out) == n {
				break
			}
			if width > 64 {
				return nil, nil, errDelta
			}
			packed := t.take(perMini * int(width) / 8)
			if t.bad {
				return nil, nil, errDelta
			}
			unpack64(packed, room, uint(width))
			for _, d := range room[:min(perMini, n-len(out))] {
				last += least + int64(d)
				out = append(out, last)
			}
		}
	}
	return out, t.b, nil
}

func (t *thrift) take(n int) []byte {
	if n > len(t.b) {
		t.fail()
		return nil
	}
	v := t.b[:n]
	t.b = t.b[n:]
	return v
}

func unpack64(b []byte, out []uint64, width uint) {
	if width == 0 {
		clear(out)
		return
	}
	bit := uint(0)
	for i := range out {
		v, got := uint64(0), uint(0)
		for got < width {
			k := min(8-bit&7, width-got)
			v |= uint64(b[bit>>3]>>(bit&7)&(1<<k-1)) << got
			got, bit = got+k, bit+k
		}
		out[i] = v
	}
}

func deltaNumbers(b []byte, n, width int) ([]byte, error) {
	list, _, err := deltas(b, n)
	if err != nil {
		return nil, err
	}
	out := make([]byte, width*n)
	for i, v := range list {
		if width == 4 {
			binary.LittleEndian.PutUint32(out[4*i:], uint32(v))
		} else {
			binary.LittleEndian.PutUint64(out[8*i:], uint64(v))
		}
	}
	return out, nil
}

// deltaLengths reads DELTA_LENGTH_BYTE_ARRAY.
func deltaLengths(b []byte, n int) ([]byte, []int32, error) {
	lengths, rest, err := deltas(b, n)
	if err != nil {
		return nil, nil, err
	}
	offsets, total := make([]int32, 1, n+1), int64(0)
	for _, l := range lengths {
		if l < 0 || l > int64(len(rest)) {
			return nil, nil, errDelta
		}
		if total += l; total > int64(len(rest)) {
			return nil, nil, errShortPage
		}
		offsets = append(offsets, int32(total))
	}
	return rest[:total], offsets, nil
}

// deltaStrings reads DELTA_BYTE_ARRAY. Each value is the length of a prefix, which it shares
// with the value before it, and the bytes after that prefix.
func deltaStrings(b []byte, n int) ([]byte, []int32, error) {
	prefixes, rest, err := deltas(b, n)
	if err != nil {
		return nil, nil, err
	}
	suffixes, ends, err := deltaLengths(rest, n)
	if err != nil {
		return nil, nil, err
	}
	total, size := int64(0), int64(0)
	for i, p := range prefixes {
		if p < 0 || p > size {
			return nil, nil, errDelta
		}
		size = p + int64(ends[i+1]-ends[i])
		total += size
		// Prefixes make many bytes of a few. The values may not have more than a page may.
		if total > maxPage {
			return nil, nil, errors.New("the values of a page have more bytes than a page may have")
		}
	}
	out, offsets := make([]byte, 0, total), make([]int32, 1, n+1)
	from := 0
	for i, p := range prefixes {
		at := len(out)
		out = append(out, out[from:from+int(p)]...)
		out = append(out, suffixes[ends[i]:ends[i+1]]...)
		offsets = append(offsets, int32(len(out)))
		from = at
	}
	return out, offsets, nil
}

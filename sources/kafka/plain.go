package kafka

import (
	"encoding/binary"
	"slices"

	"github.com/headrace/headrace/sources"
)

// Most records have neither key nor headers, and numbers of few bytes. appendPlain
// takes those that a batch begins with, in a third of the time that appendAny needs.
// It finds fault with nothing: what is no plain record that is wanted it leaves, with
// all behind it, to appendAny.

const (
	// plainRoom bytes from where a record, or its value's length, begins hold what
	// is read before the next look at the end.
	plainRoom = 16
	// shortestRecord is one of an empty value; a batch says how many records it has,
	// and is not believed more than that.
	shortestRecord = 7
	// touchAhead is how many records ahead memory is asked for. Each record says where
	// the next one begins, so that else they would come from memory one by one. 2 to 16
	// were the same, 32 too many.
	touchAhead = 8
)

// plainRun is where appendPlain stopped.
type plainRun struct {
	from     int   // the first record it did not take begins here
	left     int32 // records from there on, as the batch says
	previous int64 // delta of the offset before, or -1
	touched  byte  // of no use but to be stored
}

func appendPlain(h *header, arena []byte, from, to int, w want, out *sources.Batch) plainRun {
	most := min(h.count, int32((to-from)/shortestRecord))
	p := plainRun{from: from, left: h.count, previous: -1}
	recs := slices.Grow(out.Recs, int(most))
	n := len(recs)
	recs = recs[:cap(recs)]
	b := arena[:to]
	for ; p.left > h.count-most && to-p.from >= plainRoom; p.left-- {
		length, at, ok := number(b, p.from)
		end := at + int(length>>1)
		if !ok || length&1 != 0 || end > to {
			break
		}
		if ahead := p.from + (end-p.from)*touchAhead; ahead < to {
			p.touched ^= b[ahead]
		}
		timeDelta, at, ok := number(b, at+1) // behind attributes, of which none are defined
		if !ok {
			break
		}
		offsetDelta, at, ok := number(b, at)
		if !ok || offsetDelta&1 != 0 || b[at] != 1 || to-at < plainRoom { // 1: null, no key
			break
		}
		key := at + 1
		size, at, ok := number(b, key)
		if !ok || size&1 != 0 {
			break
		}
		delta, value := int64(offsetDelta>>1), int(size>>1)
		if at+value != end-1 || b[end-1] != 0 { // no headers
			break
		}
		offset := h.base + delta
		if delta <= p.previous || delta > int64(h.lastDelta) || offset >= w.end {
			break
		}
		if offset >= w.from {
			if int64(value) > w.maxRecord {
				break
			}
			r := &recs[n]
			n++
			r.Offset, r.Next = offset, offset+1
			r.Key = [2]int32{int32(key), int32(key)}
			r.Value = [2]int32{int32(at), int32(at + value)}
			r.Time = h.timeOf(int64(timeDelta>>1) ^ -int64(timeDelta&1))
			r.Headers, r.Tombstone = nil, false
		}
		p.previous, p.from = delta, end
	}
	out.Recs = recs[:n]
	return p
}

// number is a varint of up to three bytes, its sign still folded in, and the place
// behind it. Four bytes can be read at b[at:].
func number(b []byte, at int) (v uint32, next int, ok bool) {
	x := binary.LittleEndian.Uint32(b[at:])
	switch {
	case x&0x80 == 0:
		return x & 0x7f, at + 1, true
	case x&0x8000 == 0:
		return x&0x7f | x>>1&0x3f80, at + 2, true
	case x&0x800000 == 0:
		return x&0x7f | x>>1&0x3f80 | x>>2&0x1fc000, at + 3, true
	}
	return 0, at, false
}

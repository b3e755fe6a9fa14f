package kafka

import (
	"encoding/binary"
	"slices"

	"github.com/headrace/headrace/sources"
)

// Most records have no key, no headers and small numbers. appendPlain takes such records
// from the beginning of a batch, in a third of the time that appendAny needs. It stops at
// the first record that is different, not wanted or damaged, and returns no error:
// appendAny takes the rest.

const (
	// If plainRoom bytes are left at the beginning of a record, or of its value's length, the
	// next numbers can be read without another check of the end.
	plainRoom = 16
	// shortestRecord is the size of a record with an empty value. It bounds the number of
	// records that a batch can really have, whatever its header says.
	shortestRecord = 7
	// touchAhead is how many records ahead memory is read into the cache. Without it the
	// processor would wait for each record in turn, because only a record says where the
	// next one begins. Measured: 2 to 16 were equally good, 32 was too many.
	touchAhead = 8
)

// plainRun is where appendPlain stopped.
type plainRun struct {
	from     int   // where the first record begins that it did not take
	left     int32 // records from there on, by the header of the batch
	previous int64 // offset delta of the record before, or -1
	touched  byte  // keeps the compiler from removing the reads ahead
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
		timeDelta, at, ok := number(b, at+1) // after the byte of attributes: Kafka defines none yet
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

// number reads a varint of up to three bytes, without undoing the zigzag, and returns the
// place after it. b must have four bytes at b[at:].
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

package frame

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

// Head is what a frame carries besides its rows.
type Head struct {
	RowsPerBatch int     // as asked; the last batch may be shorter
	FirstBatch   uint32  // number of the first batch in the stream, from 1
	Last         bool    // the last batch is the last known one
	Names        []byte  // the names block (JSON), or nil
	Times        []Times // of each piece in order; nil: no row has a time
}

// Batches is the number of batches that rows make. A frame without rows is one empty
// batch: a rank's part of a round.
func (h *Head) Batches(rows int) int { return max(1, (rows+h.RowsPerBatch-1)/h.RowsPerBatch) }

// Finish turns the rows into a FRAME's payload. The payload lies in the builder's own
// memory and is valid until Reset; do nothing else with the builder before Reset. The rows
// of the spans must add up to Rows(). On an error (spans that do not add up, a frame over
// MaxFrame) the builder is as before.
func (b *Builder) Finish(h Head, spans []Span) ([]byte, error) {
	if err := b.checkFinish(&h, spans); err != nil {
		return nil, err
	}
	if need := b.layout.headSize(len(spans)); need > b.base {
		b.makeRoom(need)
	}
	clear(b.arena[:b.base])
	at := b.pack(headSize + spanSize*len(spans))
	names := 0
	if len(h.Names) > 0 {
		names = at
		at += aligned(len(h.Names))
		clear(b.arena[names+len(h.Names) : at])
		copy(b.arena[names:], h.Names)
	}
	times := 0
	if len(h.Times) > 0 {
		times = at
		at += aligned(timesSize * len(h.Times))
		putTimes(b.arena[times:at], h.Times)
	}
	out := b.arena[:at]
	le := binary.LittleEndian
	copy(out, magic)
	le.PutUint16(out[4:], version)
	if h.Last {
		le.PutUint16(out[6:], flagLast)
	}
	le.PutUint32(out[8:], uint32(b.rows))
	le.PutUint32(out[12:], uint32(h.Batches(b.rows)))
	le.PutUint32(out[16:], uint32(h.RowsPerBatch))
	le.PutUint32(out[20:], uint32(len(spans)))
	le.PutUint32(out[24:], uint32(b.layout.buffers))
	le.PutUint32(out[28:], h.FirstBatch)
	le.PutUint64(out[32:], uint64(len(out)))
	le.PutUint64(out[40:], uint64(names))
	le.PutUint64(out[48:], uint64(len(h.Names)))
	le.PutUint64(out[56:], uint64(times))
	for i := range spans {
		spans[i].put(out[headSize+spanSize*i:])
	}
	return out, nil
}

// checkFinish also makes sure that the arena is large enough for the payload.
func (b *Builder) checkFinish(h *Head, spans []Span) error {
	if h.RowsPerBatch < 1 {
		return fmt.Errorf("a frame of %d rows in batches of %d", b.rows, h.RowsPerBatch)
	}
	if len(spans) > maxSpans {
		return fmt.Errorf("a frame of %d spans is over the limit of %d", len(spans), maxSpans)
	}
	sum := 0
	for i := range spans {
		sum += int(spans[i].Rows)
	}
	if sum != b.rows {
		return fmt.Errorf("spans of %d rows for a frame of %d", sum, b.rows)
	}
	if err := h.checkTimes(spans); err != nil {
		return err
	}
	size := max(b.base, b.layout.headSize(len(spans))) + aligned(8*b.rows) + aligned(len(h.Names)) + aligned(timesSize*len(h.Times))
	for i := range b.Columns {
		c, v := &b.layout.Columns[i], &b.Columns[i]
		if c.Kind == Fixed {
			size += aligned(b.rows * c.Elements * c.Size)
		} else {
			size += aligned(8*(b.rows+1)) + aligned(8*len(v.Elements)) + aligned(len(v.Values))
		}
		size += aligned(b.rows * c.maskSize())
	}
	if size > MaxFrame {
		return fmt.Errorf("a frame of %d rows takes %d bytes, over the limit of %d: ask for fewer rows or columns", b.rows, size, MaxFrame)
	}
	if size > len(b.arena) {
		b.grow(size + size/8)
	}
	return nil
}

// grow gives the builder a larger arena, of its own, with the same contents.
func (b *Builder) grow(size int) {
	old := b.arena
	b.own, b.placed = alignedBytes(size), false
	b.arena = b.own
	copy(b.arena, old)
	b.attach()
}

// makeRoom moves the buffers up to base, because there are more spans than room was kept
// for.
func (b *Builder) makeRoom(base int) {
	if need := b.inPlace() + base - b.base; need > len(b.arena) {
		b.grow(need)
	}
	end := b.inPlace()
	copy(b.arena[base:], b.arena[b.base:end])
	b.base = base
	b.attach()
}

// pack brings all buffers to their final place, writes the buffer table at table
// and returns the end. Buffers move only downwards and in their order, so none
// is overwritten before it was moved; a full builder's values and masks do not
// move at all. Buffers that lie beside the arena need no more than the room kept for them.
func (b *Builder) pack(table int) int {
	at := b.base
	put := func(number int, src []byte) {
		dst := b.arena[at : at+len(src)]
		if len(src) > 0 && unsafe.SliceData(dst) != unsafe.SliceData(src) {
			copy(dst, src)
		}
		entry := b.arena[table+tableEntry*number:]
		binary.LittleEndian.PutUint64(entry, uint64(at))
		binary.LittleEndian.PutUint64(entry[8:], uint64(len(src)))
		at += aligned(len(src))
		clear(b.arena[at-aligned(len(src))+len(src) : at])
	}
	put(0, raw(b.Offsets[:b.rows]))
	for i := range b.Columns {
		c, v := &b.layout.Columns[i], &b.Columns[i]
		if c.Kind == Fixed {
			put(c.first, v.Values[:b.rows*c.Elements*c.Size])
		} else {
			put(c.first, raw(v.RowOffsets[:b.rows+1]))
		}
		if m := c.maskSize(); m > 0 {
			put(c.first+c.buffers()-1, v.Mask[:b.rows*m])
		}
	}
	for i := range b.Columns {
		c, v := &b.layout.Columns[i], &b.Columns[i]
		if c.Kind == RaggedBytes {
			put(c.first+1, raw(v.Elements))
		}
		if c.Kind != Fixed {
			put(c.first+kindBuffers[c.Kind]-1, v.Values)
		}
	}
	return at
}

// raw is v as bytes, for copying; the machine is little-endian (NewLayout).
func raw(v []int64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 8*len(v))
}

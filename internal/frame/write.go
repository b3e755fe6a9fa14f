package frame

import (
	"fmt"
	"slices"
	"unsafe"
)

// Builder gathers rows as columns and finishes them into one frame payload.
//
// Values and masks of fixed columns lie at their final place in one arena from
// the start, so a full builder is finished without moving them; offsets, ragged
// values and strings lie beside it and are copied in at the end. Rows are written
// through Columns and Offsets at index Rows() and counted with SetRows; nothing
// else is allocated per row.
//
// The arena may be shared with the process that gets the payload (Place). The builder never
// reads a length or an offset from it. A process that writes to it at the wrong time can
// spoil values, and nothing else.
//
// A Builder is used by one goroutine at a time.
type Builder struct {
	layout *Layout
	arena  []byte // 64-byte aligned
	own    []byte // an arena of its own, or nil
	placed bool   // arena is not own
	base   int    // where buffer 0 begins: room for head, spans and table before it
	rows   int
	limit  int // rows it has room for

	// Columns are the buffers that decoders write to, in the order of the schema.
	Columns []Buffers
	// Offsets is $offset, limit long.
	Offsets []int64
	// Times is the event time of each row in ms, 0 unknown; not part of the frame.
	Times []int64
}

// Buffers are one column's. Values of a Fixed column, RowOffsets and Mask are limit
// rows long; the others grow by append.
//
//	Fixed        Values
//	Ragged       RowOffsets (in elements), Values
//	Bytes        RowOffsets (in bytes), Values
//	RaggedBytes  RowOffsets (in elements), Elements (in bytes), Values
type Buffers struct {
	Values     []byte
	RowOffsets []int64
	Elements   []int64
	Mask       []byte
}

// View is b as elements of T without a copy. b comes from a Builder, whose
// buffers are aligned to 64 bytes; T is one of the fixed dtypes' Go types.
func View[T int32 | uint32 | int64 | float32 | float64](b []byte) []T {
	var t T
	n := len(b) / int(unsafe.Sizeof(t))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// NewBuilder makes a builder with room for rows rows, in memory of its own.
func NewBuilder(l *Layout, rows int) (*Builder, error) {
	b, err := newBuilder(l, rows)
	if err == nil {
		b.Place(nil)
	}
	return b, err
}

// newBuilder makes a builder that has no memory yet.
func newBuilder(l *Layout, rows int) (*Builder, error) {
	if err := l.holds(rows); err != nil {
		return nil, err
	}
	b := &Builder{layout: l, limit: rows, base: l.headSize(spareSpans), Columns: make([]Buffers, len(l.Columns)),
		Offsets: make([]int64, rows), Times: make([]int64, rows)}
	for i := range l.Columns {
		c, v := &l.Columns[i], &b.Columns[i]
		if c.Kind != Fixed {
			v.RowOffsets = make([]int64, rows+1)
		}
		if c.Kind == RaggedBytes {
			v.Elements = append(v.Elements, 0)
		}
	}
	return b, nil
}

// holds refuses more rows than a frame can have.
func (l *Layout) holds(rows int) error {
	if rows < 1 || rows > maxRows || rows*l.rowSize > MaxFrame-l.headSize(spareSpans) {
		return fmt.Errorf("a frame of %d rows of at least %d bytes is over the limit of %d bytes: ask for fewer rows or columns", rows, l.rowSize, MaxFrame)
	}
	return nil
}

// Place empties the builder and has it make its next payload in memory, which begins
// on a 64-byte boundary; nil: in memory of its own. Memory that is too small
// (ArenaSize) is not used. See Placed.
func (b *Builder) Place(memory []byte) {
	b.Reset()
	if len(memory) < b.inPlace() {
		b.base = b.layout.headSize(spareSpans)
	}
	if b.placed = len(memory) >= b.inPlace(); !b.placed {
		if len(b.own) < b.inPlace() {
			b.own = alignedBytes(b.inPlace())
		}
		memory = b.own
	}
	b.arena = memory
	b.attach()
}

// Placed reports whether the payload lies in the memory that Place was given. A payload
// that does not fit there lies in the builder's own memory.
func (b *Builder) Placed() bool { return b.placed }

// leave gives up memory that is not the builder's own.
func (b *Builder) leave() {
	b.placed, b.arena = false, nil
	for i := range b.Columns {
		v := &b.Columns[i]
		if v.Mask = nil; b.layout.Columns[i].Kind == Fixed {
			v.Values = nil
		}
	}
}

// alignedBytes allocates n bytes that begin on a 64-byte boundary.
func alignedBytes(n int) []byte {
	raw := make([]byte, n+align)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(raw)))) & (align - 1)
	return raw[skip : skip+n : skip+n]
}

// inPlace is the size of the arena up to the end of the buffers whose size follows
// from the rows.
func (b *Builder) inPlace() int { return b.layout.arenaSize(b.base, b.limit) }

// arenaSize is inPlace of a builder for rows rows whose buffers begin at base.
func (l *Layout) arenaSize(base, rows int) int {
	n := base + aligned(8*rows)
	for i := range l.Columns {
		c := &l.Columns[i]
		if c.Kind == Fixed {
			n += aligned(rows * c.Elements * c.Size)
		} else {
			n += aligned(8 * (rows + 1))
		}
		n += aligned(rows * c.maskSize())
	}
	return n
}

// attach points fixed values and masks into the arena. The other buffers have a
// place there too, as long as they can get, so that none overruns the next one.
func (b *Builder) attach() {
	at := b.base + aligned(8*b.limit)
	take := func(n int) []byte {
		v := b.arena[at : at+n : at+n]
		at += aligned(n)
		return v
	}
	for i := range b.layout.Columns {
		c, v := &b.layout.Columns[i], &b.Columns[i]
		if c.Kind == Fixed {
			v.Values = take(b.limit * c.Elements * c.Size)
		} else {
			at += aligned(8 * (b.limit + 1))
		}
		if m := c.maskSize(); m > 0 {
			v.Mask = take(b.limit * m)
		}
	}
}

// Layout is the layout that the builder was made for.
func (b *Builder) Layout() *Layout { return b.layout }

// Rows is the number of rows in the builder.
func (b *Builder) Rows() int { return b.rows }

// Limit is the number of rows it has room for.
func (b *Builder) Limit() int { return b.limit }

// SetRows counts rows that were written completely. n is at least Rows().
func (b *Builder) SetRows(n int) { b.rows = n }

// Size is the payload's size in bytes if it were finished now, without names.
func (b *Builder) Size() int {
	n := b.base + b.rows*b.layout.rowSize
	for i := range b.Columns {
		if b.layout.Columns[i].Kind != Fixed {
			n += len(b.Columns[i].Values) + 8*len(b.Columns[i].Elements)
		}
	}
	return n
}

// Truncate drops rows at or beyond row, and whatever was written of an
// unfinished row after the last one.
func (b *Builder) Truncate(row int) {
	b.rows = row
	for i := range b.Columns {
		c, v := &b.layout.Columns[i], &b.Columns[i]
		if c.Kind == Fixed {
			continue
		}
		end := v.RowOffsets[row]
		if c.Kind == RaggedBytes {
			v.Elements = v.Elements[:end+1]
			end = v.Elements[end]
		}
		v.Values = v.Values[:end*int64(c.Size)]
	}
}

// Reset empties the builder and keeps its memory. A payload that Finish returned
// is no longer valid.
func (b *Builder) Reset() {
	b.rows = 0
	for i := range b.Columns {
		v := &b.Columns[i]
		if b.layout.Columns[i].Kind != Fixed {
			v.Values = v.Values[:0]
		}
		v.Elements = v.Elements[:min(1, len(v.Elements))]
	}
}

// MoveTail appends rows [from, Rows()) to dst, which has the same layout and
// room for them, and truncates b to from.
func (b *Builder) MoveTail(from int, dst *Builder) error {
	n := b.rows - from
	if dst.layout != b.layout || n < 0 || dst.rows+n > dst.limit {
		return fmt.Errorf("move rows [%d, %d) after row %d of %d: no room or another layout", from, b.rows, dst.rows, dst.limit)
	}
	copy(dst.Offsets[dst.rows:], b.Offsets[from:b.rows])
	copy(dst.Times[dst.rows:], b.Times[from:b.rows])
	for i := range b.Columns {
		c, src, to := &b.layout.Columns[i], &b.Columns[i], &dst.Columns[i]
		if c.Kind == Fixed {
			w := c.Elements * c.Size
			copy(to.Values[dst.rows*w:], src.Values[from*w:b.rows*w])
		} else {
			first, last := src.RowOffsets[from], src.RowOffsets[b.rows]
			shift(to.RowOffsets[dst.rows+1:], src.RowOffsets[from+1:b.rows+1], to.RowOffsets[dst.rows]-first)
			if c.Kind == RaggedBytes {
				d := int64(len(to.Values)) - src.Elements[first]
				had := len(to.Elements)
				to.Elements = slices.Grow(to.Elements, int(last-first))[:had+int(last-first)]
				shift(to.Elements[had:], src.Elements[first+1:last+1], d)
				first, last = src.Elements[first], src.Elements[last]
			}
			to.Values = append(to.Values, src.Values[first*int64(c.Size):last*int64(c.Size)]...)
		}
		if m := c.maskSize(); m > 0 {
			copy(to.Mask[dst.rows*m:], src.Mask[from*m:b.rows*m])
		}
	}
	dst.rows += n
	b.Truncate(from)
	return nil
}

func shift(dst, src []int64, by int64) {
	for i, v := range src {
		dst[i] = v + by
	}
}

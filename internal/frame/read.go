package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/headrace/headrace/internal/dataset"
)

// ErrFrame is wrapped by every error of Read: the payload is not a frame of the
// schema that OPENED told.
var ErrFrame = errors.New("bad frame")

// Frame is a received payload, checked. Its columns are views of the payload.
type Frame struct {
	Rows, Batches, RowsPerBatch int
	FirstBatch                  uint32
	Last                        bool
	Spans                       []Span
	Names                       []byte
	Times                       []Times // of each piece, nil: none has one
	Offsets                     []int64
	Columns                     []Received
}

// Received is one column of a received frame.
//
//	Fixed        Values: Rows x Elements x Size bytes
//	Ragged       RowOffsets in elements, Values
//	Bytes        RowOffsets in bytes, Values
//	RaggedBytes  RowOffsets in elements, Elements in bytes, Values
type Received struct {
	Layout     *ColumnLayout
	Values     []byte
	RowOffsets []int64
	Elements   []int64
	Mask       []byte
}

// Read checks payload against the layout. Every length, offset and count in it is
// untrusted. The frame that it returns can be indexed by its offsets without a check.
func Read(l *Layout, payload []byte) (*Frame, error) {
	if len(payload) < headSize || string(payload[:4]) != magic {
		return nil, fmt.Errorf("%w: %d bytes without the magic %q", ErrFrame, len(payload), magic)
	}
	le := binary.LittleEndian
	if v := le.Uint16(payload[4:]); v != version {
		return nil, fmt.Errorf("%w: version %d, this reader knows %d", ErrFrame, v, version)
	}
	if n := le.Uint64(payload[32:]); n != uint64(len(payload)) || n > MaxFrame {
		return nil, fmt.Errorf("%w: says it has %d bytes, has %d", ErrFrame, n, len(payload))
	}
	rows, batches, per := le.Uint32(payload[8:]), le.Uint32(payload[12:]), le.Uint32(payload[16:])
	spans, buffers := le.Uint32(payload[20:]), le.Uint32(payload[24:])
	if rows > maxRows || per == 0 || uint64(batches) != max(1, (uint64(rows)+uint64(per)-1)/uint64(per)) {
		return nil, fmt.Errorf("%w: %d rows in %d batches of %d", ErrFrame, rows, batches, per)
	}
	if int(buffers) != l.buffers || spans > maxSpans || headSize+spanSize*int(spans)+tableEntry*int(buffers) > len(payload) {
		return nil, fmt.Errorf("%w: %d spans and %d buffers in %d bytes, the schema has %d buffers", ErrFrame, spans, buffers, len(payload), l.buffers)
	}
	f := &Frame{
		Rows: int(rows), Batches: int(batches), RowsPerBatch: int(per), FirstBatch: le.Uint32(payload[28:]),
		Last: le.Uint16(payload[6:])&flagLast != 0, Spans: make([]Span, spans), Columns: make([]Received, len(l.Columns)),
	}
	total := uint64(0)
	for i := range f.Spans {
		f.Spans[i].get(payload[headSize+spanSize*i:])
		total += uint64(f.Spans[i].Rows)
	}
	if total != uint64(rows) {
		return nil, fmt.Errorf("%w: spans of %d rows for %d rows", ErrFrame, total, rows)
	}
	r := bufferReader{payload: payload, table: payload[headSize+spanSize*int(spans):], first: headSize + spanSize*int(spans) + tableEntry*l.buffers}
	if n := le.Uint64(payload[48:]); n > 0 {
		f.Names = r.region("names", le.Uint64(payload[40:]), n)
	}
	f.Times = r.times(le.Uint64(payload[56:]), Pieces(f.RowsPerBatch, f.Spans))
	f.Offsets = r.offsets("$offset", 0, f.Rows)
	for i := range l.Columns {
		f.Columns[i] = r.column(&l.Columns[i], f.Rows)
	}
	if r.err != nil {
		return nil, r.err
	}
	return f, nil
}

// bufferReader takes buffers out of a payload; the first error sticks.
type bufferReader struct {
	payload []byte
	table   []byte
	first   int // no buffer begins before it
	err     error
}

func (r *bufferReader) fail(name, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s: %s", ErrFrame, name, fmt.Sprintf(format, args...))
	}
}

func (r *bufferReader) region(name string, at, n uint64) []byte {
	size := uint64(len(r.payload))
	if at > size || n > size-at || (n > 0 && at < uint64(r.first)) || at%align != 0 {
		r.fail(name, "buffer of %d bytes at %d in a frame of %d", n, at, size)
		return nil
	}
	return r.payload[at : at+n : at+n]
}

func (r *bufferReader) buffer(name string, number int) []byte {
	e := r.table[tableEntry*number:]
	return r.region(name, binary.LittleEndian.Uint64(e), binary.LittleEndian.Uint64(e[8:]))
}

func (r *bufferReader) sized(name string, number, want int) []byte {
	b := r.buffer(name, number)
	if r.err == nil && len(b) != want {
		r.fail(name, "buffer %d has %d bytes, not %d", number, len(b), want)
		return nil
	}
	return b
}

func (r *bufferReader) offsets(name string, number, n int) []int64 {
	b := r.sized(name, number, 8*n)
	if r.err != nil {
		return nil
	}
	return int64s(b)
}

// growing reads n+1 offsets that begin at 0 and never fall.
func (r *bufferReader) growing(name string, number, n int) []int64 {
	v := r.offsets(name, number, n+1)
	if r.err != nil {
		return nil
	}
	if v[0] != 0 {
		r.fail(name, "offsets begin at %d, not 0", v[0])
	}
	for i := 1; i < len(v); i++ {
		if v[i] < v[i-1] {
			r.fail(name, "offsets fall from %d to %d at %d", v[i-1], v[i], i)
			break
		}
	}
	if last := v[n]; last > MaxFrame {
		r.fail(name, "offsets end at %d, over the limit of a frame", last)
	}
	return v
}

func (r *bufferReader) column(c *ColumnLayout, rows int) Received {
	v, name := Received{Layout: c}, c.Field.Name
	switch c.Kind {
	case Fixed:
		v.Values = r.sized(name, c.first, rows*c.Elements*c.Size)
	case Ragged, Bytes:
		v.RowOffsets = r.growing(name, c.first, rows)
		if r.err == nil {
			v.Values = r.sized(name, c.first+1, int(v.RowOffsets[rows])*c.Size)
		}
	case RaggedBytes:
		v.RowOffsets = r.growing(name, c.first, rows)
		if r.err == nil {
			v.Elements = r.growing(name, c.first+1, int(v.RowOffsets[rows]))
		}
		if r.err == nil {
			v.Values = r.sized(name, c.first+2, int(v.Elements[len(v.Elements)-1]))
		}
	}
	if m := c.maskSize(); m > 0 {
		v.Mask = r.flags(name, r.sized(name, c.first+c.buffers()-1, rows*m))
	}
	if c.Field.DType == dataset.Bool {
		v.Values = r.flags(name, v.Values)
	}
	return v
}

// flags checks that bools and masks hold only 0 or 1.
func (r *bufferReader) flags(name string, b []byte) []byte {
	for i, v := range b {
		if v > 1 {
			r.fail(name, "byte %d is %d, not 0 or 1", i, v)
			break
		}
	}
	return b
}

func int64s(b []byte) []int64 {
	v := make([]int64, len(b)/8)
	for i := range v {
		v[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return v
}

// Value is element i of the values: bool, int32, int64, float32, float64, or for
// RaggedBytes a string or []byte. It is for tests and tools, not for hot loops.
func (v *Received) Value(i int) any {
	le := binary.LittleEndian
	switch v.Layout.Field.DType {
	case dataset.Bool:
		return v.Values[i] == 1
	case dataset.Int32:
		return int32(le.Uint32(v.Values[4*i:]))
	case dataset.Int64:
		return int64(le.Uint64(v.Values[8*i:]))
	case dataset.Float32:
		return math.Float32frombits(le.Uint32(v.Values[4*i:]))
	case dataset.Float64:
		return math.Float64frombits(le.Uint64(v.Values[8*i:]))
	}
	offsets := v.Elements
	if v.Layout.Kind == Bytes {
		offsets = v.RowOffsets
	}
	b := v.Values[offsets[i]:offsets[i+1]]
	if v.Layout.Field.DType == dataset.String {
		return string(b)
	}
	return b
}

// Row is the values of one row: one value for a scalar or a string, else a
// slice.
func (v *Received) Row(row int) any {
	first, last := row*v.Layout.Elements, (row+1)*v.Layout.Elements
	switch {
	case v.Layout.Kind == Ragged || v.Layout.Kind == RaggedBytes:
		first, last = int(v.RowOffsets[row]), int(v.RowOffsets[row+1])
	case len(v.Layout.Field.Shape) == 0:
		return v.Value(row)
	}
	values := make([]any, 0, last-first)
	for i := first; i < last; i++ {
		values = append(values, v.Value(i))
	}
	return values
}

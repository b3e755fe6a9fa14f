package frame

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/headrace/headrace/internal/dataset"
)

// Sizes inside a frame, in bytes (docs/PROTOCOL.md, "Frames").
const (
	magic      = "HRF1"
	version    = 1
	headSize   = 64
	spanSize   = 96
	tableEntry = 16
	align      = 64
	flagLast   = 1
	spareSpans = 16      // spans that a builder has room for before it must move its columns
	maxRows    = 1 << 27 // $offset alone is then 1 GiB
	maxSpans   = 1 << 20
)

func aligned(n int) int { return (n + align - 1) &^ (align - 1) }

// Span is a run of rows of one lease, and with shuffle of one of its pieces.
// Start and End are offsets of the real segment; LeaseFrom and LeaseTo are in
// order space.
type Span struct {
	Rows      uint32 `json:"rows"`
	Partition uint32 `json:"partition"`
	Pass      uint32 `json:"pass"`
	Dataset   uint32 `json:"dataset"`
	Segment   int64  `json:"segment"`
	Start     int64  `json:"start"`
	End       int64  `json:"end"`
	LeaseFrom int64  `json:"lease_from"`
	LeaseTo   int64  `json:"lease_to"`
	Epoch     uint32 `json:"epoch"`
	Term      uint32 `json:"term"`
	Sequence  uint64 `json:"sequence"`
	EventTime int64  `json:"event_time"` // ms, of the newest row; 0 unknown
}

func (s *Span) put(b []byte) {
	le := binary.LittleEndian
	b = b[:spanSize]
	le.PutUint32(b[0:], s.Rows)
	le.PutUint32(b[4:], s.Partition)
	le.PutUint32(b[8:], s.Pass)
	le.PutUint32(b[12:], s.Dataset)
	le.PutUint64(b[16:], uint64(s.Segment))
	le.PutUint64(b[24:], uint64(s.Start))
	le.PutUint64(b[32:], uint64(s.End))
	le.PutUint64(b[40:], uint64(s.LeaseFrom))
	le.PutUint64(b[48:], uint64(s.LeaseTo))
	le.PutUint32(b[56:], s.Epoch)
	le.PutUint32(b[60:], s.Term)
	le.PutUint64(b[64:], s.Sequence)
	le.PutUint64(b[72:], uint64(s.EventTime))
	clear(b[80:])
}

func (s *Span) get(b []byte) {
	le := binary.LittleEndian
	b = b[:spanSize]
	*s = Span{
		Rows: le.Uint32(b[0:]), Partition: le.Uint32(b[4:]), Pass: le.Uint32(b[8:]), Dataset: le.Uint32(b[12:]),
		Segment: int64(le.Uint64(b[16:])), Start: int64(le.Uint64(b[24:])), End: int64(le.Uint64(b[32:])),
		LeaseFrom: int64(le.Uint64(b[40:])), LeaseTo: int64(le.Uint64(b[48:])),
		Epoch: le.Uint32(b[56:]), Term: le.Uint32(b[60:]), Sequence: le.Uint64(b[64:]), EventTime: int64(le.Uint64(b[72:])),
	}
}

// Kind says how a column lies in its buffers.
type Kind uint8

const (
	Fixed       Kind = iota // values
	Ragged                  // row offsets, values
	Bytes                   // offsets, bytes
	RaggedBytes             // row offsets, element offsets, bytes
)

// buffers without a mask, by Kind.
var kindBuffers = [...]int{Fixed: 1, Ragged: 2, Bytes: 2, RaggedBytes: 3}

// ColumnLayout is what a builder and a reader must know about one column.
type ColumnLayout struct {
	Field    dataset.Field
	Kind     Kind
	Size     int // bytes of an element; 1 for Bytes and RaggedBytes
	Elements int // per row of a Fixed column, else 1
	first    int // its first buffer in the table
}

// maskSize is the number of mask bytes of one row; 0 without a mask.
func (c *ColumnLayout) maskSize() int {
	if !c.Field.Mask {
		return 0
	}
	return c.Elements
}

func (c *ColumnLayout) buffers() int {
	n := kindBuffers[c.Kind]
	if c.Field.Mask {
		n++
	}
	return n
}

// Layout is the buffers of a schema's frames. It is immutable and shared.
type Layout struct {
	Columns []ColumnLayout
	buffers int // with $offset
	rowSize int // bytes of a row in buffers whose size follows from the rows
}

// NewLayout checks the fields; they come from a validated spec or, on the other
// side of the socket, from Schema.Fields.
func NewLayout(fields []dataset.Field) (*Layout, error) {
	one := uint16(1)
	if *(*byte)(unsafe.Pointer(&one)) != 1 {
		return nil, fmt.Errorf("frames are little-endian, and this machine is not")
	}
	l := &Layout{Columns: make([]ColumnLayout, 0, len(fields)), buffers: 1, rowSize: 8}
	for _, f := range fields {
		if int(f.DType) >= len(elementSize) || f.DType == 0 {
			return nil, fmt.Errorf("column %q: unknown dtype %d", f.Name, f.DType)
		}
		n, ok := elements(f.Shape)
		if !ok {
			return nil, fmt.Errorf("column %q: shape %v", f.Name, f.Shape)
		}
		c := ColumnLayout{Field: f, Size: elementSize[f.DType], Elements: n, first: l.buffers}
		text := c.Size == 0
		switch {
		case (text || f.Ragged) && len(f.Shape) > 0:
			return nil, fmt.Errorf("column %q: only fixed columns of numbers have a shape", f.Name)
		case text && f.Ragged:
			c.Kind = RaggedBytes
		case text:
			c.Kind = Bytes
		case f.Ragged:
			c.Kind = Ragged
		}
		c.Size = max(c.Size, 1)
		if c.Kind == Fixed {
			l.rowSize += c.Size * n
		} else {
			l.rowSize += 8
		}
		l.rowSize += c.maskSize()
		l.buffers += c.buffers()
		if l.rowSize > MaxFrame {
			return nil, fmt.Errorf("column %q: a row of more than %d bytes does not fit a frame", f.Name, MaxFrame)
		}
		l.Columns = append(l.Columns, c)
	}
	return l, nil
}

// RowSize is the bytes of a row in buffers whose size follows from the rows
// alone: offsets, fixed values, masks. Ragged values and strings come on top.
func (l *Layout) RowSize() int { return l.rowSize }

func (l *Layout) headSize(spans int) int {
	return aligned(headSize + spanSize*spans + tableEntry*l.buffers)
}

package decode

import (
	"encoding/binary"
	"math"
	"math/big"
	"strconv"
	"unicode/utf8"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/internal/schema"
)

// A cell is a place in a row: an element of a column, or the event time. Records with a
// schema fill cells. Such a record is walked in the order of its bytes, and each wanted value
// goes to its cells at once.
type cell struct {
	column  *column
	source  int
	kind    cellKind
	conv    conversion
	size    int // bytes of an element
	element int // of the row
	width   int // elements of a row
	stars   int // in its path

	// Of the builder that is filled.
	col *frame.Buffers
}

type cellKind uint8

const (
	numberCell  cellKind = iota
	textCell             // strings and bytes
	numberList           // ragged
	textList             // ragged
	instantCell          // the event time
)

// conversion is how a value becomes an element of the column.
type conversion uint8

const (
	toText conversion = iota // the bytes themselves
	toInt64
	toInt32
	toFloat32
	toFloat64
	toBool
	toHash
)

func (c *column) conversion() conversion {
	if c.hash != nil {
		return toHash
	}
	switch c.dtype {
	case dataset.Int64:
		return toInt64
	case dataset.Int32:
		return toInt32
	case dataset.Float32:
		return toFloat32
	case dataset.Float64:
		return toFloat64
	case dataset.Bool:
		return toBool
	}
	return toText
}

func newCell(c *column, element, src int) cell {
	x := cell{column: c, source: src, conv: c.conversion(), size: c.size, element: element, width: len(c.sources)}
	switch {
	case c.ragged && c.text():
		x.kind = textList
	case c.ragged, c.shaped:
		x.kind = numberList
	case c.text():
		x.kind = textCell
	}
	return x
}

// class is what a value is, whatever the format calls it.
type class uint8

const (
	wholeNumber class = iota
	fraction
	truthValue
	textValue
	byteValue
	decimalValue
	timeOfDay
)

// takes reports whether values of a class become elements of the cell's column.
func (c *cell) takes(v class) bool {
	if c.kind == instantCell {
		return v == wholeNumber || v == textValue
	}
	switch c.conv {
	case toText:
		return v == textValue || v == byteValue
	case toInt64, toInt32:
		return v == wholeNumber || v == timeOfDay
	case toFloat32, toFloat64:
		return v == wholeNumber || v == timeOfDay || v == fraction || v == decimalValue
	case toBool:
		return v == truthValue
	}
	return v != fraction && v != decimalValue // hashed
}

// unfit says why values do not become elements of the cell's column.
func (c *cell) unfit(said string) string {
	switch {
	case c.kind == instantCell:
		return "is " + said + ", which is no time"
	case c.conv == toHash:
		return "is " + said + "; only text, bytes, whole numbers and bools are hashed"
	}
	return "is " + said + ", which does not become " + c.column.dtype.String() + "; choose another dtype"
}

// walkState is what the walk over one record needs, for either format.
type walkState struct {
	cells []cell
	lists []*column // ragged columns of cells
	seen  []uint64  // by cell: the turn in which it was filled; 0: not yet
	turn  uint64    // counts rows
	at    int       // of the value that is read, in buf
	row   int
	b     *Builder
	fault *fault
	depth int
	idle  int // elements without bytes
	jumps int // blocks that were skipped by their size
	room  [40]byte

	// Of Protobuf.
	counters []int32 // of elements
	stamps   []stamp
	stack    []int // lengths of lists: for each element that the walk is in, from its beginning
	frame    int   // where the lengths of the innermost element begin in stack
}

// aimCells points the cells at a builder.
func (d *Decoder) aimCells(b *Builder) {
	w := &d.walking
	w.b = b
	for i := range w.cells {
		switch c := &w.cells[i]; {
		case c.kind == instantCell:
		case c.column.shaped:
			c.col = c.column.gather.of(len(b.Offsets))
		default:
			c.col = &b.Columns[c.column.index]
		}
	}
}

// fillCell writes an element of numbers or bools.
func (d *Decoder) fillCell(id int32, bits uint64) {
	w := &d.walking
	c := &w.cells[id]
	w.seen[id] = w.turn
	if c.kind == numberList {
		c.appendBits(w.row, bits)
		return
	}
	at := w.row*c.width + c.element
	putBits(c.col.Values, c.size, at, bits)
	c.column.putMask(c.col.Mask, at, 1)
}

func (c *cell) appendBits(row int, bits uint64) {
	if c.column.max < math.MaxInt && c.column.count(c.col)-int(c.col.RowOffsets[row]) >= c.column.max {
		return
	}
	c.col.Values = appendBits(c.col.Values, c.size, bits)
}

// putInt writes a whole number. unit says what it means as a time.
func (d *Decoder) putInt(id int32, v int64, unit schema.Logical) bool {
	c := &d.walking.cells[id]
	if c.kind == instantCell {
		d.putInstant(id, v, unit)
		return true
	}
	switch c.conv {
	case toInt64:
		d.fillCell(id, uint64(v))
	case toInt32:
		if v != int64(int32(v)) {
			return d.badCell(id, strconv.AppendInt(nil, v, 10), "is out of the range of int32")
		}
		d.fillCell(id, uint64(uint32(v)))
	case toFloat32:
		d.fillCell(id, uint64(math.Float32bits(float32(v))))
	case toFloat64:
		d.fillCell(id, math.Float64bits(float64(v)))
	default:
		d.fillCell(id, uint64(c.column.hash.bytes(strconv.AppendInt(d.walking.room[:0], v, 10))))
	}
	return true
}

func (d *Decoder) putFloat32(id int32, bits uint32) {
	if d.walking.cells[id].conv == toFloat32 {
		d.fillCell(id, uint64(bits))
		return
	}
	d.fillCell(id, math.Float64bits(float64(math.Float32frombits(bits))))
}

func (d *Decoder) putFloat64(id int32, bits uint64) bool {
	switch f := math.Float64frombits(bits); {
	case d.walking.cells[id].conv == toFloat64:
		d.fillCell(id, bits)
	case !fitsFloat32(bits):
		return d.badCell(id, strconv.AppendFloat(nil, f, 'g', -1, 64), noFloat32)
	default:
		d.fillCell(id, uint64(math.Float32bits(float32(f))))
	}
	return true
}

func (d *Decoder) putTruth(id int32, v byte) {
	if c := &d.walking.cells[id]; c.conv == toHash {
		d.fillCell(id, uint64(c.column.hash.bytes(strconv.AppendBool(d.walking.room[:0], v != 0))))
		return
	}
	d.fillCell(id, uint64(v))
}

// putSpan writes the text or bytes that lie in the record.
func (d *Decoder) putSpan(id int32, from, to int) bool {
	if c := &d.walking.cells[id]; c.conv == toHash && c.kind != instantCell {
		d.fillCell(id, c.column.hash.remainder(c.column.hash.sum(d.base, from, to-from)))
		return true
	}
	return d.putText(id, d.buf[from:to])
}

// putText writes text or bytes.
func (d *Decoder) putText(id int32, v []byte) bool {
	w := &d.walking
	c := &w.cells[id]
	switch {
	case c.kind == instantCell:
		ms, ok := parseTime(v)
		if !ok {
			return d.badCell(id, v, "is not a time")
		}
		w.seen[id], w.b.Times[w.row] = w.turn, ms
		return true
	case c.conv == toHash:
		d.fillCell(id, uint64(c.column.hash.bytes(v)))
		return true
	case c.column.dtype == dataset.String && !utf8.Valid(v):
		return d.badCell(id, v, "is not UTF-8; use dtype: bytes")
	}
	w.seen[id] = w.turn
	if c.kind == textList {
		if c.column.count(c.col)-int(c.col.RowOffsets[w.row]) < c.column.max {
			c.column.appendText(c.col, v)
		}
		return true
	}
	c.col.Values = append(c.col.Values[:c.col.RowOffsets[w.row]], v...)
	c.col.RowOffsets[w.row+1] = int64(len(c.col.Values))
	c.column.putMask(c.col.Mask, w.row, 1)
	return true
}

// putInstant sets the event time from a number.
func (d *Decoder) putInstant(id int32, v int64, unit schema.Logical) {
	w := &d.walking
	w.seen[id] = w.turn
	switch unit {
	case schema.TimestampMillis:
	case schema.TimestampMicros:
		v = floorDiv(v, 1000)
	case schema.TimestampNanos:
		v = floorDiv(v, 1_000_000)
	case schema.Date:
		v *= msPerDay
	default:
		if v > -secondsBelow && v < secondsBelow {
			v *= 1000
		}
	}
	w.b.Times[w.row] = v
}

func floorDiv(v, by int64) int64 {
	q := v / by
	if v%by < 0 {
		q--
	}
	return q
}

// putDecimal writes a decimal: two's complement, big-endian, rounded once to float64.
func (d *Decoder) putDecimal(id int32, v []byte, scale int) bool {
	return d.putFloat64(id, math.Float64bits(decimalOf(v, scale)))
}

// tens are the powers of ten that a float64 has exactly.
var tens = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

func decimalOf(v []byte, scale int) float64 {
	if len(v) == 0 {
		return 0
	}
	if len(v) <= 8 && scale < len(tens) {
		var word [8]byte
		if v[0]&0x80 != 0 {
			word = [8]byte{255, 255, 255, 255, 255, 255, 255, 255}
		}
		copy(word[8-len(v):], v)
		n := int64(binary.BigEndian.Uint64(word[:]))
		if n > -1<<53 && n < 1<<53 {
			return float64(n) / tens[scale] // both are exact: rounded once
		}
	}
	n := new(big.Int).SetBytes(v)
	if v[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(v))))
	}
	f, _ := new(big.Rat).SetFrac(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)).Float64()
	return f
}

// missingCell handles a value that is null or absent. It returns false if that is a fault.
func (d *Decoder) missingCell(id int32, reason string) bool {
	w := &d.walking
	c := &w.cells[id]
	w.seen[id] = w.turn
	switch c.kind {
	case instantCell:
		w.b.Times[w.row] = 0
		return true
	case numberList, textList:
		return true // the row ends without it; missingElement is for elements
	}
	if !c.column.hasDefault && !c.column.mask && !d.broken {
		w.fault = &fault{column: c.column, source: c.source, none: true, reason: reason}
		return false
	}
	d.putDefault(c)
	return true
}

func (d *Decoder) putDefault(c *cell) {
	row := d.walking.row
	if c.kind == textCell {
		c.col.Values = append(c.col.Values[:c.col.RowOffsets[row]], c.column.defaultBytes...)
		c.col.RowOffsets[row+1] = int64(len(c.col.Values))
		c.column.putMask(c.col.Mask, row, 0)
		return
	}
	at := row*c.width + c.element
	putBits(c.col.Values, c.size, at, c.column.defaultBits)
	c.column.putMask(c.col.Mask, at, 0)
}

// missingElement handles an element of a list that has no value.
func (d *Decoder) missingElement(id int32) bool {
	w := &d.walking
	c := &w.cells[id]
	w.seen[id] = w.turn
	full := c.column.count(c.col)-int(c.col.RowOffsets[w.row]) >= c.column.max
	switch {
	case c.column.shaped && (c.column.hasDefault || c.column.mask || d.lenient):
		c.column.lacks(c.col)
	case full || d.lenient && !c.column.hasDefault:
	case !c.column.hasDefault:
		w.fault = &fault{column: c.column, source: c.source, none: true, reason: "an element of the array has no value"}
		return false
	default:
		c.column.appendDefault(c.col, nil)
	}
	return true
}

// badCell handles a value that cannot be read. It returns false if that is a fault.
func (d *Decoder) badCell(id int32, value []byte, reason string) bool {
	w := &d.walking
	c := &w.cells[id]
	if !d.lenient {
		w.fault = &fault{column: c.column, source: c.source, at: w.at - d.start, value: append([]byte(nil), value...), reason: reason}
		return false
	}
	w.seen[id] = w.turn
	c.column.errors++
	switch c.kind {
	case instantCell:
		w.b.Times[w.row] = 0
	case numberList, textList:
		if c.column.shaped {
			c.column.lacks(c.col)
		} else if c.column.hasDefault && c.column.count(c.col)-int(c.col.RowOffsets[w.row]) < c.column.max {
			c.column.appendDefault(c.col, nil)
		}
	default:
		d.putDefault(c)
	}
	return true
}

// beginCells begins a row.
func (d *Decoder) beginCells(row int) {
	w := &d.walking
	w.row, w.fault, w.depth, w.idle, w.jumps, w.at = row, nil, 0, 0, 0, d.start
	w.turn++
	d.clearShaped()
}

// endLists ends the row in the ragged columns, and in those of a shape.
func (d *Decoder) endLists() *fault {
	w := &d.walking
	for _, c := range w.lists {
		if c.shaped {
			if f := d.putGathered(c); f != nil {
				return f
			}
			continue
		}
		col := &w.b.Columns[c.index]
		there := byte(1)
		if c.count(col) == int(col.RowOffsets[w.row]) {
			if there = 0; c.hasDefault {
				c.appendDefault(col, nil)
			}
		}
		col.RowOffsets[w.row+1] = int64(c.count(col))
		c.putMask(col.Mask, w.row, there)
	}
	return nil
}

// defaultCells fills the row of a record that cannot be read (on_error: default).
func (d *Decoder) defaultCells() {
	w := &d.walking
	d.clearShaped()
	for id := range w.cells {
		d.missingCell(int32(id), "")
	}
	d.endLists() // nothing is an error now
}

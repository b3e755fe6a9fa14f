package decode

import (
	"errors"
	"fmt"
	"strconv"
	"unsafe"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/sources"
)

// Builder is what rows are appended to.
type Builder = frame.Builder

// Decoder turns records into rows. It remembers the order of the keys of the
// last JSON record and owns scratch memory: one goroutine uses it at a time;
// Clone gives another one.
type Decoder struct {
	spec    *dataset.Spec
	o       options
	format  string
	lenient bool // on_error: default

	delimiter, quote byte // quote 0: none
	fieldNames       []string
	unbound          bool

	columns   []*column
	sources   []source
	eventTime *column
	fromPath  fromPath
	stars     []int // sources of paths with a *
	metas     []int // sources that are no part of the value's text: $key and others
	schema    dataset.Schema
	layout    *frame.Layout
	grows     []int // layout columns whose size does not follow from the rows
	maxFrame  int   // frame.MaxFrame, but for tests

	fieldSource []int32 // csv, tsv: the slot of each field up to the last wanted one, or -1
	exact       int     // fields that a record must have; 0: any number from len(fieldSource)
	ops         []op    // csv, tsv: the fast path
	pieces      []piece // binary: the columns that lie in the record
	recordSize  int     // binary
	root        *node   // json: the wanted paths
	columnar    columnState
	words       []uint64 // rows of columns: scratch
	features    features
	wants       *want // records with a schema: the wanted paths
	walking     walkState
	programs    map[programID]*program
	fixed, last *program
	keys        keyMemory
	objects     uint64 // met so far; numbers them
	wide        uint64 // json: all bytes of the record's strings, or-ed
	jsonFault   *fault

	// The record that is being decoded.
	buf        []byte
	base       unsafe.Pointer // of buf
	start, end int            // of the record in buf; pad bytes more are readable
	slots      []slot         // by source
	lists      []list         // by source, for paths with a *
	scratch    []byte
	padded     []byte
	broken     bool // lenient, and the record as a whole cannot be read
	badRecords uint64
}

// ErrUnbound means that the spec names fields by each file's header line and this Decoder
// has no header. Bind returns one that can Append.
var ErrUnbound = errors.New("fields are named by each file's header line: bind the decoder to it first")

// Schema is the columns in their order, those that were asked for.
func (d *Decoder) Schema() dataset.Schema { return d.schema }

// Layout is what builders for this decoder are made of. Decoders that differ by
// Clone or Bind share it.
func (d *Decoder) Layout() *frame.Layout { return d.layout }

// NewBuilder makes a builder with room for rows rows.
func (d *Decoder) NewBuilder(rows int) (*Builder, error) { return frame.NewBuilder(d.layout, rows) }

// Clone is an independent Decoder of the same columns, with its own counts.
func (d *Decoder) Clone() (*Decoder, error) { return d.compileAgain(d.o.header) }

// Bind is Clone for files whose first line is header.
func (d *Decoder) Bind(header []byte) (*Decoder, error) { return d.compileAgain(header) }

func (d *Decoder) compileAgain(header []byte) (*Decoder, error) {
	c, err := Compile(d.spec, WithColumns(d.o.columns), withHeader(header), WithSchemas(d.o.schemas))
	if err != nil {
		return nil, err
	}
	c.layout = d.layout
	return c, nil
}

// FieldErrors is how many values of a column were bad and replaced by its
// default (on_error: default).
type FieldErrors struct {
	Column string // "$value": the record as a whole could not be read
	Count  uint64
}

// Errors lists the columns with replaced values, in the spec's order, since
// Compile.
func (d *Decoder) Errors() []FieldErrors {
	var list []FieldErrors
	if d.badRecords > 0 {
		list = append(list, FieldErrors{"$value", d.badRecords})
	}
	for _, c := range d.columns {
		if c.errors > 0 {
			list = append(list, FieldErrors{c.name, c.errors})
		}
	}
	for _, c := range d.fromPath.columns {
		if c.errors > 0 {
			list = append(list, FieldErrors{c.name, c.errors})
		}
	}
	if d.eventTime != nil && d.eventTime.errors > 0 {
		list = append(list, FieldErrors{d.eventTime.name, d.eventTime.errors})
	}
	return list
}

// ErrFull means that one more record would make the builder larger than a frame may be.
// The record was not consumed.
var ErrFull = fmt.Errorf("the rows take more than a frame of %d bytes: ask for fewer rows or columns", frame.MaxFrame)

// Append decodes batch.Recs[from:] into b until b has maxRows rows (or is at its
// limit) or the batch is at its end, and returns how many records it consumed.
// Each becomes one row, except that blank lines of csv, tsv and json become none.
//
// On an error (*Error or ErrFull) b holds everything before the record and nothing of the
// record itself.
func (d *Decoder) Append(b *Builder, batch *sources.Batch, from, maxRows int) (int, error) {
	if d.unbound {
		return 0, ErrUnbound
	}
	if b.Layout() != d.layout {
		return 0, errors.New("decode: the builder was made for another dataset or other columns")
	}
	if !d.fromPath.wanted() {
		return d.appendRecords(b, batch, from, maxRows)
	}
	if !d.fromPath.known {
		return 0, errNoPath
	}
	d.fromPath.row = b.Rows()
	n, err := d.appendRecords(b, batch, from, maxRows)
	d.putFromPath(b, b.Rows())
	return n, err
}

func (d *Decoder) appendRecords(b *Builder, batch *sources.Batch, from, maxRows int) (int, error) {
	if d.spec.Decode.Columnar() {
		return d.appendColumns(b, batch, from, maxRows)
	}
	row, limit := b.Rows(), min(maxRows, b.Limit())
	d.aim(b)
	if d.wants != nil {
		return d.appendWritten(b, batch, from, limit)
	}
	n := from
	if d.onlyPieces() {
		n = d.copyRows(b, batch, n, limit)
		row = b.Rows()
	}
	for ; n < len(batch.Recs) && row < limit; n++ {
		rec := &batch.Recs[n]
		d.take(batch.Arena, int(rec.Value[0]), int(rec.Value[1]))
		if d.blank() {
			continue
		}
		b.Offsets[row], b.Times[row] = rec.Offset, rec.Time
		if d.ops == nil || !d.fastRow(b, row) {
			if d.ops != nil || d.pieces != nil {
				d.truncate(b, row)
			}
			if f := d.slowRow(b, row, batch, rec); f != nil {
				d.truncate(b, row)
				return n - from, d.errorOf(f, n, rec.Offset)
			}
		}
		if len(d.grows) > 0 && d.tooLarge(b, row) {
			b.SetRows(row)
			d.truncate(b, row)
			return n - from, ErrFull
		}
		row++
	}
	b.SetRows(row)
	return n - from, nil
}

// take makes arena[start:end] the current record. It makes sure that pad bytes after its
// end can be read.
func (d *Decoder) take(arena []byte, start, end int) {
	if end+pad > len(arena) {
		d.padded = append(append(d.padded[:0], arena[start:end]...), make([]byte, pad)...)
		arena, start, end = d.padded, 0, end-start
	}
	d.buf, d.base, d.start, d.end = arena, unsafe.Pointer(unsafe.SliceData(arena)), start, end
}

// blank reports a blank line: one that encoding/csv drops, or white space in JSON. It also
// cuts the line end off.
func (d *Decoder) blank() bool {
	switch {
	case d.delimiter != 0:
		d.end -= lineEnd(d.buf[d.start:d.end])
		return d.start == d.end
	case d.format == "json":
		for i := d.start; i < d.end; i++ {
			if !isSpace(d.buf[i]) {
				return false
			}
		}
		return true
	}
	return false
}

// lineEnd is how many bytes of b are a line end.
func lineEnd(b []byte) int {
	n := 0
	if n < len(b) && b[len(b)-1] == '\n' {
		n++
	}
	if n < len(b) && b[len(b)-1-n] == '\r' {
		n++
	}
	return n
}

// frameReserve is the room that is kept for spans, names and padding.
const frameReserve = 1 << 16

// tooLarge checks the buffers that grow, after each row. The size of the others was
// checked when the builder was made.
func (d *Decoder) tooLarge(b *Builder, row int) bool {
	size := (row+1)*d.layout.RowSize() + frameReserve + (row+1-d.fromPath.row)*d.fromPath.size
	for _, i := range d.grows {
		size += len(b.Columns[i].Values) + 8*len(b.Columns[i].Elements)
	}
	return size > d.maxFrame
}

// slowRow takes any record into slots, and from slots into columns. Its errors are those
// that users read.
func (d *Decoder) slowRow(b *Builder, row int, batch *sources.Batch, rec *sources.Record) *fault {
	d.scratch = d.scratch[:0]
	d.broken = false
	clear(d.slots)
	d.clearLists()
	var f *fault
	switch d.format {
	case "csv", "tsv":
		f = d.split(false)
	case "json":
		f = d.walk()
	case "binary":
		f = d.putPieces(b, row)
	case "tfrecord":
		f = d.scanExample()
	}
	if f != nil {
		if !d.lenient {
			return f
		}
		d.broken = true
		d.badRecords++
		clear(d.slots)
		clear(d.features.found)
		d.clearLists()
		d.defaultPieces(b, row)
	}
	for _, i := range d.metas {
		d.meta(i, batch, rec)
	}
	return d.convert(b, row)
}

func (d *Decoder) clearLists() {
	for _, i := range d.stars {
		d.lists[i].slots, d.lists[i].base = d.lists[i].slots[:0], 0
	}
}

// meta fills the slot of a $ path.
func (d *Decoder) meta(i int, batch *sources.Batch, rec *sources.Record) {
	s := &d.slots[i]
	from := len(d.scratch)
	switch p := &d.sources[i].path; p.Kind {
	case dataset.Value:
		*s = slot{start: int32(d.start), end: int32(d.end), kind: text}
		return
	case dataset.Key:
		d.scratch = append(d.scratch, batch.Arena[rec.Key[0]:rec.Key[1]]...)
	case dataset.HeaderValue:
		h := rec.Headers
		for len(h) > 0 && string(batch.Arena[h[0].Key[0]:h[0].Key[1]]) != p.Name {
			h = h[1:]
		}
		if len(h) == 0 {
			return
		}
		d.scratch = append(d.scratch, batch.Arena[h[0].Value[0]:h[0].Value[1]]...)
	case dataset.Timestamp:
		if rec.Time == 0 {
			return
		}
		d.scratch = strconv.AppendInt(d.scratch, rec.Time, 10)
	case dataset.Tombstone:
		is := byte('0')
		if rec.Tombstone {
			is = '1'
		}
		d.scratch = append(d.scratch, is)
	}
	*s = slot{start: int32(from), end: int32(len(d.scratch)), kind: text, scratch: true}
}

// bytesOf is a slot's bytes as they stand in the record.
func (d *Decoder) bytesOf(s slot) []byte {
	if s.scratch {
		return d.scratch[s.start:s.end]
	}
	return d.buf[s.start:s.end]
}

// place is where a slot is in the record, for messages.
func (d *Decoder) place(s slot) int {
	if s.scratch || s.isMissing() {
		return 0
	}
	return int(s.start) - d.start
}

package decode

import (
	"fmt"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
)

// Binary records have the layout of memory on a little-endian machine. A frame's columns
// have the same layout (frame.NewLayout refuses other machines), so a column is copied
// without looking at its values. Bools are the exception: their byte must be 0 or 1.

// piece is a column of a binary record: bytes [from, from+size).
type piece struct {
	column     *column
	from, size int
}

func (d *Decoder) compilePiece(c *dataset.Column, col *column) error {
	size := c.Bytes()
	if c.Offset == nil || *c.Offset < 0 || size == 0 || *c.Offset > d.recordSize-size {
		return fmt.Errorf("it does not lie in the record's %d bytes", d.recordSize)
	}
	d.pieces = append(d.pieces, piece{col, *c.Offset, size})
	return nil
}

// onlyPieces reports whether every column is a piece of the record.
func (d *Decoder) onlyPieces() bool {
	return len(d.pieces) > 0 && len(d.metas) == 0 && d.eventTime == nil && len(d.grows) == 0
}

// copyRows takes the records of the right size from batch.Recs[n:] until the
// builder has limit rows. It returns the first record that it did not take.
func (d *Decoder) copyRows(b *Builder, batch *sources.Batch, n, limit int) int {
	row := b.Rows()
	for ; n < len(batch.Recs) && row < limit; n++ {
		r := &batch.Recs[n]
		rec := batch.Arena[r.Value[0]:r.Value[1]]
		if len(rec) != d.recordSize || !d.copyPieces(b, row, rec) {
			break // putPieces makes the error
		}
		b.Offsets[row], b.Times[row] = r.Offset, r.Time
		row++
	}
	b.SetRows(row)
	return n
}

// copyPieces fills row from rec, which has the right size. It returns false if the byte
// of a bool is neither 0 nor 1.
func (d *Decoder) copyPieces(b *Builder, row int, rec []byte) bool {
	for i := range d.pieces {
		p := &d.pieces[i]
		col := &b.Columns[p.column.index]
		v := rec[p.from : p.from+p.size]
		if p.column.dtype == dataset.Bool && notBools(v) >= 0 {
			return false
		}
		if p.column.text() {
			col.Values = append(col.Values, v...)
			col.RowOffsets[row+1] = int64(len(col.Values))
		} else {
			copy(col.Values[row*p.size:], v)
		}
		p.putMask(col.Mask, row, 1)
	}
	return true
}

// notBools is the index of the first byte that is neither 0 nor 1, or -1.
func notBools(v []byte) int {
	for i, b := range v {
		if b > 1 {
			return i
		}
	}
	return -1
}

// putMask sets the mask of all elements of a row.
func (p *piece) putMask(mask []byte, row int, v byte) {
	if !p.column.mask {
		return
	}
	n := 1
	if !p.column.text() {
		n = p.size / p.column.size
	}
	for i := row * n; i < (row+1)*n; i++ {
		mask[i] = v
	}
}

// putPieces fills row from the current record, or returns what is wrong with it.
func (d *Decoder) putPieces(b *Builder, row int) *fault {
	rec := d.buf[d.start:d.end]
	if len(rec) != d.recordSize {
		return &fault{value: rec, reason: fmt.Sprintf("has %d bytes, and every record has %d by decode.record_size and its columns: %s", len(rec), d.recordSize, d.layoutText())}
	}
	if d.copyPieces(b, row, rec) {
		return nil
	}
	d.truncate(b, row)
	for i := range d.pieces {
		p := &d.pieces[i]
		if v := rec[p.from : p.from+p.size]; p.column.dtype == dataset.Bool {
			if at := notBools(v); at >= 0 {
				return &fault{at: p.from + at, value: v[at : at+1], reason: fmt.Sprintf("is no bool of column %s: the byte is neither 0 nor 1", p.column.name)}
			}
		}
	}
	return &fault{value: rec, reason: "cannot be copied"}
}

// layoutText names the first columns and where they lie.
func (d *Decoder) layoutText() string {
	const most = 4
	text := ""
	for i, p := range d.pieces {
		if i == most {
			return text + ", ..."
		}
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s [%d, %d)", p.column.name, p.from, p.from+p.size)
	}
	return text
}

// defaultPieces fills row with defaults for a record that cannot be read (on_error:
// default).
func (d *Decoder) defaultPieces(b *Builder, row int) {
	for i := range d.pieces {
		p := &d.pieces[i]
		c, col := p.column, &b.Columns[p.column.index]
		if c.text() {
			col.Values = append(col.Values, c.defaultBytes...)
			col.RowOffsets[row+1] = int64(len(col.Values))
		} else {
			n := p.size / c.size
			for e := row * n; e < (row+1)*n; e++ {
				putBits(col.Values, c.size, e, c.defaultBits)
			}
		}
		p.putMask(col.Mask, row, 0)
	}
}

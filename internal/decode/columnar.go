package decode

import (
	"fmt"
	"slices"
	"unicode/utf8"
	"unsafe"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/sources"
)

// Rows of columns (sources.Batch.Columns) become frame columns one column at a time. The
// entries of a dictionary are converted, checked or hashed once for each dictionary.

// feed is where one of Decoder.sources stands in the batch: the next row's first slot,
// and that slot's value.
type feed struct {
	col   *sources.Column
	slot  int
	value int
	last  counted
}

// counted says how many of some slots have a value.
type counted struct{ slot, slots, values int }

// columnState says which batch the feeds are of, and at which row they stand.
type columnState struct {
	feeds []feed
	first *sources.Column
	start int64 // offset of the batch's first row
	row   int
	room  int // bytes that the column may append
}

// appendColumns is Append for rows of columns.
func (d *Decoder) appendColumns(b *Builder, batch *sources.Batch, from, maxRows int) (int, error) {
	row := b.Rows()
	n := min(batch.Rows-from, min(maxRows, b.Limit())-row)
	if n <= 0 {
		return 0, nil
	}
	if err := d.feed(batch, from); err != nil {
		return 0, err
	}
	errors := d.errorCounts()
	for {
		took, f, full := d.putRows(b, row, n)
		if full && took < n/2 || took == 0 && full || len(d.grows) > 0 && took > 0 && d.tooLarge(b, row+took-1) {
			b.SetRows(row)
			d.truncate(b, row)
			d.resetErrors(errors)
			if n /= 2; n == 0 {
				d.columnar.first = nil
				return 0, ErrFull
			}
			d.columnar.first = nil // the feeds have moved on
			if err := d.feed(batch, from); err != nil {
				return 0, err
			}
			continue
		}
		if took < n && !slices.Equal(errors, d.errorCounts()) { // some may be of rows that are cut off
			d.resetErrors(errors)
			if took > 0 {
				b.SetRows(row)
				d.truncate(b, row)
				d.columnar.first = nil
				if err := d.feed(batch, from); err != nil {
					return 0, err
				}
				n = took
				continue
			}
		}
		for i := range took {
			b.Offsets[row+i] = batch.FirstRow + int64(from+i)
		}
		if d.eventTime == nil {
			clear(b.Times[row : row+took])
		}
		b.SetRows(row + took)
		if full && f == nil { // the next call places the feeds again
			d.truncate(b, row+took)
			d.columnar.first = nil
			return took, nil
		}
		if f == nil {
			d.columnar.row = from + took
			return took, nil
		}
		d.truncate(b, row+took)
		d.columnar.first = nil
		return took, d.errorOf(f, from+took, batch.FirstRow+int64(from+took))
	}
}

// feed makes the feeds stand at row from.
func (d *Decoder) feed(batch *sources.Batch, from int) error {
	s := &d.columnar
	if from > 0 && s.row == from && s.first != nil && s.first == unsafe.SliceData(batch.Columns) && s.start == batch.FirstRow {
		return nil
	}
	s.feeds = s.feeds[:0]
	for i := range d.sources {
		text := d.sources[i].text
		at := i // mostly
		if at >= len(batch.Columns) || batch.Columns[at].Path != text {
			at = slices.IndexFunc(batch.Columns, func(c sources.Column) bool { return c.Path == text })
		}
		if at < 0 {
			return fmt.Errorf("decode: the source gives no column %s", text)
		}
		f := feed{col: &batch.Columns[at]}
		if err := d.fits(i, f.col); err != nil {
			return err
		}
		f.pass(from)
		s.feeds = append(s.feeds, f)
	}
	s.first, s.start, s.row = unsafe.SliceData(batch.Columns), batch.FirstRow, from
	return nil
}

// fits says why columns cannot be made of a field of the file. Then the file does not suit the
// spec; no single record is at fault.
func (d *Decoder) fits(src int, col *sources.Column) error {
	for _, c := range d.columns {
		if !slices.Contains(c.sources, src) {
			continue
		}
		switch reason := c.wantsKind(col); {
		case reason != "":
			return fmt.Errorf("column %s: %s %s", c.name, col.Path, reason)
		case col.Absent && !c.hasDefault && !c.mask && !c.ragged:
			return fmt.Errorf("column %s: the file has no field %s; correct the path, or give the column a default or missing: mask", c.name, col.Path)
		}
	}
	return nil
}

// pass moves on over n rows from the first.
func (f *feed) pass(n int) {
	switch {
	case n == 0 || f.col.Absent:
		return
	case f.col.List:
		f.slot = int(f.col.Ends[n-1])
	default:
		f.slot = n
	}
	f.value = f.slot
	if len(f.col.Valid) > 0 {
		f.value = sources.CountValid(f.col.Valid[:f.slot])
	}
}

// errorCounts says how many values of each column were replaced.
func (d *Decoder) errorCounts() (all []uint64) {
	if !d.lenient {
		return nil
	}
	for _, c := range d.columns {
		all = append(all, c.errors)
	}
	if d.eventTime != nil {
		all = append(all, d.eventTime.errors)
	}
	return all
}

// resetErrors goes back to what errorCounts said: the same rows are written again.
func (d *Decoder) resetErrors(all []uint64) {
	for i, n := range all {
		if i < len(d.columns) {
			d.columns[i].errors = n
		} else {
			d.eventTime.errors = n
		}
	}
}

// putRows writes n rows of every column from row on. It returns how many are good. bad is what is
// wrong with the row after them. full means that there is no room for that row: at most a frame's
// bytes and those of one more value have been written then.
func (d *Decoder) putRows(b *Builder, row, n int) (good int, bad *fault, full bool) {
	base := d.columnar.row
	d.columnar.room = d.maxFrame - frameReserve - row*d.layout.RowSize()
	for _, i := range d.grows {
		d.columnar.room -= len(b.Columns[i].Values) + 8*len(b.Columns[i].Elements)
	}
	for _, c := range d.columns {
		var took int
		var f *fault
		col := &b.Columns[c.index]
		had := len(col.Values) + 8*len(col.Elements)
		switch {
		case c.shaped:
			took, f = d.shapedRows(b, c, row, n, base)
		case c.ragged:
			took, f = d.listRows(b, c, row, n, base)
		case c.text():
			took, f = d.textRows(b, c, row, n)
		default:
			took, f = d.numberRows(b, c, row, n)
		}
		switch {
		case f != nil:
			n, bad, full = took, f, false
		case took < n:
			n, bad, full = took, nil, true
		}
		d.columnar.room -= len(col.Values) + 8*len(col.Elements) - had
	}
	if d.eventTime != nil {
		if took, f := d.timeRows(b, row, n); f != nil {
			n, bad, full = took, f, false
		}
	}
	if bad == nil && !full {
		for i := range d.columnar.feeds {
			d.columnar.feeds[i].advance(base, n)
		}
	}
	return n, bad, full
}

func (f *feed) advance(base, n int) {
	if f.col.Absent {
		return
	}
	slot := f.slotEnd(base, n)
	f.value += f.values(slot - f.slot)
	f.slot = slot
}

// slotEnd is the slot after those of the n rows from row base on.
func (f *feed) slotEnd(base, n int) int {
	switch {
	case n == 0:
		return f.slot
	case f.col.List:
		return int(f.col.Ends[base+n-1])
	}
	return f.slot + n
}

// valid are the n slots from the feed's on; nil: all have a value.
func (f *feed) valid(n int) []byte {
	if len(f.col.Valid) == 0 {
		return nil
	}
	return f.col.Valid[f.slot : f.slot+n]
}

// values is how many of the n slots from the feed's on have a value. It counts them once.
func (f *feed) values(n int) int {
	valid := f.valid(n)
	if valid == nil {
		return n
	}
	if f.last.slot != f.slot || f.last.slots != n {
		f.last = counted{f.slot, n, sources.CountValid(valid)}
	}
	return f.last.values
}

// noValues is n slots without a value.
func noValues(n int) []byte { return make([]byte, n) }

// textRows writes a column of strings or bytes, fewer rows if there is no room for all.
func (d *Decoder) textRows(b *Builder, c *column, row, n int) (int, *fault) {
	col := &b.Columns[c.index]
	src := c.sources[0]
	f := &d.columnar.feeds[src]
	k, most := f.value, len(col.Values)+d.columnar.room
	var valid []byte
	values := 0
	if f.col.Absent {
		valid = noValues(n)
	} else {
		valid, values = f.valid(n), f.values(n)
	}
	col.Values = roomFor(col.Values, f.textBytes(k, values, d.columnar.room)+(n-values)*len(c.defaultBytes), most)
	for i := range n {
		v, present, errors := c.defaultBytes, byte(0), c.errors
		if valid != nil && valid[i] == 0 {
			if !c.hasDefault && !c.mask {
				return i, &fault{column: c, source: src, none: true, reason: "is missing"}
			}
		} else {
			got := f.bytes(k)
			k++
			switch {
			case c.dtype != dataset.String || utf8.Valid(got):
				v, present = got, 1
			case !d.lenient:
				return i, &fault{column: c, source: src, value: got, reason: "is not UTF-8; use dtype: bytes"}
			default:
				c.errors++
			}
		}
		if len(col.Values)+len(v) > most {
			c.errors = errors
			return i, nil
		}
		col.Values = append(col.Values, v...)
		col.RowOffsets[row+i+1] = int64(len(col.Values))
		c.putMask(col.Mask, row+i, present)
	}
	return n, nil
}

// roomFor makes room for `need` bytes more, in one step. There is never memory for more than
// most bytes: append would take a quarter more, and keep what it has while it copies.
func roomFor(b []byte, need, most int) []byte {
	need = min(need, most-len(b))
	if need <= cap(b)-len(b) {
		return b
	}
	return append(make([]byte, 0, min(max(len(b)+need, 2*cap(b)), most)), b...)
}

// textBytes is how many bytes the n values from k on have, or more than most.
func (f *feed) textBytes(k, n, most int) (total int) {
	if n == 0 {
		return 0
	}
	d := f.col.Dict
	if d == nil {
		return int(f.col.Offsets[k+n] - f.col.Offsets[k])
	}
	for i := k; i < k+n; i++ {
		e := f.col.Entry(i)
		if total += int(d.Offsets[e+1] - d.Offsets[e]); total > most {
			break
		}
	}
	return total
}

// bytes is value k of a column of bytes.
func (f *feed) bytes(k int) []byte {
	if d := f.col.Dict; d != nil {
		i := f.col.Entry(k)
		return d.Values[d.Offsets[i]:d.Offsets[i+1]]
	}
	return f.col.Values[f.col.Offsets[k]:f.col.Offsets[k+1]]
}

// listRows writes a ragged column, fewer rows if there is no room for all.
func (d *Decoder) listRows(b *Builder, c *column, row, n, base int) (int, *fault) {
	col, src := &b.Columns[c.index], c.sources[0]
	f := &d.columnar.feeds[src]
	var put listPutter
	need := 0 // bytes, without defaults
	if !f.col.Absent {
		slots := f.slotEnd(base, n) - f.slot
		values := f.values(slots)
		put = newListPutter(d, c, f, values)
		if need = values * c.size; c.text() {
			need = f.textBytes(f.value, values, d.columnar.room)
		}
	}
	slot, value := f.slot, 0
	elements := len(col.Elements)
	most := len(col.Values) + d.columnar.room
	col.Values = roomFor(col.Values, need, most)
	for i := range n {
		had, kept, errors := c.count(col), 0, c.errors
		end := slot
		if !f.col.Absent {
			end = int(f.col.Ends[base+i])
		}
		for ; slot < end; slot++ {
			if len(col.Values)+8*(len(col.Elements)-elements) > most {
				c.errors = errors
				return i, nil
			}
			if f.col.Valid[slot] == 0 {
				if kept >= c.max || d.lenient && !c.hasDefault {
					continue
				}
				if !c.hasDefault {
					return i, &fault{column: c, source: src, none: true, reason: "an element of the list has no value"}
				}
				c.appendDefault(col, nil)
				kept++
				continue
			}
			if kept < c.max {
				switch reason := put(col, value); {
				case reason == "":
					kept++
				case !d.lenient:
					return i, &fault{column: c, source: src, value: f.excerpt(f.value + value), reason: reason}
				default:
					if c.errors++; c.hasDefault {
						c.appendDefault(col, nil)
						kept++
					}
				}
			}
			value++
		}
		present := byte(1)
		if c.count(col) == had {
			if present = 0; c.hasDefault {
				c.appendDefault(col, nil)
			}
		}
		col.RowOffsets[row+i+1] = int64(c.count(col))
		c.putMask(col.Mask, row+i, present)
	}
	return n, nil
}

// listPutter appends value k of those that are converted, or says why it cannot.
type listPutter func(col *frame.Buffers, k int) string

func newListPutter(d *Decoder, c *column, f *feed, values int) listPutter {
	if c.text() {
		return func(col *frame.Buffers, k int) string {
			v := f.bytes(f.value + k)
			if c.dtype == dataset.String && !utf8.Valid(v) {
				return "is not UTF-8; use dtype: bytes"
			}
			c.appendText(col, v)
			return ""
		}
	}
	switch {
	case c.dtype == dataset.Float64:
		return numbersOf[float64](d, c, f, values)
	case c.dtype == dataset.Float32:
		return numbersOf[float32](d, c, f, values)
	case c.dtype == dataset.Int32:
		return numbersOf[int32](d, c, f, values)
	case c.size == 8:
		return numbersOf[int64](d, c, f, values)
	}
	return numbersOf[uint8](d, c, f, values)
}

func numbersOf[D element](d *Decoder, c *column, f *feed, values int) listPutter {
	dense, errs := convertValues[D](d, c, 0, f, values)
	return func(col *frame.Buffers, k int) string {
		if errs != nil && errs[k] != "" {
			return errs[k]
		}
		col.Values = appendBits(col.Values, c.size, bitsOf(dense[k]))
		return ""
	}
}

package parquet

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/headrace/headrace/sources"
)

// Reader reads the rows of one row group, in order. It is used by one goroutine.
type Reader struct {
	f     *File
	paths []Path
	rows  int64 // of the group
	row   int64 // next one
	cols  []*chunk
	un    unpacker
	in    *handle
	limit int64   // bytes that a row may take; 0: any number
	sizes []int64 // scratch
	err   error
	// pace is how many rows the last batch had, if it had fewer than were asked for. Each batch
	// that has as many as were asked for doubles it. 0: no batch had fewer.
	pace int64
}

// handle lets a Reader go on with another handle of the same file.
type handle struct{ io.ReaderAt }

// Read begins a row group. Paths that the file does not have become columns that are
// Absent. Of a group without rows, only the types of the fields are checked: pyarrow writes 0 for
// where its data begins.
func (f *File) Read(r io.ReaderAt, group int, paths []Path) (rd *Reader, err error) {
	defer recovered(&err)
	rd = &Reader{f: f, paths: paths, rows: f.Groups[group].Rows, in: &handle{r}}
	rd.un.most = pageBytes + columnBytes*int64(len(paths))
	for _, p := range paths {
		leaf, err := f.root.find(p)
		if errors.Is(err, errAbsent) {
			rd.cols = append(rd.cols, nil)
			continue
		}
		if err != nil {
			return nil, err
		}
		if rd.rows == 0 { // its metadata may say anything of the data that it does not have
			if _, _, err := leaf.kind(); err != nil {
				return nil, fieldError(p.Text, err)
			}
			rd.cols = append(rd.cols, nil)
			continue
		}
		c, err := f.chunk(rd.in, group, leaf, &rd.un)
		if err != nil {
			return nil, fieldError(p.Text, err)
		}
		rd.cols = append(rd.cols, c)
	}
	return rd, nil
}

// Row is the number of the next row in the group, from 0. Left is how many rows are left, the
// next one included.
func (r *Reader) Row() int64  { return r.row }
func (r *Reader) Left() int64 { return r.rows - r.row }

// Use goes on with another handle of the same file.
func (r *Reader) Use(in io.ReaderAt) { r.in.ReaderAt = in }

// Bound sets how many bytes a row may take, and a function that is called before each page. If
// the function returns an error, reading ends with it.
func (r *Reader) Bound(row int64, check func() error) { r.limit, r.un.check = row, check }

// Close ends the reading. The rows that Next has given stay as they are.
func (r *Reader) Close() {
	r.un.close()
	for i, c := range r.cols {
		if c != nil {
			c.close()
			r.cols[i] = nil
		}
	}
	if r.err == nil {
		r.err = errors.New("the reading was closed")
	}
}

// Failed reports whether reading has ended, by an error or by Close.
func (r *Reader) Failed() bool { return r.err != nil }

// How large a batch is. Batch aims at batchBytes. If rows are larger than the file's metadata
// suggests, Next returns fewer of them: it ends a batch where a column of lists or of texts has
// taken its share of mostBytes. A share is at least 1 MiB.
const (
	batchBytes = 8 << 20
	mostBytes  = 16 << 20
)

// The current pages and the dictionaries of all columns may take pageBytes, and columnBytes more
// for each column.
const (
	pageBytes   = 1 << 30
	columnBytes = 8 << 20
)

// Batch returns how many rows to read at once, at most most. Next may return fewer.
func (r *Reader) Batch(most int) int {
	size := int64(8)
	for _, c := range r.cols {
		if c != nil {
			size = min(size+c.rowBytes(max(r.rows, 1)), 1<<60) // the sum cannot overflow
		}
	}
	n := min(int64(most), r.Left(), batchBytes/max(size, 8))
	if r.pace > 0 {
		n = min(n, r.pace)
	}
	return int(max(1, n))
}

// rowBytes estimates, by the metadata, how many bytes a row of the column takes in a batch.
func (c *chunk) rowBytes(rows int64) int64 {
	const most = 1 << 40
	width := int64(c.leaf.width())
	bytes := min(max(c.meta.unpacked, c.meta.size), most) / rows
	if c.leaf.rep == 0 {
		switch {
		case c.meta.dictionary > 0 && bytes < 3: // nearly all values are entries, mostly of 16 bits
			return 2
		case width == 0:
			return max(bytes, (c.win.end-c.win.at)*4/rows)
		}
		return width
	}
	return max(min(c.meta.values, most)/rows*(max(width, 4)+1), bytes)
}

// Skip passes n rows. It does not unpack a page if the file says that it has only such rows.
func (r *Reader) Skip(n int64) (err error) {
	if r.err != nil {
		return r.err
	}
	defer func() { r.err = err }()
	defer recovered(&err)
	for i, c := range r.cols {
		if c == nil {
			continue
		}
		left := n
		if r.row == 0 && c.rest.rows == 0 && !c.open {
			passed, err := c.jump(r.f, r.rows, n)
			if err != nil {
				return fieldError(r.paths[i].Text, err)
			}
			left -= passed
		}
		if err := c.skip(left); err != nil {
			return fieldError(r.paths[i].Text, err)
		}
	}
	r.row += n
	return nil
}

// Next fills cols, one for each path, with the next rows, and returns how many: at least one,
// and at most n. n is at most Left. If a row is too large, Next returns the rows before it first,
// and then a *RowTooLarge. After an error the columns stand at different rows, so Next and Skip
// return the error again.
func (r *Reader) Next(n int, cols []sources.Column) (rows int, err error) {
	if r.err != nil {
		return 0, r.err
	}
	defer func() { r.err = err }()
	defer recovered(&err)
	rows = n
	l := limits{bytes: r.most(), row: r.limit}
	for i, c := range r.cols {
		col := &cols[i]
		col.Reset()
		if c == nil {
			col.Path, col.Absent, col.List = r.paths[i].Text, true, false
			continue
		}
		had := c.rest.take(col)
		if err := c.leaf.describe(r.paths[i], col); err != nil {
			return 0, err
		}
		if had < rows {
			l.rows = rows
			if had, err = c.read(had, col, l); err != nil {
				return 0, fieldError(col.Path, err)
			}
		}
		if rows, c.rest.rows = min(rows, had), had; rows == 0 {
			return 0, &RowTooLarge{r.row, col.Path, c.big}
		}
	}
	full := rows < n
	if at, e := r.large(cols, rows); e != nil {
		if at == 0 {
			return 0, e
		}
		rows = at
	}
	for i, c := range r.cols {
		switch {
		case c == nil:
		case c.rest.rows > rows || c.open:
			c.rest.keep(&cols[i], rows, c.rest.rows)
		default:
			c.rest.clear()
		}
	}
	if full {
		r.pace = int64(rows)
	} else if r.pace > 0 {
		r.pace = min(2*r.pace, 1<<30)
	}
	r.row += int64(rows)
	return rows, nil
}

// most is how many bytes a column of lists or of texts may take in a batch.
func (r *Reader) most() int {
	n := 1
	for _, c := range r.cols {
		if c != nil && (c.leaf.rep > 0 || c.leaf.width() == 0) {
			n++
		}
	}
	return max(mostBytes/n, 1<<20)
}

// large finds the first row that takes too many bytes; nil: there is none.
func (r *Reader) large(cols []sources.Column, rows int) (int, *RowTooLarge) {
	if r.limit == 0 {
		return 0, nil
	}
	total := int64(0)
	for i, c := range r.cols {
		if c != nil {
			total += c.largest(&cols[i])
		}
	}
	if total <= r.limit {
		return 0, nil
	}
	r.sizes = slices.Grow(r.sizes[:0], rows)[:rows]
	clear(r.sizes)
	for i, c := range r.cols {
		if c != nil {
			addSizes(r.sizes, &cols[i])
		}
	}
	at := slices.IndexFunc(r.sizes, func(n int64) bool { return n > r.limit })
	if at < 0 {
		return 0, nil
	}
	e := &RowTooLarge{Row: r.row + int64(at), Size: r.sizes[at]}
	for i, most := 0, int64(-1); i < len(cols); i++ {
		if r.cols[i] == nil {
			continue
		}
		clear(r.sizes)
		if addSizes(r.sizes, &cols[i]); r.sizes[at] > most {
			e.Column, most = cols[i].Path, r.sizes[at]
		}
	}
	return at, e
}

// largest is an upper bound of the bytes that a row takes in col.
func (c *chunk) largest(col *sources.Column) int64 {
	size := int64(col.Kind.Size())
	switch {
	case !col.List && size > 0:
		return size
	case !col.List && col.Dict != nil:
		return c.longest + 4
	case col.Dict != nil && size == 0:
		return int64(len(col.Valid)) + int64(len(col.Entries)+len(col.Short))*(c.longest+4)
	}
	return int64(len(col.Valid)+len(col.Values)+4*len(col.Offsets)) + size*int64(len(col.Entries)+len(col.Short))
}

// addSizes adds to rows[i] how many bytes row i takes in col.
func addSizes(rows []int64, col *sources.Column) {
	slot, value, size := 0, 0, int64(col.Kind.Size())
	for i := range rows {
		end := slot + 1
		if col.List {
			end = int(col.Ends[i])
		}
		for ; slot < end; slot++ {
			switch {
			case len(col.Valid) > 0 && col.Valid[slot] == 0:
				rows[i]++
				continue
			case size > 0:
				rows[i] += size
			case col.Dict != nil:
				e := col.Entry(value)
				rows[i] += 4 + int64(col.Dict.Offsets[e+1]-col.Dict.Offsets[e])
			default:
				rows[i] += 4 + int64(col.Offsets[value+1]-col.Offsets[value])
			}
			value++
		}
	}
}

// RowTooLarge is a row that takes more bytes than Bound allows.
type RowTooLarge struct {
	Row    int64  // its number in the group
	Column string // the one that takes the most of it
	Size   int64  // as far as the row was read
}

func (e *RowTooLarge) Error() string {
	return fmt.Sprintf("column %s: row %d takes %d bytes or more", e.Column, e.Row, e.Size)
}

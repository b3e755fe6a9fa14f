package parquet

import (
	"errors"
	"io"

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
	skip  []sources.Column // scratch
	err   error
}

// handle lets a Reader go on with another handle of the same file.
type handle struct{ io.ReaderAt }

// Read begins a row group. Paths that the file does not have become columns that are
// Absent.
func (f *File) Read(r io.ReaderAt, group int, paths []Path) (rd *Reader, err error) {
	defer recovered(&err)
	rd = &Reader{f: f, paths: paths, rows: f.Groups[group].Rows, in: &handle{r}}
	for _, p := range paths {
		leaf, err := f.root.find(p)
		if errors.As(err, new(*errAbsent)) {
			rd.cols = append(rd.cols, nil)
			continue
		}
		if err != nil {
			return nil, err
		}
		c, err := f.chunk(rd.in, group, leaf, &rd.un)
		if err != nil {
			return nil, fieldError(p.Text, err)
		}
		rd.cols = append(rd.cols, c)
	}
	return rd, nil
}

// Row is the next row, from the start of the group; Left is how many follow.
func (r *Reader) Row() int64  { return r.row }
func (r *Reader) Left() int64 { return r.rows - r.row }

// Use makes another handle of the same file the one that is read.
func (r *Reader) Use(in io.ReaderAt) { r.in.ReaderAt = in }

func (r *Reader) Close() { r.un.close() }

// Failed: an error was met; the Reader is of no more use.
func (r *Reader) Failed() bool { return r.err != nil }

// batchBytes is about how much the columns of a batch take.
const batchBytes = 4 << 20

// Batch is how many rows to read at once, at most most.
func (r *Reader) Batch(most int) int {
	size := int64(8)
	for _, c := range r.cols {
		if c != nil {
			size += max(int64(c.leaf.width()), (c.win.end-c.win.at)*4/max(r.rows, 1))
		}
	}
	return int(max(1, min(int64(most), r.Left(), batchBytes/size)))
}

// Skip passes n rows. Pages without another row are not unpacked.
func (r *Reader) Skip(n int64) (err error) {
	defer func() { r.err = errors.Join(r.err, err) }()
	defer recovered(&err)
	if r.skip == nil {
		r.skip = make([]sources.Column, len(r.cols))
	}
	for i, c := range r.cols {
		if c == nil {
			continue
		}
		left := n
		if r.row == 0 {
			passed, err := c.jump(r.f, r.rows, n)
			if err != nil {
				return fieldError(r.paths[i].Text, err)
			}
			left -= passed
		}
		if err := r.skipIn(c, &r.skip[i], left); err != nil {
			return fieldError(r.paths[i].Text, err)
		}
	}
	r.row += n
	return nil
}

func (r *Reader) skipIn(c *chunk, scratch *sources.Column, n int64) error {
	for n > 0 {
		passed := int64(0)
		if c.entry == c.entries {
			var err error
			if passed, err = c.load(n); err != nil {
				return short(err)
			}
		}
		if n -= passed; n == 0 {
			return nil
		}
		if err := c.leaf.describe(Path{}, scratch); err != nil {
			return err
		}
		scratch.Reset()
		k := min(n, 4096)
		if c.leaf.rep == 0 {
			k = min(k, int64(c.entries-c.entry))
		}
		if err := c.read(int(k), scratch); err != nil {
			return err
		}
		n -= k
	}
	return nil
}

// Next fills cols, one for each path, with the next n rows; n is at most Left.
func (r *Reader) Next(n int, cols []sources.Column) (err error) {
	defer func() { r.err = errors.Join(r.err, err) }()
	defer recovered(&err)
	for i, c := range r.cols {
		col := &cols[i]
		col.Reset()
		if c == nil {
			col.Path, col.Absent, col.List = r.paths[i].Text, true, false
			continue
		}
		if err := c.leaf.describe(r.paths[i], col); err != nil {
			return err
		}
		if err := c.read(n, col); err != nil {
			return fieldError(col.Path, err)
		}
	}
	r.row += int64(n)
	return nil
}

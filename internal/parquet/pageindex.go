package parquet

import (
	"errors"
	"io"
	"sort"
)

// An offset index says where each data page of a column begins, and with which row of the
// group. With it, a reader that begins in the middle of a group neither reads the headers of the
// pages before nor unpacks them. This also holds for lists, where most headers do not say how
// many rows a page has.

// maxIndex bounds the bytes of one column's index: some 100,000 pages.
const maxIndex = 4 << 20

type pageAt struct{ at, row int64 }

var errIndex = errors.New("its page index does not fit its pages")

// pages reads the offset index of a column; nil: it has none that can be used.
func (f *File) pages(r io.ReaderAt, m *columnChunk, rows int64) ([]pageAt, error) {
	if m.indexAt <= 0 || m.indexSize <= 0 || m.indexSize > maxIndex || m.indexAt > f.size-m.indexSize {
		return nil, nil
	}
	b := make([]byte, m.indexSize)
	if err := readAt(r, b, m.indexAt); err != nil {
		return nil, err
	}
	t := &thrift{b: b}
	var all []pageAt
	t.fields(func(id int16, typ byte) {
		if id != 1 || typ != tList {
			t.skip(typ)
			return
		}
		t.list(func(typ byte) {
			var p pageAt
			t.in(typ, func(id int16, typ byte) {
				switch {
				case id == 1 && typ == tI64:
					p.at = t.int()
				case id == 3 && typ == tI64:
					p.row = t.int()
				default:
					t.skip(typ)
				}
			})
			all = append(all, p)
		})
	})
	if t.bad {
		return nil, errIndex
	}
	end := m.begin() + m.size
	for i, p := range all {
		if p.row < 0 || p.row > rows || p.at < m.begin() || p.at >= end || i == 0 && p.row != 0 || i > 0 && (p.row < all[i-1].row || p.at <= all[i-1].at) {
			return nil, errIndex
		}
	}
	return all, nil
}

// begin is where the column's pages begin.
func (m *columnChunk) begin() int64 {
	if m.dictionary > 0 && m.dictionary < m.dataAt {
		return m.dictionary
	}
	return m.dataAt
}

// jump goes from the beginning of a chunk to the page that holds a row, or to one before it.
// It returns how many rows it has passed.
func (c *chunk) jump(f *File, rows, row int64) (passed int64, err error) {
	pages, err := f.pages(c.win.r, c.meta, rows)
	if err != nil {
		return 0, err
	}
	i := sort.Search(len(pages), func(i int) bool { return pages[i].row > row }) - 1
	if i <= 0 {
		return 0, nil
	}
	if c.win.at < pages[0].at { // the dictionary lies before the data
		h, err := c.win.header()
		if err != nil {
			return 0, err
		}
		if h.typ != dictionaryPage {
			return 0, errIndex
		}
		b, err := c.body(h)
		if err == nil {
			err = c.dictionary(h, b)
		}
		if err != nil {
			return 0, err
		}
	}
	c.win.at = pages[i].at
	if c.leaf.rep == 0 {
		c.left -= pages[i].row
	} else {
		c.jumped = true // how many values were passed is not known
	}
	if c.left < 0 {
		return 0, errIndex
	}
	return pages[i].row, nil
}

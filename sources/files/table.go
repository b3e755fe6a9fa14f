package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"sync"

	"github.com/headrace/headrace/internal/avrofile"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/parquet"
	"github.com/headrace/headrace/sources"
)

// A Parquet file has one segment for each row group, or for a few small ones. Its offsets
// are rows of the file, so a range may begin anywhere; it begins cheaply at a row group,
// and where another range ended.

// tableSegment: row groups are put together up to about so many rows.
const tableSegment = 256 << 10

// tablePaths are the fields that a spec's columns need, each once.
func tablePaths(d dataset.DecodeSpec) ([]parquet.Path, error) {
	var all []parquet.Path
	add := func(list []dataset.Path) {
		for _, p := range list {
			text := p.String()
			if p.Kind == dataset.Pointer && !slices.ContainsFunc(all, func(q parquet.Path) bool { return q.Text == text }) {
				all = append(all, parquet.Path{Text: text, Tokens: p.Tokens, Stars: p.Stars})
			}
		}
	}
	for i := range d.Columns {
		paths, err := d.Columns[i].ExpandPaths(d.Format)
		if err != nil {
			return nil, err
		}
		add(paths)
	}
	if d.EventTime != "" {
		p, err := dataset.ParsePath(d.Format, d.EventTime)
		if err != nil {
			return nil, err
		}
		add([]dataset.Path{p})
	}
	return all, nil
}

// tables remember footers, and row groups that were read in part.
type tables struct {
	footer opened[*parquet.File]
	header opened[*avrofile.File]

	mu     sync.Mutex  // guards what follows
	idle   []idleGroup // the newest last
	closed bool
}

type idleGroup struct {
	id    identity
	group int
	rows  *parquet.Reader
}

// opened keeps what was read of files when they were opened: a footer or a header.
type opened[T any] struct {
	mu  sync.Mutex // guards all
	all map[identity]T
}

const maxOpened = 64

// of returns what is kept of a file, or opens it.
func (o *opened[T]) of(id identity, open func() (T, error)) (T, error) {
	o.mu.Lock()
	t, known := o.all[id]
	o.mu.Unlock()
	if known {
		return t, nil
	}
	t, err := open()
	if err != nil {
		return t, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil || len(o.all) >= maxOpened {
		o.all = map[identity]T{}
	}
	o.all[id] = t
	return t, nil
}

// table gives the footer of a file.
func (s *Source) table(f file, l *locator) (*parquet.File, error) {
	t, err := s.tables.footer.of(l.Identity, func() (*parquet.File, error) { return parquet.Open(f, l.Identity.Size) })
	if err != nil {
		return nil, s.tableError(f, l, sources.Range{}, err)
	}
	return t, nil
}

// tableError names the file. If the file has changed, it returns that instead of err.
func (s *Source) tableError(f file, l *locator, r sources.Range, err error) error {
	if end := s.finish(f, l, r); end != io.EOF {
		return end
	}
	return s.fileError(l.Path, fmt.Errorf("%w", err))
}

func (s *Source) listTable(f file, l locator, st stamp, was listedFile) error {
	if err := s.unchanged(f, l.Path, st); err != nil {
		return err
	}
	t, err := s.table(f, &l)
	if err != nil {
		return err
	}
	if rd, err := readFirst(t, f, s.framing.Paths); err != nil {
		return s.tableError(f, &l, sources.Range{}, err)
	} else if rd != nil {
		rd.Close()
	}
	l.Rows, l.Plain = true, t.Rows
	start := int64(-1)
	for _, g := range t.Groups {
		if g.Rows == 0 || g.Start+g.Rows <= was.end {
			continue
		}
		if start < 0 {
			start = max(g.Start, was.end)
		}
		if l.End = g.Start + g.Rows; l.End-start >= tableSegment {
			s.add(l.Path, start, l)
			start = -1
		}
	}
	if start >= 0 {
		s.add(l.Path, start, l)
	}
	if t.Rows == 0 {
		s.noRecord(l.Path, st)
	}
	s.list.next++
	return nil
}

// readFirst shows whether the wanted fields can be read. It reads no rows. The fields of a file
// without rows may be any: a writer that had no values may not know their types.
func readFirst(t *parquet.File, f io.ReaderAt, paths []parquet.Path) (*parquet.Reader, error) {
	for i, g := range t.Groups {
		if g.Rows > 0 {
			return t.Read(f, i, paths)
		}
	}
	return nil, nil
}

// take gives a reading of the group that is at or before row, or nil.
func (t *tables) take(id identity, group int, row int64, f file) *parquet.Reader {
	t.mu.Lock()
	defer t.mu.Unlock()
	best := -1
	for i, g := range t.idle {
		if g.id == id && g.group == group && g.rows.Row() <= row && (best < 0 || g.rows.Row() > t.idle[best].rows.Row()) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	rd := t.idle[best].rows
	t.idle = slices.Delete(t.idle, best, best+1)
	rd.Use(f)
	return rd
}

func (t *tables) put(id identity, group int, rd *parquet.Reader) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || rd.Failed() || rd.Left() == 0 {
		rd.Close()
		return
	}
	t.idle = append(t.idle, idleGroup{id, group, rd})
	if len(t.idle) > maxIdle {
		t.idle[0].rows.Close()
		t.idle = slices.Delete(t.idle, 0, 1)
	}
}

func (t *tables) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.idle {
		g.rows.Close()
	}
	t.idle, t.closed = nil, true
}

// tableCursor reads the rows [row, end) of a file.
type tableCursor struct {
	src      *Source
	f        file
	loc      *locator
	r        sources.Range
	table    *parquet.File
	row, end int64
	group    int
	rows     *parquet.Reader // of the group; nil: not begun
	ctx      context.Context // of the current Next
	err      error
}

func (s *Source) openTable(f file, l *locator, r sources.Range, from sources.Position) (sources.Cursor, error) {
	t, err := s.table(f, l)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	c := &tableCursor{src: s, f: f, loc: l, r: r, table: t, row: max(r.Start, from.Offset, 0), end: min(r.End, l.End, t.Rows)}
	c.group = sort.Search(len(t.Groups), func(i int) bool { return t.Groups[i].Start+t.Groups[i].Rows > c.row })
	return c, nil
}

func (c *tableCursor) Close() error {
	c.leave()
	return c.f.Close()
}

func (c *tableCursor) leave() {
	if c.rows != nil {
		c.src.tables.put(c.loc.Identity, c.group, c.rows)
		c.rows = nil
	}
}

func (c *tableCursor) Next(ctx context.Context, b *sources.Batch) error {
	cols := b.Columns
	b.Reset()
	if len(cols) != len(c.src.framing.Paths) {
		cols = make([]sources.Column, len(c.src.framing.Paths))
	}
	b.Columns = cols // also without rows: the next cursor's rows go where these were
	during(c.f, ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.err != nil {
		return c.err
	}
	if c.row >= c.end {
		for i := range cols {
			cols[i].Reset() // so that others may use its dictionary's memory
		}
		c.err = c.src.finish(c.f, c.loc, c.r)
		return c.err
	}
	c.ctx = ctx
	n, err := c.read(cols)
	if ctx.Err() != nil {
		c.leave() // its columns may stand at different rows; the next call begins at c.row
		return ctx.Err()
	}
	if large, ok := errors.AsType[*parquet.RowTooLarge](err); ok {
		err = c.tooLarge(large)
		c.err = err
		return err
	}
	if err != nil {
		c.err = c.src.tableError(c.f, c.loc, c.r, fmt.Errorf("row group %d, from row %d on: %w", c.group, c.row, err))
		return c.err
	}
	b.FirstRow, b.Rows = c.row, n
	c.row += int64(n)
	if b.End = c.row; c.row >= c.end {
		b.End = c.r.End
	}
	return nil
}

// tableBatch is the most rows of a batch.
const tableBatch = 64 << 10

var errNoRows = errors.New("it has fewer rows than when it was listed")

func (c *tableCursor) read(cols []sources.Column) (int, error) {
	for c.rows == nil || c.rows.Left() == 0 {
		if c.rows != nil {
			c.leave()
			c.group++
		}
		for c.group < len(c.table.Groups) && c.table.Groups[c.group].Rows == 0 {
			c.group++
		}
		if c.group >= len(c.table.Groups) {
			return 0, errNoRows
		}
		if err := c.begin(); err != nil {
			return 0, err
		}
	}
	return c.rows.Next(c.rows.Batch(int(min(tableBatch, c.end-c.row))), cols)
}

func (c *tableCursor) begin() error {
	at := c.row - c.table.Groups[c.group].Start
	if c.rows = c.src.tables.take(c.loc.Identity, c.group, at, c.f); c.rows == nil {
		var err error
		if c.rows, err = c.table.Read(c.f, c.group, c.src.framing.Paths); err != nil {
			return err
		}
	}
	c.rows.Bound(int64(c.src.spec.MaxRecord), func() error { return c.ctx.Err() })
	if n := at - c.rows.Row(); n > 0 {
		return c.rows.Skip(n)
	}
	return nil
}

func (c *tableCursor) tooLarge(e *parquet.RowTooLarge) error {
	if end := c.src.finish(c.f, c.loc, c.r); end != io.EOF {
		return end
	}
	row := c.table.Groups[c.group].Start + e.Row
	return &sources.TooLarge{Partition: c.r.Partition, Position: sources.Position{Segment: c.r.Segment, Offset: row},
		Name: c.loc.Path, In: fmt.Sprintf("row group %d, column %s", c.group, e.Column), Size: e.Size, Limit: int64(c.src.spec.MaxRecord), Next: row + 1}
}

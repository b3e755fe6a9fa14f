package files

import (
	"context"
	"fmt"
	"io"
	"sort"

	"github.com/headrace/headrace/internal/avrofile"
	"github.com/headrace/headrace/sources"
)

// An Avro container file has one segment for about each 64 MiB. Its offsets are rows of the
// file. Listing reads the heads of all blocks, and notes in each locator where a block begins
// about every MiB: a range opens at the block before its first row.

// headsAtOnce is how many heads are read, or rows skipped, between two checks of the context.
const headsAtOnce = 1 << 10

// rowPoint is where a block begins: its first row, and its place in the file.
type rowPoint struct{ row, at int64 }

// container gives the header of a file.
func (s *Source) container(f file, l *locator) (*avrofile.File, error) {
	c, err := s.tables.header.of(l.Identity, func() (*avrofile.File, error) { return avrofile.Open(f, l.Identity.Size) })
	if err != nil {
		return nil, s.tableError(f, l, sources.Range{}, err)
	}
	return c, nil
}

func (s *Source) listContainer(ctx context.Context, f file, l locator, st stamp, was listedFile) error {
	if err := s.unchanged(f, l.Path, st); err != nil {
		return err
	}
	c, err := s.container(f, &l)
	if err != nil {
		return err
	}
	type piece struct {
		start, end int64
		points     []rowPoint
	}
	var pieces []piece
	var now piece
	row, began := int64(0), c.Data
	for at, heads := c.Data, 0; ; heads++ {
		if heads%headsAtOnce == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		b, err := c.Block(f, at)
		if err == io.EOF {
			break
		}
		if err != nil {
			return s.tableError(f, &l, sources.Range{}, err)
		}
		if b.Rows > maxContainerRows-row {
			return s.tableError(f, &l, sources.Range{}, fmt.Errorf("the block at byte %d has %d records, and the file more than %d", b.At, b.Rows, int64(maxContainerRows)))
		}
		if n := len(now.points); n == 0 || at-now.points[n-1].at >= s.blocks.every {
			now.points = append(now.points, rowPoint{row, at})
		}
		row, at = row+b.Rows, b.Next
		if now.end = row; at-began >= s.blocks.segment {
			pieces, now, began = append(pieces, now), piece{start: row}, at
		}
	}
	if now.end > now.start {
		pieces = append(pieces, now)
	}
	if err := s.unchanged(f, l.Path, st); err != nil {
		return err
	}
	l.Rows, l.Plain = true, row
	for _, p := range pieces {
		if p.end > was.end && p.start < p.end {
			l.End, l.Points = p.end, p.points
			s.add(l.Path, max(p.start, was.end), l)
		}
	}
	if row == 0 {
		s.noRecord(l.Path, st)
	}
	s.list.next++
	return nil
}

// maxContainerRows is the most rows of a file. With more, sums of offsets could overflow the
// core's positions.
const maxContainerRows = 1 << 50

// containerCursor reads the rows [row, end) of a file.
type containerCursor struct {
	src      *Source
	f        file
	loc      *locator
	r        sources.Range
	c        *avrofile.File
	row, end int64
	next     int64           // where the next block begins
	left     int64           // rows of the block that are not read
	plain    []byte          // the block
	at       int             // in it
	ctx      context.Context // of the current Next
	err      error
}

var _ sources.Headed = (*containerCursor)(nil)

// Header is the schema of the file's writer.
func (c *containerCursor) Header() []byte { return c.c.Schema }

func (s *Source) openContainer(f file, l *locator, r sources.Range, from sources.Position) (sources.Cursor, error) {
	h, err := s.container(f, l)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	c := &containerCursor{src: s, f: f, loc: l, r: r, c: h, end: min(r.End, l.End, l.Plain)}
	c.row = max(r.Start, from.Offset, 0)
	if len(l.Points) > 0 {
		c.row = max(c.row, l.Points[0].row)
	}
	return c, nil
}

func (c *containerCursor) Close() error { return c.f.Close() }

// seek finds the block of the first row, and skips the rows before it.
func (c *containerCursor) seek() error {
	points := c.loc.Points
	i := sort.Search(len(points), func(i int) bool { return points[i].row > c.row })
	if i == 0 {
		return errLocator
	}
	row := points[i-1].row
	c.next = points[i-1].at
	for heads := 1; ; heads++ {
		if heads%headsAtOnce == 0 && c.ctx.Err() != nil {
			return c.ctx.Err()
		}
		b, err := c.c.Block(c.f, c.next)
		switch {
		case err == io.EOF:
			return errNoRows
		case err != nil:
			return err
		case row+b.Rows > c.row:
			return c.begin(b, c.row-row)
		}
		row, c.next = row+b.Rows, b.Next
	}
}

// begin reads a block, and skips its first rows.
func (c *containerCursor) begin(b avrofile.Block, skip int64) (err error) {
	if c.plain, err = c.c.Read(c.f, b, c.plain); err != nil {
		return err
	}
	c.next, c.left, c.at = b.Next, b.Rows, 0
	for ; skip > 0; skip-- {
		if skip%headsAtOnce == 0 && c.ctx.Err() != nil {
			return c.ctx.Err()
		}
		if c.at, err = c.c.End(c.plain, c.at); err != nil {
			return err
		}
		c.left--
	}
	return nil
}

// more goes to the next block that has rows if all rows of this one are read.
func (c *containerCursor) more() error {
	if c.next == 0 {
		return c.seek()
	}
	for c.left == 0 {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if c.at != len(c.plain) {
			return fmt.Errorf("%d bytes are left after the last record of the block before byte %d", len(c.plain)-c.at, c.next)
		}
		b, err := c.c.Block(c.f, c.next)
		if err == io.EOF {
			return errNoRows
		}
		if err == nil {
			err = c.begin(b, 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *containerCursor) Next(ctx context.Context, b *sources.Batch) error {
	b.Reset()
	during(c.f, ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.err != nil {
		return c.err
	}
	if c.row >= c.end {
		c.err = c.src.finish(c.f, c.loc, c.r)
		return c.err
	}
	c.ctx = ctx
	if err := c.more(); err != nil {
		if ctx.Err() != nil {
			c.next = 0 // where it stands is not known
			return ctx.Err()
		}
		c.err = c.src.tableError(c.f, c.loc, c.r, fmt.Errorf("row %d: %w", c.row, err))
		return c.err
	}
	if c.err = c.fill(b); len(b.Recs) == 0 {
		return c.err
	}
	last := &b.Recs[len(b.Recs)-1]
	if c.row >= c.end {
		last.Next = c.r.End
	}
	b.End = last.Next
	return nil
}

// fill takes rows of the block. If a row is bad, its error comes after the rows before it.
func (c *containerCursor) fill(b *sources.Batch) error {
	from := c.at
	for c.left > 0 && c.row < c.end && len(b.Recs) < c.src.blocks.records && int64(c.at-from) < c.src.blocks.read {
		end, err := c.c.End(c.plain, c.at)
		if err != nil {
			b.Arena = append(b.Arena, c.plain[from:c.at]...)
			return c.src.tableError(c.f, c.loc, c.r, fmt.Errorf("row %d: %w", c.row, err))
		}
		if size := int64(end - c.at); size > int64(c.src.spec.MaxRecord) {
			b.Arena = append(b.Arena, c.plain[from:c.at]...)
			return &sources.TooLarge{Partition: c.r.Partition, Position: sources.Position{Segment: c.r.Segment, Offset: c.row},
				Name: c.loc.Path, Size: size, Limit: int64(c.src.spec.MaxRecord), Next: c.row + 1, Value: sources.ValueOf(c.plain[c.at:end])}
		}
		b.Recs = append(b.Recs, sources.Record{Offset: c.row, Next: c.row + 1, Value: [2]int32{int32(c.at - from), int32(end - from)}})
		c.at, c.row, c.left = end, c.row+1, c.left-1
	}
	b.Arena = append(b.Arena, c.plain[from:c.at]...)
	return nil
}

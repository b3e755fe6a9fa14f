package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"

	"github.com/headrace/headrace/internal/tfrecord"
	"github.com/headrace/headrace/sources"
)

// lineEndings is how many bytes a line or a TFRecord may have at most besides its record.
const lineEndings = tfrecord.Head + tfrecord.Tail

// cursor reads the records that begin in [from, end) of one file. The bytes go
// from the file into the batch's arena and are not moved again.
type cursor struct {
	src     *Source
	f       file // for its stamp
	data    content
	loc     *locator
	r       sources.Range
	header  []byte
	framer  framer
	from    int64 // records that begin before it are not given
	at      int64 // a record begins here, unless midLine
	end     int64 // no record that begins here or later is given
	midLine bool  // at is inside a line: the first record begins after its end
	block   int64
	rest    []byte // of the arena, after its last record
	err     error  // what Next answers from now on
}

var _ sources.Headed = (*cursor)(nil)

// Open verifies that the file is the one that was planned, on every call.
func (s *Source) Open(ctx context.Context, r sources.Range, from sources.Position, loc []byte) (sources.Cursor, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if r.Partition != s.partition {
		return nil, s.notMine(r.Partition)
	}
	if s.spec.live() && len(loc) == 0 {
		return nil, s.forgotten(r)
	}
	l, err := decodeLocator(loc)
	if err != nil {
		return nil, fmt.Errorf("%s: segment %d: %w", s.partition, r.Segment, err)
	}
	if l.Root != s.spec.Root {
		return nil, fmt.Errorf("%s: segment %d lies in root %s, and this host's spec has root %s", s.partition, r.Segment, l.Root, s.spec.Root)
	}
	f, err := s.openPlanned(ctx, r, l)
	if err != nil {
		return nil, err
	}
	during(f, ctx)
	if l.Rows != s.framing.Kind.rows() || (len(l.Points) > 0) != (s.framing.Kind == Container) {
		_ = f.Close()
		return nil, fmt.Errorf("%s: segment %d: %w", s.partition, r.Segment, errLocator)
	}
	if s.framing.Kind == Container {
		return s.openContainer(f, l, r, from)
	}
	if l.Rows {
		return s.openTable(f, l, r, from)
	}
	c := &cursor{src: s, f: f, loc: l, r: r, framer: framer{framing: s.framing}, block: s.blocks.read,
		from: max(r.Start, from.Offset, l.Data), end: min(r.End, l.End)}
	c.data = s.contentOf(f, l, max(0, min(c.from, c.end)-1))
	if c.header, err = s.headerOf(c.data, l); err != nil {
		_ = c.Close()
		return nil, s.contentError(l.Path, err)
	}
	c.seek()
	return c, nil
}

// contentOf is what records of the file are cut from; off is where reading will begin.
func (s *Source) contentOf(f file, l *locator, off int64) content {
	if l.Codec == noCodec {
		return &plain{f, l.Identity.Size}
	}
	u := s.idle.take(l.Path, l.Identity, off, f)
	if u == nil {
		u = newUnpacked(f, l.Identity.Size, l.Codec, s.pointsFor(l))
	}
	if l.Plain >= 0 {
		u.size = l.Plain
	}
	return u
}

// seek goes to the last place at or before from where a record is known to
// begin, or for lines to the byte before it.
func (c *cursor) seek() {
	c.at = c.from
	switch {
	case c.from >= c.end:
	case c.framer.framing.Kind.indexed() && len(c.loc.Starts) > 0:
		starts := c.loc.Starts
		c.from = max(c.from, starts[0])
		i := sort.Search(len(starts), func(i int) bool { return starts[i] > c.from })
		c.at = starts[i-1]
	case c.framer.framing.Kind == Fixed:
		size := int64(c.framer.framing.Size)
		c.at = (c.from + size - 1) / size * size
		c.from = c.at
	case c.framer.framing.Kind == Lines && c.from > c.loc.Data:
		c.at, c.midLine = c.from-1, true
	}
}

func (c *cursor) Header() []byte { return c.header }

func (c *cursor) Close() error {
	if u, ok := c.data.(*unpacked); ok {
		return c.src.idle.put(c.loc.Path, c.loc.Identity, u)
	}
	return c.data.Close()
}

func (c *cursor) Next(ctx context.Context, b *sources.Batch) error {
	b.Reset()
	during(c.f, ctx)
	for c.err == nil && len(b.Recs) == 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		if c.at >= c.end {
			c.err = c.finish()
			break
		}
		if c.framer.framing.Kind == Whole {
			c.err = c.whole(b)
		} else {
			c.err = c.fill(ctx, b)
		}
		if err := ctx.Err(); err != nil && errors.Is(c.err, err) {
			c.err = nil
			return err
		}
	}
	if len(b.Recs) > 0 { // an error that comes after them is for the next call
		c.settle(b)
		return nil
	}
	return c.err
}

// finish is called when all is read. If the file is no longer the same, records of two states
// of it may have been read.
func (c *cursor) finish() error { return c.src.finish(c.f, c.loc, c.r) }

func (s *Source) finish(f file, l *locator, r sources.Range) error {
	now, err := f.stamp()
	if errors.Is(err, fs.ErrNotExist) {
		return s.goneError(r, l)
	}
	if err != nil {
		return s.fileError(l.Path, err)
	}
	now.Inode = l.Identity.Inode
	if what := l.Identity.differs(now); what != "" {
		return &sources.Changed{Range: r, Name: l.Path, What: what}
	}
	return io.EOF
}

// fill reads one block and cuts it into records. If the first record does not end in the block,
// it reads more.
func (c *cursor) fill(ctx context.Context, b *sources.Batch) error {
	n := min(c.block, c.end-c.at+c.src.blocks.overrun, c.data.Size()-c.at)
	have := int64(0)
	for {
		var err error
		if n, err = c.read(b, have, n); err != nil {
			return err
		}
		have = n
		used, err := c.frame(ctx, b, c.at+n == c.data.Size())
		if err != nil {
			return err
		}
		if used > 0 {
			c.at += int64(used)
			c.rest = b.Arena[used:]
			return nil
		}
		if passed, err := c.tooLong(ctx, n); passed || err != nil {
			return err
		}
		n = min(c.longer(n), c.data.Size()-c.at)
	}
}

// read fills the arena with the n bytes from c.at on. The first have of them are in it already.
// It returns how many there are: fewer than n only at the end of a compressed file's content.
func (c *cursor) read(b *sources.Batch, have, n int64) (int64, error) {
	if int64(cap(b.Arena)) < n {
		bigger := make([]byte, n)
		copy(bigger, b.Arena[:have])
		b.Arena = bigger
	}
	b.Arena = b.Arena[:n]
	k, err := readFull(c.data, b.Arena[have:], c.at+have)
	if c.loc.Codec != noCodec && errors.Is(err, errShort) && c.at+have+int64(k) >= c.loc.End {
		n, err = have+int64(k), nil
		b.Arena = b.Arena[:n]
	}
	return n, c.readError(err)
}

func (c *cursor) readError(err error) error {
	if err == nil {
		return nil
	}
	if moved := c.src.moved(c.f, c.loc, c.r, err); moved != nil {
		return moved
	}
	now, statErr := c.f.stamp()
	if !errors.Is(err, errShort) && (statErr != nil || now.Size >= c.loc.Identity.Size) {
		return c.src.contentError(c.loc.Path, err)
	}
	if statErr != nil {
		return c.src.fileError(c.loc.Path, statErr)
	}
	if c.loc.Codec != noCodec {
		return c.packedShort(now)
	}
	lost := c.r
	lost.Start = min(max(lost.Start, now.Size), lost.End)
	return &sources.Truncated{Lost: lost, Name: c.loc.Path,
		Err: fmt.Errorf("the file was cut to %d bytes while it was read, it had %d: restore it, or delete the dataset and apply it again", now.Size, c.loc.Identity.Size)}
}

// packedShort: a compressed file gives less than it did when it was listed.
func (c *cursor) packedShort(now stamp) error {
	what := "it unpacks to fewer bytes than when it was listed"
	now.Inode = c.loc.Identity.Inode
	if differs := c.loc.Identity.differs(now); differs != "" {
		what = differs
	}
	return &sources.Changed{Range: c.r, Name: c.loc.Path, What: what}
}

// frame appends the records of the arena that begin before end, and returns how many bytes of
// the arena it has used. Zero: the first record does not end in the arena.
func (c *cursor) frame(ctx context.Context, b *sources.Batch, last bool) (used int, err error) {
	c.framer.reset()
	buf := b.Arena
	if c.midLine {
		if used = c.skipLine(buf); c.midLine {
			return used, nil
		}
	}
	stop := int(min(c.end-c.at, int64(len(buf))))
	limit := int(c.src.spec.MaxRecord)
	for used < stop && len(b.Recs) < c.src.blocks.records {
		value, next, state := c.framer.record(buf, used, last)
		if state == damaged && used == 0 {
			return 0, c.malformed(c.at, c.framer.wrong)
		}
		if state != complete {
			return used, nil
		}
		first := used + c.framer.head(buf, used)
		switch begins := c.at + int64(used); {
		case begins < c.from:
		case value-first > limit:
			if len(b.Recs) > 0 {
				return used, nil
			}
			return used, c.over(ctx, begins)
		case c.framer.framing.Kind == TFRecord && tfrecordData(buf, first, value) != "":
			if len(b.Recs) > 0 {
				return used, nil
			}
			wrong := c.malformed(begins, tfrecordData(buf, first, value))
			wrong.Next, wrong.Value, wrong.Size = min(c.at+int64(next), c.r.End), sources.ValueOf(buf[first:value]), int64(value-first)
			return used, wrong
		case value == used && !c.framer.framing.EmptyLines:
			if n := len(b.Recs); n > 0 {
				b.Recs[n-1].Next = c.at + int64(next)
			}
		default:
			b.Recs = append(b.Recs, sources.Record{Offset: begins, Next: c.at + int64(next), Value: [2]int32{int32(first), int32(value)}})
		}
		used = next
	}
	c.adapt(b, used)
	return used, nil
}

// skipLine skips the rest of the record that begins before the range.
func (c *cursor) skipLine(buf []byte) int {
	fr := framer{framing: Framing{Kind: Lines}}
	_, next, st := fr.record(buf, 0, false)
	if st != complete {
		return len(buf)
	}
	c.midLine = false
	return next
}

// adapt makes blocks smaller if a block has more records than a batch.
func (c *cursor) adapt(b *sources.Batch, used int) {
	switch {
	case len(b.Recs) == c.src.blocks.records:
		c.block = max(c.src.blocks.read/16, int64(used+used/4))
	case c.block < c.src.blocks.read:
		c.block = min(c.src.blocks.read, 2*c.block)
	}
}

// longer returns how much to read if n bytes hold no whole record: twice as much, but no more
// than is needed to see that the record is too large.
func (c *cursor) longer(n int64) int64 {
	return min(2*n, int64(c.src.spec.MaxRecord)+lineEndings+1)
}

// tooLong judges a record that does not end in the n bytes from c.at. If it is over the limit
// and begins before the range, tooLong skips it: another reader reports it.
func (c *cursor) tooLong(ctx context.Context, n int64) (passed bool, err error) {
	if n > int64(c.src.spec.MaxRecord)+lineEndings {
		err := c.over(ctx, c.at)
		if large, ok := errors.AsType[*sources.TooLarge](err); ok && c.at < c.from && large.Next > 0 {
			c.at, c.rest = large.Next, nil
			return true, nil
		}
		return false, err
	}
	if c.at+n == c.data.Size() {
		return false, c.malformed(c.at, c.framer.framing.unfinished())
	}
	return false, nil
}

// over returns the error for the record that begins at at and is longer than max_record.
func (c *cursor) over(ctx context.Context, at int64) error {
	o, err := c.src.over(ctx, at, c.some)
	if err != nil {
		return err
	}
	large := c.large(at, o.size)
	if large.Value = o.value; o.end <= c.data.Size() {
		large.Next = min(o.end, c.r.End)
	}
	return large
}

// some reads the content at an offset. It fills b, except at the content's end.
func (c *cursor) some(b []byte, at int64) (int, error) {
	b = b[:max(0, min(int64(len(b)), c.data.Size()-at))]
	n, err := readFull(c.data, b, at)
	if c.loc.Codec != noCodec && errors.Is(err, errShort) && at+int64(n) >= c.loc.End {
		return n, nil
	}
	return n, c.readError(err)
}

func (c *cursor) malformed(at int64, what string) *sources.Malformed {
	return &sources.Malformed{Position: c.position(at), Name: c.loc.Path, What: what}
}

func (c *cursor) large(at, size int64) *sources.TooLarge {
	return &sources.TooLarge{Partition: c.r.Partition, Position: c.position(at), Name: c.loc.Path, Size: size, Limit: int64(c.src.spec.MaxRecord)}
}

func (c *cursor) position(at int64) sources.Position {
	return sources.Position{Segment: c.r.Segment, Offset: at}
}

// whole reads the file as one record.
func (c *cursor) whole(b *sources.Batch) error {
	size := c.data.Size()
	if c.from > 0 || size == 0 { // the record begins in another range
		c.at = c.end
		return nil
	}
	if size > int64(c.src.spec.MaxRecord) {
		buf := make([]byte, min(size, overRoom))
		n, err := c.some(buf, 0)
		if err != nil {
			return err
		}
		large := c.large(0, size)
		large.Next, large.Value = min(size, c.r.End), sources.ValueOf(buf[:n])
		return large
	}
	if _, err := c.read(b, 0, size); err != nil {
		return err
	}
	b.Recs = append(b.Recs, sources.Record{Next: size, Value: [2]int32{0, int32(size)}})
	c.at = c.end
	return nil
}

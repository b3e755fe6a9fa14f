package files

import (
	"errors"

	"github.com/headrace/headrace/sources"
)

// settle sets the end of the batch: after the empty lines that follow its last record, even if
// they are in another block, but never outside the range.
func (c *cursor) settle(b *sources.Batch) {
	last := &b.Recs[len(b.Recs)-1]
	if c.mayBeEmpty() {
		c.err = c.skipEmpty()
		last.Next = max(last.Next, c.at)
	}
	if c.at >= c.end {
		last.Next = c.r.End
	}
	b.End = last.Next
}

// mayBeEmpty reports whether the line at c.at may be an empty one that is no record. It looks
// only at the rest of the arena.
func (c *cursor) mayBeEmpty() bool {
	if c.at >= c.end || c.framer.framing.EmptyLines || c.framer.framing.Kind == Whole {
		return false
	}
	switch rest := c.rest; {
	case len(rest) == 0:
		return true
	case rest[0] == '\r':
		return len(rest) == 1 || rest[1] == '\n'
	default:
		return rest[0] == '\n'
	}
}

// skipEmpty skips empty lines.
func (c *cursor) skipEmpty() error {
	buf := make([]byte, max(16, c.src.blocks.read/16))
	for c.at < c.end {
		n := min(int64(len(buf)), c.data.Size()-c.at)
		k, err := readFull(c.data, buf[:n], c.at)
		if c.loc.Codec != noCodec && errors.Is(err, errShort) && c.at+int64(k) >= c.loc.End {
			n, err = int64(k), nil
		}
		if err != nil {
			return c.readError(err)
		}
		i := emptyLines(buf[:n], c.at+n == c.data.Size())
		c.at += int64(i)
		if int64(i) < n-1 || i == 0 { // a \r may be left, whose \n is not read yet
			return nil
		}
	}
	return nil
}

// emptyLines counts the bytes of the empty lines that buf begins with.
func emptyLines(buf []byte, last bool) int {
	i := 0
	for i < len(buf) {
		switch {
		case buf[i] == '\n':
			i++
		case buf[i] == '\r' && i+1 < len(buf) && buf[i+1] == '\n':
			i += 2
		case buf[i] == '\r' && i+1 == len(buf) && last:
			i++
		default:
			return i
		}
	}
	return i
}

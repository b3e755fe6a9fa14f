package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"github.com/headrace/headrace/sources"
)

// chunk reads one column of one row group, page by page.
type chunk struct {
	leaf  *node
	codec int32
	win   window
	un    *unpacker
	taken int64 // this column's part of un.taken
	left  int64 // values of the pages that were not begun; nulls count
	meta  *columnChunk
	// jumped: jump has passed pages of lists. How many values they have is not known, so left
	// is too large.
	jumped bool

	dict    *sources.Dictionary
	longest int64 // bytes of the longest entry of dict
	// The current page. Its entries are values, nulls or empty lists.
	page    []byte // unpacked; reused
	entries int    // whose levels were read
	entry   int    // the next of them
	more    int    // entries after them, whose levels were not read yet
	repRuns hybrid
	defRuns hybrid
	full    bool   // the page has no null, and no list
	reps    []byte // by entry; empty if there are no lists
	defs    []byte // by entry; empty if full
	vals    values
	coding  coding
	in      hybrid // of inDict and inRuns: the values that were not read yet
	index   []uint32
	val     int // next one of vals

	rest rest // rows that were read and not given yet
	// Lists are read entry by entry, and the last row that was read may go on.
	open      bool
	openBytes int64 // of that row, as far as it was read
	big       int64 // not 0: the row after those of rest is too large. Its bytes, as far as it was read
}

// coding says how the values of a page lie there.
type coding uint8

const (
	inVals coding = iota // in vals
	inDict               // entries of the dictionary, in runs
	inRuns               // bools, in runs
)

const (
	maxEntries = 1 << 26 // of a page
	maxLevels  = 1 << 20 // that are kept at once, because a page of a few bytes may have maxEntries
)

func (f *File) chunk(r io.ReaderAt, group int, leaf *node, un *unpacker) (*chunk, error) {
	m := &f.meta.groups[group].columns[leaf.leaf]
	switch {
	case m.encrypted:
		return nil, ErrEncrypted
	case m.elsewhere:
		return nil, errors.New("its data lies in another file, which is not supported")
	case !m.hasMeta:
		return nil, errors.New("it has no metadata")
	}
	if _, _, err := leaf.kind(); err != nil { // only kind checks the length of fixedBytes
		return nil, err
	}
	if err := checkCodec(m.codec); err != nil {
		return nil, err
	}
	at := m.begin()
	if at < 4 || m.size < 0 || m.size > f.size || at > f.size-m.size || m.values < 0 {
		return nil, errors.New("its data does not lie in the file: the file is damaged")
	}
	return &chunk{leaf: leaf, codec: m.codec, win: window{r: r, at: at, end: at + m.size}, un: un, left: m.values, meta: m}, nil
}

// load goes on to the next page if the current one has no entry left. It passes pages whose rows
// are all among the next skip rows, and returns how many rows they have. If these are all skip
// rows, it ends there, without an entry. After the last page it returns io.EOF.
func (c *chunk) load(skip int64) (passed int64, err error) {
	for c.entry == c.entries {
		if c.un.check != nil {
			if err := c.un.check(); err != nil {
				return passed, err
			}
		}
		if c.more > 0 {
			if _, err := c.levels(); err != nil {
				return passed, err
			}
			continue
		}
		if c.left == 0 || c.jumped && c.win.at == c.win.end {
			return passed, io.EOF
		}
		h, err := c.win.header()
		if err != nil {
			return passed, err
		}
		if h.typ == dataPage || h.typ == dataPageV2 {
			if !h.hasData || int64(h.values) > c.left || h.values > maxEntries {
				return passed, errPageHeader
			}
			rows := int64(h.values)
			if c.leaf.rep > 0 {
				rows = int64(h.rows) // V2 says it; V1 does not
			}
			if (c.leaf.rep == 0 || h.typ == dataPageV2 && h.rows > 0) && rows <= skip-passed {
				c.win.at += int64(h.packed)
				c.left -= int64(h.values)
				passed += rows
				if passed == skip && skip > 0 {
					return passed, nil
				}
				continue
			}
		}
		b, err := c.body(h)
		if err != nil {
			return passed, err
		}
		switch h.typ {
		case dictionaryPage:
			err = c.dictionary(h, b)
		case dataPage:
			err = c.dataV1(h, b)
		case dataPageV2:
			err = c.dataV2(h, b)
		}
		if err == nil {
			err = c.account()
		}
		if err != nil {
			return passed, err
		}
	}
	return passed, nil
}

// close leaves the column's buffers to others.
func (c *chunk) close() {
	c.win.close()
	leave(c.page)
	leave(c.reps)
	leave(c.defs)
	c.vals.leave()
	if c.dict != nil {
		c.dict.Release()
	}
	c.page, c.reps, c.defs, c.dict = nil, nil, nil, nil
}

// account counts the memory of the current page and of the dictionary.
func (c *chunk) account() error {
	now := int64(cap(c.page)+cap(c.win.b)+cap(c.reps)+cap(c.defs)+len(c.vals.data)) + 4*int64(len(c.vals.offsets))
	if c.dict != nil {
		now += int64(len(c.dict.Values)) + 4*int64(len(c.dict.Offsets))
	}
	c.un.taken += now - c.taken
	if c.taken = now; c.un.taken+int64(cap(c.un.packed)) > c.un.most {
		return fmt.Errorf("the current pages of all columns take more than %d MiB; read fewer columns, or write the file with smaller pages", c.un.most>>20)
	}
	return nil
}

// unpack returns the size bytes that b unpacks to. They lie in c.page, or in the window if the
// column is not compressed.
func (c *chunk) unpack(b []byte, size int) ([]byte, error) {
	if c.codec == uncompressed {
		return c.un.unpack(c.codec, nil, b, size)
	}
	to := c.page
	c.page = nil // room may leave it to others, also before an error
	b, err := c.un.unpack(c.codec, to, b, size)
	if err == nil {
		c.page = b
	}
	return b, err
}

func (c *chunk) dictionary(h pageHeader, b []byte) error {
	switch {
	case !h.hasData || h.encoding != plainEncoding && h.encoding != plainDictionary || c.leaf.typ == boolean:
		return errors.New("its dictionary is damaged")
	case c.dict != nil:
		return errors.New("it has two dictionaries")
	}
	size, alone := int(h.unpacked), c.leaf.typ != byteArray
	var err error
	switch {
	case !alone || c.codec == uncompressed:
		b, err = c.unpack(b, size)
	case c.codec == brotliCodec || !fits(c.codec, b, size):
		b, err = c.un.unpack(c.codec, nil, b, size)
	default: // users of the dictionary keep the values, so c.page is no place for them
		b, err = c.un.unpack(c.codec, take(size), b, size)
	}
	if err != nil {
		return err
	}
	v, err := c.leaf.decode(b, int(h.values), plainEncoding)
	if err != nil {
		return err
	}
	if alone && c.codec == uncompressed { // b lies in the window, which is reused
		v.data = append(take(len(v.data))[:0], v.data...)
	}
	c.dict = share(v)
	for i := range v.offsets[min(1, len(v.offsets)):] {
		c.longest = max(c.longest, int64(v.offsets[i+1]-v.offsets[i]))
	}
	return nil
}

func (c *chunk) dataV1(h pageHeader, b []byte) error {
	b, err := c.unpack(b, int(h.unpacked))
	if err != nil {
		return err
	}
	part := func(name int) ([]byte, error) {
		if h.levels[name] != rleEncoding {
			return nil, errors.New("its levels have an old encoding that is not supported")
		}
		if len(b) < 4 || int64(binary.LittleEndian.Uint32(b)) > int64(len(b)-4) {
			return nil, errShortPage
		}
		n := 4 + int(binary.LittleEndian.Uint32(b))
		levels := b[4:n]
		b = b[n:]
		return levels, nil
	}
	var reps, defs []byte
	if c.leaf.rep > 0 {
		if reps, err = part(1); err != nil {
			return err
		}
	}
	if c.leaf.def > 0 {
		if defs, err = part(0); err != nil {
			return err
		}
	}
	return c.begin(h, reps, defs, b)
}

func (c *chunk) dataV2(h pageHeader, b []byte) error {
	n := int64(h.repBytes) + int64(h.defBytes)
	if h.repBytes < 0 || h.defBytes < 0 || n > int64(len(b)) || n > int64(h.unpacked) {
		return errPageHeader
	}
	reps, defs, rest := b[:h.repBytes], b[h.repBytes:n], b[n:]
	if !h.plain {
		var err error
		if rest, err = c.unpack(rest, int(int64(h.unpacked)-n)); err != nil {
			return err
		}
	}
	return c.begin(h, reps, defs, rest)
}

// begin decodes the levels and the values of a page.
func (c *chunk) begin(h pageHeader, reps, defs, b []byte) error {
	n := int(h.values)
	c.entries, c.entry, c.val, c.more = 0, 0, 0, n
	c.left -= int64(n)
	c.repRuns = newHybrid(reps, uint(bits.Len(uint(c.leaf.rep))))
	c.defRuns = newHybrid(defs, uint(bits.Len(uint(c.leaf.def))))
	c.full = c.leaf.rep == 0 && (c.leaf.def == 0 || allFull(defs, n, c.leaf.def))
	count, err := c.levels()
	if err == nil && c.more > 0 {
		count, err = countLevels(defs, n, c.leaf.def)
	}
	if err != nil {
		return err
	}
	c.vals.leave()
	switch {
	case h.encoding == rleDictionary || h.encoding == plainDictionary:
		if c.coding = inDict; c.dict == nil {
			return errors.New("its dictionary is missing")
		}
		if count == 0 {
			return nil
		}
		if len(b) == 0 || b[0] > 32 {
			return errShortPage
		}
		c.in = newHybrid(b[1:], uint(b[0]))
	case h.encoding == rleEncoding && c.leaf.typ == boolean:
		c.coding = inRuns
		c.in, err = boolRuns(b)
	default:
		c.coding = inVals
		c.vals, err = c.leaf.decode(b, count, h.encoding)
	}
	return err
}

// levels reads the levels of the next entries, and counts the entries that have a value.
func (c *chunk) levels() (count int, err error) {
	n := c.more
	c.reps, c.defs = c.reps[:0], c.defs[:0]
	if count = n; !c.full {
		n = min(n, maxLevels)
		if c.leaf.rep > 0 {
			c.reps = room(c.reps, n)
			if _, err := c.repRuns.levels(c.reps, c.leaf.rep); err != nil {
				return 0, err
			}
		}
		c.defs = room(c.defs, n)
		if count, err = c.defRuns.levels(c.defs, c.leaf.def); err != nil {
			return 0, err
		}
	}
	c.entries, c.entry, c.more = n, 0, c.more-n
	return count, nil
}

// entriesOf fills out with the numbers of the next values' entries in the dictionary.
func entriesOf[T uint16 | uint32](c *chunk, out []T) error {
	beyond, err := read(&c.in, out, c.dict.Len)
	if err == nil && beyond {
		err = fmt.Errorf("a value is none of the %d entries of its dictionary", c.dict.Len)
	}
	return err
}

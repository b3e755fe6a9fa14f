package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/headrace/headrace/sources"
)

// chunk reads one column of one row group, page by page.
type chunk struct {
	leaf  *node
	codec int32
	win   window
	un    *unpacker
	left  int64 // values (nulls counted) of pages that were not begun
	meta  *columnChunk
	// jumped: pages of lists were passed by their index, and left is more than is left.
	jumped bool

	dict *sources.Dictionary
	// The current page: entries from entry on are left. An entry is a value, a null, or
	// an empty list.
	page    []byte // unpacked; reused
	entries int
	entry   int
	reps    []byte // by entry; empty if there are no lists
	defs    []byte // by entry; empty if the page has no null
	vals    values
	coded   bool   // in counts, and not vals
	in      hybrid // entries of the dictionary that are left
	index   []uint32
	val     int // next one of vals
}

const maxEntries = 1 << 26 // of a page

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
	if err := checkCodec(m.codec); err != nil {
		return nil, err
	}
	at := m.begin()
	if at < 4 || m.size < 0 || m.size > f.size || at > f.size-m.size || m.values < 0 {
		return nil, errors.New("it does not lie in the file")
	}
	return &chunk{leaf: leaf, codec: m.codec, win: window{r: r, at: at, end: at + m.size}, un: un, left: m.values, meta: m}, nil
}

// load begins the next page that has values. skip is how many rows are not wanted: pages
// that hold no other ones are passed, and counted in passed.
func (c *chunk) load(skip int64) (passed int64, err error) {
	for c.entry == c.entries {
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
				if passed == skip {
					return passed, nil
				}
				continue
			}
		}
		b, err := c.win.body(h)
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
		if err != nil {
			return passed, err
		}
	}
	return passed, nil
}

func (c *chunk) dictionary(h pageHeader, b []byte) error {
	if !h.hasData || h.encoding != plainEncoding && h.encoding != plainDictionary || c.leaf.typ == boolean {
		return errors.New("its dictionary is damaged")
	}
	b, err := c.un.unpack(c.codec, nil, b, int(h.unpacked))
	if err != nil {
		return err
	}
	v, err := c.leaf.decode(b, int(h.values), plainEncoding)
	if err != nil {
		return err
	}
	if c.codec == uncompressed { // b is the window's memory
		v.data = append([]byte(nil), v.data...)
	}
	c.dict = &sources.Dictionary{Len: v.n, Values: v.data, Offsets: v.offsets}
	return nil
}

func (c *chunk) dataV1(h pageHeader, b []byte) error {
	b, err := c.un.unpack(c.codec, c.page, b, int(h.unpacked))
	if err != nil {
		return err
	}
	if c.codec != uncompressed {
		c.page = b
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
		if rest, err = c.un.unpack(c.codec, c.page, rest, int(int64(h.unpacked)-n)); err != nil {
			return err
		}
		if c.codec != uncompressed {
			c.page = rest
		}
	}
	return c.begin(h, reps, defs, rest)
}

// begin decodes the levels and the values of a page.
func (c *chunk) begin(h pageHeader, reps, defs, b []byte) error {
	n := int(h.values)
	c.entries, c.entry, c.val = n, 0, 0
	c.reps, c.defs = c.reps[:0], c.defs[:0]
	if c.leaf.rep > 0 {
		c.reps = room(c.reps, n)
		if _, err := readLevels(reps, c.reps, c.leaf.rep); err != nil {
			return err
		}
	}
	count := n
	if c.leaf.def > 0 && (c.leaf.rep > 0 || !allFull(defs, n, c.leaf.def)) {
		c.defs = room(c.defs, n)
		var err error
		if count, err = readLevels(defs, c.defs, c.leaf.def); err != nil {
			return err
		}
	}
	c.left -= int64(n)
	if c.coded = h.encoding == rleDictionary || h.encoding == plainDictionary; !c.coded {
		var err error
		c.vals, err = c.leaf.decode(b, count, h.encoding)
		return err
	}
	if c.dict == nil {
		return errors.New("its dictionary is missing")
	}
	if count == 0 {
		return nil
	}
	if len(b) == 0 || b[0] > 32 {
		return errShortPage
	}
	c.in = newHybrid(b[1:], uint(b[0]))
	return nil
}

// coding fills out with the entries of the dictionary that come next.
func (c *chunk) coding(out []uint32) error {
	if err := c.in.read(out); err != nil {
		return err
	}
	if most := highest(out); most >= uint32(c.dict.Len) {
		return fmt.Errorf("a value is entry %d of a dictionary of %d", most, c.dict.Len)
	}
	return nil
}

// highest is the largest number, of one or more. Four comparisons at a time do not wait for each other.
func highest(all []uint32) uint32 {
	var a, b, c, d uint32
	for ; len(all) >= 4; all = all[4:] {
		a, b, c, d = max(a, all[0]), max(b, all[1]), max(c, all[2]), max(d, all[3])
	}
	for _, v := range all {
		a = max(a, v)
	}
	return max(a, b, c, d)
}

// read appends n rows to col. The caller knows that there are so many.
func (c *chunk) read(n int, col *sources.Column) error {
	if c.leaf.rep > 0 {
		return c.readLists(n, col)
	}
	for done := 0; n > 0; {
		if _, err := c.load(0); err != nil {
			return short(err)
		}
		k := min(n, c.entries-c.entry)
		values := k
		switch {
		case len(c.defs) > 0:
			col.Valid = appendOnes(col.Valid, done-len(col.Valid))
			col.Valid = append(col.Valid, c.defs[c.entry:c.entry+k]...)
			valid := col.Valid[done:]
			if c.leaf.def > 1 {
				areFull(valid, byte(c.leaf.def))
			}
			values = sources.CountValid(valid)
		case len(col.Valid) > 0:
			col.Valid = appendOnes(col.Valid, k)
		}
		c.entry += k
		done += k
		n -= k
		if err := c.give(values, col); err != nil {
			return err
		}
	}
	return nil
}

func appendOnes(b []byte, n int) []byte {
	for ; n > 0; n-- {
		b = append(b, 1)
	}
	return b
}

// areFull makes 1 of levels that are full, and 0 of others.
func areFull(levels []byte, full byte) {
	for i, d := range levels {
		levels[i] = 0
		if d == full {
			levels[i] = 1
		}
	}
}

func (c *chunk) readLists(n int, col *sources.Column) error {
	slots, open := int32(len(col.Valid)), false
	for {
		_, err := c.load(0)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		values, from := 0, c.entry
		for ; c.entry < c.entries; c.entry++ {
			if c.reps[c.entry] == 0 {
				if open {
					col.Ends = append(col.Ends, slots)
					n--
				}
				if open = n > 0; !open {
					break
				}
			} else if !open {
				return errors.New("a row's list goes on where no row began")
			}
			d := c.defs[c.entry] // a repeated field has a level
			if d < byte(c.leaf.slot) {
				continue
			}
			slots++
			v := byte(0)
			if d == byte(c.leaf.def) {
				v = 1
				values++
			}
			col.Valid = append(col.Valid, v)
		}
		if err := c.give(values, col); err != nil {
			return err
		}
		if c.entry < c.entries || !open && c.entry == from {
			return nil
		}
	}
	if open {
		col.Ends = append(col.Ends, slots)
		n--
	}
	if n > 0 {
		return errShortColumn
	}
	return nil
}

var errShortColumn = errors.New("it has fewer rows than its row group")

func short(err error) error {
	if err == io.EOF {
		return errShortColumn
	}
	return err
}

// maxBytes is what one column of a batch may take.
const maxBytes = 1 << 30

// give appends the next k values of the page to col.
func (c *chunk) give(k int, col *sources.Column) error {
	if k == 0 {
		return nil
	}
	if c.coded {
		if col.Dict == nil && (len(col.Values) > 0 || len(col.Offsets) > 1) {
			if cap(c.index) < k {
				c.index = make([]uint32, k)
			}
			if err := c.coding(c.index[:k]); err != nil {
				return err
			}
			return spread(col, c.dict, c.index[:k])
		}
		if col.Dict != nil && col.Dict != c.dict {
			return errors.New("it has two dictionaries")
		}
		at := len(col.Entries)
		col.Dict, col.Entries = c.dict, slices.Grow(col.Entries, k)[:at+k]
		return c.coding(col.Entries[at:])
	}
	from := c.val
	c.val += k
	if col.Dict != nil { // a writer gave its dictionary up in the middle
		d, index := col.Dict, col.Entries
		col.Dict, col.Entries = nil, nil
		if err := spread(col, d, index); err != nil {
			return err
		}
	}
	if size := col.Kind.Size(); size > 0 {
		col.Values = append(col.Values, c.vals.data[size*from:size*c.val]...)
		return nil
	}
	return appendBytes(col, c.vals.data, c.vals.offsets[from:c.val+1])
}

func appendBytes(col *sources.Column, data []byte, offsets []int32) error {
	if len(col.Offsets) == 0 {
		col.Offsets = append(col.Offsets, 0)
	}
	base, first := int32(len(col.Values)), offsets[0]
	data = data[first:offsets[len(offsets)-1]]
	if len(col.Values)+len(data) > maxBytes {
		return errors.New("the values of a few rows take more than 1 GiB")
	}
	col.Values = append(col.Values, data...)
	for _, o := range offsets[1:] {
		col.Offsets = append(col.Offsets, base+o-first)
	}
	return nil
}

// spread appends entries of a dictionary as values.
func spread(col *sources.Column, d *sources.Dictionary, index []uint32) error {
	size := col.Kind.Size()
	for _, i := range index {
		if size > 0 {
			col.Values = append(col.Values, d.Values[size*int(i):size*int(i+1)]...)
		} else if err := appendBytes(col, d.Values, d.Offsets[i:i+2]); err != nil {
			return err
		}
	}
	return nil
}

package parquet

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"github.com/headrace/headrace/sources"
)

// How the rows of one column are read. A batch ends where the first of its columns has no more
// room. Rows that other columns have read beyond that are kept for the next batch. Example:
// column a has read 1,000 rows, and then b has room for 400. The batch has 400, and a keeps 600.

// limits of what is read at once.
type limits struct {
	rows  int   // of the batch
	bytes int   // of one column of it; it is exceeded rather than divide the first row
	row   int64 // bytes of a row; 0: any number
}

// stretch is how many entries of a list are read before the limits are checked again. If a column
// is full in the middle of its first row, it still reads that row to its end. Then it checks
// after fullStretch entries or about stretchBytes.
const (
	stretch      = 4096
	fullStretch  = 64
	stretchBytes = 1 << 20
)

// rest holds rows of a column that were read and not given yet. If the column is open, the part
// of its last row that was read comes after them.
type rest struct {
	col  sources.Column
	rows int
}

// read appends rows to col, which has some already, up to the limits. It returns how many rows
// col has then: at least one, unless the first row is too large. It ends before a row that is
// too large (big), and before a page whose values cannot be appended to those of col (joins).
func (c *chunk) read(have int, col *sources.Column, l limits) (int, error) {
	if c.leaf.rep > 0 {
		return c.readLists(have, col, l)
	}
	for have < l.rows {
		if _, err := c.load(0); err != nil {
			return have, short(err)
		}
		if have > 0 && !c.joins(col) {
			break
		}
		k := c.fit(min(l.rows-have, c.entries-c.entry), col, l.bytes)
		if k == 0 && have > 0 {
			break
		}
		k = max(k, 1)
		values := k
		switch {
		case len(c.defs) > 0:
			if len(col.Valid) == 0 {
				col.Valid = slices.Grow(col.Valid, min(l.rows, maxRoom))
			}
			col.Valid = appendOnes(col.Valid, have-len(col.Valid))
			col.Valid = append(col.Valid, c.defs[c.entry:c.entry+k]...)
			valid := col.Valid[have:]
			if c.leaf.def > 1 {
				areFull(valid, byte(c.leaf.def))
			}
			values = sources.CountValid(valid)
		case len(col.Valid) > 0:
			col.Valid = appendOnes(col.Valid, k)
		}
		c.entry += k
		have += k
		if c.coding == inDict {
			c.roomForEntries(col, min(l.rows, maxRoom))
		}
		if err := c.give(values, col); err != nil {
			return have, err
		}
	}
	return have, nil
}

// maxRoom is how many rows a column gets room for at once.
const maxRoom = 64 << 10

// roomForEntries makes room for the first n entries of a column, in one step.
func (c *chunk) roomForEntries(col *sources.Column, n int) {
	switch short := c.dict.Len <= sources.ShortEntries; {
	case short && cap(col.Short) == 0:
		col.Short = make([]uint16, 0, n)
	case !short && cap(col.Entries) == 0:
		col.Entries = make([]uint32, 0, n)
	}
}

func appendOnes(b []byte, n int) []byte {
	for ; n > 0; n-- {
		b = append(b, 1)
	}
	return b
}

// areFull replaces each level by 1 if it is equal to full, else by 0.
func areFull(levels []byte, full byte) {
	for i, d := range levels {
		levels[i] = 0
		if d == full {
			levels[i] = 1
		}
	}
}

// taken is how many bytes col has.
func taken(col *sources.Column) int {
	return len(col.Values) + 4*(len(col.Offsets)+len(col.Entries)) + 2*len(col.Short) + len(col.Valid)
}

// stretch returns how many entries of a list to read next, one or more. full: col has no room
// for them.
func (c *chunk) stretch(col *sources.Column, most int) (k int, full bool) {
	left := c.entries - c.entry
	if k = c.fit(min(stretch, left), col, most); k == 0 {
		k, full = max(1, c.fit(min(fullStretch, left), col, taken(col)+stretchBytes)), true
	}
	if !c.joins(col) { // entries of a dictionary become values, each of up to longest bytes
		k = min(k, max(1, stretchBytes/int(c.longest+8)))
	}
	return k, full
}

// fit returns how many of the next k entries to append, so that col has about most bytes.
func (c *chunk) fit(k int, col *sources.Column, most int) int {
	have := taken(col)
	if c.coding != inVals || len(c.vals.offsets) == 0 {
		if have < most {
			return k
		}
		return 0
	}
	for o := c.vals.offsets; k > 0; k /= 2 {
		values := k
		if len(c.defs) > 0 {
			values = bytes.Count(c.defs[c.entry:c.entry+k], []byte{byte(c.leaf.def)})
		}
		if have+int(o[c.val+values]-o[c.val]) <= most {
			break
		}
	}
	return k
}

func (c *chunk) readLists(have int, col *sources.Column, l limits) (int, error) {
	if c.big > 0 {
		return have, nil
	}
	for {
		_, err := c.load(0)
		if err == io.EOF {
			break
		}
		if err != nil {
			return have, err
		}
		if !c.joins(col) {
			if have > 0 {
				return have, nil
			}
			if err := c.spread(col, l.row); err != nil || c.big > 0 {
				return 0, err
			}
		}
		k, full := c.stretch(col, l.bytes)
		if full && have > 0 {
			return have, nil
		}
		most := l.rows
		if full {
			most = 1
		}
		values, ofOpen, done := 0, 0, false
		slots := int32(len(col.Valid))
		for end := c.entry + k; c.entry < end; c.entry++ {
			if c.reps[c.entry] == 0 {
				if c.open {
					col.Ends = append(col.Ends, slots)
					have++
				}
				c.open, c.openBytes, ofOpen = have < most, 0, values
				if done = !c.open; done {
					break
				}
			} else if !c.open {
				return have, errors.New("a row's list goes on where no row began")
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
			} else {
				c.openBytes++
			}
			col.Valid = append(col.Valid, v)
		}
		if err := c.give(values, col); err != nil || done {
			return have, err
		}
		c.openBytes += sizeOf(col, values-ofOpen)
		if l.row > 0 && c.openBytes > l.row {
			c.big = c.openBytes
			return have, nil
		}
	}
	if c.open {
		col.Ends = append(col.Ends, int32(len(col.Valid)))
		c.open = false
		have++
	}
	if have < l.rows {
		return have, errShortColumn
	}
	return have, nil
}

var errShortColumn = errors.New("it has fewer rows than its row group")

func short(err error) error {
	if err == io.EOF {
		return errShortColumn
	}
	return err
}

// sizeOf is what the last n values of col take, as PLAIN writes them.
func sizeOf(col *sources.Column, n int) int64 {
	if size := col.Kind.Size(); size > 0 {
		return int64(size * n)
	}
	total := int64(4 * n)
	switch {
	case n == 0:
	case col.Dict != nil:
		for i := range n {
			e := col.Entry(max(len(col.Entries), len(col.Short)) - 1 - i)
			total += int64(col.Dict.Offsets[e+1] - col.Dict.Offsets[e])
		}
	default:
		total += int64(col.Offsets[len(col.Offsets)-1] - col.Offsets[len(col.Offsets)-1-n])
	}
	return total
}

// joins reports whether the values of the page can be appended to col as they are.
func (c *chunk) joins(col *sources.Column) bool {
	if c.coding == inDict {
		return col.Dict != nil || len(col.Values) == 0 && len(col.Offsets) <= 1
	}
	return len(col.Entries)+len(col.Short) == 0
}

// give appends the next k values of the page to col.
func (c *chunk) give(k int, col *sources.Column) error {
	if k == 0 {
		return nil
	}
	from := c.val
	c.val += k
	switch c.coding {
	case inDict:
		if !c.joins(col) {
			if cap(c.index) < k {
				c.index = make([]uint32, k)
			}
			index := c.index[:k]
			if err := entriesOf(c, index); err != nil {
				return err
			}
			return appendEntries(col, c.dict, index)
		}
		col.Use(c.dict)
		if c.dict.Len <= sources.ShortEntries {
			at := len(col.Short)
			col.Short = slices.Grow(col.Short, k)[:at+k]
			return entriesOf(c, col.Short[at:])
		}
		at := len(col.Entries)
		col.Entries = slices.Grow(col.Entries, k)[:at+k]
		return entriesOf(c, col.Entries[at:])
	case inRuns:
		at := len(col.Values)
		col.Use(nil)
		col.Values = slices.Grow(col.Values, k)[:at+k]
		_, err := c.in.levels(col.Values[at:], 1)
		return err
	}
	col.Use(nil)
	if size := col.Kind.Size(); size > 0 {
		col.Values = append(col.Values, c.vals.data[size*from:size*c.val]...)
		return nil
	}
	return appendBytes(col, c.vals.data, c.vals.offsets[from:c.val+1])
}

// pass passes the next k values of the page.
func (c *chunk) pass(k int) error {
	c.val += k
	for k > 0 && c.coding != inVals {
		n := min(k, stretch)
		if cap(c.index) < n {
			c.index = make([]uint32, n)
		}
		if _, err := read(&c.in, c.index[:n], 0); err != nil {
			return err
		}
		k -= n
	}
	return nil
}

// maxBytes is what one column of a batch may take.
const maxBytes = 1 << 30

func appendBytes(col *sources.Column, data []byte, offsets []int32) error {
	if len(col.Offsets) == 0 {
		col.Offsets = append(col.Offsets, 0)
	}
	base, first := int32(len(col.Values)), offsets[0]
	data = data[first:offsets[len(offsets)-1]]
	if len(col.Values)+len(data) > maxBytes {
		return errors.New("the values of a row take more than 1 GiB")
	}
	col.Values = append(col.Values, data...)
	for _, o := range offsets[1:] {
		col.Offsets = append(col.Offsets, base+o-first)
	}
	return nil
}

// spread replaces the entries in col by their values. col has a part of one row, and the writer
// gave up its dictionary in the middle of that row. In the opposite case, a row begins with
// values and goes on with entries. Then give appends the values of those entries.
func (c *chunk) spread(col *sources.Column, most int64) error {
	d, index, short := col.Dict, col.Entries, col.Short
	if d == nil {
		return nil
	}
	if size := sizeOf(col, len(index)+len(short)); most > 0 && size > most {
		c.big = size
		return nil
	}
	col.Entries, col.Short = nil, nil
	err := appendEntries(col, d, index)
	if err == nil {
		err = appendEntries(col, d, short)
	}
	col.Use(nil)
	return err
}

// appendEntries appends entries of a dictionary to col as values.
func appendEntries[T uint16 | uint32](col *sources.Column, d *sources.Dictionary, index []T) error {
	for _, e := range index {
		i := int(e)
		if size := col.Kind.Size(); size > 0 {
			col.Values = append(col.Values, d.Values[size*i:size*(i+1)]...)
		} else if err := appendBytes(col, d.Values, d.Offsets[i:i+2]); err != nil {
			return err
		}
	}
	return nil
}

// skip passes n rows, those of rest first.
func (c *chunk) skip(n int64) error {
	if k := int(min(n, int64(c.rest.rows))); k > 0 {
		n -= int64(k)
		var col sources.Column
		rows := c.rest.take(&col)
		col.Kind, col.List = c.rest.col.Kind, c.leaf.rep > 0
		c.rest.keep(&col, k, rows)
		col.Use(nil)
	}
	if n == 0 {
		return nil
	}
	c.rest.clear()
	c.big = 0
	if c.leaf.rep > 0 {
		return c.skipLists(n)
	}
	for n > 0 {
		passed, err := c.load(n)
		if err != nil {
			return short(err)
		}
		n -= passed
		k := int(min(n, int64(c.entries-c.entry)))
		values := k
		if len(c.defs) > 0 {
			values = bytes.Count(c.defs[c.entry:c.entry+k], []byte{byte(c.leaf.def)})
		}
		c.entry += k
		n -= int64(k)
		if err := c.pass(values); err != nil {
			return err
		}
	}
	return nil
}

// skipLists passes n rows. If a row is open, it is the first of them.
func (c *chunk) skipLists(n int64) error {
	for n > 0 || c.open {
		pages := n
		if c.open {
			pages = 0
		}
		passed, err := c.load(pages)
		if n -= passed; err == io.EOF && c.open {
			c.open, err = false, nil
			n--
		}
		switch {
		case err == io.EOF && n > 0:
			return errShortColumn
		case err != nil:
			return err
		}
		values, done := 0, false
		for ; c.entry < c.entries; c.entry++ {
			if c.reps[c.entry] == 0 {
				if c.open {
					n--
				}
				if c.open = n > 0; !c.open {
					done = true
					break
				}
			} else if !c.open {
				return errors.New("a row's list goes on where no row began")
			}
			if c.defs[c.entry] == byte(c.leaf.def) {
				values++
			}
		}
		if err := c.pass(values); err != nil || done {
			return err
		}
	}
	return nil
}

// take moves what is kept to col, which is empty, and returns how many rows that is. If nothing
// is kept, col keeps its own memory, so the next batch is written where the last one was.
func (r *rest) take(col *sources.Column) int {
	n, k := r.rows, &r.col
	if n == 0 && k.Dict == nil && len(k.Ends)+len(k.Valid)+len(k.Values)+len(k.Offsets)+len(k.Entries)+len(k.Short) == 0 {
		return 0
	}
	col.Ends, k.Ends = k.Ends, col.Ends
	col.Valid, k.Valid = k.Valid, col.Valid
	col.Values, k.Values = k.Values, col.Values
	col.Offsets, k.Offsets = k.Offsets, col.Offsets
	col.Entries, k.Entries = k.Entries, col.Entries
	col.Short, k.Short = k.Short, col.Short
	col.Use(k.Dict)
	r.clear()
	return n
}

func (r *rest) clear() {
	r.col.Reset()
	r.rows = 0
}

// keep cuts col, which has rows rows, after the first n, and keeps the others.
func (r *rest) keep(col *sources.Column, n, rows int) {
	r.clear()
	k := &r.col
	k.Kind, r.rows = col.Kind, rows-n
	slots := n
	if col.List {
		if slots = 0; n > 0 {
			slots = int(col.Ends[n-1])
		}
		for _, e := range col.Ends[n:] {
			k.Ends = append(k.Ends, e-int32(slots))
		}
		col.Ends = col.Ends[:n]
	}
	values := slots
	if len(col.Valid) > 0 {
		values = sources.CountValid(col.Valid[:slots])
		k.Valid = append(k.Valid, col.Valid[slots:]...)
		col.Valid = col.Valid[:slots]
	}
	size := col.Kind.Size()
	switch {
	case col.Dict != nil && len(col.Short) > 0:
		k.Use(col.Dict)
		k.Short = append(k.Short, col.Short[values:]...)
		col.Short = col.Short[:values]
	case col.Dict != nil:
		k.Use(col.Dict)
		k.Entries = append(k.Entries, col.Entries[values:]...)
		col.Entries = col.Entries[:values]
	case size > 0:
		k.Values = append(k.Values, col.Values[size*values:]...)
		col.Values = col.Values[:size*values]
	case len(col.Offsets) > 0:
		at := col.Offsets[values]
		for _, o := range col.Offsets[values:] {
			k.Offsets = append(k.Offsets, o-at)
		}
		k.Values = append(k.Values, col.Values[at:]...)
		col.Offsets, col.Values = col.Offsets[:values+1], col.Values[:at]
	}
}

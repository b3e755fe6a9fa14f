package parquet

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// A writer of small files that no library would write.

type compact struct {
	b    []byte
	last []int16
}

func (w *compact) field(id int16, typ byte) {
	n := len(w.last) - 1
	w.b = append(w.b, byte(id-w.last[n])<<4|typ)
	w.last[n] = id
}
func (w *compact) zigzag(v int64)            { w.b = binary.AppendUvarint(w.b, uint64(v)<<1^uint64(v>>63)) }
func (w *compact) i32(id int16, v int64)     { w.field(id, tI32); w.zigzag(v) }
func (w *compact) i64(id int16, v int64)     { w.field(id, tI64); w.zigzag(v) }
func (w *compact) binary(id int16, s string) { w.field(id, tBinary); w.text(s) }
func (w *compact) text(s string)             { w.b = append(binary.AppendUvarint(w.b, uint64(len(s))), s...) }
func (w *compact) begin()                    { w.last = append(w.last, 0) }
func (w *compact) end()                      { w.b, w.last = append(w.b, 0), w.last[:len(w.last)-1] }
func (w *compact) list(id int16, typ byte, n int) {
	w.field(id, tList)
	if n < 15 {
		w.b = append(w.b, byte(n)<<4|typ)
	} else {
		w.b = binary.AppendUvarint(append(w.b, 0xF0|typ), uint64(n))
	}
}

// writtenPage is a data page of a column: the levels and values as they lie in it.
type writtenPage struct {
	entries    int
	encoding   int64
	reps, defs []byte
	values     []byte
	v2         bool // version 2, not compressed whatever the codec; not for lists
}

// writtenColumn is an optional field, or an optional list of optional elements.
type writtenColumn struct {
	name   string
	typ    physical
	length int64 // of fixedBytes
	list   bool
	dict   [][]byte // PLAIN, without lengths
	pages  []writtenPage
	codec  int64
	values int64 // as the footer says; 0: those of the pages
}

func header(typ pageType, size int, fields func(w *compact)) []byte {
	w := &compact{}
	w.begin()
	w.i32(1, int64(typ))
	w.i32(2, int64(size))
	w.i32(3, int64(size))
	fields(w)
	w.end()
	return w.b
}

func plainOf(typ physical, values [][]byte) (b []byte) {
	for _, v := range values {
		if typ == byteArray {
			b = binary.LittleEndian.AppendUint32(b, uint32(len(v)))
		}
		b = append(b, v...)
	}
	return b
}

// writeFile writes one row group.
func writeFile(rows int64, cols ...writtenColumn) []byte {
	file := []byte(magic)
	type place struct{ at, data, dict, values int64 }
	places := make([]place, len(cols))
	for i, c := range cols {
		p := &places[i]
		if p.at = int64(len(file)); c.dict != nil {
			p.dict = p.at
			b := plainOf(c.typ, c.dict)
			file = append(file, header(dictionaryPage, len(b), func(w *compact) {
				w.field(7, tStruct)
				w.begin()
				w.i32(1, int64(len(c.dict)))
				w.i32(2, plainEncoding)
				w.end()
			})...)
			file = append(file, b...)
		}
		p.data = int64(len(file))
		for _, page := range c.pages {
			p.values += int64(page.entries)
			if page.v2 {
				b := slices.Concat(page.defs, page.values)
				file = append(file, header(dataPageV2, len(b), func(w *compact) {
					w.field(8, tStruct)
					w.begin()
					w.i32(1, int64(page.entries))
					w.i32(3, int64(page.entries))
					w.i32(4, page.encoding)
					w.i32(5, int64(len(page.defs)))
					w.field(7, tFalse)
					w.end()
				})...)
				file = append(file, b...)
				continue
			}
			var b []byte
			if c.list {
				b = append(binary.LittleEndian.AppendUint32(b, uint32(len(page.reps))), page.reps...)
			}
			b = append(binary.LittleEndian.AppendUint32(b, uint32(len(page.defs))), page.defs...)
			b = append(b, page.values...)
			file = append(file, header(dataPage, len(b), func(w *compact) {
				w.field(5, tStruct)
				w.begin()
				w.i32(1, int64(page.entries))
				w.i32(2, page.encoding)
				w.i32(3, rleEncoding)
				w.i32(4, rleEncoding)
				w.end()
			})...)
			file = append(file, b...)
		}
		if c.values > 0 {
			p.values = c.values
		}
	}
	end := int64(len(file))
	w := &compact{}
	w.begin()
	w.i32(1, 1)
	elements := 1
	for _, c := range cols {
		if elements++; c.list {
			elements += 2
		}
	}
	w.list(2, tStruct, elements)
	element := func(name string, typ physical, length, repetition, children, converted int64) {
		w.begin()
		if children == 0 {
			w.i32(1, int64(typ))
		}
		if length != 0 {
			w.i32(2, length)
		}
		w.i32(3, repetition)
		w.binary(4, name)
		if children > 0 {
			w.i32(5, children)
		}
		if converted > 0 {
			w.i32(6, converted)
		}
		w.end()
	}
	element("schema", 0, 0, 0, int64(len(cols)), 0)
	for _, c := range cols {
		if c.list {
			element(c.name, 0, 0, 1, 1, 3)
			element("list", 0, 0, 2, 1, 0)
			element("element", c.typ, c.length, 1, 0, 0)
		} else {
			element(c.name, c.typ, c.length, 1, 0, 0)
		}
	}
	w.i64(3, rows)
	w.list(4, tStruct, 1)
	w.begin()
	w.list(1, tStruct, len(cols))
	for i, c := range cols {
		p := places[i]
		size := end - p.at
		if i+1 < len(places) {
			size = places[i+1].at - p.at
		}
		w.begin()
		w.i64(2, p.at)
		w.field(3, tStruct)
		w.begin()
		w.i32(4, c.codec)
		w.i64(5, p.values)
		w.i64(6, size)
		w.i64(7, size)
		w.i64(9, p.data)
		if p.dict > 0 {
			w.i64(11, p.dict)
		}
		w.end()
		w.end()
	}
	w.i64(3, rows)
	w.end()
	w.end()
	file = append(file, w.b...)
	file = binary.LittleEndian.AppendUint32(file, uint32(len(w.b)))
	return append(file, magic...)
}

// run writes one level, or one entry of a dictionary of up to 256, n times.
func run(n int, v byte) []byte { return append(binary.AppendUvarint(nil, uint64(n)<<1), v) }

// pagesOf appends pages with these rows of lists (nil: null) to c. A page has that many entries, so a
// row may go on on the next one. From page plainFrom on, values are not entries of the dictionary.
func pagesOf(c *writtenColumn, rows [][][]byte, entries, plainFrom int) {
	type entry struct {
		rep, def byte
		value    []byte
	}
	var all []entry
	for _, row := range rows {
		switch {
		case row == nil:
			all = append(all, entry{def: 0})
		case len(row) == 0:
			all = append(all, entry{def: 1})
		}
		for i, v := range row {
			e := entry{rep: 1, def: 3, value: v}
			if i == 0 {
				e.rep = 0
			}
			if v == nil {
				e.def = 2
			}
			all = append(all, e)
		}
	}
	for part := range slices.Chunk(all, entries) {
		p := writtenPage{entries: len(part), encoding: rleDictionary, values: []byte{8}}
		coded := len(c.pages) < plainFrom
		if !coded {
			p.encoding, p.values = plainEncoding, nil
		}
		for _, e := range part {
			p.reps = append(p.reps, run(1, e.rep)...)
			p.defs = append(p.defs, run(1, e.def)...)
			if e.def < 3 {
				continue
			}
			if coded {
				k := slices.IndexFunc(c.dict, func(v []byte) bool { return bytes.Equal(v, e.value) })
				if k < 0 {
					k = len(c.dict)
					c.dict = append(c.dict, e.value)
				}
				p.values = append(p.values, run(1, byte(k))...)
			} else {
				p.values = append(p.values, plainOf(c.typ, [][]byte{e.value})...)
			}
		}
		c.pages = append(c.pages, p)
	}
}

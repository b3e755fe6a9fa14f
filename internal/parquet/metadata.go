package parquet

// The parts of a file's metadata that are used. Field numbers are those of parquet.thrift.

type physical int32

const (
	boolean physical = iota
	int32Type
	int64Type
	int96Type
	floatType
	doubleType
	byteArray
	fixedBytes
)

type element struct {
	name       string
	typ        physical
	length     int32 // of fixedBytes
	repetition int32 // 0 required, 1 optional, 2 repeated
	children   int32 // of a group
	group      bool
	converted  int32 // -1: none
	scale      int32
	logical    logical
}

type logical uint8

const (
	noLogical logical = iota
	logicalList
	logicalMap
	logicalDecimal
	logicalDate
	logicalTimestampMillis
	logicalTimestampMicros
	logicalTimestampNanos
	logicalUnsigned32
	logicalUnsigned64
	logicalFloat16
)

type rowGroup struct {
	rows    int64
	columns []columnChunk
}

type columnChunk struct {
	elsewhere  bool // its data is in another file
	encrypted  bool
	codec      int32
	values     int64
	size       int64 // compressed, headers included
	unpacked   int64 // the same, uncompressed
	dataAt     int64
	dictionary int64
	indexAt    int64 // of its offset index; 0: it has none
	indexSize  int64
	path       []string
	hasMeta    bool
}

type metadata struct {
	schema    []element
	rows      int64
	groups    []rowGroup
	encrypted bool
}

func parseMetadata(b []byte) (*metadata, error) {
	t := &thrift{b: b}
	m := &metadata{}
	t.fields(func(id int16, typ byte) {
		switch {
		case id == 2 && typ == tList:
			t.list(func(typ byte) { m.schema = append(m.schema, t.element(typ)) })
		case id == 3 && typ == tI64:
			m.rows = t.int()
		case id == 4 && typ == tList:
			t.list(func(typ byte) { m.groups = append(m.groups, t.rowGroup(typ)) })
		case id == 8:
			m.encrypted = true
			t.skip(typ)
		default:
			t.skip(typ)
		}
	})
	if t.bad {
		return nil, errThrift
	}
	return m, nil
}

// in reads a struct that is an element of a list.
func (t *thrift) in(typ byte, each func(id int16, typ byte)) {
	if typ != tStruct {
		t.fail()
		return
	}
	t.fields(each)
}

func (t *thrift) element(typ byte) element {
	e := element{converted: -1, group: true}
	t.in(typ, func(id int16, typ byte) {
		switch {
		case id == 1 && typ == tI32:
			e.typ, e.group = physical(t.int()), false
		case id == 2 && typ == tI32:
			e.length = int32(t.int())
		case id == 3 && typ == tI32:
			e.repetition = int32(t.int())
		case id == 4 && typ == tBinary:
			e.name = string(t.bytes())
		case id == 5 && typ == tI32:
			e.children = int32(t.int())
		case id == 6 && typ == tI32:
			e.converted = int32(t.int())
		case id == 7 && typ == tI32:
			e.scale = int32(t.int())
		case id == 10 && typ == tStruct:
			t.logical(&e)
		default:
			t.skip(typ)
		}
	})
	e.convert()
	return e
}

// logical reads the union LogicalType.
func (t *thrift) logical(e *element) {
	t.fields(func(id int16, typ byte) {
		if typ != tStruct {
			t.skip(typ)
			return
		}
		switch id {
		case 2:
			e.logical = logicalMap
		case 3:
			e.logical = logicalList
		case 6:
			e.logical = logicalDate
		case 15:
			e.logical = logicalFloat16
		case 5:
			e.logical = logicalDecimal
			t.fields(func(id int16, typ byte) {
				if id == 1 && typ == tI32 {
					e.scale = int32(t.int())
				} else {
					t.skip(typ)
				}
			})
			return
		case 8:
			t.fields(func(id int16, typ byte) {
				if id != 2 || typ != tStruct {
					t.skip(typ)
					return
				}
				t.fields(func(id int16, typ byte) {
					if id >= 1 && id <= 3 {
						e.logical = logicalTimestampMillis + logical(id-1)
					}
					t.skip(typ)
				})
			})
			return
		case 10:
			width, signed := int64(0), true
			t.fields(func(id int16, typ byte) {
				switch {
				case id == 1 && typ == tByte:
					width = int64(t.byte())
				case id == 2:
					signed = typ == tTrue
				default:
					t.skip(typ)
				}
			})
			e.unsigned(width, signed)
			return
		}
		t.skip(typ)
	})
}

func (e *element) unsigned(width int64, signed bool) {
	switch {
	case signed:
	case width == 32:
		e.logical = logicalUnsigned32
	case width == 64:
		e.logical = logicalUnsigned64
	}
}

// convert uses the older ConvertedType if the element has no LogicalType.
func (e *element) convert() {
	if e.logical != noLogical {
		return
	}
	switch e.converted {
	case 1, 2:
		e.logical = logicalMap
	case 3:
		e.logical = logicalList
	case 5:
		e.logical = logicalDecimal
	case 6:
		e.logical = logicalDate
	case 9:
		e.logical = logicalTimestampMillis
	case 10:
		e.logical = logicalTimestampMicros
	case 13:
		e.logical = logicalUnsigned32
	case 14:
		e.logical = logicalUnsigned64
	}
}

func (t *thrift) rowGroup(typ byte) rowGroup {
	var g rowGroup
	t.in(typ, func(id int16, typ byte) {
		switch {
		case id == 1 && typ == tList:
			t.list(func(typ byte) { g.columns = append(g.columns, t.columnChunk(typ)) })
		case id == 3 && typ == tI64:
			g.rows = t.int()
		default:
			t.skip(typ)
		}
	})
	return g
}

func (t *thrift) columnChunk(typ byte) columnChunk {
	var c columnChunk
	t.in(typ, func(id int16, typ byte) {
		switch {
		case id == 1 && typ == tBinary:
			c.elsewhere = len(t.bytes()) > 0
		case id == 3 && typ == tStruct:
			c.hasMeta = true
			t.columnMeta(&c)
		case id == 4 && typ == tI64:
			c.indexAt = t.int()
		case id == 5 && typ == tI32:
			c.indexSize = t.int()
		case id == 8:
			c.encrypted = true
			t.skip(typ)
		default:
			t.skip(typ)
		}
	})
	return c
}

func (t *thrift) columnMeta(c *columnChunk) {
	t.fields(func(id int16, typ byte) {
		switch {
		case id == 3 && typ == tList:
			t.list(func(typ byte) {
				if typ != tBinary {
					t.fail()
					return
				}
				c.path = append(c.path, string(t.bytes()))
			})
		case id == 4 && typ == tI32:
			c.codec = int32(t.int())
		case id == 5 && typ == tI64:
			c.values = t.int()
		case id == 6 && typ == tI64:
			c.unpacked = t.int()
		case id == 7 && typ == tI64:
			c.size = t.int()
		case id == 9 && typ == tI64:
			c.dataAt = t.int()
		case id == 11 && typ == tI64:
			c.dictionary = t.int()
		default:
			t.skip(typ)
		}
	})
}

type pageType int32

const (
	dataPage       pageType = 0
	indexPage      pageType = 1
	dictionaryPage pageType = 2
	dataPageV2     pageType = 3
)

type pageHeader struct {
	size     int // of the header itself
	typ      pageType
	unpacked int32
	packed   int32
	hasCRC   bool
	crc      uint32
	values   int32
	rows     int32 // V2
	encoding int32
	levels   [2]int32 // encodings of definition and repetition levels, V1
	defBytes int32    // V2
	repBytes int32
	plain    bool // V2: is_compressed is false
	hasData  bool
}

// parsePageHeader reads the header that b begins with. more reports that b is too short, or
// that the header is damaged.
func parsePageHeader(b []byte) (h pageHeader, more bool) {
	t := &thrift{b: b}
	t.fields(func(id int16, typ byte) {
		switch {
		case id == 1 && typ == tI32:
			h.typ = pageType(t.int())
		case id == 2 && typ == tI32:
			h.unpacked = int32(t.int())
		case id == 3 && typ == tI32:
			h.packed = int32(t.int())
		case id == 4 && typ == tI32:
			h.hasCRC, h.crc = true, uint32(t.int())
		case id == 5 && typ == tStruct, id == 7 && typ == tStruct, id == 8 && typ == tStruct:
			h.hasData = true
			t.dataHeader(&h, id == 8)
		default:
			t.skip(typ)
		}
	})
	h.size = len(b) - len(t.b)
	return h, t.bad
}

func (t *thrift) dataHeader(h *pageHeader, v2 bool) {
	t.fields(func(id int16, typ byte) {
		to := (*int32)(nil)
		switch {
		case id == 1:
			to = &h.values
		case !v2 && id == 2, v2 && id == 4:
			to = &h.encoding
		case !v2 && (id == 3 || id == 4):
			to = &h.levels[id-3]
		case v2 && id == 3:
			to = &h.rows
		case v2 && id == 5:
			to = &h.defBytes
		case v2 && id == 6:
			to = &h.repBytes
		case v2 && id == 7:
			h.plain = typ == tFalse
		}
		if to == nil || typ != tI32 {
			t.skip(typ)
			return
		}
		*to = int32(t.int())
	})
}

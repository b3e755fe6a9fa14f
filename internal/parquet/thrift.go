package parquet

import (
	"encoding/binary"
	"errors"
)

// thrift reads Thrift's compact protocol. After an error, bad is true and all methods return
// zeros, so callers check once at the end.
type thrift struct {
	b     []byte
	bad   bool
	depth int
}

const (
	tStop = iota
	tTrue
	tFalse
	tByte
	tI16
	tI32
	tI64
	tDouble
	tBinary
	tList
	tSet
	tMap
	tStruct
)

const maxDepth = 64

var errThrift = errors.New("its metadata is damaged")

func (t *thrift) fail() { t.bad, t.b = true, nil }

func (t *thrift) byte() byte {
	if len(t.b) == 0 {
		t.fail()
		return 0
	}
	v := t.b[0]
	t.b = t.b[1:]
	return v
}

func (t *thrift) uvarint() uint64 {
	v, n := binary.Uvarint(t.b)
	if n <= 0 {
		t.fail()
		return 0
	}
	t.b = t.b[n:]
	return v
}

func (t *thrift) int() int64 {
	u := t.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (t *thrift) bytes() []byte {
	n := t.uvarint()
	if n > uint64(len(t.b)) {
		t.fail()
		return nil
	}
	v := t.b[:n]
	t.b = t.b[n:]
	return v
}

// fields calls each for every field of a struct; each must read or skip its value.
// A bool's value is its type.
func (t *thrift) fields(each func(id int16, typ byte)) {
	if t.depth++; t.depth > maxDepth {
		t.fail()
	}
	defer func() { t.depth-- }()
	for id := int16(0); !t.bad; {
		head := t.byte()
		typ := head & 15
		if typ == tStop {
			return
		}
		if delta := head >> 4; delta != 0 {
			id += int16(delta)
		} else {
			id = int16(t.int())
		}
		each(id, typ)
	}
}

// list calls each for every element. An element takes at least one byte, so more elements
// than bytes are an error.
func (t *thrift) list(each func(typ byte)) {
	head := t.byte()
	n, typ := uint64(head>>4), head&15
	if n == 15 {
		n = t.uvarint()
	}
	if n > uint64(len(t.b)) {
		t.fail()
		return
	}
	for ; n > 0 && !t.bad; n-- {
		each(typ)
	}
}

func (t *thrift) skip(typ byte) {
	if t.depth++; t.depth > maxDepth {
		t.fail()
	}
	defer func() { t.depth-- }()
	switch typ {
	case tTrue, tFalse:
	case tByte:
		t.byte()
	case tI16, tI32, tI64:
		t.uvarint()
	case tDouble:
		if len(t.b) < 8 {
			t.fail()
			return
		}
		t.b = t.b[8:]
	case tBinary:
		t.bytes()
	case tList, tSet:
		t.list(func(typ byte) {
			if typ == tTrue || typ == tFalse { // in a list a bool is a byte
				typ = tByte
			}
			t.skip(typ)
		})
	case tMap:
		n := t.uvarint()
		if n == 0 {
			return
		}
		types := t.byte()
		if n > uint64(len(t.b)) {
			t.fail()
			return
		}
		for ; n > 0 && !t.bad; n-- {
			t.skip(types >> 4)
			t.skip(types & 15)
		}
	case tStruct:
		t.fields(func(_ int16, typ byte) { t.skip(typ) })
	default:
		t.fail()
	}
}

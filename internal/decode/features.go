package decode

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/headrace/headrace/internal/dataset"
)

// A tf.Example is a protocol buffer: a map of names to features, each a list of int64, of
// float or of bytes (tensorflow/core/example/example.proto and feature.proto). It is scanned
// in place. A tf.SequenceExample has the same map, called context, and a map of feature
// lists. Of two entries with one name the later counts, as for every reader of such maps.

// featureKind is the kind of list that a feature holds.
type featureKind uint8

const (
	noFeature   featureKind = iota // absent, or an empty list
	bytesList                      // BytesList; the numbers are those of the fields of Feature
	floatList                      // FloatList
	int64List                      // Int64List
	featureList                    // FeatureList of a SequenceExample
)

var featureNames = [...]string{noFeature: "nothing", bytesList: "bytes", floatList: "float", int64List: "int64", featureList: "a feature list"}

// found is where the list of one wanted feature lies in the record.
type found struct {
	start, end int32
	kind       featureKind
}

// features is what scanning a tf.Example needs.
type features struct {
	found   []found // of the wanted features
	of      []int32 // by Decoder.sources: index in found; -1: no feature
	context entries
	lists   entries
	// The values of one feature.
	ints   []int64
	floats []uint32   // their bits
	texts  [][2]int32 // in the record
}

// entries remembers the names of a map, and for each which one followed it the last time.
// Writers mostly keep their order, so the next name is compared and seldom looked up. The
// first entry is none: its next is the name that a map begins with.
type entries struct {
	byName map[string]int32
	list   []entry
}

type entry struct {
	head   string // the bytes before the value's length: tag, length, name, tag
	first  uint64 // of head: its first 8 bytes, fewer of a shorter one
	mask   uint64 // the bits of first that count
	last   uint64 // its last 8 bytes, if it has 8 to 16
	wanted int32  // index in found; -1: not wanted
	next   int32
}

// at says whether head lies at base+p. 8 bytes more can be read.
func (e *entry) at(d *Decoder, p int) bool {
	n := len(e.head)
	if (load(d.base, p)^e.first)&e.mask != 0 {
		return false
	}
	switch {
	case n <= 8:
		return true
	case n <= 16:
		return load(d.base, p+n-8) == e.last
	}
	return string(d.buf[p:p+n]) == e.head
}

// These bound the memory for names that no column wants.
const (
	maxEntries   = 1 << 14
	maxEntryName = 1 << 10
)

// Tags of protocol buffers: the field's number and its wire type.
const (
	field1 = 1<<3 | 2 // a length and bytes: features, an entry of a map, its name, a packed list
	field2 = 2<<3 | 2 // feature_lists, the value of an entry
	float1 = 1<<3 | 5 // a float that is not packed
	int1   = 1 << 3   // an int64 that is not packed
)

func (d *Decoder) planFeatures(pointers []int) {
	s := &d.features
	s.context, s.lists = newEntries(), newEntries()
	s.of = slices.Repeat([]int32{-1}, len(d.sources))
	for _, i := range pointers {
		p, m := &d.sources[i].path, &s.context
		if isFeatureList(p) {
			m = &s.lists
		}
		id, known := m.byName[p.Tokens[0]]
		if !known {
			id = m.add(p.Tokens[0], int32(len(s.found)))
			s.found = append(s.found, found{})
		}
		s.of[i] = m.list[id].wanted
	}
}

func isFeatureList(p *dataset.Path) bool { return len(p.Tokens) == 3 }

func newEntries() entries {
	return entries{byName: map[string]int32{}, list: []entry{{wanted: -1}}}
}

func (m *entries) add(name string, wanted int32) int32 {
	head := append(binary.AppendUvarint([]byte{field1}, uint64(len(name))), name...)
	id := int32(len(m.list))
	e := entry{head: string(append(head, field2)), wanted: wanted, mask: math.MaxUint64}
	var room [16]byte
	n := copy(room[:], e.head)
	e.first, e.last = binary.LittleEndian.Uint64(room[:]), binary.LittleEndian.Uint64(room[max(n-8, 0):])
	if n < 8 {
		e.mask >>= 64 - 8*n
	}
	m.list = append(m.list, e)
	m.byName[name] = id
	return id
}

// scanExample finds the wanted features of the current record.
func (d *Decoder) scanExample() *fault {
	clear(d.features.found)
	for p := d.start; p < d.end; {
		tag, from, end := d.protoField(p, d.end)
		if end < 0 {
			return d.noExample(p)
		}
		var f *fault
		switch {
		case tag == field1:
			f = d.scanMap(&d.features.context, from, end, false)
		case tag == field2 && len(d.features.lists.list) > 1:
			f = d.scanMap(&d.features.lists, from, end, true)
		}
		if f != nil {
			return f
		}
		p = end
	}
	return nil
}

func (d *Decoder) noExample(p int) *fault {
	return &fault{at: p - d.start, value: d.buf[d.start:d.end], reason: "is no tf.Example: its protocol buffer is damaged here"}
}

// protoField reads the head of the field at p: its tag, and where its bytes lie. end is -1 if
// it does not lie before limit. Tags of more than 32 bits are refused; no .proto makes them.
func (d *Decoder) protoField(p, limit int) (tag uint32, from, end int) {
	t, p := d.uvarint(p, limit)
	if p < 0 || t > math.MaxUint32 || t>>3 == 0 {
		return 0, 0, -1
	}
	n := uint64(0)
	switch from = p; t & 7 {
	case 0:
		if _, end = d.uvarint(p, limit); end < 0 {
			return 0, 0, -1
		}
		return uint32(t), from, end
	case 1:
		n = 8
	case 2:
		if n, from = d.uvarint(p, limit); from < 0 {
			return 0, 0, -1
		}
	case 5:
		n = 4
	default:
		return 0, 0, -1 // groups are in no file that TensorFlow writes
	}
	if n > uint64(limit-from) {
		return 0, 0, -1
	}
	return uint32(t), from, from + int(n)
}

// uvarint reads a number that ends before limit; next is -1 if there is none.
func (d *Decoder) uvarint(p, limit int) (v uint64, next int) {
	if p < limit && d.buf[p] < 0x80 {
		return uint64(d.buf[p]), p + 1
	}
	v, n := binary.Uvarint(d.buf[p:max(p, limit)])
	if n <= 0 {
		return 0, -1
	}
	return v, p + n
}

// shortField is protoField for a field of number 1 and less than 128 bytes, as most entries
// of a map are.
func (d *Decoder) shortField(p, limit int) (from, end int, ok bool) {
	if limit-p < 2 || d.buf[p] != field1 || d.buf[p+1] >= 0x80 {
		return 0, 0, false
	}
	end = p + 2 + int(d.buf[p+1])
	return p + 2, end, end <= limit
}

// scanMap finds the wanted entries of a map that lies in [p, end).
func (d *Decoder) scanMap(m *entries, p, end int, lists bool) *fault {
	last := int32(0)
	for p < end {
		at, next, short := d.shortField(p, end)
		if !short {
			var tag uint32
			if tag, at, next = d.protoField(p, end); next < 0 {
				return d.noExample(p)
			}
			if tag != field1 {
				p = next
				continue
			}
		}
		id, value := m.list[last].next, -1
		if e := &m.list[id]; id > 0 && len(e.head) < next-at && e.at(d, at) {
			// The length of the value follows, and the value ends the entry.
			if v := at + len(e.head); int(d.buf[v]) == next-v-1 && d.buf[v] < 0x80 {
				value = v + 1
			} else if n, from := d.uvarint(v, next); from > 0 && n == uint64(next-from) {
				value = from
			}
		}
		valueEnd := next
		if value < 0 {
			var name []byte
			if name, value, valueEnd = d.entry(at, next); value < 0 {
				return d.noExample(p)
			}
			var known bool
			if id, known = m.byName[string(name)]; !known && len(m.list) < maxEntries && len(name) < maxEntryName {
				id = m.add(string(name), -1)
			}
			m.list[last].next = id
		}
		if w := m.list[id].wanted; w >= 0 {
			if kind, ok := d.shortFeature(value, valueEnd); ok && !lists {
				d.features.found[w] = found{int32(value) + 2, int32(valueEnd), kind}
			} else if f := d.find(&d.features.found[w], value, valueEnd, lists); f != nil {
				return f
			}
		}
		last, p = id, next
	}
	return nil
}

// entry reads an entry of a map, whatever the order of its fields. value is -1 if it is
// damaged.
func (d *Decoder) entry(p, end int) (name []byte, value, valueEnd int) {
	for value, valueEnd = p, p; p < end; {
		tag, from, next := d.protoField(p, end)
		switch {
		case next < 0:
			return nil, -1, -1
		case tag == field1:
			name = d.buf[from:next]
		case tag == field2:
			value, valueEnd = from, next
		}
		p = next
	}
	return name, value, valueEnd
}

// find notes the list in the Feature, or the FeatureList, that lies in [p, end).
func (d *Decoder) find(f *found, p, end int, lists bool) *fault {
	if lists {
		*f = found{int32(p), int32(end), featureList}
		if p == end {
			f.kind = noFeature
		}
		return nil
	}
	kind, from, to, reason := d.featureAt(p, end)
	if reason != "" {
		return &fault{at: p - d.start, value: d.buf[p:end], reason: reason}
	}
	*f = found{int32(from), int32(to), kind}
	return nil
}

// shortFeature is the kind of a Feature's list that has at least one byte and less than 128.
func (d *Decoder) shortFeature(p, end int) (featureKind, bool) {
	if end-p <= 2 {
		return noFeature, false
	}
	tag, n := d.buf[p], d.buf[p+1]
	return featureKind(tag >> 3), tag&7 == 2 && tag>>3-1 < byte(int64List) && n < 0x80 && int(n) == end-p-2
}

// featureAt reads a Feature: the kind of its list, and where it lies.
func (d *Decoder) featureAt(p, end int) (kind featureKind, from, to int, reason string) {
	if p == end {
		return noFeature, p, p, ""
	}
	if kind, ok := d.shortFeature(p, end); ok {
		return kind, p + 2, end, ""
	}
	tag, from, to := d.protoField(p, end)
	if to != end || tag&7 != 2 || tag>>3 > uint32(int64List) {
		return noFeature, p, p, "is no feature: it must be one bytes_list, float_list or int64_list"
	}
	if from == to {
		return noFeature, from, to, ""
	}
	return featureKind(tag >> 3), from, to, ""
}

// readInts appends the values of an Int64List.
func (d *Decoder) readInts(all []int64, p, end int) ([]int64, string) {
	for p < end {
		tag, from, next := d.protoField(p, end)
		if next < 0 || tag != field1 && tag != int1 {
			return all, "is no list of int64"
		}
		for from < next {
			v, after := d.uvarint(from, next)
			if after < 0 {
				return all, "is no list of int64"
			}
			all, from = append(all, int64(v)), after
		}
		p = next
	}
	return all, ""
}

// readFloats appends the values of a FloatList.
func (d *Decoder) readFloats(all []uint32, p, end int) ([]uint32, string) {
	for p < end {
		tag, from, next := d.protoField(p, end)
		if next < 0 || tag != field1 && tag != float1 || (next-from)%4 != 0 {
			return all, "is no list of float"
		}
		all = slices.Grow(all, (next-from)/4)
		for ; from < next; from += 4 {
			all = append(all, binary.LittleEndian.Uint32(d.buf[from:]))
		}
		p = next
	}
	return all, ""
}

// readTexts appends the places of the values of a BytesList.
func (d *Decoder) readTexts(all [][2]int32, p, end int) ([][2]int32, string) {
	for p < end {
		tag, from, next := d.protoField(p, end)
		if next < 0 || tag != field1 {
			return all, "is no list of bytes"
		}
		all, p = append(all, [2]int32{int32(from), int32(next)}), next
	}
	return all, ""
}

// read puts the values of a feature into ints, floats or texts of d.features, and returns how
// many there are.
func (d *Decoder) read(f found) (n int, kind featureKind, reason string) {
	s := &d.features
	s.ints, s.floats, s.texts = s.ints[:0], s.floats[:0], s.texts[:0]
	if f.kind != featureList {
		return d.readList(f.kind, int(f.start), int(f.end))
	}
	for p := int(f.start); p < int(f.end); {
		tag, from, next := d.protoField(p, int(f.end))
		if next < 0 || tag != field1 {
			return 0, 0, "is no feature list"
		}
		k, from, to, reason := d.featureAt(from, next)
		switch {
		case reason != "":
			return 0, 0, reason
		case k == noFeature:
		case kind != noFeature && kind != k:
			return 0, 0, fmt.Sprintf("has %s in one step and %s in another", featureNames[kind], featureNames[k])
		default:
			kind = k
			if n, _, reason = d.readList(k, from, to); reason != "" {
				return 0, 0, reason
			}
		}
		p = next
	}
	return n, kind, ""
}

func (d *Decoder) readList(kind featureKind, p, end int) (n int, _ featureKind, reason string) {
	s := &d.features
	switch kind {
	case int64List:
		s.ints, reason = d.readInts(s.ints, p, end)
		n = len(s.ints)
	case floatList:
		s.floats, reason = d.readFloats(s.floats, p, end)
		n = len(s.floats)
	case bytesList:
		s.texts, reason = d.readTexts(s.texts, p, end)
		n = len(s.texts)
	}
	return n, kind, reason
}

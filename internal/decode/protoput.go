package decode

import (
	"encoding/binary"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/headrace/headrace/internal/schema"
)

// protoPut gives a value to its cells and returns where it ends; -1 after a fault.
func (d *Decoder) protoPut(prog *protoProgram, f *protoField, v *protoValue, number uint64, p, end int) int {
	if len(v.again) > 0 && v.stamp < 0 && d.walking.seen[v.again[0].cell] == d.walking.turn {
		d.protoClear(prog, v.again)
	}
	next := p
	switch f.kind {
	case protoreflect.StringKind, protoreflect.BytesKind:
		var from int
		if from, next = d.lengthed(p, end); from < 0 {
			return -1
		}
		for _, id := range v.cells {
			if !d.putSpan(id, from, next) {
				return -1
			}
		}
	case protoreflect.MessageKind:
		var from int
		if from, next = d.lengthed(p, end); from < 0 {
			return -1
		}
		if v.run >= 0 && d.protoRun(prog, v.run, from, next, 0) < 0 || !d.protoStamp(prog, f, v, from, next) {
			return -1
		}
	case protoreflect.GroupKind:
		if v.run >= 0 {
			next = d.protoRun(prog, v.run, p, end, number)
		} else {
			next = d.protoSkip(number, protowire.StartGroupType, p, end)
		}
		if next < 0 || !d.protoStamp(prog, f, v, p, next) {
			return -1
		}
	default:
		var bits uint64
		if bits, next = d.protoNumber(f.kind, p, end); next < 0 {
			return -1
		}
		for _, id := range v.cells {
			if !d.putNumber(f, id, bits) {
				return -1
			}
		}
	}
	if len(v.wrong) > 0 && !d.protoWrong(v, p, next) {
		return -1
	}
	for _, id := range v.lacks {
		if !d.missingElement(id) {
			return -1
		}
	}
	return next
}

func (d *Decoder) protoWrong(v *protoValue, from, to int) bool {
	for _, id := range v.wrong {
		if !d.badCell(id, d.buf[from:to], v.why) {
			return false
		}
	}
	return true
}

// protoNumber reads a number. Whole numbers come with their sign in 64 bits.
func (d *Decoder) protoNumber(k protoreflect.Kind, p, end int) (bits uint64, next int) {
	switch k {
	case protoreflect.FloatKind, protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind:
		if next = d.within(p+4, end); next < 0 {
			return 0, -1
		}
		v := binary.LittleEndian.Uint32(d.buf[p:])
		if k == protoreflect.Sfixed32Kind {
			return uint64(int64(int32(v))), next
		}
		return uint64(v), next
	case protoreflect.DoubleKind, protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind:
		if next = d.within(p+8, end); next < 0 {
			return 0, -1
		}
		return binary.LittleEndian.Uint64(d.buf[p:]), next
	}
	v, next := d.varint(p, end)
	switch k {
	case protoreflect.Int32Kind, protoreflect.EnumKind:
		v = uint64(int64(int32(v)))
	case protoreflect.Uint32Kind:
		v = uint64(uint32(v))
	case protoreflect.Sint32Kind:
		v = uint64(int64(int32(protowire.DecodeZigZag(v & math.MaxUint32))))
	case protoreflect.Sint64Kind:
		v = uint64(protowire.DecodeZigZag(v))
	case protoreflect.BoolKind:
		if v != 0 {
			v = 1
		}
	}
	return v, next
}

// putNumber gives a cell what protoNumber has read.
func (d *Decoder) putNumber(f *protoField, id int32, bits uint64) bool {
	switch f.kind {
	case protoreflect.FloatKind:
		d.putFloat32(id, uint32(bits))
		return true
	case protoreflect.DoubleKind:
		return d.putFloat64(id, bits)
	case protoreflect.BoolKind:
		d.putTruth(id, byte(bits))
		return true
	case protoreflect.EnumKind:
		if c := d.walking.cells[id].conv; c == toText || c == toHash {
			d.scratch = f.symbol(d.scratch[:0], int32(bits))
			return d.putText(id, d.scratch)
		}
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		if bits > math.MaxInt64 {
			return d.putLarge(id, bits)
		}
	}
	return d.putInt(id, int64(bits), schema.None)
}

// symbol is the name of an enum's number, or the number if it has none.
func (f *protoField) symbol(dst []byte, n int32) []byte {
	if uint32(n) < uint32(len(f.symbols)) && f.symbols[n] != "" {
		return append(dst, f.symbols[n]...)
	}
	if v := f.enum.Values().ByNumber(protoreflect.EnumNumber(n)); v != nil {
		return append(dst, v.Name()...)
	}
	return strconv.AppendInt(dst, int64(n), 10)
}

// putLarge writes a whole number that has no int64.
func (d *Decoder) putLarge(id int32, v uint64) bool {
	switch c := &d.walking.cells[id]; {
	case c.kind == instantCell:
		return d.badCell(id, strconv.AppendUint(nil, v, 10), "is not a time")
	case c.conv == toFloat32:
		d.fillCell(id, uint64(math.Float32bits(float32(v))))
	case c.conv == toFloat64:
		d.fillCell(id, math.Float64bits(float64(v)))
	case c.conv == toHash:
		d.fillCell(id, uint64(c.column.hash.bytes(strconv.AppendUint(d.walking.room[:0], v, 10))))
	default:
		return d.badCell(id, strconv.AppendUint(nil, v, 10), "is out of the range of "+c.column.dtype.String())
	}
	return true
}

// protoZero fills the cells of a field that the message does not have, and that its writer
// leaves out where it is zero.
func (d *Decoder) protoZero(f *protoField, p int) bool {
	w := &d.walking
	for _, id := range f.one.cells {
		switch {
		case w.seen[id] == w.turn:
		case f.kind == protoreflect.StringKind || f.kind == protoreflect.BytesKind:
			d.putSpan(id, p, p)
		case !d.putNumber(f, id, 0):
			return false
		}
	}
	for _, id := range f.one.wrong {
		if w.seen[id] != w.turn && !d.badCell(id, nil, f.one.why) {
			return false
		}
	}
	return true
}

// appendNumbers writes packed numbers that lie in the record as they do in the column.
func (d *Decoder) appendNumbers(id int32, from, to int) {
	w := &d.walking
	c := &w.cells[id]
	w.seen[id] = w.turn
	if c.column.max < math.MaxInt {
		room := c.column.max - (c.column.count(c.col) - int(c.col.RowOffsets[w.row]))
		to = min(to, from+max(0, room)*c.size)
	}
	c.col.Values = append(c.col.Values, d.buf[from:to]...)
}

// stamp is a Timestamp. Its parts may come in several pieces.
type stamp struct {
	seconds int64
	nanos   int32
}

// protoStamp gives the cells that want a Timestamp the one that lies in [p, end), in ms.
func (d *Decoder) protoStamp(prog *protoProgram, f *protoField, v *protoValue, p, end int) bool {
	if v.stamp < 0 {
		return true
	}
	w := &d.walking
	s := &w.stamps[v.stamp]
	if f.repeated || w.seen[v.cells[0]] != w.turn {
		*s = stamp{}
	}
	for p < end {
		tag, next := d.varint(p, end)
		if next < 0 {
			return false
		}
		number, wire := tag>>3, protowire.Type(tag&7)
		if wire == protowire.EndGroupType && f.kind == protoreflect.GroupKind {
			break
		}
		if p = d.protoSkip(number, wire, next, end); p < 0 {
			return false
		}
		if wire == protowire.VarintType && number <= 2 {
			bits, _ := d.varint(next, end)
			if number == 1 {
				s.seconds = int64(bits)
			} else {
				s.nanos = int32(bits)
			}
		}
	}
	if len(v.again) > 0 && w.seen[v.again[0].cell] == w.turn {
		d.protoClear(prog, v.again)
	}
	const most = math.MaxInt64/1000 - 1<<22
	for _, id := range v.cells {
		if s.seconds > most || s.seconds < -most {
			if !d.badCell(id, strconv.AppendInt(nil, s.seconds, 10), "is out of the range of times") {
				return false
			}
			continue
		}
		if !d.putInt(id, s.seconds*1000+floorDiv(int64(s.nanos), 1_000_000), schema.TimestampMillis) {
			return false
		}
	}
	return true
}

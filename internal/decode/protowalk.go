package decode

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// walkProto fills the row from the message that lies in [p, end of the record).
func (d *Decoder) walkProto(prog *protoProgram, p int) *fault {
	w := &d.walking
	if prog.counters > len(w.counters) {
		w.counters = make([]int32, prog.counters)
	}
	clear(w.counters[:prog.counters])
	if prog.stamps > len(w.stamps) {
		w.stamps = make([]stamp, prog.stamps)
	}
	w.stack, w.frame = w.stack[:0], 0
	d.protoRun(prog, 0, p, d.end, 0)
	return d.endWalk(prog.checks, prog.absent)
}

// varint reads a number. next is -1 after a fault.
func (d *Decoder) varint(p, end int) (v uint64, next int) {
	if p < end && d.buf[p] < 0x80 {
		return uint64(d.buf[p]), p + 1
	}
	v, n := binary.Uvarint(d.buf[p:max(p, end)])
	switch {
	case n == 0:
		return 0, d.cutShort(p)
	case n < 0:
		return 0, d.malformed(p, "is no number: it has more than 64 bits")
	}
	return v, p + n
}

// lengthed reads a length. The bytes lie in [from, to); from is -1 after a fault.
func (d *Decoder) lengthed(p, end int) (from, to int) {
	n, from := d.varint(p, end)
	switch {
	case from < 0:
		return -1, -1
	case n > uint64(end-from):
		return d.malformed(p, fmt.Sprintf("has a length of %d bytes, and its message ends after %d", n, end-from)), -1
	}
	return from, from + int(n)
}

// protoRun walks one message and returns where it ends; -1 after a fault. group is the
// field's number if the message ends with it, and 0 if it ends at end.
func (d *Decoder) protoRun(prog *protoProgram, run int32, p, end int, group uint64) int {
	w := &d.walking
	if w.depth++; w.depth > maxCalls {
		return d.malformed(p, fmt.Sprintf("has more than %d messages inside each other", maxCalls))
	}
	r, frame := &prog.runs[run], w.frame
	if r.element {
		d.beginElement(r)
	}
	for {
		if p == end {
			if group != 0 {
				return d.cutShort(p)
			}
			break
		}
		from := p
		tag, next := d.varint(p, end)
		if next < 0 {
			return -1
		}
		number, wire := tag>>3, protowire.Type(tag&7)
		if number == 0 || number > uint64(protowire.MaxValidNumber) {
			return d.malformed(from, fmt.Sprintf("begins a field with the number %d", number))
		}
		p = next
		if wire == protowire.EndGroupType {
			if number != group {
				return d.malformed(from, "ends a group that did not begin")
			}
			break
		}
		index := uint16(0)
		if number < uint64(len(r.low)) {
			index = r.low[number]
		} else if r.far != nil {
			index = r.far[int32(number)]
		}
		if index == 0 {
			p = d.protoSkip(number, wire, p, end)
		} else {
			p = d.fieldOf(prog, &r.fields[index-1], number, wire, p, end)
		}
		if p < 0 {
			return -1
		}
	}
	for _, i := range r.zeros {
		if !d.protoZero(&r.fields[i], p) {
			return -1
		}
	}
	if r.element {
		if !d.endElement(r, frame) {
			return -1
		}
	}
	w.depth--
	return p
}

// beginElement begins a scope: an element of a list.
func (d *Decoder) beginElement(r *protoRun) {
	w := &d.walking
	for _, id := range r.checks {
		w.seen[id] = 0
	}
	for _, k := range r.resets {
		w.counters[k] = 0
	}
	w.frame = len(w.stack)
	for _, id := range r.saves {
		c := &w.cells[id]
		w.stack = append(w.stack, c.column.count(c.col))
	}
}

func (d *Decoder) endElement(r *protoRun, frame int) bool {
	w := &d.walking
	w.stack, w.frame = w.stack[:w.frame], frame
	for _, id := range r.checks {
		if w.seen[id] == 0 && !d.missingElement(id) {
			return false
		}
	}
	return true
}

// protoSkip passes over a value.
func (d *Decoder) protoSkip(number uint64, wire protowire.Type, p, end int) int {
	switch wire {
	case protowire.VarintType:
		_, p = d.varint(p, end)
		return p
	case protowire.Fixed32Type:
		return d.within(p+4, end)
	case protowire.Fixed64Type:
		return d.within(p+8, end)
	case protowire.BytesType:
		_, to := d.lengthed(p, end)
		return to
	case protowire.StartGroupType:
		w := &d.walking
		if w.depth++; w.depth > maxCalls {
			return d.malformed(p, fmt.Sprintf("has more than %d messages inside each other", maxCalls))
		}
		for {
			tag, next := d.varint(p, end)
			if next < 0 {
				return -1
			}
			inner, wire := tag>>3, protowire.Type(tag&7)
			if inner == 0 || inner > uint64(protowire.MaxValidNumber) {
				return d.malformed(p, fmt.Sprintf("begins a field with the number %d", inner))
			}
			if wire == protowire.EndGroupType {
				if inner != number {
					return d.malformed(p, "ends a group that did not begin")
				}
				w.depth--
				return next
			}
			if p = d.protoSkip(inner, wire, next, end); p < 0 {
				return -1
			}
		}
	}
	return d.malformed(p, fmt.Sprintf("has the wire type %d, which does not exist: the record is no Protobuf message", wire))
}

func (d *Decoder) within(p, end int) int {
	if p > end {
		return d.cutShort(end)
	}
	return p
}

// fieldOf walks a field that is wanted. A wire type that its type does not have makes it
// an unknown field.
func (d *Decoder) fieldOf(prog *protoProgram, f *protoField, number uint64, wire protowire.Type, p, end int) int {
	switch {
	case wire == f.wire:
	case wire == protowire.BytesType && f.packed:
		from, to := d.lengthed(p, end)
		if from >= 0 && f.copied && (to-from)%int(d.walking.cells[f.one.cells[0]].size) == 0 {
			d.appendNumbers(f.one.cells[0], from, to)
			return to
		}
		for p = from; p >= 0 && p < to; {
			p = d.protoElement(prog, f, number, p, to)
		}
		return p
	default:
		return d.protoSkip(number, wire, p, end)
	}
	if len(f.clears) > 0 {
		d.protoClear(prog, f.clears)
	}
	switch {
	case f.keys != nil:
		return d.protoEntry(prog, f, p, end)
	case f.repeated:
		return d.protoElement(prog, f, number, p, end)
	case !f.has:
		return d.protoSkip(number, wire, p, end)
	}
	d.walking.at = p
	return d.protoPut(prog, f, &f.one, number, p, end)
}

// protoElement walks an element of a repeated field.
func (d *Decoder) protoElement(prog *protoProgram, f *protoField, number uint64, p, end int) int {
	w := &d.walking
	w.at = p
	next := -1
	if len(f.at) > 0 {
		i := -1
		if f.counter >= 0 {
			i = int(w.counters[f.counter])
			w.counters[f.counter]++
		}
		for k := range f.at {
			if f.index[k] < 0 || f.index[k] == i {
				if next = d.protoPut(prog, f, &f.at[k], number, p, end); next < 0 {
					return -1
				}
			}
		}
	}
	switch {
	case f.has:
		return d.protoPut(prog, f, &f.one, number, p, end)
	case next >= 0:
		return next
	}
	return d.protoSkip(number, f.wire, p, end)
}

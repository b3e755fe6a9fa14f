package decode

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/headrace/headrace/internal/frame"
)

// protoClear clears cells.
func (d *Decoder) protoClear(prog *protoProgram, list []protoClear) {
	w := &d.walking
	for i := range list {
		k := &list[i]
		c := &w.cells[k.cell]
		w.seen[k.cell] = 0
		if c.kind == numberList || c.kind == textList {
			n := int(c.col.RowOffsets[w.row])
			if k.save >= 0 {
				n = w.stack[w.frame+int(k.save)]
			}
			c.column.shorten(c.col, n)
		}
		for _, x := range prog.counted[k.cell] {
			if x.depth > k.depth {
				w.counters[x.counter] = 0
			}
		}
	}
}

// shorten takes values of a list away.
func (c *column) shorten(col *frame.Buffers, n int) {
	if !c.text() {
		col.Values = col.Values[:n*c.size]
		if c.shaped {
			c.gather.shorten(n)
		}
		return
	}
	col.Elements = col.Elements[:n+1]
	col.Values = col.Values[:col.Elements[n]]
}

// protoEntry walks an entry of a map. Of several with one key the last counts.
func (d *Decoder) protoEntry(prog *protoProgram, f *protoField, p, end int) int {
	from, to := d.lengthed(p, end)
	if from < 0 {
		return -1
	}
	w, m := &d.walking, f.keys
	keyFrom, keyTo, bits, hasValue := from, from, uint64(0), false
	for p = from; p < to; {
		tag, next := d.varint(p, to)
		if next < 0 {
			return -1
		}
		if p = next; tag>>3 == 0 || tag>>3 > uint64(protowire.MaxValidNumber) || tag&7 == uint64(protowire.EndGroupType) {
			return d.malformed(p, "is no entry of a map")
		}
		if p = d.protoSkip(tag>>3, protowire.Type(tag&7), p, to); p < 0 {
			return -1
		}
		switch {
		case tag == 1<<3|uint64(wireOf(m.kind)):
			keyFrom, keyTo = next, p
		case tag == 2<<3|uint64(m.wire):
			hasValue = true
		}
	}
	text := m.kind == protoreflect.StringKind
	if text && keyTo > keyFrom {
		keyFrom, _ = d.lengthed(keyFrom, to)
	} else if !text && keyTo > keyFrom {
		bits, _ = d.protoNumber(m.kind, keyFrom, keyTo)
	}
	for k := range m.names {
		if text && string(d.buf[keyFrom:keyTo]) != m.names[k] || !text && bits != m.bits[k] {
			continue
		}
		d.protoClear(prog, m.clears[k])
		if w.at = from; d.protoRun(prog, m.runs[k], from, to, 0) < 0 {
			return -1
		}
		// An entry without a value has a message without fields.
		if r := &prog.runs[m.runs[k]]; !hasValue && m.message && len(r.fields) > 0 {
			x := &r.fields[0]
			if x.one.run >= 0 && d.protoRun(prog, x.one.run, to, to, 0) < 0 || !d.protoStamp(prog, x, &x.one, to, to) {
				return -1
			}
		}
	}
	for k := range f.at { // the path ends here
		if !d.protoWrong(&f.at[k], from, to) {
			return -1
		}
	}
	return to
}

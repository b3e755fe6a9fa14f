package decode

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"

	"github.com/headrace/headrace/internal/dataset"
)

// Bounds of what a hostile record makes a walk do.
const (
	maxCalls = 1 << 10 // records inside each other
	maxIdle  = 1 << 16 // elements of a record's arrays that take no bytes
)

// walkAvro fills the row from the record that lies in [p, end of the record).
func (d *Decoder) walkAvro(prog *avroProgram, p int) *fault {
	if p = d.avroRun(prog, 0, p); p >= 0 && p != d.end {
		d.malformed(p, fmt.Sprintf("%d bytes are left after the last field: the record was not written with this schema", d.end-p))
	}
	return d.endWalk(prog.checks, prog.absent)
}

// endWalk fills what the record did not.
func (d *Decoder) endWalk(checks []int32, absent []string) *fault {
	w := &d.walking
	if w.fault != nil {
		return w.fault
	}
	for i, id := range checks {
		if w.seen[id] != w.turn && !d.missingCell(id, absent[i]) {
			return w.fault
		}
	}
	return d.endLists()
}

// malformed makes the fault of a record whose bytes are not what its schema says.
func (d *Decoder) malformed(p int, reason string) int {
	if d.walking.fault == nil {
		d.walking.fault = &fault{at: p - d.start, value: d.buf[p:d.end], reason: reason}
	}
	return -1
}

func (d *Decoder) cutShort(p int) int {
	return d.malformed(min(p, d.end), "the record ends here, within a value")
}

// zigzag reads an int or a long. next is -1 after a fault.
func (d *Decoder) zigzag(p int) (v int64, next int) {
	if p < d.end && d.buf[p] < 0x80 {
		b := int64(d.buf[p])
		return b>>1 ^ -(b & 1), p + 1
	}
	u, n := binary.Uvarint(d.buf[p:max(p, d.end)])
	switch {
	case n == 0:
		return 0, d.cutShort(p)
	case n < 0:
		return 0, d.malformed(p, "is no number: it has more than 64 bits")
	}
	return int64(u>>1) ^ -int64(u&1), p + n
}

// span reads a length. The bytes lie in [from, to); from is -1 after a fault.
func (d *Decoder) span(p int) (from, to int) {
	n, from := d.zigzag(p)
	switch {
	case from < 0:
		return -1, -1
	case n < 0:
		return d.malformed(p, "has a negative length"), -1
	case n > int64(d.end-from):
		return d.malformed(p, fmt.Sprintf("has a length of %d bytes, and the record ends after %d", n, d.end-from)), -1
	}
	return from, from + int(n)
}

// avroRun walks the steps of one run and returns where they end; -1 after a fault.
func (d *Decoder) avroRun(prog *avroProgram, run int32, p int) int {
	w := &d.walking
	if w.depth++; w.depth > maxCalls {
		return d.malformed(p, fmt.Sprintf("has more than %d records inside each other", maxCalls))
	}
	steps := prog.runs[run]
	for i := range steps {
		s := &steps[i]
		if s.null != 0 {
			branch, next := d.zigzag(p)
			if next < 0 {
				return -1
			}
			if branch == int64(s.null-1) {
				if !d.avroNull(s) {
					return -1
				}
				p = next
				continue
			}
			if uint64(branch) > 1 {
				return d.malformed(p, fmt.Sprintf("names branch %d of a union of 2", branch))
			}
			p = next
		}
		w.at = p
		switch s.op {
		case avroInt:
			v, next := d.zigzag(p)
			if next < 0 {
				return -1
			}
			for _, id := range s.cells {
				if !d.putInt(id, v, s.typ.Logical) {
					return -1
				}
			}
			p = next
		case avroText:
			from, to := d.span(p)
			if from < 0 {
				return -1
			}
			for _, id := range s.cells {
				if !d.putSpan(id, from, to) {
					return -1
				}
			}
			p = to
		case avroDouble:
			if d.end-p < 8 {
				return d.cutShort(p)
			}
			bits := binary.LittleEndian.Uint64(d.buf[p:])
			for _, id := range s.cells {
				if !d.putFloat64(id, bits) {
					return -1
				}
			}
			p += 8
		case avroFloat:
			if d.end-p < 4 {
				return d.cutShort(p)
			}
			bits := binary.LittleEndian.Uint32(d.buf[p:])
			for _, id := range s.cells {
				d.putFloat32(id, bits)
			}
			p += 4
		case avroSkip:
			if d.end-p < int(s.n) {
				return d.cutShort(p)
			}
			p += int(s.n)
		case avroSkipVarint:
			for range s.n {
				if _, p = d.zigzag(p); p < 0 {
					return -1
				}
			}
		case avroSkipText:
			if _, p = d.span(p); p < 0 {
				return -1
			}
		default:
			if p = d.avroRare(prog, s, p); p < 0 {
				return -1
			}
		}
	}
	w.depth--
	return p
}

// avroNull handles the null of a leaf.
func (d *Decoder) avroNull(s *avroStep) bool {
	for _, id := range s.cells {
		ok := false
		if s.inner && d.walking.cells[id].stars > 0 {
			ok = d.missingElement(id)
		} else {
			ok = d.missingCell(id, "is null")
		}
		if !ok {
			return false
		}
	}
	return true
}

// avroRare walks a step that is not one of the plain ones.
func (d *Decoder) avroRare(prog *avroProgram, s *avroStep, p int) int {
	switch s.op {
	case avroBool:
		if d.end == p {
			return d.cutShort(p)
		}
		if d.buf[p] > 1 {
			return d.malformed(p, "is no boolean: the byte is neither 0 nor 1")
		}
		for _, id := range s.cells {
			d.putTruth(id, d.buf[p])
		}
		return p + 1
	case avroEnum:
		v, next := d.zigzag(p)
		if next < 0 {
			return -1
		}
		if uint64(v) >= uint64(len(s.typ.Symbols)) {
			return d.malformed(p, fmt.Sprintf("names symbol %d of %s, which has %d", v, s.typ.Name, len(s.typ.Symbols)))
		}
		d.scratch = append(d.scratch[:0], s.typ.Symbols[v]...)
		for _, id := range s.cells {
			if !d.putText(id, d.scratch) {
				return -1
			}
		}
		return next
	case avroDecimal:
		from, to := d.span(p)
		for _, id := range s.cells {
			if from < 0 {
				break
			}
			if !d.putDecimal(id, d.buf[from:to], s.typ.Scale) {
				return -1
			}
		}
		return to
	case avroFixed, avroFixedDecimal, avroUUID:
		to := p + int(s.n)
		if d.end-p < int(s.n) {
			return d.cutShort(p)
		}
		if !d.putFixed(s, p, to) {
			return -1
		}
		return to
	case avroBad:
		for _, id := range s.cells {
			if !d.badCell(id, d.buf[p:d.end], s.why) {
				return -1
			}
		}
		return p
	case avroCall:
		return d.avroRun(prog, s.n, p)
	case avroUnion:
		branch, next := d.zigzag(p)
		if next < 0 {
			return -1
		}
		if uint64(branch) >= uint64(len(s.more.runs)) {
			return d.malformed(p, fmt.Sprintf("names branch %d of a union of %d", branch, len(s.more.runs)))
		}
		return d.avroRun(prog, s.more.runs[branch], next)
	case avroArray:
		return d.avroItems(prog, s.more, p)
	case avroMap:
		return d.avroKeys(prog, s.more, p)
	case avroSkipItems:
		return d.avroPass(prog, s.n, p, false)
	case avroSkipMap:
		return d.avroPass(prog, s.n, p, true)
	}
	return p
}

func (d *Decoder) putFixed(s *avroStep, from, to int) bool {
	for _, id := range s.cells {
		ok := true
		switch c := &d.walking.cells[id]; {
		case s.op == avroFixedDecimal:
			ok = d.putDecimal(id, d.buf[from:to], s.typ.Scale)
		case s.op == avroUUID && (c.conv == toHash || c.column.dtype != dataset.Bytes):
			ok = d.putText(id, uuidText(d.walking.room[:0], d.buf[from:to]))
		default:
			ok = d.putSpan(id, from, to)
		}
		if !ok {
			return false
		}
	}
	return true
}

// uuidText is a UUID as people write it.
func uuidText(dst, v []byte) []byte {
	for i, part := range [][]byte{v[:4], v[4:6], v[6:8], v[8:10], v[10:]} {
		if i > 0 {
			dst = append(dst, '-')
		}
		dst = hex.AppendEncode(dst, part)
	}
	return dst
}

// block reads the head of a block of an array or a map: how many items follow, 0 at the
// end. size is that of the block in bytes, or -1 if the writer did not say it.
func (d *Decoder) block(p int) (count int64, size, next int) {
	count, next = d.zigzag(p)
	if next < 0 || count >= 0 {
		return count, -1, next
	}
	n, next := d.zigzag(next)
	switch {
	case next < 0:
		return 0, -1, -1
	case count == math.MinInt64 || n < 0 || n > int64(d.end-next):
		return 0, -1, d.malformed(p, "is no block of an array or a map: its size reaches beyond the record")
	}
	return -count, int(n), next
}

// sized checks the end of a block whose items were read: a block that says its size is
// skipped by it, so a size that is not true would make readers see different records.
func (d *Decoder) sized(from, size, to int) bool {
	if size < 0 || from+size == to {
		return true
	}
	d.malformed(from, fmt.Sprintf("is no block of an array or a map: it says %d bytes, and its items take %d", size, to-from))
	return false
}

// moved counts items that take no bytes: a block of a few bytes may announce any number of
// them.
func (d *Decoder) moved(before, after int) bool {
	if after != before {
		return true
	}
	d.walking.idle++
	return d.walking.idle <= maxIdle
}

func (d *Decoder) avroIdle(p int) int {
	return d.malformed(p, fmt.Sprintf("has more than %d elements without bytes", maxIdle))
}

// avroPass skips an array or a map.
func (d *Decoder) avroPass(prog *avroProgram, run int32, p int, keys bool) int {
	for {
		count, size, next := d.block(p)
		if next < 0 || count == 0 {
			return next
		}
		if p = next; size >= 0 {
			d.walking.jumps++
			p += size
			continue
		}
		if !keys && len(prog.runs[run]) == 0 { // nulls: counted as by those who read them
			if count > int64(maxIdle-d.walking.idle) {
				return d.avroIdle(p)
			}
			d.walking.idle += int(count)
			continue
		}
		for range count {
			before := p
			if keys {
				if _, p = d.span(p); p < 0 {
					return -1
				}
			}
			if p = d.avroRun(prog, run, p); p < 0 {
				return -1
			}
			if !d.moved(before, p) {
				return d.avroIdle(p)
			}
		}
	}
}

// avroItems walks an array whose elements are wanted.
func (d *Decoder) avroItems(prog *avroProgram, more *avroBranches, p int) int {
	w := &d.walking
	for i := 0; ; {
		count, size, next := d.block(p)
		if next < 0 || count == 0 {
			return next
		}
		p = next
		for range count {
			before, after := p, -1
			for k, index := range more.index {
				if index == i {
					if after = d.avroRun(prog, more.runs[k], p); after < 0 {
						return -1
					}
				}
			}
			switch {
			case more.star >= 0:
				for _, id := range more.checks {
					w.seen[id] = 0
				}
				if p = d.avroRun(prog, more.star, p); p < 0 {
					return -1
				}
				for _, id := range more.checks {
					if w.seen[id] == 0 && !d.missingElement(id) {
						return -1
					}
				}
			case after >= 0:
				p = after
			default:
				if p = d.avroRun(prog, more.skip, p); p < 0 {
					return -1
				}
			}
			if !d.moved(before, p) {
				return d.avroIdle(p)
			}
			i++
		}
		if !d.sized(next, size, p) {
			return -1
		}
	}
}

// avroKeys walks a map with some keys that are wanted.
func (d *Decoder) avroKeys(prog *avroProgram, more *avroBranches, p int) int {
	for {
		count, size, next := d.block(p)
		if next < 0 || count == 0 {
			return next
		}
		p = next
		for range count {
			from, to := d.span(p)
			if from < 0 {
				return -1
			}
			run, name := more.skip, d.buf[from:to]
			for k := range more.names {
				if string(name) == more.names[k] {
					run = more.runs[k]
					break
				}
			}
			if p = d.avroRun(prog, run, to); p < 0 {
				return -1
			}
		}
		if !d.sized(next, size, p) {
			return -1
		}
	}
}

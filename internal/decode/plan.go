package decode

import (
	"slices"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/frame"
)

func (s *source) name() string {
	if s.path.Kind == dataset.FieldNumber {
		if s.path.Name != "" {
			return "field " + s.path.Name
		}
		return "field " + s.path.String()
	}
	return s.path.String()
}

// finishPlan derives from the columns how a record is scanned.
func (d *Decoder) finishPlan() {
	d.slots = make([]slot, len(d.sources))
	d.lists = make([]list, len(d.sources))
	d.exact = len(d.fieldNames)
	var pointers []int
	for i := range d.sources {
		if d.sources[i].star {
			d.stars = append(d.stars, i)
		}
		switch p := &d.sources[i].path; p.Kind {
		case dataset.FieldNumber:
			for len(d.fieldSource) <= p.Number {
				d.fieldSource = append(d.fieldSource, -1)
			}
			d.fieldSource[p.Number] = int32(i)
		case dataset.Pointer:
			pointers = append(pointers, i)
		case dataset.FieldName: // unbound
		default:
			d.metas = append(d.metas, i)
		}
	}
	for i := range d.layout.Columns {
		if d.layout.Columns[i].Kind != frame.Fixed {
			d.grows = append(d.grows, i)
		}
	}
	if d.spec.Decode.Features() {
		d.planFeatures(pointers)
		pointers = nil
	}
	if d.spec.Decode.Written() {
		pointers = nil
	}
	d.root = d.newTrie(pointers)
	if d.delimiter != 0 && !d.unbound && len(d.metas) == 0 && len(d.fieldSource) > 0 {
		d.ops = d.planOps()
	}
}

// op is one piece of the fast path: one field, or a run of fields that follow
// each other into elements that follow each other of one column.
type op struct {
	kind    opKind
	field   int  // first field
	count   int  // fields
	again   bool // the same field as the op before, already scanned
	column  *column
	element int // of the row, in the column
	width   int // elements of a row
	least   int // bytes of a field: 1 where a missing value has no default
	source  int
	values  []byte // of the builder's column: aim
}

type opKind uint8

const (
	opAny   opKind = iota // one field through a slot
	opHash                // int64, hashed
	opInt32               // short numbers in line, others through a slot
	opInt64
	opFloat32
	opFloat64
	opTime // event time
)

// planOps orders what is done to a record by its fields.
func (d *Decoder) planOps() []op {
	var ops []op
	for _, c := range d.columns {
		for e, src := range c.sources {
			ops = append(ops, op{kind: c.fast, field: d.sources[src].path.Number, count: 1, column: c, element: e, width: len(c.sources), least: 1, source: src})
			if c.hasDefault {
				ops[len(ops)-1].least = 0
			}
		}
	}
	if t := d.eventTime; t != nil {
		ops = append(ops, op{kind: opTime, field: d.sources[t.sources[0]].path.Number, count: 1, column: t, source: t.sources[0]})
	}
	slices.SortStableFunc(ops, func(a, b op) int { return a.field - b.field })
	for i := range ops {
		if i > 0 && ops[i].field == ops[i-1].field {
			// Used twice: the first op scans the field and leaves its slot for the second.
			ops[i].again = true
			ops[i].kind, ops[i-1].kind = ops[i].kind.viaSlot(), ops[i-1].kind.viaSlot()
		}
	}
	var runs []op
	for _, o := range ops {
		if n := len(runs); n > 0 && runs[n-1].followedBy(&o) {
			runs[n-1].count++
			continue
		}
		runs = append(runs, o)
	}
	return runs
}

func (k opKind) viaSlot() opKind {
	if k == opTime {
		return k
	}
	return opAny
}

func (o *op) followedBy(p *op) bool {
	return o.kind == p.kind && o.kind != opAny && o.kind != opTime && o.column == p.column &&
		o.field+o.count == p.field && o.element+o.count == p.element
}

func (c *column) fastKind() opKind {
	switch {
	case c.ragged || c.mask || c.text():
		return opAny
	case c.hash != nil:
		return opHash
	case c.dtype == dataset.Int32:
		return opInt32
	case c.dtype == dataset.Int64:
		return opInt64
	case c.dtype == dataset.Float32:
		return opFloat32
	case c.dtype == dataset.Float64:
		return opFloat64
	}
	return opAny
}

package decode

import (
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// protoProgram walks the bytes of records that are one Protobuf message. Run 0 is the record.
type protoProgram struct {
	runs     []protoRun
	checks   []int32  // cells that a record may leave out
	absent   []string // by check: why there is none
	counters int      // of elements that are wanted by their numbers
	stamps   int      // Timestamps
	counted  map[int32][]protoCounter
}

// protoCounter counts the elements of a repeated field on a cell's path.
type protoCounter struct{ counter, depth int32 }

// protoRun walks one message. Fields come in any order and any number of times.
type protoRun struct {
	low    []uint16         // by number: 1 + the index of a field; 0: no column wants it
	far    map[int32]uint16 // the same for numbers from maxLow on
	fields []protoField
	zeros  []int32 // fields that a writer leaves out where they are zero

	// Of an element of a list.
	element bool
	checks  []int32 // cells that every element fills
	saves   []int32 // cells that may be cleared within an element
	resets  []int32 // counters that start again from 0
}

// protoField is a field that some column wants, or one that clears a wanted member of its oneof.
type protoField struct {
	kind     protoreflect.Kind
	wire     protowire.Type
	repeated bool
	packed   bool // numbers may lie in one run of bytes
	has      bool // one: the value, or every element
	one      protoValue
	index    []int // elements that are wanted by their numbers: at
	at       []protoValue
	counter  int32
	keys     *protoMap
	clears   []protoClear // the other members of its oneof
	copied   bool         // one: packed numbers lie in the record as they do in the column
	enum     protoreflect.EnumDescriptor
	symbols  []string // of its numbers from 0 on
}

// protoValue says where a value goes.
type protoValue struct {
	cells    []int32
	again    []protoClear // cells in an element: if a value comes again, the last one counts
	run      int32        // of a message; -1: nothing in it is wanted
	stamp    int32        // of a Timestamp that cells want: where it is put together; -1: none
	wrong    []int32      // cells that do not take it
	lacks    []int32      // cells of paths that go on below it, where there is nothing
	why      string
	presence bool // it is in the record if it was written
}

// protoClear clears a cell of a row, or of an element of a list: a later value of the record
// replaces what it holds.
type protoClear struct {
	cell  int32
	save  int32 // where the element's scope has the length of the cell's list; -1: the row's
	depth int32 // in the path: counters below it start again from 0
}

// protoMap is what is wanted of a map.
type protoMap struct {
	kind    protoreflect.Kind // of the keys
	wire    protowire.Type    // of the values
	message bool              // values are messages
	names   []string          // the wanted keys: texts, or
	bits    []uint64          // numbers
	runs    []int32           // of an entry, by key
	clears  [][]protoClear    // what an earlier entry with the key gave
}

type protoCompiler struct {
	d     *Decoder
	p     *protoProgram
	scope *protoScope
	depth int32
	lost  map[int32]string // why a path leads nowhere
	steps int
}

// protoScope is the record, or an element of a list.
type protoScope struct {
	outer  *protoScope // nil: the record
	saves  []int32
	resets []int32
}

func (d *Decoder) compileProto(m protoreflect.MessageDescriptor) (*protoProgram, error) {
	c := &protoCompiler{d: d, p: &protoProgram{counted: map[int32][]protoCounter{}}, scope: &protoScope{}, lost: map[int32]string{}}
	c.message(m, []*want{d.wants})
	if c.steps > maxSteps {
		return nil, fmt.Errorf("the schema is too large: its fields take more than %d steps", maxSteps)
	}
	for id := range d.walking.cells {
		if x := &d.walking.cells[id]; x.stars == 0 && x.kind != numberList && x.kind != textList {
			c.p.checks, c.p.absent = append(c.p.checks, int32(id)), append(c.p.absent, orMissing(c.lost[int32(id)]))
		}
	}
	return c.p, nil
}

func (c *protoCompiler) leadNowhere(ws []*want, why string) {
	for _, id := range belowOf(ws) {
		if c.lost[id] == "" {
			c.lost[id] = why
		}
	}
}

// message compiles a run. Its number is known before its fields are, which may need it.
func (c *protoCompiler) message(m protoreflect.MessageDescriptor, ws []*want) int32 {
	id := int32(len(c.p.runs))
	c.p.runs = append(c.p.runs, protoRun{})
	r := c.fields(m, ws)
	c.p.runs[id] = r
	return id
}

func (c *protoCompiler) fields(m protoreflect.MessageDescriptor, ws []*want) (r protoRun) {
	if c.steps++; c.steps > maxSteps {
		return r
	}
	kids := childrenOf(ws)
	taken := make([]bool, len(kids))
	all := m.Fields()
	wanted := map[protoreflect.FieldNumber][]*want{}
	for k, kid := range kids {
		if kid.star {
			c.leadNowhere([]*want{kid}, fmt.Sprintf("%s is a message: a * is for repeated fields; it has %s", m.FullName(), listed(fieldNames(m))))
			continue
		}
		f := all.ByName(protoreflect.Name(kid.token))
		if f == nil {
			f = all.ByJSONName(kid.token)
		}
		if f == nil {
			c.leadNowhere([]*want{kid}, fmt.Sprintf("the writer's schema has no field %s in %s; it has %s", kid.token, m.FullName(), listed(fieldNames(m))))
			continue
		}
		taken[k] = true
		wanted[f.Number()] = append(wanted[f.Number()], kid)
	}
	for i := range all.Len() {
		f := all.Get(i)
		mine, clears := wanted[f.Number()], c.others(f, wanted)
		if len(mine) == 0 && len(clears) == 0 {
			continue
		}
		x := c.field(f, mine)
		x.clears = clears
		if x.has && !x.repeated && !x.one.presence {
			r.zeros = append(r.zeros, int32(len(r.fields)))
		}
		if len(r.fields) == math.MaxUint16 {
			c.steps = maxSteps + 1
			return r
		}
		r.fields = append(r.fields, x)
		r.number(int32(f.Number()), uint16(len(r.fields)))
	}
	return r
}

// maxLow: fields with numbers below it are found in a table.
const maxLow = 1 << 10

func (r *protoRun) number(number int32, index uint16) {
	if number < maxLow {
		r.low = append(r.low, make([]uint16, max(0, int(number)+1-len(r.low)))...)
		r.low[number] = index
		return
	}
	if r.far == nil {
		r.far = map[int32]uint16{}
	}
	r.far[number] = index
}

func fieldNames(m protoreflect.MessageDescriptor) []string {
	names := make([]string, m.Fields().Len())
	for i := range names {
		names[i] = string(m.Fields().Get(i).Name())
	}
	return names
}

// others are the cells of the other members of a field's oneof.
func (c *protoCompiler) others(f protoreflect.FieldDescriptor, wanted map[protoreflect.FieldNumber][]*want) []protoClear {
	o := f.ContainingOneof()
	if o == nil || o.IsSynthetic() {
		return nil
	}
	var list []protoClear
	for i := range o.Fields().Len() {
		if other := o.Fields().Get(i); other != f {
			list = append(list, c.clear(belowOf(wanted[other.Number()]))...)
		}
	}
	return list
}

// clear says how cells are cleared within the scope.
func (c *protoCompiler) clear(cells []int32) []protoClear {
	var list []protoClear
	for _, id := range cells {
		k := protoClear{cell: id, save: -1, depth: c.depth}
		if c.scope.outer != nil && c.isList(id) {
			at := slices.Index(c.scope.saves, id)
			if at < 0 {
				at = len(c.scope.saves)
				c.scope.saves = append(c.scope.saves, id)
			}
			k.save = int32(at)
		}
		list = append(list, k)
	}
	return list
}

func (c *protoCompiler) isList(id int32) bool {
	k := c.d.walking.cells[id].kind
	return k == numberList || k == textList
}

package decode

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headrace/headrace/internal/schema"
)

// avroProgram walks the bytes of records of one writer's schema: what to skip, and which
// cells a value goes to. Run 0 is the record.
type avroProgram struct {
	runs   [][]avroStep
	checks []int32  // cells that a record may leave out
	absent []string // by check: why there is none
}

// avroStep is one step of a run. The fields of a container have runs of their own.
type avroStep struct {
	op    avroOp
	null  int8  // of a leaf: 1 + the number of the null branch of its union; 0: no union
	inner bool  // of a leaf: null is a missing element of a list
	n     int32 // bytes, a count, or a run
	cells []int32
	typ   *schema.Type
	more  *avroBranches
	why   string
}

// avroBranches is the rest of a step with several runs.
type avroBranches struct {
	runs   []int32  // of a union, by branch; of a map, by name; of an array, by index
	names  []string // of a map's keys
	index  []int    // of an array's elements
	star   int32    // run of every element, or -1
	skip   int32    // run of an element that no name or index wants
	checks []int32  // cells that every element fills
}

type avroOp uint8

const (
	avroNothing    avroOp = iota
	avroSkip              // n bytes
	avroSkipVarint        // n numbers
	avroSkipText          // a length and bytes
	avroSkipItems         // an array: run n skips an element
	avroSkipMap           // a map: run n skips a value
	avroCall              // run n: a record that is skipped
	avroUnion             // more.runs
	avroArray
	avroMap
	avroBool
	avroInt
	avroFloat
	avroDouble
	avroText // bytes and strings
	avroFixed
	avroEnum
	avroDecimal      // bytes
	avroFixedDecimal // n bytes
	avroUUID         // 16 bytes as text
	avroBad          // the value does not become an element of the cells: why
)

// maxSteps bounds the program of a hostile schema.
const maxSteps = 1 << 18

type avroCompiler struct {
	d       *Decoder
	p       *avroProgram
	now     []avroStep
	steps   int
	certain map[int32]bool   // cells that every record (or element) fills
	lost    map[int32]string // why a path leads nowhere
	skips   map[*schema.Type]int32
	later   []*schema.Type // whose skip runs are not written yet
}

func (d *Decoder) compileAvro(t *schema.Type) (*avroProgram, error) {
	c := &avroCompiler{d: d, p: &avroProgram{runs: make([][]avroStep, 1)}, certain: map[int32]bool{}, lost: map[int32]string{}, skips: map[*schema.Type]int32{}}
	c.value(t, []*want{d.wants}, where{})
	c.p.runs[0] = c.now
	for len(c.later) > 0 && c.steps <= maxSteps { // records that are skipped may lie in themselves
		t := c.later[0]
		c.later, c.now = c.later[1:], nil
		for i := range t.Fields {
			c.skip(t.Fields[i].Type)
		}
		c.p.runs[c.skips[t]] = c.now
	}
	if c.steps > maxSteps {
		return nil, fmt.Errorf("the schema is too large: its fields take more than %d steps", maxSteps)
	}
	for id := range int32(len(d.walking.cells)) {
		if !c.certain[id] {
			c.p.checks, c.p.absent = append(c.p.checks, id), append(c.p.absent, orMissing(c.lost[id]))
		}
	}
	return c.p, nil
}

func orMissing(why string) string {
	if why == "" {
		return "is missing"
	}
	return "is missing: " + why
}

func (c *avroCompiler) add(s avroStep) {
	if c.steps++; c.steps <= maxSteps {
		c.now = append(c.now, s)
	}
}

// run writes steps of their own.
func (c *avroCompiler) run(write func()) int32 {
	outer := c.now
	c.now = nil
	c.steps++
	write()
	c.p.runs = append(c.p.runs, c.now)
	c.now = outer
	return int32(len(c.p.runs) - 1)
}

// where says what is known of a value that is compiled.
type where struct {
	maybe bool // it is not in every record (or element)
	inner bool // it lies in an element of a list
}

func (c *avroCompiler) leadNowhere(ws []*want, why string) {
	for _, id := range belowOf(ws) {
		if c.lost[id] == "" {
			c.lost[id] = why
		}
	}
}

// value writes the steps of a value that some of the wanted paths lead to.
func (c *avroCompiler) value(t *schema.Type, ws []*want, at where) {
	if len(ws) == 0 || c.steps > maxSteps {
		c.skip(t)
		return
	}
	switch t.Kind {
	case schema.Record:
		c.record(t, ws, at)
	case schema.Union:
		c.union(t, ws, at)
	case schema.Array:
		c.array(t, ws, at)
	case schema.Map:
		c.keys(t, ws, at)
	default:
		c.leaf(t, ws, at, 0)
	}
}

func (c *avroCompiler) record(t *schema.Type, ws []*want, at where) {
	c.bad(cellsOf(ws), "is a record: name one of its fields, as in /"+firstOf(t.FieldNames()), at)
	kids := childrenOf(ws)
	taken := make([]bool, len(kids))
	for i := range t.Fields {
		f := &t.Fields[i]
		var mine []*want
		for k, kid := range kids {
			if !kid.star && !taken[k] && t.Field(kid.token) == f {
				mine, taken[k] = append(mine, kid), true
			}
		}
		c.value(f.Type, mine, at)
	}
	for k, kid := range kids {
		if taken[k] {
			continue
		}
		c.leadNowhere([]*want{kid}, fmt.Sprintf("the writer's schema has no field %s in %s; it has %s", kid.token, t.Name, listed(t.FieldNames())))
	}
}

func firstOf(names []string) string {
	if len(names) == 0 {
		return "NAME"
	}
	return names[0]
}

func listed(names []string) string { return excerpt([]byte(strings.Join(names, ", "))) }

func (c *avroCompiler) union(t *schema.Type, ws []*want, at where) {
	null := slices.IndexFunc(t.Branches, func(b *schema.Type) bool { return b.Kind == schema.Null })
	if len(t.Branches) == 2 && null >= 0 {
		if other := t.Branches[1-null]; avroLeaves[other.Kind].op != 0 {
			if wrong, _ := c.unfit(other, cellsOf(ws)); len(wrong) == 0 {
				c.leaf(other, ws, at, int8(null+1))
				return
			}
		}
	}
	more := &avroBranches{}
	for _, b := range t.Branches {
		more.runs = append(more.runs, c.run(func() {
			if b.Kind != schema.Null {
				c.value(b, ws, where{maybe: true, inner: at.inner})
			}
		}))
	}
	c.add(avroStep{op: avroUnion, more: more})
}

// array writes the wanted elements of an array: all of them (*), or some by their numbers.
func (c *avroCompiler) array(t *schema.Type, ws []*want, at where) {
	c.bad(cellsOf(ws), "is an array: write a * for its elements, as in /tags/*, or the number of one", at)
	more := &avroBranches{star: -1}
	var stars []*want
	for _, kid := range childrenOf(ws) {
		switch i, ok := kid.index(); {
		case kid.star:
			stars = append(stars, kid)
		case ok:
			more.index = append(more.index, i)
			more.runs = append(more.runs, c.run(func() { c.value(t.Item, []*want{kid}, where{maybe: true, inner: at.inner}) }))
		default:
			c.leadNowhere([]*want{kid}, "the writer's schema has an array there: write a * or a number instead of "+kid.token)
		}
	}
	if len(stars) > 0 {
		more.star = c.run(func() { c.value(t.Item, stars, where{inner: true}) })
		for _, id := range innermost(stars) {
			if !c.certain[id] {
				more.checks = append(more.checks, id)
			}
			c.certain[id] = true // its row ends by itself
		}
	}
	more.skip = c.run(func() { c.skip(t.Item) })
	if len(stars) == 0 && len(more.index) == 0 {
		c.add(avroStep{op: avroSkipItems, n: more.skip})
		return
	}
	c.add(avroStep{op: avroArray, more: more})
}

// keys writes a map in which some values are wanted, by their keys.
func (c *avroCompiler) keys(t *schema.Type, ws []*want, at where) {
	c.bad(cellsOf(ws), "is a map: name one of its keys, as in /attributes/color", at)
	more := &avroBranches{}
	for _, kid := range childrenOf(ws) {
		if kid.star {
			c.leadNowhere([]*want{kid}, "the writer's schema has a map there, and a * is for arrays: name a key")
			continue
		}
		more.names = append(more.names, kid.token)
		more.runs = append(more.runs, c.run(func() { c.value(t.Item, []*want{kid}, where{maybe: true, inner: at.inner}) }))
	}
	more.skip = c.run(func() { c.skip(t.Item) })
	if len(more.names) == 0 {
		c.add(avroStep{op: avroSkipMap, n: more.skip})
		return
	}
	c.add(avroStep{op: avroMap, more: more})
}

// bad makes the values of cells bad, whatever they are.
func (c *avroCompiler) bad(cells []int32, why string, at where) {
	if len(cells) > 0 {
		c.add(avroStep{op: avroBad, cells: cells, why: why})
		c.filled(cells, at)
	}
}

func (c *avroCompiler) filled(cells []int32, at where) {
	for _, id := range cells {
		if !at.maybe {
			c.certain[id] = true
		}
	}
}

var avroLeaves = [schema.Union + 1]struct {
	op avroOp
	is class
}{
	schema.Bool: {avroBool, truthValue}, schema.Int: {avroInt, wholeNumber}, schema.Long: {avroInt, wholeNumber},
	schema.Float: {avroFloat, fraction}, schema.Double: {avroDouble, fraction}, schema.Bytes: {avroText, byteValue},
	schema.String: {avroText, textValue}, schema.Fixed: {avroFixed, byteValue}, schema.Enum: {avroEnum, textValue},
}

// leaf writes a value that is no container. null is 1 + the number of the null branch if
// it is in a union with null.
func (c *avroCompiler) leaf(t *schema.Type, ws []*want, at where, null int8) {
	for _, kid := range childrenOf(ws) {
		c.leadNowhere([]*want{kid}, "the writer's schema has "+t.Kind.String()+" there, which has no fields")
	}
	wrong, why := c.unfit(t, cellsOf(ws))
	c.bad(wrong, why, at)
	cells := slices.DeleteFunc(cellsOf(ws), func(id int32) bool { return slices.Contains(wrong, id) })
	if len(cells) == 0 && null == 0 || t.Kind == schema.Null {
		c.skip(t)
		return
	}
	s := avroStep{op: avroLeaves[t.Kind].op, null: null, inner: at.inner, typ: t, n: int32(t.Size), cells: cells}
	switch {
	case t.Logical == schema.Decimal && t.Kind == schema.Fixed:
		s.op = avroFixedDecimal
	case t.Logical == schema.Decimal:
		s.op = avroDecimal
	case t.Logical == schema.UUID && t.Kind == schema.Fixed:
		s.op = avroUUID
	}
	c.add(s)
	c.filled(cells, at)
}

// unfit are the cells that values of a type do not become an element of.
func (c *avroCompiler) unfit(t *schema.Type, cells []int32) (wrong []int32, why string) {
	if t.Kind == schema.Null {
		return nil, ""
	}
	is, said := avroLeaves[t.Kind].is, t.Kind.String()
	switch t.Logical {
	case schema.Decimal:
		is, said = decimalValue, "a decimal"
	case schema.TimeMillis, schema.TimeMicros:
		is, said = timeOfDay, "a time of day"
	case schema.UUID:
		is = textValue
	}
	for _, id := range cells {
		x := &c.d.walking.cells[id]
		if x.takes(is) {
			continue
		}
		wrong, why = append(wrong, id), x.unfit(said)
	}
	return wrong, why
}

// skip writes the steps that pass over a value.
func (c *avroCompiler) skip(t *schema.Type) {
	last := func(op avroOp) *avroStep {
		if n := len(c.now); n > 0 && c.now[n-1].op == op {
			return &c.now[n-1]
		}
		c.add(avroStep{op: op})
		if len(c.now) == 0 {
			return &avroStep{}
		}
		return &c.now[len(c.now)-1]
	}
	switch t.Kind {
	case schema.Null:
	case schema.Bool:
		last(avroSkip).n++
	case schema.Float:
		last(avroSkip).n += 4
	case schema.Double:
		last(avroSkip).n += 8
	case schema.Fixed:
		c.add(avroStep{op: avroSkip, n: int32(t.Size)})
	case schema.Int, schema.Long, schema.Enum:
		last(avroSkipVarint).n++
	case schema.Bytes, schema.String:
		c.add(avroStep{op: avroSkipText})
	case schema.Array, schema.Map:
		op := avroSkipItems
		if t.Kind == schema.Map {
			op = avroSkipMap
		}
		c.add(avroStep{op: op, n: c.run(func() { c.skip(t.Item) })})
	case schema.Union:
		more := &avroBranches{}
		for _, b := range t.Branches {
			more.runs = append(more.runs, c.run(func() { c.skip(b) }))
		}
		c.add(avroStep{op: avroUnion, more: more})
	case schema.Record:
		id, known := c.skips[t]
		if !known {
			id = int32(len(c.p.runs))
			c.p.runs = append(c.p.runs, nil)
			c.skips[t] = id
			c.later = append(c.later, t)
		}
		c.add(avroStep{op: avroCall, n: id})
	}
}

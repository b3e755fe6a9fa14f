package decode

import (
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// field compiles a field to which some of the wanted paths lead.
func (c *protoCompiler) field(f protoreflect.FieldDescriptor, ws []*want) protoField {
	x := protoField{kind: f.Kind(), wire: wireOf(f.Kind()), counter: -1}
	if x.enum = f.Enum(); x.enum != nil {
		x.symbols = symbolsOf(x.enum)
	}
	c.depth++
	defer func() { c.depth-- }()
	switch {
	case len(ws) == 0: // it clears other members of its oneof
	case f.IsMap():
		c.keyed(f, ws, &x)
	case f.IsList():
		c.repeated(f, ws, &x)
	default:
		x.has, x.one = true, c.value(f, ws)
		x.one.presence = f.HasPresence()
		c.replaced(&x.one)
	}
	return x
}

// replaced makes the last one of several values in an element count.
func (c *protoCompiler) replaced(v *protoValue) {
	if c.scope.outer == nil {
		return
	}
	for _, id := range slices.Concat(v.cells, v.wrong) {
		if c.isList(id) {
			v.again = append(v.again, c.clear([]int32{id})...)
		}
	}
}

// repeated compiles the wanted elements of a repeated field: all of them (*), or some by
// their numbers.
func (c *protoCompiler) repeated(f protoreflect.FieldDescriptor, ws []*want, x *protoField) {
	x.repeated = true
	x.packed = x.wire != protowire.BytesType && x.wire != protowire.StartGroupType
	c.container(ws, x, "is repeated: write a * for its elements, as in /tags/*, or the number of one")
	var stars []*want
	for _, kid := range childrenOf(ws) {
		switch i, ok := kid.index(); {
		case kid.star:
			stars = append(stars, kid)
		case ok:
			if x.counter < 0 {
				x.counter = int32(c.p.counters)
				c.p.counters++
				c.scope.resets = append(c.scope.resets, x.counter)
			}
			for _, id := range kid.below {
				c.p.counted[id] = append(c.p.counted[id], protoCounter{x.counter, c.depth})
			}
			c.depth++
			x.index, x.at = append(x.index, i), append(x.at, c.value(f, []*want{kid}))
			c.depth--
		default:
			c.leadNowhere([]*want{kid}, "the writer's schema has a repeated field there: write a * or a number instead of "+kid.token)
		}
	}
	if len(stars) == 0 {
		return
	}
	c.depth++
	defer func() { c.depth-- }()
	if x.has = true; f.Message() == nil {
		x.one = c.value(f, stars)
		x.one.lacks = unfilled(&x.one, stars)
		x.copied = len(x.at) == 0 && len(x.one.cells) == 1 && len(x.one.wrong) == 0 && len(x.one.lacks) == 0 && c.lieAlike(f.Kind(), x.one.cells[0])
		return
	}
	scope := &protoScope{outer: c.scope}
	c.scope = scope
	x.one = c.value(f, stars)
	c.scope = scope.outer
	if x.one.run < 0 { // no field of it is wanted, but there is one value for each element
		x.one.run = c.message(f.Message(), nil)
	}
	r := &c.p.runs[x.one.run]
	r.element, r.saves, r.resets = true, scope.saves, scope.resets
	r.checks = unfilled(&x.one, stars)
}

// unfilled are the cells that get a value for each element, and that the element itself does not
// fill.
func unfilled(v *protoValue, stars []*want) []int32 {
	return slices.DeleteFunc(innermost(stars), func(id int32) bool { return slices.Contains(v.cells, id) || slices.Contains(v.wrong, id) })
}

// lieAlike reports whether packed numbers lie in the record as they do in the list's column.
func (c *protoCompiler) lieAlike(k protoreflect.Kind, id int32) bool {
	x := &c.d.walking.cells[id]
	if x.kind != numberList {
		return false
	}
	switch x.conv {
	case toFloat32:
		return k == protoreflect.FloatKind
	case toFloat64:
		return k == protoreflect.DoubleKind
	case toInt32:
		return k == protoreflect.Sfixed32Kind
	case toInt64:
		return k == protoreflect.Sfixed64Kind
	}
	return false
}

// maxSymbols is how many names of an enum are looked up in a table.
const maxSymbols = 1 << 12

func symbolsOf(e protoreflect.EnumDescriptor) []string {
	var names []string
	for i := range e.Values().Len() {
		v := e.Values().Get(i)
		if n := int(v.Number()); n >= 0 && n < maxSymbols {
			names = append(names, make([]string, max(0, n+1-len(names)))...)
			if names[n] == "" { // of several names the first one counts
				names[n] = string(v.Name())
			}
		}
	}
	return names
}

// container makes cells bad whose paths end at a repeated field or a map.
func (c *protoCompiler) container(ws []*want, x *protoField, why string) {
	if cells := cellsOf(ws); len(cells) > 0 {
		for _, id := range cells {
			c.lost[id] = "it " + why
		}
		x.at, x.index = append(x.at, protoValue{run: -1, stamp: -1, wrong: cells, why: why}), append(x.index, -1)
	}
}

// keyed compiles a map. The columns name some of its keys, and only their values are decoded.
func (c *protoCompiler) keyed(f protoreflect.FieldDescriptor, ws []*want, x *protoField) {
	x.repeated = true
	c.container(ws, x, "is a map: name one of its keys, as in /attributes/color")
	m := &protoMap{kind: f.MapKey().Kind(), wire: wireOf(f.MapValue().Kind()), message: f.MapValue().Message() != nil}
	for _, kid := range childrenOf(ws) {
		if kid.star {
			c.leadNowhere([]*want{kid}, "the writer's schema has a map there, and a * is for repeated fields: name a key")
			continue
		}
		bits, ok := keyBits(m.kind, kid.token)
		if !ok {
			c.leadNowhere([]*want{kid}, fmt.Sprintf("the writer's schema has a map there whose keys are of type %s, and %s is none", m.kind, kid.token))
			continue
		}
		value := &want{token: "value", children: kid.children, cells: kid.cells, below: kid.below}
		m.names, m.bits = append(m.names, kid.token), append(m.bits, bits)
		m.clears = append(m.clears, c.clear(kid.below))
		run := c.message(f.Message(), []*want{{children: []*want{value}}})
		if r := &c.p.runs[run]; len(r.fields) == 1 && !m.message {
			r.zeros = []int32{0} // of an entry without a value, in proto2 too
		}
		m.runs = append(m.runs, run)
	}
	if len(m.names) > 0 {
		x.keys = m
	}
}

// keyBits is the key that a token names. Of texts it is the token itself.
func keyBits(k protoreflect.Kind, token string) (uint64, bool) {
	var err error
	var u uint64
	var i int64
	switch k {
	case protoreflect.StringKind:
		return 0, true
	case protoreflect.BoolKind:
		return map[string]uint64{"true": 1}[token], token == "true" || token == "false"
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		u, err = strconv.ParseUint(token, 10, 32)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		u, err = strconv.ParseUint(token, 10, 64)
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		i, err = strconv.ParseInt(token, 10, 32)
		u = uint64(i)
	default:
		i, err = strconv.ParseInt(token, 10, 64)
		u = uint64(i)
	}
	return u, err == nil
}

// value compiles one value of a field: the only one, or an element.
func (c *protoCompiler) value(f protoreflect.FieldDescriptor, ws []*want) protoValue {
	v := protoValue{run: -1, stamp: -1}
	cells := cellsOf(ws)
	if m := f.Message(); m != nil {
		switch {
		case len(cells) == 0:
		case m.FullName() == "google.protobuf.Timestamp":
			c.fit(&v, cells, wholeNumber, false, "a Timestamp")
			if len(v.cells) > 0 {
				v.stamp = int32(c.p.stamps)
				c.p.stamps++
			}
		case wrappers[m.FullName()]:
			ws = append(slices.Clone(ws), &want{children: []*want{{token: "value", cells: cells, below: cells}}})
		default:
			v.wrong, v.why = cells, "is a message: name one of its fields, as in /"+firstOf(fieldNames(m))
			for _, id := range cells {
				c.lost[id] = "it " + v.why
			}
		}
		if len(childrenOf(ws)) > 0 {
			v.run = c.message(m, ws)
		}
		return v
	}
	for _, kid := range childrenOf(ws) {
		c.leadNowhere([]*want{kid}, fmt.Sprintf("the writer's schema has %s there, which has no fields", saidOf(f.Kind())))
	}
	is := protoClass[f.Kind()]
	c.fit(&v, cells, is, f.Kind() == protoreflect.EnumKind, saidOf(f.Kind()))
	return v
}

// fit divides cells into those that take values of a class and others.
func (c *protoCompiler) fit(v *protoValue, cells []int32, is class, symbol bool, said string) {
	for _, id := range cells {
		x := &c.d.walking.cells[id]
		takes := x.takes(is) || symbol && x.kind != instantCell && x.takes(textValue)
		if symbol && x.kind == instantCell {
			takes = false
		}
		if takes {
			v.cells = append(v.cells, id)
			continue
		}
		v.wrong, v.why = append(v.wrong, id), x.unfit(said)
	}
}

// wrappers are the messages that hold one value, so that it can be missing.
var wrappers = map[protoreflect.FullName]bool{
	"google.protobuf.BoolValue": true, "google.protobuf.BytesValue": true, "google.protobuf.DoubleValue": true,
	"google.protobuf.FloatValue": true, "google.protobuf.Int32Value": true, "google.protobuf.Int64Value": true,
	"google.protobuf.StringValue": true, "google.protobuf.UInt32Value": true, "google.protobuf.UInt64Value": true,
}

var protoClass = [...]class{
	protoreflect.BoolKind: truthValue, protoreflect.EnumKind: wholeNumber,
	protoreflect.Int32Kind: wholeNumber, protoreflect.Sint32Kind: wholeNumber, protoreflect.Uint32Kind: wholeNumber,
	protoreflect.Int64Kind: wholeNumber, protoreflect.Sint64Kind: wholeNumber, protoreflect.Uint64Kind: wholeNumber,
	protoreflect.Sfixed32Kind: wholeNumber, protoreflect.Fixed32Kind: wholeNumber,
	protoreflect.Sfixed64Kind: wholeNumber, protoreflect.Fixed64Kind: wholeNumber,
	protoreflect.FloatKind: fraction, protoreflect.DoubleKind: fraction,
	protoreflect.StringKind: textValue, protoreflect.BytesKind: byteValue,
}

func saidOf(k protoreflect.Kind) string {
	switch k {
	case protoreflect.EnumKind, protoreflect.Int32Kind, protoreflect.Int64Kind:
		return "an " + k.String()
	case protoreflect.BytesKind:
		return "bytes"
	}
	return "a " + k.String()
}

func wireOf(k protoreflect.Kind) protowire.Type {
	switch k {
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind:
		return protowire.BytesType
	case protoreflect.GroupKind:
		return protowire.StartGroupType
	case protoreflect.FloatKind, protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind:
		return protowire.Fixed32Type
	case protoreflect.DoubleKind, protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind:
		return protowire.Fixed64Type
	}
	return protowire.VarintType
}

package decode

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// The same random values in JSON, Avro and Protobuf give the same columns. A form is the type of a
// value; all its leaves are numbers, or all are texts.
type form struct {
	kind  formKind
	items []*form // fields of a record, branches of a union; of an array or a map: one
	name  string  // of a record
}

type formKind uint8

const (
	leafForm formKind = iota
	nullForm
	recordForm
	arrayForm
	mapForm
	unionForm
)

// member is an entry of a map. A value is nil, int64, string, []any (of a record: by field; of an
// array), []member, or a choice of a union.
type member struct {
	key   string
	value any
}

type choice struct {
	branch int
	value  any
}

var (
	formFields = []string{"a", "b", "c"}
	formKeys   = []string{"a", "b", "0"}
)

type formMaker struct {
	*rand.Rand
	text  bool // leaves are texts
	proto bool // Protobuf has a field for it: no union but with null, nulls and lists only in fields
	names int
}

func (m *formMaker) record(depth int) *form {
	f := &form{kind: recordForm, name: fmt.Sprintf("R%d", m.names)}
	m.names++
	for range 1 + m.IntN(len(formFields)) {
		f.items = append(f.items, m.field(depth-1))
	}
	return f
}

func (m *formMaker) field(depth int) *form {
	if !m.proto {
		return m.any(depth, true)
	}
	switch m.IntN(5) {
	case 0, 1:
		return &form{kind: unionForm, items: []*form{{kind: nullForm}, m.single(depth)}}
	case 2:
		return &form{kind: arrayForm, items: []*form{m.single(depth)}}
	case 3:
		return &form{kind: mapForm, items: []*form{m.single(depth)}}
	}
	return m.single(depth)
}

// single is a leaf or a record.
func (m *formMaker) single(depth int) *form {
	if depth <= 0 || m.IntN(2) == 0 {
		return &form{kind: leafForm}
	}
	return m.record(depth)
}

func (m *formMaker) any(depth int, union bool) *form {
	kind := formKind(m.IntN(int(unionForm) + 1))
	switch {
	case depth <= 0 || kind == leafForm || kind == nullForm:
		return &form{kind: leafForm}
	case kind == recordForm:
		return m.record(depth)
	case kind == unionForm && union:
		return m.union(depth)
	case kind == mapForm:
		return &form{kind: mapForm, items: []*form{m.any(depth-1, true)}}
	}
	return &form{kind: arrayForm, items: []*form{m.any(depth-1, true)}}
}

func (m *formMaker) union(depth int) *form {
	f := &form{kind: unionForm}
	if m.IntN(4) > 0 {
		f.items = append(f.items, &form{kind: nullForm})
	}
	for range 1 + m.IntN(2)*m.IntN(3) {
		b := m.any(depth-1, false)
		if b.kind == recordForm || !slices.ContainsFunc(f.items, func(o *form) bool { return o.kind == b.kind }) {
			f.items = append(f.items, b)
		}
	}
	m.Shuffle(len(f.items), func(i, j int) { f.items[i], f.items[j] = f.items[j], f.items[i] })
	return f
}

func (m *formMaker) value(f *form) any {
	switch f.kind {
	case leafForm:
		if m.text {
			return []string{"", "x", "a longer text"}[m.IntN(3)]
		}
		return int64(m.IntN(200) - 100)
	case recordForm:
		all := []any{}
		for _, g := range f.items {
			all = append(all, m.value(g))
		}
		return all
	case arrayForm:
		all := []any{}
		for range m.IntN(4) {
			all = append(all, m.value(f.items[0]))
		}
		return all
	case mapForm:
		all := []member{}
		for _, key := range formKeys {
			if m.IntN(2) == 0 {
				all = append(all, member{key, m.value(f.items[0])})
			}
		}
		return all
	case unionForm:
		branch := m.IntN(len(f.items))
		return choice{branch, m.value(f.items[branch])}
	}
	return nil
}

// paths adds paths to the leaves, and some that lead nowhere or to a container.
func (m *formMaker) paths(f *form, prefix string, all map[string]bool) {
	more := []string{"/nothing", "", "/a", "/0", "/*"}
	if m.proto && f.kind != leafForm { // to Protobuf an empty list is nothing, and to the others a value
		more = more[:1]
	}
	if m.IntN(12) == 0 {
		all[prefix+more[m.IntN(len(more))]] = true
	}
	switch f.kind {
	case leafForm:
		all[prefix] = true
	case recordForm:
		for i, g := range f.items {
			m.paths(g, prefix+"/"+formFields[i], all)
		}
	case arrayForm:
		for _, token := range []string{"*", "0", "1"} {
			m.paths(f.items[0], prefix+"/"+token, all)
		}
	case mapForm:
		for _, token := range []string{"a", "0", "nothing"} {
			m.paths(f.items[0], prefix+"/"+token, all)
		}
	case unionForm:
		for _, g := range f.items {
			m.paths(g, prefix, all)
		}
	}
}

// json leaves some fields out that are null.
func (m *formMaker) json(f *form, v any) string {
	var parts []string
	switch f.kind {
	case recordForm:
		for i, g := range f.items {
			if text := m.json(g, v.([]any)[i]); text != "null" || m.IntN(2) == 0 {
				parts = append(parts, fmt.Sprintf("%q:%s", formFields[i], text))
			}
		}
		return "{" + strings.Join(parts, ",") + "}"
	case arrayForm:
		for _, e := range v.([]any) {
			parts = append(parts, m.json(f.items[0], e))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case mapForm:
		for _, e := range v.([]member) {
			parts = append(parts, fmt.Sprintf("%q:%s", e.key, m.json(f.items[0], e.value)))
		}
		return "{" + strings.Join(parts, ",") + "}"
	case unionForm:
		c := v.(choice)
		return m.json(f.items[c.branch], c.value)
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func (m *formMaker) avroSchema(f *form) string {
	var parts []string
	switch f.kind {
	case nullForm:
		return `"null"`
	case recordForm:
		for i, g := range f.items {
			parts = append(parts, fmt.Sprintf(`{"name":%q,"type":%s}`, formFields[i], m.avroSchema(g)))
		}
		return fmt.Sprintf(`{"type":"record","name":%q,"fields":[%s]}`, f.name, strings.Join(parts, ","))
	case arrayForm:
		return `{"type":"array","items":` + m.avroSchema(f.items[0]) + "}"
	case mapForm:
		return `{"type":"map","values":` + m.avroSchema(f.items[0]) + "}"
	case unionForm:
		for _, g := range f.items {
			parts = append(parts, m.avroSchema(g))
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	return map[bool]string{false: `"long"`, true: `"string"`}[m.text]
}

func (m *formMaker) avro(b []byte, f *form, v any) []byte {
	text := func(b []byte, s string) []byte { return append(binary.AppendVarint(b, int64(len(s))), s...) }
	switch x := v.(type) {
	case int64:
		return binary.AppendVarint(b, x)
	case string:
		return text(b, x)
	case choice:
		return m.avro(binary.AppendVarint(b, int64(x.branch)), f.items[x.branch], x.value)
	case []member:
		for _, e := range x { // each in a block of its own
			b = m.avro(text(binary.AppendVarint(b, 1), e.key), f.items[0], e.value)
		}
		return append(b, 0)
	case []any:
		if f.kind == recordForm {
			for i, e := range x {
				b = m.avro(b, f.items[i], e)
			}
			return b
		}
		if len(x) > 0 {
			b = binary.AppendVarint(b, int64(len(x)))
		}
		for _, e := range x {
			b = m.avro(b, f.items[0], e)
		}
		return append(b, 0)
	}
	return b
}

// protoSchema writes the messages of all records below f.
func (m *formMaker) protoSchema(f *form, b *strings.Builder) {
	leaf := map[bool]string{false: "int64", true: "string"}[m.text]
	if f.kind != recordForm {
		for _, g := range f.items {
			m.protoSchema(g, b)
		}
		return
	}
	typeOf := func(g *form) string {
		if g.kind == leafForm {
			return leaf
		}
		return g.name
	}
	fmt.Fprintf(b, "message %s {", f.name)
	for i, g := range f.items {
		text := typeOf(g)
		switch g.kind {
		case unionForm:
			text = "optional " + typeOf(g.items[1])
		case arrayForm:
			text = "repeated " + typeOf(g.items[0])
		case mapForm:
			text = "map<string, " + typeOf(g.items[0]) + ">"
		}
		fmt.Fprintf(b, " %s %s = %d;", text, formFields[i], i+1)
	}
	b.WriteString(" }\n")
	for _, g := range f.items {
		m.protoSchema(g, b)
	}
}

func (m *formMaker) protobuf(f *form, v any) []byte {
	var b []byte
	for i, g := range f.items {
		number := protowire.Number(i + 1)
		put := func(b []byte, number protowire.Number, g *form, v any) []byte {
			switch x := v.(type) {
			case int64:
				return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), uint64(x))
			case string:
				return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), x)
			}
			return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), m.protobuf(g, v))
		}
		v := v.([]any)[i]
		switch g.kind {
		case unionForm:
			if c := v.(choice); c.branch == 1 {
				b = put(b, number, g.items[1], c.value)
			}
		case arrayForm:
			for _, e := range v.([]any) {
				b = put(b, number, g.items[0], e)
			}
		case mapForm:
			for _, e := range v.([]member) {
				entry := put(protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), e.key), 2, g.items[0], e.value)
				b = protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), entry)
			}
		default:
			if v != int64(0) && v != "" {
				b = put(b, number, g, v)
			}
		}
	}
	return b
}

// TestTheSameValuesGiveTheSameColumnsInEachFormat compares what columns of all kinds of paths get from JSON with
// what they get from Avro and from Protobuf.
func TestTheSameValuesGiveTheSameColumnsInEachFormat(t *testing.T) {
	rng := seeded(t)
	for range 250 {
		m := &formMaker{Rand: rng, text: rng.IntN(3) == 0, proto: rng.IntN(2) == 0}
		root := m.record(2 + rng.IntN(3))
		root.name = "M"
		found := map[string]bool{}
		m.paths(root, "", found)
		delete(found, "")
		paths := slices.Sorted(maps.Keys(found))
		rng.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
		paths = paths[:min(len(paths), 8)]
		columns, onError := "columns:\n", []string{"", "on_error: default\n"}[rng.IntN(2)]
		all := onError + columns
		for i, p := range paths {
			all += m.column(i, p, "default")
		}
		m.compare(t, root, all)
		for i, p := range paths {
			with := []string{"", "default", "mask", "both", "shape"}[rng.IntN(5)]
			if with == "" && onError != "" && !strings.Contains(p, "*") { // the spec must say what the default is
				with = "default"
			}
			m.compare(t, root, onError+columns+m.column(i, p, with))
		}
	}
}

func (m *formMaker) column(i int, path, with string) string {
	text := fmt.Sprintf("- {name: c%d, path: %q, dtype: %s", i, path, map[bool]string{false: "int64", true: "string"}[m.text])
	if with == "default" || with == "both" || with == "shape" {
		text += fmt.Sprintf(", default: %q", "777")
	}
	if with == "mask" || with == "both" {
		text += ", missing: mask"
	}
	if with == "shape" && strings.Contains(path, "*") && !m.text {
		text += ", shape: [2]"
	}
	return text + "}\n"
}

func (m *formMaker) compare(t *testing.T, root *form, columns string) {
	t.Helper()
	fromJSON := compile(t, "format: json\n"+columns)
	others := map[string]*Decoder{"avro": written(t, columns, shelf{7: m.avroSchema(root)})}
	var protoFile strings.Builder
	if m.proto {
		protoFile.WriteString("syntax = \"proto3\";\n")
		m.protoSchema(root, &protoFile)
		others["protobuf"] = messages(t, protoFile.String(), columns)
	}
	for range 4 {
		v := m.value(root)
		text := m.json(root, v)
		want := decoded(t, fromJSON, text)
		for format, d := range others {
			record := wire(7, m.avro(nil, root, v)...)
			if format == "protobuf" {
				record = string(m.protobuf(root, v))
			}
			if got := decoded(t, d, record); got != want {
				t.Fatalf("%s\n%s%s\n%s\n%s %x\ngives %s\njson  %s", m.avroSchema(root), protoFile.String(), columns, text, format, record, got, want)
			}
		}
	}
}

// decoded writes the columns of a record as text, or that it is bad.
func decoded(t *testing.T, d *Decoder, record string) string {
	t.Helper()
	f, err := decodeAll(t, d, lines(record))
	if err != nil {
		return "an error"
	}
	var b strings.Builder
	for i := range f.Columns {
		c := &f.Columns[i]
		fmt.Fprintf(&b, "%s %q %v; ", c.Layout.Field.Name, fmt.Sprint(c.Row(0)), c.Mask)
	}
	return b.String()
}

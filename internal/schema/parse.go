package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ParseAvro reads an Avro schema as Avro's specification writes it (1.12). It is a reader's
// parser: what does not change how bytes are read (defaults, order, doc) is not checked, because
// writers are known to be lax there. References are schemas whose named types the text may use.
// Each may use the types of those before it.
func ParseAvro(text []byte, references ...[]byte) (*Schema, error) {
	p := &parser{named: map[string]*Type{}}
	for _, ref := range references {
		if _, err := p.parse(ref); err != nil {
			return nil, fmt.Errorf("a schema that it refers to: %w", err)
		}
	}
	t, err := p.parse(text)
	if err != nil {
		return nil, err
	}
	return &Schema{Avro: t}, nil
}

type parser struct {
	named map[string]*Type // by full name
	types int
}

func (p *parser) parse(text []byte) (*Type, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("the schema has %d bytes; at most %d", len(text), MaxText)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		// A primitive type may be written without quotes, as some registries keep it.
		if name := strings.TrimSpace(string(text)); primitives[name] != 0 && name != "null" {
			return &Type{Kind: primitives[name]}, nil
		}
		return nil, fmt.Errorf("the Avro schema is not JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the Avro schema has something after its JSON")
	}
	if v == nil {
		return nil, errors.New("the Avro schema is the JSON null; a type is a name, an object or an array")
	}
	t, err := p.typeOf(v, "", 0)
	if err != nil {
		return nil, err
	}
	return t, nil
}

var primitives = map[string]Kind{"null": Null, "boolean": Bool, "int": Int, "long": Long, "float": Float, "double": Double, "bytes": Bytes, "string": String}

func (p *parser) typeOf(v any, space string, depth int) (*Type, error) {
	if p.types++; p.types > maxTypes {
		return nil, fmt.Errorf("the Avro schema has more than %d types", maxTypes)
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("the Avro schema is nested deeper than %d", maxDepth)
	}
	switch v := v.(type) {
	case string:
		return p.byName(v, space)
	case []any:
		return p.union(v, space, depth)
	case map[string]any:
		return p.object(v, space, depth)
	}
	return nil, fmt.Errorf("in the Avro schema a type is %s; it must be a name, an object or an array", short(v))
}

func (p *parser) byName(name, space string) (*Type, error) {
	if k := primitives[name]; k != 0 {
		return &Type{Kind: k}, nil
	}
	if t := p.named[fullName(name, space)]; t != nil {
		return t, nil
	}
	if t := p.named[name]; t != nil { // of no namespace
		return t, nil
	}
	return nil, fmt.Errorf("the Avro schema uses a type %s and does not define it before", short(name))
}

func fullName(name, space string) string {
	if space == "" || strings.Contains(name, ".") {
		return name
	}
	return space + "." + name
}

func (p *parser) union(all []any, space string, depth int) (*Type, error) {
	t := &Type{Kind: Union}
	for _, v := range all {
		b, err := p.typeOf(v, space, depth+1)
		if err != nil {
			return nil, err
		}
		if b.Kind == Union {
			return nil, errors.New("in the Avro schema a union has a union in it")
		}
		t.Branches = append(t.Branches, b)
	}
	if len(t.Branches) == 0 {
		return nil, errors.New("in the Avro schema a union has no types")
	}
	return t, nil
}

func (p *parser) object(o map[string]any, space string, depth int) (*Type, error) {
	switch kind := o["type"].(type) {
	case string:
		switch kind {
		case "record", "error":
			return p.record(o, space, depth)
		case "enum":
			return p.enum(o, space)
		case "fixed":
			return p.fixed(o, space)
		case "array", "map":
			return p.container(o, kind, space, depth)
		}
		t, err := p.byName(kind, space)
		if err != nil {
			return nil, err
		}
		return t.withLogical(o), nil
	case nil:
		return nil, errors.New("in the Avro schema an object has no type")
	default: // {"type": {"type": ...}}
		return p.typeOf(kind, space, depth+1)
	}
}

// define gives a named type its full name.
func (p *parser) define(t *Type, o map[string]any, space string) (inner string, err error) {
	name, _ := o["name"].(string)
	if name == "" {
		return "", fmt.Errorf("in the Avro schema a %s has no name", strings.TrimPrefix(strings.TrimPrefix(t.Kind.String(), "an "), "a "))
	}
	if s, ok := o["namespace"].(string); ok {
		space = s
	}
	t.Name = fullName(name, space)
	if i := strings.LastIndexByte(t.Name, '.'); i >= 0 {
		space = t.Name[:i]
	}
	if p.named[t.Name] != nil {
		return "", fmt.Errorf("the Avro schema defines %s twice", short(t.Name))
	}
	p.named[t.Name] = t
	return space, nil
}

func (p *parser) record(o map[string]any, space string, depth int) (*Type, error) {
	t := &Type{Kind: Record}
	space, err := p.define(t, o, space)
	if err != nil {
		return nil, err
	}
	fields, ok := o["fields"].([]any)
	if !ok {
		return nil, fmt.Errorf("the Avro record %s has no list of fields", short(t.Name))
	}
	for _, v := range fields {
		f, ok := v.(map[string]any)
		name, _ := f["name"].(string)
		if !ok || name == "" {
			return nil, fmt.Errorf("the Avro record %s has a field without a name", short(t.Name))
		}
		if f["type"] == nil {
			return nil, fmt.Errorf("field %s of the Avro record %s has no type", short(name), short(t.Name))
		}
		ft, err := p.typeOf(f["type"], space, depth+1)
		if err != nil {
			return nil, err
		}
		t.Fields = append(t.Fields, Field{Name: name, Aliases: texts(f["aliases"]), Type: ft})
	}
	return t, nil
}

func (p *parser) enum(o map[string]any, space string) (*Type, error) {
	t := &Type{Kind: Enum}
	if _, err := p.define(t, o, space); err != nil {
		return nil, err
	}
	if t.Symbols = texts(o["symbols"]); len(t.Symbols) == 0 {
		return nil, fmt.Errorf("the Avro enum %s has no symbols", short(t.Name))
	}
	return t, nil
}

func (p *parser) fixed(o map[string]any, space string) (*Type, error) {
	t := &Type{Kind: Fixed}
	if _, err := p.define(t, o, space); err != nil {
		return nil, err
	}
	n, ok := whole(o["size"])
	if !ok || n < 0 || n > 1<<30 {
		return nil, fmt.Errorf("the Avro type %s has no size from 0 to 2^30", short(t.Name))
	}
	t.Size = n
	t.setLogical(o)
	return t, nil
}

func (p *parser) container(o map[string]any, kind, space string, depth int) (*Type, error) {
	t, of := &Type{Kind: Array}, "items"
	if kind == "map" {
		t, of = &Type{Kind: Map}, "values"
	}
	if o[of] == nil {
		return nil, fmt.Errorf("in the Avro schema %s has no %s", t.Kind, of)
	}
	var err error
	t.Item, err = p.typeOf(o[of], space, depth+1)
	return t, err
}

// texts is a list of strings; what is none is left out.
func texts(v any) []string {
	var all []string
	list, _ := v.([]any)
	for _, x := range list {
		if s, ok := x.(string); ok {
			all = append(all, s)
		}
	}
	return all
}

func whole(v any) (int, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	i, err := n.Int64()
	return int(i), err == nil && int64(int(i)) == i
}

func short(v any) string {
	s := fmt.Sprint(v)
	if len(s) > 60 {
		s = s[:60] + "..."
	}
	return fmt.Sprintf("%q", s)
}

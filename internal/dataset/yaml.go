package dataset

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Reader walks a YAML document along the shape of a spec. It notes the line of
// every field, so that validation can name it, and collects what is wrong.
// A source's part reads its own fields with it (Part.Members).
type Reader struct {
	file  string
	lines map[string]int
	errs  SpecErrors
	other string // the name of a second source
}

// Member is one name that a mapping may hold, and what reads its value.
type Member struct {
	Name string
	Read func(n *yaml.Node, path string)
}

// Fail says what is wrong with the field at path.
func (r *Reader) Fail(n *yaml.Node, path, reason, allowed string) {
	value := ""
	if n.Kind == yaml.ScalarNode {
		value = n.Value
	}
	r.errs = append(r.errs, &SpecError{File: r.file, Line: n.Line, Field: path, Value: value, Reason: reason, Allowed: allowed})
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func deref(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// Mapping reads a mapping whose members have these names.
func (r *Reader) Mapping(n *yaml.Node, path string, fields []Member) {
	if n.Kind != yaml.MappingNode {
		r.Fail(n, path, "is "+kindName(n)+", and must be a mapping", "its fields are "+strings.Join(fieldNames(fields), ", "))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := deref(n.Content[i]), deref(n.Content[i+1])
		if key.Kind != yaml.ScalarNode {
			r.Fail(key, path, "a field's name must be plain text", "")
			continue
		}
		at := join(path, key.Value)
		if line, twice := seen[key.Value]; twice {
			r.Fail(&yaml.Node{Line: key.Line}, at, "is written twice; the first is on line "+strconv.Itoa(line), "")
			continue
		}
		seen[key.Value] = key.Line
		r.lines[at] = key.Line
		r.member(key, value, at, path, fields)
	}
}

func (r *Reader) member(key, value *yaml.Node, at, path string, fields []Member) {
	i := slices.IndexFunc(fields, func(f Member) bool { return f.Name == key.Value })
	if i < 0 {
		reason := "no such field"
		if path != "" {
			reason += " in " + path
		}
		if key.Value == "<<" {
			reason = "merge keys are not read here; repeat the fields"
		}
		allowed := "fields are " + strings.Join(fieldNames(fields), ", ")
		if near := Nearest(key.Value, fieldNames(fields)); near != "" {
			allowed = "did you mean " + near + "?"
		}
		r.Fail(&yaml.Node{Line: key.Line}, at, reason, allowed)
		return
	}
	if isNull(value) {
		r.Fail(&yaml.Node{Line: key.Line}, at, "has no value", "give one, or leave the field out")
		return
	}
	fields[i].Read(value, at)
}

func fieldNames(fields []Member) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return names
}

func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if isNull(n) {
		return "empty"
	}
	return "a single value"
}

func (r *Reader) scalar(n *yaml.Node, path string) (string, bool) {
	if n.Kind != yaml.ScalarNode || isNull(n) {
		r.Fail(n, path, "is "+kindName(n)+", and must be a single value", "")
		return "", false
	}
	r.lines[path] = n.Line
	return n.Value, true
}

// Text reads a scalar.
func (r *Reader) Text(into *string) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		if s, ok := r.scalar(n, path); ok {
			*into = s
		}
	}
}

func (r *Reader) optionalText(into **string) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		if s, ok := r.scalar(n, path); ok {
			*into = &s
		}
	}
}

// Parsed reads a scalar through a parser whose error completes "<field>: <value>: ".
func Parsed[T any](r *Reader, into *T, parse func(string) (T, error)) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		s, ok := r.scalar(n, path)
		if !ok {
			return
		}
		v, err := parse(s)
		if err != nil {
			r.Fail(n, path, err.Error(), "")
			return
		}
		*into = v
	}
}

// counts reads a list of whole numbers; one alone is a list of one.
func (r *Reader) counts(into *[]int) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		var all []string
		r.Texts(&all)(n, path)
		for i, text := range all {
			v, err := ParseCount(text)
			if err != nil {
				r.Fail(n, path+"["+strconv.Itoa(i)+"]", err.Error(), "")
				return
			}
			*into = append(*into, v)
		}
	}
}

// Texts reads a list of scalars; a scalar alone is a list of one.
func (r *Reader) Texts(into *[]string) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		if n.Kind == yaml.ScalarNode && !isNull(n) {
			*into = []string{n.Value}
			return
		}
		if n.Kind != yaml.SequenceNode {
			r.Fail(n, path, "is "+kindName(n)+", and must be a list", "")
			return
		}
		*into = make([]string, 0, len(n.Content))
		for i, c := range n.Content {
			if s, ok := r.scalar(deref(c), path+"["+strconv.Itoa(i)+"]"); ok {
				*into = append(*into, s)
			}
		}
	}
}

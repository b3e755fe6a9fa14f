package dataset

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// reader walks a YAML document along the shape of a spec. It notes the line of
// every field, so that validation can name it, and collects what is wrong.
type reader struct {
	file  string
	lines map[string]int
	errs  SpecErrors
}

// field is one name a mapping may hold, and what reads its value.
type field struct {
	name string
	read func(n *yaml.Node, path string)
}

func (r *reader) fail(n *yaml.Node, path, reason, allowed string) {
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

func (r *reader) mapping(n *yaml.Node, path string, fields []field) {
	if n.Kind != yaml.MappingNode {
		r.fail(n, path, "is "+kindName(n)+", and must be a mapping", "its fields are "+strings.Join(fieldNames(fields), ", "))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := deref(n.Content[i]), deref(n.Content[i+1])
		if key.Kind != yaml.ScalarNode {
			r.fail(key, path, "a field's name must be plain text", "")
			continue
		}
		at := join(path, key.Value)
		if line, twice := seen[key.Value]; twice {
			r.fail(&yaml.Node{Line: key.Line}, at, "is written twice; the first is on line "+strconv.Itoa(line), "")
			continue
		}
		seen[key.Value] = key.Line
		r.lines[at] = key.Line
		r.member(key, value, at, path, fields)
	}
}

func (r *reader) member(key, value *yaml.Node, at, path string, fields []field) {
	i := slices.IndexFunc(fields, func(f field) bool { return f.name == key.Value })
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
		r.fail(&yaml.Node{Line: key.Line}, at, reason, allowed)
		return
	}
	if isNull(value) {
		r.fail(&yaml.Node{Line: key.Line}, at, "has no value", "give one, or leave the field out")
		return
	}
	fields[i].read(value, at)
}

func fieldNames(fields []field) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
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

func (r *reader) scalar(n *yaml.Node, path string) (string, bool) {
	if n.Kind != yaml.ScalarNode || isNull(n) {
		r.fail(n, path, "is "+kindName(n)+", and must be a single value", "")
		return "", false
	}
	r.lines[path] = n.Line
	return n.Value, true
}

func (r *reader) text(into *string) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		if s, ok := r.scalar(n, path); ok {
			*into = s
		}
	}
}

func (r *reader) optionalText(into **string) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		if s, ok := r.scalar(n, path); ok {
			*into = &s
		}
	}
}

// parsed reads a scalar through a parser whose error completes "<field>: <value>: ".
func parsed[T any](r *reader, into *T, parse func(string) (T, error)) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		s, ok := r.scalar(n, path)
		if !ok {
			return
		}
		v, err := parse(s)
		if err != nil {
			r.fail(n, path, err.Error(), "")
			return
		}
		*into = v
	}
}

// counts reads a list of whole numbers; one alone is a list of one.
func (r *reader) counts(into *[]int) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		var all []string
		r.texts(&all)(n, path)
		for i, text := range all {
			v, err := parseCount(text)
			if err != nil {
				r.fail(n, path+"["+strconv.Itoa(i)+"]", err.Error(), "")
				return
			}
			*into = append(*into, v)
		}
	}
}

// texts reads a list of scalars; a scalar alone is a list of one.
func (r *reader) texts(into *[]string) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		if n.Kind == yaml.ScalarNode && !isNull(n) {
			*into = []string{n.Value}
			return
		}
		if n.Kind != yaml.SequenceNode {
			r.fail(n, path, "is "+kindName(n)+", and must be a list", "")
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

package terminal

import (
	"bytes"
	"encoding/json"
	"io"

	"go.yaml.in/yaml/v3"
)

// Write prints v in format: json, yaml, or else as table prints it. JSON and YAML
// have the same fields in the same order. The error is that of w.
func Write(w io.Writer, format string, v any, table func(w io.Writer)) error {
	switch format {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(v)
	case "yaml":
		return WriteYAML(w, v)
	}
	r := &remembering{w: w}
	table(r)
	return r.err
}

// remembering is a writer that keeps its first error. After it, nothing more is written.
type remembering struct {
	w   io.Writer
	err error
}

func (r *remembering) Write(b []byte) (n int, err error) {
	if r.err == nil {
		n, r.err = r.w.Write(b)
	}
	return n, r.err
}

// WriteYAML goes through JSON, so that both have the same names and order: JSON
// is YAML in flow style, and only the style is changed.
func WriteYAML(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var n yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(b)).Decode(&n); err != nil {
		return err
	}
	block(&n)
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(&n); err != nil {
		return err
	}
	return enc.Close()
}

func block(n *yaml.Node) {
	n.Style &^= yaml.FlowStyle
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		n.Style = 0 // the encoder quotes what needs it
	}
	if (n.Kind == yaml.SequenceNode || n.Kind == yaml.MappingNode) && len(n.Content) == 0 {
		n.Style |= yaml.FlowStyle
	}
	for _, c := range n.Content {
		block(c)
	}
}

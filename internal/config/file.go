package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"

	"go.yaml.in/yaml/v3"

	"github.com/headrace/headrace/internal/suggest"
)

type fileValue struct {
	values []string
	where  string // headrace.yaml:3

	node *yaml.Node // of connections, which package connection reads
	path string
}

// connectionsKey is the one setting that is a mapping. It is in no variable and no flag: it
// is long, and it names secrets.
const connectionsKey = "connections"

// readFile reads the YAML file: one mapping of settings to scalars (or lists of
// scalars). A file that was named must be there.
func readFile(path string) (map[string]fileValue, error) {
	named := path != ""
	if !named {
		path = DefaultFile
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	return parseFile(path, b)
}

func parseFile(path string, b []byte) (map[string]fileValue, error) {
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("%s: %s", path, syntaxError(err))
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: a second document after ---; settings are one document", path)
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		if root.Tag == "!!null" {
			return nil, nil
		}
		return nil, fmt.Errorf("%s:%d: settings are lines of `name: value`", path, root.Line)
	}
	out := map[string]fileValue{}
	var errs []error
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, val := root.Content[i], root.Content[i+1]
		where := fmt.Sprintf("%s:%d", path, key.Line)
		s := byKey(key.Value)
		if key.Value == connectionsKey && out[connectionsKey].where == "" {
			out[connectionsKey] = fileValue{node: val, where: where, path: path}
			continue
		}
		switch {
		case out[key.Value].where != "":
			errs = append(errs, fmt.Errorf("%s: %s: given twice; first at %s", where, key.Value, out[key.Value].where))
			continue
		case s == nil:
			errs = append(errs, fmt.Errorf("%s: %s: no such setting; %s", where, key.Value, suggest.Hint(key.Value, append(keys(), connectionsKey), "settings")))
			continue
		}
		values, err := scalars(val, s.list)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", where, key.Value, err))
			continue
		}
		out[key.Value] = fileValue{values: values, where: where}
	}
	return out, errors.Join(errs...)
}

func scalars(n *yaml.Node, list bool) ([]string, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null": // `state:`, and `state: null` as templates write it
		return []string{""}, nil
	case n.Kind == yaml.ScalarNode:
		return []string{n.Value}, nil
	case n.Kind == yaml.SequenceNode && list:
		var out []string
		for _, c := range n.Content {
			if c.Kind != yaml.ScalarNode {
				return nil, fmt.Errorf("line %d: an item of the list is not a plain value", c.Line)
			}
			out = append(out, c.Value)
		}
		return out, nil
	case list:
		return nil, errors.New("a value or a list of values is needed")
	}
	return nil, errors.New("one plain value is needed")
}

func keys() []string {
	out := make([]string, len(settings))
	for i, s := range settings {
		out[i] = s.key
	}
	return out
}

var yamlPrefix = regexp.MustCompile(`^yaml: `)

func syntaxError(err error) string { return yamlPrefix.ReplaceAllString(err.Error(), "") }

package dataset

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Document is one dataset of a spec's file, and its text as a master can take
// it: the root is absolute.
type Document struct {
	Spec *Spec
	YAML []byte
}

// ReadFile reads a spec's file as a command line does. A relative folder in it
// (files.root) is relative to the file's folder. It is made absolute in the text, and
// variables (${NAME}) get their values; otherwise the text stays as it was written.
func ReadFile(name string) ([]Document, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	folder, err := filepath.Abs(filepath.Dir(name))
	if err != nil {
		return nil, fmt.Errorf("spec %s: %w", name, err)
	}
	return Documents(text, name, folder)
}

// Documents does what ReadFile does with text that lies in a folder.
func Documents(text []byte, filename, folder string) ([]Document, error) {
	if len(text) > maxText {
		return nil, SpecErrors{{File: filename, Reason: fmt.Sprintf("is %d bytes long; a spec has at most %d", len(text), maxText)}}
	}
	var whole []byte
	var pieces [][]byte
	for _, piece := range split(text) {
		before := bytes.Count(whole, []byte("\n"))
		fixed, err := withVariables(piece, filename, before)
		if err != nil {
			return nil, err
		}
		for _, k := range kinds {
			for _, field := range k.Folders {
				for _, under := range [][]string{{k.Name, field}, {"backfill", k.Name, field}} {
					if fixed, err = absolute(fixed, filename, before, folder, under); err != nil {
						return nil, err
					}
				}
			}
		}
		whole, pieces = append(whole, fixed...), append(pieces, fixed)
	}
	// All of it first, so that errors count lines from the top of the file.
	specs, err := ParseAll(whole, filename)
	if err != nil {
		return nil, err
	}
	docs := make([]Document, 0, len(specs))
	for _, piece := range pieces {
		var n yaml.Node
		if yaml.Unmarshal(piece, &n) == nil && (len(n.Content) != 1 || isNull(n.Content[0])) {
			continue // only comments
		}
		spec, err := Parse(piece, filename)
		if err != nil {
			return nil, err
		}
		docs = append(docs, Document{Spec: spec, YAML: piece})
	}
	return docs, nil
}

// A line of three dashes begins a document wherever it stands: no scalar, quoted
// or not, may hold one at its margin.
var documentStart = regexp.MustCompile(`(?m)^---(?:[ \t\r]|$)`)

func split(text []byte) [][]byte {
	var pieces [][]byte
	from := 0
	for _, at := range documentStart.FindAllIndex(text, -1) {
		if len(bytes.TrimSpace(text[from:at[0]])) > 0 {
			pieces, from = append(pieces, text[from:at[0]]), at[0]
		}
	}
	return append(pieces, text[from:])
}

// absolute replaces a relative folder, such as files.root, in the text of one document.
func absolute(text []byte, filename string, before int, folder string, field []string) ([]byte, error) {
	var doc yaml.Node
	if yaml.Unmarshal(text, &doc) != nil || len(doc.Content) != 1 {
		return text, nil // ParseAll says why
	}
	root := deref(doc.Content[0])
	for _, name := range field {
		root = member(root, name)
	}
	if root == nil || root.Kind != yaml.ScalarNode || root.Value == "" || filepath.IsAbs(root.Value) || strings.Contains(root.Value, "://") {
		return text, nil
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	if replaceScalar(lines, root, filepath.Join(folder, root.Value)) {
		return bytes.Join(lines, nil), nil
	}
	return nil, SpecErrors{{File: filename, Line: before + root.Line, Field: strings.Join(field, "."), Value: root.Value,
		Reason: "is relative, and is not written plainly on one line", Allowed: "write it without escapes, or as an absolute path"}}
}

func member(n *yaml.Node, name string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return deref(n.Content[i+1])
		}
	}
	return nil
}

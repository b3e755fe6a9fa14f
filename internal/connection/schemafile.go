package connection

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/schema"
)

// givenSchema is the schema of all records, as the spec gives it.
func givenSchema(d *dataset.DecodeSpec, allowedRoots []string) (*schema.Schema, error) {
	file, text := d.Schema.File, d.Schema.Inline
	if file != "" {
		var err error
		if text, err = allowedFile(file, allowedRoots); err != nil {
			return nil, err
		}
	}
	if d.Format == "avro" {
		return schema.ParseAvro([]byte(text))
	}
	p, err := protoSchema(file, text, allowedRoots)
	if err != nil {
		return nil, err
	}
	if _, err := p.Message(d.Message); err != nil {
		return nil, fmt.Errorf("%w: name one in decode.message", err)
	}
	return &schema.Schema{Proto: p}, nil
}

// protoSchema reads a .proto file, whose imports lie in its folder, or a file of descriptors.
func protoSchema(file, text string, allowedRoots []string) (*schema.Proto, error) {
	switch {
	case file == "":
		return schema.ParseProto(text)
	case strings.HasSuffix(file, ".proto"):
		return schema.OpenProto(text, func(path string) (string, error) {
			if !filepath.IsLocal(path) {
				return "", fmt.Errorf("it imports %q, which leads out of its folder", path)
			}
			return allowedFile(filepath.Join(filepath.Dir(file), path), allowedRoots)
		})
	}
	return schema.ParseDescriptors([]byte(text))
}

// allowedFile reads a schema's file through an allowed root, so that a link does not lead out
// of it.
func allowedFile(file string, allowedRoots []string) (string, error) {
	for _, root := range allowedRoots {
		abs, err := filepath.Abs(root)
		if err != nil {
			return "", err
		}
		rel, err := filepath.Rel(abs, file)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		r, err := os.OpenRoot(abs)
		if err != nil {
			return "", err
		}
		defer r.Close()
		f, err := r.Open(rel)
		if err != nil {
			return "", err
		}
		defer f.Close()
		text, err := io.ReadAll(io.LimitReader(f, schema.MaxText+1))
		return string(text), err
	}
	return "", fmt.Errorf("%s is in no folder that is allowed here; start agents with --allow-root, or write the schema into the spec (inline)", file)
}

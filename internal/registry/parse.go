package registry

import (
	"context"
	"fmt"
	"net/url"

	"github.com/headrace/headrace/internal/schema"
)

// maxReferences bounds how many other schemas one uses.
const maxReferences = 256

// unreadable means that the registry has the schema, and it cannot be used.
type unreadable struct{ err error }

func (e *unreadable) Error() string { return "cannot be used: " + e.err.Error() }

// fetch asks for an id and for all that its schema refers to.
func (r *Registry) fetch(ctx context.Context, id uint32) (*schema.Schema, int, error) {
	a, err := r.client.get(ctx, fmt.Sprintf("schemas/ids/%d", id))
	if err != nil {
		return nil, 0, err
	}
	refs := &references{client: r.client, asked: map[string]bool{}, size: len(a.Text)}
	if err := refs.add(ctx, a.References); err != nil {
		return nil, 0, err
	}
	s, err := parse(a.Type, a.Text, refs)
	if err != nil {
		return nil, refs.size, &unreadable{err}
	}
	return s, refs.size, nil
}

// references are the schemas that one refers to, each after those that it refers to.
type references struct {
	client *client
	asked  map[string]bool    // by subject and version
	files  []schema.ProtoFile // of Avro: the texts alone
	size   int
}

func (r *references) add(ctx context.Context, list []reference) error {
	for _, ref := range list {
		key := ref.Subject + "\x00" + ref.Version.String()
		if r.asked[key] {
			continue
		}
		if r.asked[key] = true; len(r.asked) > maxReferences {
			return &unreadable{fmt.Errorf("it refers to more than %d other schemas", maxReferences)}
		}
		a, err := r.client.get(ctx, fmt.Sprintf("subjects/%s/versions/%s?deleted=true", url.PathEscape(ref.Subject), url.PathEscape(ref.Version.String())))
		if err != nil {
			return fmt.Errorf("it refers to %s: %w", ref.Name, err)
		}
		if err := r.add(ctx, a.References); err != nil {
			return err
		}
		r.files = append(r.files, schema.ProtoFile{Name: ref.Name, Text: a.Text})
		if r.size += len(a.Text); r.size > 4*schema.MaxText {
			return &unreadable{fmt.Errorf("with what it refers to it has more than %d bytes", 4*schema.MaxText)}
		}
	}
	return nil
}

func parse(kind, text string, refs *references) (*schema.Schema, error) {
	switch kind {
	case "", "AVRO":
		texts := make([][]byte, len(refs.files))
		for i, f := range refs.files {
			texts[i] = []byte(f.Text)
		}
		return schema.ParseAvro([]byte(text), texts...)
	case "PROTOBUF":
		p, err := schema.ParseProto(text, refs.files...)
		if err != nil {
			return nil, err
		}
		return &schema.Schema{Proto: p}, nil
	}
	return nil, fmt.Errorf("it is a %s schema, and only Avro and Protobuf are read", kind)
}

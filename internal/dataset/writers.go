package dataset

import (
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Formats avro and protobuf: a record is read with the schema of its writer. It lies in a
// registry or in the spec, or in the head of an Avro file.

// Registry says which schema registry knows the ids of the records. One field is set.
type Registry struct {
	Connection string `json:"connection,omitempty"` // the operator's, with its login
	URL        string `json:"url,omitempty"`        // of one that needs no login
}

// WriterSchema is the schema of all records. One field is set.
type WriterSchema struct {
	File   string `json:"file,omitempty"` // on the machines of agents, in an allowed root
	Inline string `json:"inline,omitempty"`
}

// Written: records are read with the schema of their writer.
func (d *DecodeSpec) Written() bool { return Written(d.Format) }

// Written reports whether a format's records are read with the schema of their writer.
func Written(format string) bool { return format == "avro" || format == "protobuf" }

func (r *Reader) writers(d *DecodeSpec) []Member {
	return []Member{
		{"registry", func(n *yaml.Node, path string) {
			d.Registry = &Registry{}
			r.Mapping(n, path, []Member{{"connection", r.Text(&d.Registry.Connection)}, {"url", r.Text(&d.Registry.URL)}})
		}},
		{"schema", func(n *yaml.Node, path string) {
			d.Schema = &WriterSchema{}
			r.Mapping(n, path, []Member{{"file", r.Text(&d.Schema.File)}, {"inline", r.Text(&d.Schema.Inline)}})
		}},
		{"message", r.Text(&d.Message)},
	}
}

func (c *Check) writers(d *DecodeSpec) {
	if !d.Written() {
		for _, f := range []struct {
			name string
			set  bool
		}{{"registry", d.Registry != nil}, {"schema", d.Schema != nil}, {"message", d.Message != ""}} {
			if f.set {
				c.Fail("decode."+f.name, "", "is for avro and protobuf, and decode.format is "+d.Format, "remove it")
			}
		}
		return
	}
	switch {
	case c.source.Paths && d.Format == "protobuf" && d.Registry != nil:
		c.Fail("decode.registry", "", "does not go with files, whose messages name no schema", "write schema: {file: /schemas/click.proto}")
	case c.source.Paths && d.Format == "protobuf" && d.Schema == nil:
		c.Fail("decode.schema", "", "must be given: what the messages of the files are", "as in schema: {file: /schemas/click.proto}")
	case c.source.Paths && d.Format == "protobuf":
	case c.source.Paths && d.Registry != nil:
		c.Fail("decode.registry", "", "does not go with files: each Avro file has the schema of its records", "remove it")
	case c.source.Paths && d.Schema != nil:
		c.Fail("decode.schema", "", "does not go with files: each Avro file has the schema of its records", "remove it")
	case c.source.Paths:
	case d.Registry == nil && d.Schema == nil:
		c.Fail("decode.registry", "", "must be given: where the schemas of the records are", "as in registry: {connection: NAME}, or schema: {file: /schemas/click"+map[string]string{"avro": ".avsc", "protobuf": ".proto"}[d.Format]+"}")
	case d.Registry != nil && d.Schema != nil:
		c.Fail("decode.schema", "", "does not go with decode.registry: a record's schema is in one place", "remove one of them")
	}
	switch {
	case d.Message == "":
	case d.Format != "protobuf":
		c.Fail("decode.message", d.Message, "is for protobuf, and decode.format is "+d.Format, "remove it")
	case d.Registry != nil:
		c.Fail("decode.message", d.Message, "does not go with decode.registry: each record says which message it is", "remove it")
	}
	if r := d.Registry; r != nil {
		c.registry(r)
	}
	if s := d.Schema; s != nil {
		switch {
		case (s.File == "") == (s.Inline == ""):
			c.Fail("decode.schema", "", "names no schema, or two", "give one of file and inline")
		case s.File != "" && !filepath.IsAbs(s.File):
			c.Fail("decode.schema.file", s.File, "is relative", "agents read it: write an absolute path")
		}
	}
}

func (c *Check) registry(r *Registry) {
	switch {
	case (r.Connection == "") == (r.URL == ""):
		c.Fail("decode.registry", "", "names no registry, or two", "give one of connection and url")
	case r.URL != "":
		if why := RegistryURL(r.URL); why != "" {
			c.Fail("decode.registry.url", r.URL, why, "as in http://registry:8081; a login is part of a connection")
		}
	}
}

// RegistryURL says what is wrong with a registry's address, or "".
func RegistryURL(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || !slices.Contains([]string{"http", "https"}, strings.ToLower(u.Scheme)) || u.Host == "":
		return "is no address of a registry"
	case u.User != nil:
		return "holds a login, and an address is shown"
	case u.RawQuery != "" || u.Fragment != "":
		return "has more than an address and a path"
	}
	return ""
}

package schema

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/bufbuild/protocompile/protoutil"
)

// Proto is what Protobuf files define. Files are in the order in which they were given, each
// after those that it imports.
type Proto struct{ files []protoreflect.FileDescriptor }

// ProtoFile is one file of Protobuf: source text, or a FileDescriptorProto in base64 as some
// serializers register it.
type ProtoFile struct {
	Name string // as others import it
	Text string
}

// mainFile is the name of a file that nobody imports.
const mainFile = "schema.proto"

const maxImports = 256

// ParseProto reads a Protobuf file. The references are the files that it imports. A reference
// may import the references before it. The files of google/protobuf are known.
func ParseProto(text string, references ...ProtoFile) (*Proto, error) {
	known := &imports{byPath: map[string]protoreflect.FileDescriptor{}}
	for _, ref := range references {
		if _, err := known.add(ref); err != nil {
			return nil, fmt.Errorf("a schema that it refers to, %s: %w", short(ref.Name), err)
		}
	}
	return known.main(text)
}

// OpenProto reads a Protobuf file whose imports open gives by their paths.
func OpenProto(text string, open func(path string) (string, error)) (*Proto, error) {
	known := &imports{byPath: map[string]protoreflect.FileDescriptor{}, opening: map[string]bool{}, open: open}
	return known.main(text)
}

// ParseDescriptors reads what `protoc --descriptor_set_out --include_imports` writes.
func ParseDescriptors(text []byte) (*Proto, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("the descriptors have %d bytes; at most %d", len(text), MaxText)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(text, &set); err != nil || len(set.File) == 0 {
		return nil, errors.New("it is no file of Protobuf descriptors: make it with protoc --descriptor_set_out=FILE --include_imports, or name a file that ends with .proto")
	}
	files, err := guarded(func() (*protoregistry.Files, error) { return protodesc.NewFiles(&set) })
	if err != nil {
		return nil, fmt.Errorf("the Protobuf descriptors do not fit together (were they made with protoc --include_imports?): %w", err)
	}
	p := &Proto{}
	for _, f := range set.File {
		d, err := files.FindFileByPath(f.GetName())
		if err != nil {
			return nil, err
		}
		p.files = append(p.files, d)
	}
	return p, nil
}

// imports are the files that are known by their import path.
type imports struct {
	byPath  map[string]protoreflect.FileDescriptor
	open    func(path string) (string, error) // nil: there are no others
	opening map[string]bool
}

func (m *imports) main(text string) (*Proto, error) {
	f, err := m.add(ProtoFile{Name: mainFile, Text: text})
	if err != nil {
		return nil, err
	}
	return &Proto{files: []protoreflect.FileDescriptor{f}}, nil
}

// FindFileByPath implements protodesc.Resolver.
func (m *imports) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if f := m.byPath[path]; f != nil {
		return f, nil
	}
	if r, err := protocompile.WithStandardImports(protocompile.ResolverFunc(notFound)).FindFileByPath(path); err == nil && r.Desc != nil {
		return r.Desc, nil
	}
	switch {
	case m.open == nil:
		return nil, fmt.Errorf("it imports %s, which is not among the schemas that it refers to", short(path))
	case m.opening[path]:
		return nil, fmt.Errorf("it imports %s, which imports it", short(path))
	case len(m.opening) >= maxImports:
		return nil, fmt.Errorf("it imports more than %d files", maxImports)
	}
	m.opening[path] = true
	text, err := m.open(path)
	if err != nil {
		return nil, err
	}
	return m.add(ProtoFile{Name: path, Text: text})
}

func notFound(string) (protocompile.SearchResult, error) {
	return protocompile.SearchResult{}, protoregistry.NotFound
}

// FindDescriptorByName implements protodesc.Resolver.
func (m *imports) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	for _, f := range m.byPath {
		var one protoregistry.Files
		if one.RegisterFile(f) != nil {
			continue
		}
		if d, err := one.FindDescriptorByName(name); err == nil {
			return d, nil
		}
	}
	return protoregistry.GlobalFiles.FindDescriptorByName(name)
}

func (m *imports) add(f ProtoFile) (protoreflect.FileDescriptor, error) {
	if len(f.Text) > MaxText {
		return nil, fmt.Errorf("the schema has %d bytes; at most %d", len(f.Text), MaxText)
	}
	p := descriptorIn(f.Text)
	if p == nil {
		if err := nesting(f.Text); err != nil {
			return nil, err
		}
		var err error
		if p, err = m.compile(f); err != nil {
			return nil, fmt.Errorf("the Protobuf schema cannot be read: %w", err)
		}
	}
	p.Name = &f.Name
	d, err := guarded(func() (protoreflect.FileDescriptor, error) { return protodesc.NewFile(p, m) })
	if err != nil {
		return nil, fmt.Errorf("the Protobuf schema cannot be read: %w", err)
	}
	m.byPath[f.Name] = d
	return d, nil
}

func (m *imports) compile(f ProtoFile) (*descriptorpb.FileDescriptorProto, error) {
	c := protocompile.Compiler{MaxParallelism: 1, Resolver: protocompile.ResolverFunc(func(path string) (protocompile.SearchResult, error) {
		if path == f.Name {
			return protocompile.SearchResult{Source: strings.NewReader(f.Text)}, nil
		}
		d, err := m.FindFileByPath(path)
		return protocompile.SearchResult{Desc: d}, err
	})}
	all, err := guarded(func() (protoreflect.FileDescriptor, error) {
		all, err := c.Compile(context.Background(), f.Name)
		if err != nil {
			return nil, err
		}
		return all[0], nil
	})
	if err != nil {
		return nil, err
	}
	return protoutil.ProtoFromFileDescriptor(all), nil
}

// descriptorIn is nil for source text.
func descriptorIn(text string) *descriptorpb.FileDescriptorProto {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil || len(raw) == 0 {
		return nil
	}
	p := &descriptorpb.FileDescriptorProto{}
	if proto.Unmarshal(raw, p) != nil {
		return nil
	}
	return p
}

// guarded makes an error of a panic: the libraries that read schemas were not written for
// ones that mean harm.
func guarded[T any](read func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	return read()
}

// nesting bounds how deep the braces and brackets of a text lie inside each other.
func nesting(text string) error {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '"', '\'':
			for i++; i < len(text) && text[i] != c && text[i] != '\n'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '/':
			switch rest := text[i+1:]; {
			case strings.HasPrefix(rest, "/"):
				i += len(rest)
				if n := strings.IndexByte(rest, '\n'); n >= 0 {
					i += n - len(rest)
				}
			case strings.HasPrefix(rest, "*"):
				n := strings.Index(rest[1:], "*/")
				if n < 0 {
					return nil
				}
				i += n + 3
			}
		case '{', '[', '(', '<':
			if depth++; depth > maxDepth {
				return fmt.Errorf("the Protobuf schema is nested deeper than %d", maxDepth)
			}
		case '}', ']', ')', '>':
			depth = max(0, depth-1)
		}
	}
	return nil
}

// Message is the one with a full name. Without a name it is the first one of the last file.
func (p *Proto) Message(name string) (protoreflect.MessageDescriptor, error) {
	if name == "" {
		return p.ByIndexes(0)
	}
	for _, f := range p.files {
		if m := messageIn(f.Messages(), protoreflect.FullName(name)); m != nil {
			return m, nil
		}
	}
	return nil, fmt.Errorf("it defines no message %s; it defines %s", short(name), p.names())
}

func messageIn(all protoreflect.MessageDescriptors, name protoreflect.FullName) protoreflect.MessageDescriptor {
	for i := range all.Len() {
		m := all.Get(i)
		if m.FullName() == name {
			return m
		}
		if strings.HasPrefix(string(name), string(m.FullName())+".") {
			return messageIn(m.Messages(), name)
		}
	}
	return nil
}

// ByIndexes is a message of the last file, as Confluent's serializers name it. Example: 1, 0 is
// the first message that is defined inside the file's second message.
func (p *Proto) ByIndexes(indexes ...int) (protoreflect.MessageDescriptor, error) {
	all, m := p.files[len(p.files)-1].Messages(), protoreflect.MessageDescriptor(nil)
	for _, i := range indexes {
		if i < 0 || i >= all.Len() {
			return nil, fmt.Errorf("it has no message with the number %d; it defines %s", i, p.names())
		}
		m = all.Get(i)
		all = m.Messages()
	}
	return m, nil
}

func (p *Proto) names() string {
	var names []string
	for i := len(p.files) - 1; i >= 0; i-- {
		for k := range p.files[i].Messages().Len() {
			names = append(names, string(p.files[i].Messages().Get(k).FullName()))
		}
	}
	if len(names) == 0 {
		return "none"
	}
	if len(names) > 8 {
		names = append(names[:8], fmt.Sprintf("and %d more", len(names)-8))
	}
	return strings.Join(names, ", ")
}

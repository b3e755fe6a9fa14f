package schema

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

const (
	userProto  = `syntax = "proto3"; package shop; message User { int64 id = 1; }`
	clickProto = `syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto"; import "shop/user.proto";
		message Click { User user = 1; google.protobuf.Timestamp at = 2; message Part { int32 x = 1; message Deep { int32 y = 1; } } }
		message Other {}`
)

func TestMessagesAreFoundByNameAndByNumbers(t *testing.T) {
	user, err := ParseProto(userProto)
	if err != nil {
		t.Fatal(err)
	}
	described, err := proto.Marshal(protodesc.ToFileDescriptorProto(user.files[0]))
	if err != nil {
		t.Fatal(err)
	}
	open := func(path string) (string, error) {
		if path != "shop/user.proto" {
			return "", errors.New("there is no " + path)
		}
		return userProto, nil
	}
	inText, err1 := ParseProto(clickProto, ProtoFile{"shop/user.proto", userProto})
	inBase64, err2 := ParseProto(clickProto, ProtoFile{"shop/user.proto", base64.StdEncoding.EncodeToString(described)})
	opened, err3 := OpenProto(clickProto, open)
	set := &descriptorpb.FileDescriptorSet{}
	var add func(f protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
	}
	add(inText.files[0])
	raw, err := proto.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	described2, err4 := ParseDescriptors(raw)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	for i, p := range []*Proto{inText, inBase64, opened, described2} {
		for want, got := range map[string]func() (protoreflect.MessageDescriptor, error){
			"shop.Click":           func() (protoreflect.MessageDescriptor, error) { return p.Message("") },
			"shop.Other":           func() (protoreflect.MessageDescriptor, error) { return p.Message("shop.Other") },
			"shop.Click.Part.Deep": func() (protoreflect.MessageDescriptor, error) { return p.Message("shop.Click.Part.Deep") },
			"shop.Click.Part":      func() (protoreflect.MessageDescriptor, error) { return p.ByIndexes(0, 0) },
		} {
			if m, err := got(); err != nil || string(m.FullName()) != want {
				t.Errorf("%d: %v %v, want %s", i, m, err, want)
			}
		}
		for _, wrong := range [][]int{{2}, {0, 1}, {-1}, {1, 0}} {
			if _, err := p.ByIndexes(wrong...); err == nil || !strings.Contains(err.Error(), "it defines shop.Click, shop.Other") {
				t.Errorf("%d: %v: got the error %v, want one with %q", i, wrong, err, "it defines shop.Click, shop.Other")
			}
		}
		if _, err := p.Message("shop.Nobody"); err == nil || !strings.Contains(err.Error(), `no message "shop.Nobody"; it defines shop.Click, shop.Other`) {
			t.Errorf("%d: got the error %v, want one with %q", i, err, `no message "shop.Nobody"; it defines shop.Click, shop.Other`)
		}
	}
	if m, err := described2.Message("shop.User"); err != nil || m.Fields().Len() != 1 {
		t.Error(m, err)
	}
}

func TestProtobufSchemasThatCannotBeReadAreNamed(t *testing.T) {
	if _, err := ParseProto(clickProto); err == nil || !strings.Contains(err.Error(), `imports "shop/user.proto", which is not among the schemas that it refers to`) {
		t.Errorf("got the error %v, want one with %q", err, `imports "shop/user.proto", which is not among the schemas that it refers to`)
	}
	if _, err := ParseProto(userProto, ProtoFile{"x.proto", "nonsense"}); err == nil || !strings.Contains(err.Error(), `a schema that it refers to, "x.proto": the Protobuf schema cannot be read`) {
		t.Errorf("got the error %v, want one with %q", err, `a schema that it refers to, "x.proto": the Protobuf schema cannot be read`)
	}
	round := func(path string) (string, error) {
		return `import "` + map[string]string{"a": "b", "b": "a"}[path] + `";`, nil
	}
	if _, err := OpenProto(`import "a";`, round); err == nil || !strings.Contains(err.Error(), "which imports it") {
		t.Errorf("got the error %v, want one with %q", err, "which imports it")
	}
	for text, want := range map[string]string{
		"message {": "syntax error",
		`syntax = "proto3"; message A { Nothing x = 1;}`:              "Nothing",
		strings.Repeat("message A {", 100) + strings.Repeat("}", 100): "nested deeper than 64",
		strings.Repeat(" ", MaxText+1):                                "at most 4194304",
	} {
		if _, err := ParseProto(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
	for text, want := range map[string]string{"": "make it with protoc", "nonsense": "make it with protoc", strings.Repeat(" ", MaxText+1): "at most 4194304"} {
		if _, err := ParseDescriptors([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
	name, needs := "a.proto", "b.proto"
	alone, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{{Name: &name, Dependency: []string{needs}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseDescriptors(alone); err == nil || !strings.Contains(err.Error(), "--include_imports") {
		t.Errorf("got the error %v, want one with %q", err, "--include_imports")
	}
}

// FuzzProtoSchema checks that no text of a schema and no descriptors cause a panic.
func FuzzProtoSchema(f *testing.F) {
	f.Add(clickProto, []byte(userProto))
	f.Add(`edition = "2023"; option features.message_encoding = DELIMITED; message A { A a = 1; oneof o { int32 b = 2; } map<string, A> m = 3; extensions 100 to 200; } extend A { int32 e = 100; }`, []byte{})
	f.Add(`syntax = "proto2"; message A { optional group G = 1 { required int32 x = 1 [default = 5]; } /* { */ reserved 5 to max; } // {`, []byte{10, 3, 10, 1, 'a'})
	f.Add(`CgdhLnByb3RvEgRzaG9wIg0KAUESCAoBeBgBIAE=`, []byte{})
	f.Fuzz(func(t *testing.T, text string, descriptors []byte) {
		p, err := ParseProto(text, ProtoFile{"shop/user.proto", userProto})
		if (err == nil) == (p == nil) {
			t.Fatal(p, err)
		}
		if p != nil {
			_, _ = p.ByIndexes(0, 0)
		}
		_, _ = ParseDescriptors(descriptors)
	})
}

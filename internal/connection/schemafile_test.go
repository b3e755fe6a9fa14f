package connection

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headrace/headrace/internal/dataset"
)

func TestAProtobufSchemaOfTheSpecIsReadFromAnAllowedRoot(t *testing.T) {
	dir := t.TempDir()
	set, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{protodesc.ToFileDescriptorProto(timestamppb.File_google_protobuf_timestamp_proto)}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"click.proto": `syntax = "proto3"; package shop; import "user.proto"; message Click { User user = 1; }`,
		"user.proto":  `syntax = "proto3"; package shop; message User { int64 id = 1; }`,
		"out.proto":   `syntax = "proto3"; import "../user.proto"; message A {}`,
		"time.desc":   string(set),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ file, inline, message, root, want string }{
		{"click.proto", "", "shop.Click", dir, ""},
		{"click.proto", "", "", dir, ""},
		{"time.desc", "", "google.protobuf.Timestamp", dir, ""},
		{"", `syntax = "proto3"; message A {}`, "A", "/var/empty", ""},
		{"click.proto", "", "shop.Klick", dir, `no message "shop.Klick"; it defines shop.Click: name one in decode.message`},
		{"click.proto", "", "", "/var/empty", "is in no folder that is allowed here"},
		{"out.proto", "", "", dir, "leads out of its folder"},
		{"none.proto", "", "", dir, "no such file"},
	} {
		d := &dataset.DecodeSpec{Format: "protobuf", Message: c.message, Schema: &dataset.WriterSchema{Inline: c.inline}}
		if c.file != "" {
			d.Schema.File = filepath.Join(dir, c.file)
		}
		s, err := givenSchema(d, []string{c.root})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || err == nil && s.Proto == nil {
			t.Errorf("%s %s: %v", c.file, c.message, err)
		}
	}
}

// Package api_test compares the wire with the one that was agreed on:
// golden.txt lists every message, field number, enum value and method. A line
// that is gone or changed breaks somebody's running agent.
package api_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"google.golang.org/protobuf/reflect/protoreflect"
)

var update = flag.Bool("update", false, "write golden.txt from the generated code")

const golden = "golden.txt"

func files() []protoreflect.FileDescriptor {
	return []protoreflect.FileDescriptor{headracev1.File_headrace_v1_session_proto, headracev1.File_headrace_v1_datasets_proto,
		headracev1.File_headrace_v1_checkpoints_proto, headracev1.File_headrace_v1_landing_proto, headracev1.File_headrace_v1_peers_proto}
}

func TestTheWireIsTheOneThatWasAgreedOn(t *testing.T) {
	var b strings.Builder
	for _, f := range files() {
		describe(&b, f)
	}
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	is, was := lines(b.String()), lines(string(want))
	for l := range was {
		if !is[l] {
			t.Errorf("gone or changed, which breaks what runs: %s", l)
		}
	}
	for l := range is {
		if !was[l] {
			t.Errorf("new: %s\nif it is meant: go test ./api -update", l)
		}
	}
}

// A number may not be taken again, and field 0 of an enum is what an old peer
// reads into what it does not know.
func TestEveryEnumBeginsAtZero(t *testing.T) {
	for _, f := range files() {
		for i := range f.Messages().Len() {
			for j := range f.Messages().Get(i).Enums().Len() {
				e := f.Messages().Get(i).Enums().Get(j)
				if e.Values().Get(0).Number() != 0 {
					t.Errorf("%s begins at %d", e.FullName(), e.Values().Get(0).Number())
				}
			}
		}
	}
}

func lines(s string) map[string]bool {
	all := map[string]bool{}
	for l := range strings.Lines(s) {
		all[strings.TrimSpace(l)] = true
	}
	return all
}

func describe(b *strings.Builder, f protoreflect.FileDescriptor) {
	fmt.Fprintf(b, "file %s package %s\n", f.Path(), f.Package())
	for i := range f.Services().Len() {
		s := f.Services().Get(i)
		for j := range s.Methods().Len() {
			m := s.Methods().Get(j)
			fmt.Fprintf(b, "rpc %s(%s%s) %s%s\n", m.FullName(), stream(m.IsStreamingClient()), m.Input().FullName(),
				stream(m.IsStreamingServer()), m.Output().FullName())
		}
	}
	for i := range f.Messages().Len() {
		describeMessage(b, f.Messages().Get(i))
	}
}

func stream(yes bool) string {
	if yes {
		return "stream "
	}
	return ""
}

func describeMessage(b *strings.Builder, m protoreflect.MessageDescriptor) {
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		kind := f.Kind().String()
		switch {
		case f.Message() != nil:
			kind = string(f.Message().FullName())
		case f.Enum() != nil:
			kind = string(f.Enum().FullName())
		}
		fmt.Fprintf(b, "field %s = %d %s %s\n", f.FullName(), f.Number(), f.Cardinality(), kind)
	}
	for i := range m.Enums().Len() {
		e := m.Enums().Get(i)
		for j := range e.Values().Len() {
			v := e.Values().Get(j)
			fmt.Fprintf(b, "enum %s.%s = %d\n", e.FullName(), v.Name(), v.Number())
		}
	}
	for i := range m.Messages().Len() {
		describeMessage(b, m.Messages().Get(i))
	}
}

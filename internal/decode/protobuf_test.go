package decode

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/schema"
)

// protos has the Protobuf schemas of a registry by id.
type protos map[uint32]string

func (s protos) Schema(id uint32) (*schema.Schema, error) {
	text, ok := s[id]
	if !ok {
		return nil, fmt.Errorf("is not in the registry")
	}
	p, err := schema.ParseProto(text)
	return &schema.Schema{Proto: p}, err
}

// messages compiles a spec whose records are of the first message of a schema.
func messages(t testing.TB, text, columns string) *Decoder {
	t.Helper()
	spec := "name: d\nkafka: {brokers: [\"k:1\"], topic: a}\ndecode:\n" + indent("format: protobuf\nschema: {inline: x}\n"+columns)
	parsed, err := dataset.Parse([]byte(spec), "d.yaml")
	if err != nil {
		t.Fatalf("%v\n%s", err, spec)
	}
	d, err := Compile(parsed, WithSchemas(protos{Given: text}))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// checkProto compares the rows of records with what protobuf-go reads. It reports whether protobuf-go reads all
// of them.
func checkProto(t *testing.T, d *Decoder, md protoreflect.MessageDescriptor, records ...[]byte) bool {
	t.Helper()
	var texts []string
	var read []protoreflect.Message
	for _, r := range records {
		m := dynamicpb.NewMessage(md)
		if !unmarshals(r, m) {
			continue
		}
		texts, read = append(texts, string(r)), append(read, m)
	}
	for i, text := range texts {
		f, err := decodeAll(t, d, lines(text))
		if e, ok := errors.AsType[*Error](err); ok && (strings.Contains(e.Error(), "inside each other") || strings.Contains(e.Error(), "out of the range")) {
			continue
		}
		if err != nil {
			t.Fatalf("%x: %v\n%v", text, err, read[i])
		}
		if err := compareProto(f, 0, read[i]); err != nil {
			t.Fatalf("%x: %v\n%v", text, err, read[i])
		}
	}
	return len(read) == len(records)
}

func firstMessage(t testing.TB, text string) protoreflect.MessageDescriptor {
	t.Helper()
	p, err := schema.ParseProto(text)
	if err != nil {
		t.Fatal(err)
	}
	m, err := p.Message("M")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestProtobufIsReadAsProtobufGoReadsIt reads random messages, also in unusual encodings.
func TestProtobufIsReadAsProtobufGoReadsIt(t *testing.T) {
	rng := seeded(t)
	for syntax, text := range everySyntax {
		t.Run(syntax, func(t *testing.T) {
			md, d := firstMessage(t, text), messages(t, text, everyColumn())
			read := 0
			for range 500 {
				b := another(rng, md, 4)
				if rng.IntN(3) == 0 {
					b = append(b, another(rng, md, 2)...) // so fields come twice, and oneofs change
				}
				if rng.IntN(4) > 0 {
					b = scramble(rng, md, b, 0)
				}
				if checkProto(t, d, md, b) {
					read++
				}
			}
			if read < 230 {
				t.Errorf("protobuf-go reads only %d records", read)
			}
		})
	}
}

// FuzzProtobufIsDynamicpb checks that a record which protobuf-go reads has the same values here, and that no bytes
// cause a panic.
func FuzzProtobufIsDynamicpb(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	type reader struct {
		md      protoreflect.MessageDescriptor
		d, soft *Decoder
	}
	readers := map[string]reader{}
	for syntax, text := range everySyntax {
		r := reader{firstMessage(f, text), messages(f, text, everyColumn()), messages(f, text, "on_error: default\n"+everyColumn())}
		readers[syntax] = r
		for range 5 {
			b := another(rng, r.md, 2)
			f.Add(syntax, b)
			f.Add(syntax, scramble(rng, r.md, b, 0))
		}
	}
	f.Fuzz(func(t *testing.T, syntax string, record []byte) {
		r, ok := readers[syntax]
		if !ok {
			return
		}
		checkProto(t, r.d, r.md, record)
		if _, err := decodeAll(t, r.soft, lines(string(record))); err != nil {
			t.Fatal(err)
		}
	})
}

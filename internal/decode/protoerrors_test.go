package decode

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headrace/headrace/sources"
)

const (
	shopV1 = `syntax = "proto3"; message Click { int64 user = 1; string country = 2; optional double score = 3; repeated int32 prices = 4;
		message Inner { int32 x = 1; } repeated Inner inner = 5; map<int32, string> names = 6; uint64 large = 7; }`
	shopV2 = `syntax = "proto3"; package shop; message Before {} message Outer { message Click { string country = 12; int32 user = 1; Kind kind = 2; optional int32 score = 3; } } enum Kind { BUY = 0; LOOK = 1; }`
)

var shop = protos{1: shopV1, 2: shopV2, 9: "message {"}

// registered compiles a spec for a topic whose records name a schema of a registry.
func registered(t testing.TB, columns string, s Schemas) *Decoder {
	t.Helper()
	return topicDecoder(t, "protobuf", columns, s)
}

// numbered puts a schema's id and the numbers of a message in front of a record.
func numbered(id uint32, indexes string, record ...byte) string {
	return wire(id, append([]byte(indexes), record...)...)
}

func TestVersionsOfAMessageAreReadByTheNamesOfTheirFields(t *testing.T) {
	d := registered(t, `columns:
- {name: user, path: user, dtype: int64}
- {name: country, path: country, dtype: string}
- {name: score, path: score, dtype: float32, default: "-1"}
- {name: kind, path: kind, dtype: string, missing: mask}
- {name: prices, path: /prices/*, dtype: int64}
`, shop)
	one := numbered(1, "\x00", 8, 5, 18, 2, 'd', 'e', 0x19, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f, 34, 2, 7, 8)
	long := numbered(1, "\x02\x00", 8, 6)
	two := numbered(2, "\x04\x02\x00", 98, 2, 'f', 'r', 16, 1, 24, 9)
	f, err := decodeAll(t, d, lines(one, two, long, one))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"user": "[5 0 6 5]", "country": "[de fr  de]", "score": "[0.5 9 -1 0.5]", "kind": "[ LOOK  ]", "prices": "[[7 8] [] [] [7 8]]"} {
		if got := fmt.Sprint(rowsOf(t, f, name)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if masks := maskOf(f, "kind"); string(masks) != "\x00\x01\x00\x00" {
		t.Errorf("mask %v", masks)
	}
}

func TestWhatIsWrongWithAProtobufRecordIsNamed(t *testing.T) {
	const user = "columns:\n- {name: u, path: user, dtype: int64}\n"
	column := func(path, dtype string) string {
		return fmt.Sprintf("columns:\n- {name: c, path: %q, dtype: %s}\n", path, dtype)
	}
	for _, c := range []struct{ columns, record, want string }{
		{user, "", "is not in the registry's wire format"},
		{user, "\x01\x00\x00\x00\x01\x00", "begins with a byte 0"},
		{user, wire(1), "does not say which message it is"},
		{user, numbered(1, "\x04\x00"), "does not say which message it is"},
		{user, numbered(1, "\x01"), "does not say which message it is"},
		{user, numbered(1, "\x02\x0a"), "its schema 1: it has no message with the number 5; it defines Click"},
		{user, numbered(77, "\x00"), "its schema 77: is not in the registry"},
		{user, numbered(9, "\x00"), "its schema 9: the Protobuf schema cannot be read"},
		{user, numbered(1, "\x00", 8), "the record ends here, within a value (schema 1)"},
		{user, numbered(1, "\x00", 18, 50, 1), "has a length of 50 bytes, and its message ends after 1"},
		{user, numbered(1, "\x00", 0), "begins a field with the number 0"},
		{user, numbered(1, "\x00", 0x0f), "has the wire type 7, which does not exist"},
		{user, numbered(1, "\x00", 0x0c), "ends a group that did not begin"},
		{user, numbered(1, "\x00", 8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2), "is no number: it has more than 64 bits"},
		{user, numbered(1, "\x00", []byte(strings.Repeat("\xa3\x06", 3000))...), "messages inside each other"},
		{column("country", "int64"), numbered(1, "\x00", 18, 1, 'a'), "column c (/country), byte 7: \"\\x01a\": is a string, which does not become int64; choose another dtype (schema 1)"},
		{column("country", "int64"), numbered(1, "\x00"), "is a string, which does not become int64"},
		{column("score", "float64"), numbered(1, "\x00"), "is missing (schema 1); give the column a default"},
		{column("nothing", "int64"), numbered(1, "\x00"), "is missing: the writer's schema has no field nothing in Click; it has user, country, score"},
		{column("/user/id", "int64"), numbered(1, "\x00"), "the writer's schema has an int64 there, which has no fields"},
		{column("prices", "int64"), numbered(1, "\x00", 32, 1), "is repeated: write a * for its elements"},
		{column("prices", "int64"), numbered(1, "\x00"), "is missing: it is repeated: write a * for its elements"},
		{column("/prices/x", "int64"), numbered(1, "\x00"), "has a repeated field there: write a * or a number instead of x"},
		{column("/inner/0", "int64"), numbered(1, "\x00", 42, 0), "is a message: name one of its fields, as in /x"},
		{column("/names/x", "string"), numbered(1, "\x00"), "has a map there whose keys are of type int32, and x is none"},
		{column("names", "string"), numbered(1, "\x00", 50, 0), "is a map: name one of its keys"},
		{column("/inner/*/y", "int64"), numbered(1, "\x00", 42, 0), "an element of the array has no value"},
		{column("large", "int64"), numbered(1, "\x00", 56, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1), "18446744073709551615\": is out of the range of int64"},
		{column("user", "int32"), numbered(1, "\x00", 8, 0x80, 0x80, 0x80, 0x80, 0x10), "4294967296\": is out of the range of int32"},
	} {
		d := registered(t, c.columns, shop)
		_, err := decodeAll(t, d, lines(c.record))
		if _, ok := errors.AsType[*Error](err); !ok || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: %v, want %s", c.columns, c.record, err, c.want)
		} else if !strings.HasPrefix(err.Error(), "record at offset 0") {
			t.Errorf("%v names no offset", err)
		}
	}
}

func TestOnErrorDefaultReplacesWhatAProtobufRecordLacks(t *testing.T) {
	d := registered(t, `on_error: default
columns:
- {name: u, path: user, dtype: int64, default: "-1"}
- {name: c, path: country, dtype: int64, default: "-2"}
- {name: p, path: /prices/*, dtype: int32, default: "7"}
- {name: y, path: /inner/*/y, dtype: int32, default: "3"}
`, shop)
	f, err := decodeAll(t, d, lines(numbered(1, "\x00", 8, 5, 32, 9, 42, 0), "junk", numbered(1, "\x00", 32, 8, 8)))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"u": "[5 -1 -1]", "c": "[-2 -2 -2]", "p": "[[9] [7] [7]]", "y": "[[3] [3] [3]]"} {
		if got := fmt.Sprint(rowsOf(t, f, name)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if got := fmt.Sprint(d.Errors()); got != "[{$value 2} {c 1}]" {
		t.Errorf("counted %s", got)
	}
}

func TestDecodingProtobufDoesNotAllocate(t *testing.T) {
	d, batch := clicksOfProtobuf(t, 1000)
	builder, err := d.NewBuilder(1000)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(10, func() {
		builder.Reset()
		if n, err := d.Append(builder, batch, 0, 1000); n != 1000 || err != nil {
			t.Fatal(n, err)
		}
	}); n > 0 {
		t.Errorf("%v allocations for 1000 records", n)
	}
}

func clicksOfProtobuf(t testing.TB, n int) (*Decoder, *sources.Batch) {
	d := messages(t, everySyntax["proto3"], `columns:
- {name: a, path: i64, dtype: int64}
- {name: b, path: st, dtype: int64, hash: {buckets: 1000}}
- {name: c, path: fl, dtype: float32}
- {name: d, path: en, dtype: string}
- {name: e, path: /sub/x, dtype: int64, default: "0"}
- {name: f, path: /rf/*, dtype: float32}
- {name: g, path: /rs/*, dtype: int64, hash: {buckets: 1000}}
- {name: h, path: /subs/*/x, dtype: int64}
- {name: i, path: /ms/k, dtype: int64, default: "0"}
- {name: j, path: ts, dtype: int64, default: "0"}
`)
	var records []string
	for i := range n {
		var b []byte
		b = protowire.AppendVarint(protowire.AppendTag(b, 4, 0), uint64(i)*1e9)
		b = protowire.AppendString(protowire.AppendTag(b, 14, 2), fmt.Sprintf("user-%d", i))
		b = protowire.AppendFixed32(protowire.AppendTag(b, 11, 5), uint32(i))
		b = protowire.AppendVarint(protowire.AppendTag(b, 16, 0), uint64(i%2))
		b = protowire.AppendBytes(protowire.AppendTag(b, 19, 2), []byte{8, byte(i & 127)})
		b = protowire.AppendBytes(protowire.AppendTag(b, 22, 2), make([]byte, 4*16))
		for k := range 3 {
			b = protowire.AppendString(protowire.AppendTag(b, 23, 2), fmt.Sprintf("t%d", k))
			b = protowire.AppendBytes(protowire.AppendTag(b, 20, 2), []byte{8, byte(k), 18, 1, 'y'})
		}
		b = protowire.AppendBytes(protowire.AppendTag(b, 26, 2), []byte{10, 1, 'k', 16, 5})
		b = protowire.AppendBytes(protowire.AppendTag(b, 32, 2), []byte{8, 100, 16, 3})
		records = append(records, string(b))
	}
	return d, lines(records...)
}

// BenchmarkProtobuf reads a click with 10 fields, one of them a list of 16 floats.
func BenchmarkProtobuf(b *testing.B) {
	d, batch := clicksOfProtobuf(b, 1000)
	builder, err := d.NewBuilder(1000)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(batch.Arena)))
	for b.Loop() {
		builder.Reset()
		if n, err := d.Append(builder, batch, 0, 1000); n != 1000 || err != nil {
			b.Fatal(n, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/record")
}

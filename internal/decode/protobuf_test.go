package decode

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/internal/schema"
)

// protos is a registry's Protobuf schemas by id.
type protos map[uint32]string

func (s protos) Schema(id uint32) (*schema.Schema, error) {
	text, ok := s[id]
	if !ok {
		return nil, fmt.Errorf("is not in the registry")
	}
	p, err := schema.ParseProto(text)
	return &schema.Schema{Proto: p}, err
}

// messages compiles a spec whose records are the first message of a schema.
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

const everyKind = `
	optional int32 oi = 17; optional string os = 18;
	Sub sub = 19; repeated Sub subs = 20;
	repeated int32 ri = 21; repeated float rf = 22; repeated string rs = 23; repeated sint64 rz = 24; repeated E re = 25; repeated sfixed64 rq = 4000;
	map<string, int32> ms = 26; map<int32, Sub> mi = 27; map<bool, string> mb = 28; map<string, google.protobuf.Timestamp> mt = 39;
	oneof one { int32 a = 29; string b = 30; Sub c = 31; }
	google.protobuf.Timestamp ts = 32; repeated google.protobuf.Timestamp tss = 33;
	google.protobuf.Int64Value wi = 34; repeated google.protobuf.StringValue ws = 35;
	M me = 2000;
`

// The same messages in each language. In proto2 and editions some of them are groups.
var everySyntax = map[string]string{
	"proto3": `syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
message M { int32 i32 = 1; sint32 s32 = 2; uint32 u32 = 3; int64 i64 = 4; sint64 s64 = 5; uint64 u64 = 6; fixed32 f32 = 7; fixed64 f64 = 8;
	sfixed32 sf32 = 9; sfixed64 sf64 = 10; float fl = 11; double db = 12; bool bo = 13; string st = 14; bytes by = 15; E en = 16;` + everyKind + `}
enum E { option allow_alias = true; ZERO = 0; ONE = 1; UNO = 1; MINUS = -5; FAR = 100000; }
message Sub { int32 x = 1; optional string y = 2; repeated int32 z = 3; Sub deeper = 4; repeated Sub more = 5;
	oneof o { int32 p = 6; Sub q = 7; } map<string, sint32> m = 8; google.protobuf.Timestamp at = 9; E e = 10; }`,

	"proto2": `syntax = "proto2"; import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
message M { optional int32 i32 = 1 [default = 7]; optional sint32 s32 = 2; optional uint32 u32 = 3; required int64 i64 = 4; optional sint64 s64 = 5; optional uint64 u64 = 6; optional fixed32 f32 = 7; optional fixed64 f64 = 8;
	optional sfixed32 sf32 = 9; optional sfixed64 sf64 = 10; optional float fl = 11; optional double db = 12; optional bool bo = 13; optional bytes st = 14; optional bytes by = 15; optional E en = 16; map<string, E> me2 = 50;` +
		strings.NewReplacer("map<string", "map<string", "string", "bytes", "\n\tSub sub", "\n\toptional Sub sub", "\n\tgoogle", "\n\toptional google", "\n\tM me", "\n\toptional M me", "rz = 24", "rz = 24 [packed = true]").Replace(everyKind) + `}
enum E { option allow_alias = true; ZERO = 0; MINUS = -5; ONE = 1; UNO = 1; FAR = 100000; }
message Sub { optional int32 x = 1; optional bytes y = 2; repeated int32 z = 3; optional Sub deeper = 4; repeated Sub more = 5;
	oneof o { int32 p = 6; Sub q = 7; } map<string, sint32> m = 8; optional google.protobuf.Timestamp at = 9; optional E e = 10; }`,

	"edition 2023": `edition = "2023"; option features.message_encoding = DELIMITED; import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
message M { int32 i32 = 1; sint32 s32 = 2; uint32 u32 = 3; int64 i64 = 4; sint64 s64 = 5; uint64 u64 = 6 [features.field_presence = IMPLICIT]; fixed32 f32 = 7; fixed64 f64 = 8;
	sfixed32 sf32 = 9; sfixed64 sf64 = 10; float fl = 11 [features.field_presence = IMPLICIT]; double db = 12; bool bo = 13; string st = 14 [features.field_presence = IMPLICIT]; bytes by = 15; E en = 16;` +
		strings.NewReplacer("optional ", "").Replace(everyKind) + `}
enum E { option allow_alias = true; ZERO = 0; ONE = 1; UNO = 1; MINUS = -5; FAR = 100000; }
message Sub { int32 x = 1; string y = 2; repeated int32 z = 3; Sub deeper = 4; repeated Sub more = 5;
	oneof o { int32 p = 6; Sub q = 7; } map<string, sint32> m = 8; google.protobuf.Timestamp at = 9; E e = 10; }`,
}

// everyPath are paths of M and the dtypes that hold their values.
var everyPath = [][2]string{
	{"i32", "int64"}, {"s32", "int32"}, {"u32", "int64"}, {"i64", "int64"}, {"s64", "int64"}, {"u64", "float64"}, {"f32", "float64"}, {"f64", "float32"},
	{"sf32", "int32"}, {"sf64", "int64"}, {"fl", "float32"}, {"fl", "float64"}, {"db", "float64"}, {"bo", "bool"}, {"st", "bytes"}, {"by", "bytes"}, {"en", "string"}, {"en", "int32"},
	{"oi", "int64"}, {"os", "bytes"}, {"/sub/x", "int64"}, {"/sub/y", "bytes"}, {"/sub/deeper/x", "int32"}, {"/sub/z/*", "int64"}, {"/sub/z/1", "int64"}, {"/sub/p", "int64"}, {"/sub/q/x", "int64"}, {"/sub/q/z/*", "int32"},
	{"/sub/m/k", "int64"}, {"/sub/at", "int64"}, {"/sub/e", "bytes"}, {"/sub/more/*/x", "int64"}, {"/sub/more/0/z/*", "int64"}, {"/sub/q/z/0", "int32"}, {"/sub/deeper/deeper/y", "bytes"},
	{"/subs/*/x", "int64"}, {"/subs/*/y", "bytes"}, {"/subs/*/z/*", "int64"}, {"/subs/*/z/1", "int64"}, {"/subs/*/deeper/x", "int32"}, {"/subs/*/deeper/z/*", "int32"}, {"/subs/*/more/*/x", "int64"}, {"/subs/*/more/*/more/*/y", "bytes"},
	{"/subs/*/p", "int64"}, {"/subs/*/q/x", "int64"}, {"/subs/*/q/z/*", "int64"}, {"/subs/*/q/more/*/p", "int64"}, {"/subs/*/m/k", "float64"}, {"/subs/*/at", "int64"}, {"/subs/*/at/seconds", "float64"}, {"/subs/*/e", "string"}, {"/subs/*/q/z/0", "int64"},
	{"/subs/0/x", "int64"}, {"/subs/1/z/*", "int64"}, {"/subs/1/y", "bytes"}, {"/subs/*/nothing", "int64"}, {"/subs/*/nothing/*", "int64"},
	{"/ri/*", "int64"}, {"/ri/2", "int64"}, {"/rf/*", "float32"}, {"/rf/*", "float64"}, {"/rs/*", "bytes"}, {"/rs/0", "bytes"}, {"/rz/*", "int64"}, {"/re/*", "string"}, {"/re/*", "int64"}, {"/rq/*", "int64"},
	{"/ms/k", "int64"}, {"/ms/", "int64"}, {"/mi/-1/x", "int64"}, {"/mi/0/y", "bytes"}, {"/mi/-1/z/*", "int64"}, {"/mi/-1/q/x", "int64"}, {"/mb/true", "bytes"}, {"/mb/false", "bytes"}, {"/mt/k", "int64"}, {"/mt/k/nanos", "int64"}, {"/me2/k", "string"},
	{"a", "int64"}, {"b", "bytes"}, {"/c/x", "int64"}, {"/c/z/*", "int64"}, {"/c/deeper/p", "int64"}, {"/c/z/0", "int64"}, {"/c/more/*/x", "int64"},
	{"ts", "int64"}, {"/ts/seconds", "float64"}, {"/tss/*", "int64"}, {"/tss/0", "int64"}, {"/tss/*/nanos", "int64"}, {"wi", "int64"}, {"/ws/*", "bytes"}, {"/ws/1", "bytes"},
	{"/me/i32", "int64"}, {"/me/me/st", "bytes"}, {"/me/ri/*", "int32"}, {"/me/subs/*/x", "int64"}, {"nothing", "int64"}, {"/i32/nothing", "int64"},
}

const elementDefault = "7"

func everyColumn() string {
	var b strings.Builder
	b.WriteString("columns:\n")
	for i, p := range everyPath {
		if strings.Contains(p[0], "*") {
			fmt.Fprintf(&b, "- {name: c%d, path: %q, dtype: %s, default: %q, missing: mask}\n", i, p[0], p[1], elementDefault)
		} else {
			fmt.Fprintf(&b, "- {name: c%d, path: %q, dtype: %s, missing: mask}\n", i, p[0], p[1])
		}
	}
	return b.String()
}

// missingValue is a value that a message does not have.
type missingValue struct{}

// valuesAt is what lies at a path, by protobuf-go's own reading of the record.
func valuesAt(m protoreflect.Message, path []string) []any {
	field := m.Descriptor().Fields().ByName(protoreflect.Name(path[0]))
	if field == nil {
		return none(path)
	}
	v := m.Get(field)
	switch {
	case field.IsList() && path[1] == "*":
		all := []any{}
		for i := range v.List().Len() {
			all = append(all, valuesIn(field, v.List().Get(i), path[2:])...)
		}
		return all
	case field.IsList():
		i, err := strconv.Atoi(path[1])
		if err != nil || i >= v.List().Len() {
			return none(path)
		}
		return valuesIn(field, v.List().Get(i), path[2:])
	case field.IsMap():
		for k, e := range v.Map().Range {
			if k.String() == path[1] {
				return valuesIn(field.MapValue(), e, path[2:])
			}
		}
		return none(path)
	case field.HasPresence() && !m.Has(field):
		return none(path)
	}
	return valuesIn(field, v, path[1:])
}

func none(path []string) []any {
	for _, token := range path {
		if token == "*" {
			return []any{}
		}
	}
	return []any{missingValue{}}
}

func valuesIn(field protoreflect.FieldDescriptor, v protoreflect.Value, path []string) []any {
	if m := field.Message(); m != nil {
		switch {
		case len(path) > 0:
			return valuesAt(v.Message(), path)
		case m.Name() == "Timestamp":
			s, n := v.Message().Get(m.Fields().ByNumber(1)).Int(), v.Message().Get(m.Fields().ByNumber(2)).Int()
			return []any{s*1000 + int64(math.Floor(float64(n)/1e6))}
		}
		return valuesAt(v.Message(), []string{"value"})
	}
	if len(path) > 0 {
		return none(path)
	}
	if field.Kind() == protoreflect.EnumKind {
		return []any{symbolOf(field.Enum(), v.Enum())}
	}
	return []any{v.Interface()}
}

// enumValue is a number of an enum, and its name or the number again.
type enumValue struct {
	number int64
	name   string
}

func symbolOf(e protoreflect.EnumDescriptor, n protoreflect.EnumNumber) enumValue {
	if v := e.Values().ByNumber(n); v != nil {
		return enumValue{int64(n), string(v.Name())}
	}
	return enumValue{int64(n), fmt.Sprint(n)}
}

// as is a value as a column of a dtype has it.
func as(v any, dtype string) any {
	switch x := v.(type) {
	case missingValue:
		if dtype == "bytes" || dtype == "string" {
			return elementDefault
		}
		return "7"
	case enumValue:
		if dtype == "int32" || dtype == "int64" {
			return fmt.Sprint(x.number)
		}
		return x.name
	case []byte:
		return string(x)
	case string:
		return x
	case bool:
		return fmt.Sprint(x)
	case float32:
		return fmt.Sprint(float64(x))
	case float64:
		return fmt.Sprint(x)
	case int32:
		return number64(int64(x), dtype)
	case int64:
		return number64(x, dtype)
	case uint32:
		return number64(int64(x), dtype)
	case uint64:
		switch dtype {
		case "float32":
			return fmt.Sprint(float64(float32(x)))
		case "float64":
			return fmt.Sprint(float64(x))
		}
		return fmt.Sprint(x)
	}
	return fmt.Sprintf("%T", v)
}

func number64(v int64, dtype string) string {
	if dtype == "float64" {
		return fmt.Sprint(float64(v))
	}
	return fmt.Sprint(v)
}

func shown(v any) string {
	switch x := v.(type) {
	case []byte:
		return string(x)
	case float32:
		return fmt.Sprint(float64(x))
	}
	return fmt.Sprint(v)
}

// compareProto compares a row with what protobuf-go reads.
func compareProto(f *frame.Frame, row int, m protoreflect.Message) error {
	for i, p := range everyPath {
		path := strings.Split(strings.TrimPrefix(p[0], "/"), "/")
		want, c := valuesAt(m, path), &f.Columns[i]
		var got []any
		if all, ok := c.Row(row).([]any); ok {
			got = all
		} else if got = []any{c.Row(row)}; c.Mask[row] == 0 {
			got = []any{missingValue{}}
		}
		if len(want) == 0 {
			want = []any{missingValue{}} // the default of a row without values
		}
		same := len(got) == len(want)
		for k := 0; same && k < len(got); k++ {
			_, no := want[k].(missingValue)
			if _, masked := got[k].(missingValue); masked {
				same = no
				continue
			}
			if no && !strings.Contains(p[0], "*") {
				same = false
				continue
			}
			w := as(want[k], p[1])
			same = shown(got[k]) == w || shown(got[k]) == "NaN" && w == "NaN"
		}
		if !same {
			return fmt.Errorf("%s as %s: %v, want %v", p[0], p[1], got, want)
		}
	}
	return nil
}

// checkProto compares the rows of records with what protobuf-go reads in them. It reports
// whether protobuf-go reads all of them.
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

// TestProtobufIsReadAsProtobufGoReadsIt: random messages, written in unusual ways too.
func TestProtobufIsReadAsProtobufGoReadsIt(t *testing.T) {
	rng := seeded(t)
	for syntax, text := range everySyntax {
		t.Run(syntax, func(t *testing.T) {
			md, d := firstMessage(t, text), messages(t, text, everyColumn())
			read := 0
			for range 1500 {
				b := another(rng, md, 4)
				if rng.IntN(3) == 0 {
					b = append(b, another(rng, md, 2)...) // fields come twice, oneofs change
				}
				if rng.IntN(4) > 0 {
					b = scramble(rng, md, b, 0)
				}
				if checkProto(t, d, md, b) {
					read++
				}
			}
			if read < 700 {
				t.Errorf("protobuf-go reads only %d records", read)
			}
		})
	}
}

// another is a random message.
func another(rng *rand.Rand, md protoreflect.MessageDescriptor, depth int) []byte {
	m := dynamicpb.NewMessage(md)
	populate(rng, m, depth)
	b, err := proto.MarshalOptions{AllowPartial: true}.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

// populate fills a message at random.
func populate(rng *rand.Rand, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Cardinality() != protoreflect.Required && (rng.IntN(2) == 0 || f.Message() != nil && depth == 0) {
			continue
		}
		switch {
		case f.IsList():
			for range rng.IntN(4) {
				if v := m.NewField(f).List().NewElement(); f.Message() != nil {
					populate(rng, v.Message(), depth-1)
					m.Mutable(f).List().Append(v)
				} else {
					m.Mutable(f).List().Append(scalar(rng, f))
				}
			}
		case f.IsMap():
			for range rng.IntN(3) {
				k := scalar(rng, f.MapKey()).MapKey()
				if f.MapKey().Kind() == protoreflect.StringKind {
					k = protoreflect.ValueOfString([]string{"k", "l", ""}[rng.IntN(3)]).MapKey()
				} else if f.MapKey().Kind() == protoreflect.Int32Kind {
					k = protoreflect.ValueOfInt32(int32(rng.IntN(3) - 1)).MapKey()
				}
				v := m.Mutable(f).Map().NewValue()
				if f.MapValue().Message() != nil {
					populate(rng, v.Message(), depth-1)
				} else {
					v = scalar(rng, f.MapValue())
				}
				m.Mutable(f).Map().Set(k, v)
			}
		case f.Message() != nil:
			populate(rng, m.Mutable(f).Message(), depth-1)
		default:
			m.Set(f, scalar(rng, f))
		}
	}
}

func scalar(rng *rand.Rand, f protoreflect.FieldDescriptor) protoreflect.Value {
	n := int64(rng.IntN(5) - 2)
	if rng.IntN(3) == 0 {
		n = int64(rng.Uint64() >> rng.IntN(64))
	}
	if f.Parent().FullName() == "google.protobuf.Timestamp" {
		n %= 1e10
	}
	text := []string{"", "a", "k", "日本", strings.Repeat("long", 50)}[rng.IntN(5)]
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n%2 == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum([]protoreflect.EnumNumber{0, 1, -5, 100000, 1}[rng.IntN(5)])
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(n)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(n))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(n) / 3)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(n) / 3)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(text)
	}
	return protoreflect.ValueOfBytes([]byte(text))
}

// scramble writes a message in another way: its fields in another order, some of them twice
// or not at all, packed numbers apart, messages in pieces, unknown fields between them.
func scramble(rng *rand.Rand, md protoreflect.MessageDescriptor, b []byte, depth int) []byte {
	var chunks [][]byte
	for len(b) > 0 {
		number, wire, n := protowire.ConsumeTag(b)
		m := protowire.ConsumeFieldValue(number, wire, b[n:])
		if n < 0 || m < 0 {
			return b
		}
		tag, value := b[:n], b[n:n+m]
		b = b[n+m:]
		f := md.Fields().ByNumber(number)
		switch {
		case wire == protowire.BytesType && f != nil && f.Message() != nil && depth < 6:
			body, _ := protowire.ConsumeBytes(value)
			if rng.IntN(3) == 0 {
				body = append(append([]byte(nil), body...), another(rng, f.Message(), 1)...)
			}
			body = scramble(rng, f.Message(), body, depth+1)
			chunks = append(chunks, protowire.AppendBytes(append([]byte(nil), tag...), body))
		case wire == protowire.StartGroupType && f != nil && f.Message() != nil:
			body, _ := protowire.ConsumeGroup(number, value)
			body = append(append([]byte(nil), tag...), scramble(rng, f.Message(), body, depth+1)...)
			chunks = append(chunks, protowire.AppendTag(body, number, protowire.EndGroupType))
		case wire == protowire.BytesType && f != nil && f.IsPacked():
			body, _ := protowire.ConsumeBytes(value)
			for len(body) > 0 {
				n := protowire.ConsumeFieldValue(number, protowire.Type(wireOf(f.Kind())), body)
				chunks = append(chunks, append(protowire.AppendTag(nil, number, wireOf(f.Kind())), body[:n]...))
				body = body[n:]
			}
		default:
			chunks = append(chunks, append(append([]byte(nil), tag...), value...))
		}
		switch rng.IntN(12) {
		case 0:
			chunks = append(chunks, chunks[len(chunks)-1])
		case 1:
			chunks = chunks[:len(chunks)-1]
		case 2:
			chunks = append(chunks, protowire.AppendFixed32(protowire.AppendTag(nil, number, protowire.Fixed32Type), 9))
		case 3:
			g := protowire.AppendVarint(protowire.AppendTag(protowire.AppendTag(nil, 777, protowire.StartGroupType), 3, protowire.VarintType), 300)
			chunks = append(chunks, protowire.AppendTag(g, 777, protowire.EndGroupType))
		}
	}
	rng.Shuffle(len(chunks), func(i, k int) { chunks[i], chunks[k] = chunks[k], chunks[i] })
	var out []byte
	for _, c := range chunks {
		out = append(out, c...)
	}
	return out
}

// FuzzProtobufIsDynamicpb: a record that protobuf-go reads has the same values here, and no
// bytes do harm.
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

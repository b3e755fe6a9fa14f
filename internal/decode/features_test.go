package decode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/headrace/headrace/sources"
)

// exampleTypes are tf.Example and tf.SequenceExample, as example.proto and feature.proto declare them.
func exampleTypes(t testing.TB) protoreflect.MessageDescriptors {
	t.Helper()
	field := func(name string, n int32, kind descriptorpb.FieldDescriptorProto_Type, message string, label descriptorpb.FieldDescriptorProto_Label) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{Name: &name, Number: &n, Type: &kind, Label: &label, JsonName: &name}
		if message != "" {
			f.TypeName = proto.String(".tensorflow." + message)
		}
		return f
	}
	const (
		one  = descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL
		many = descriptorpb.FieldDescriptorProto_LABEL_REPEATED
		msg  = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
	)
	message := func(name string, fields ...*descriptorpb.FieldDescriptorProto) *descriptorpb.DescriptorProto {
		return &descriptorpb.DescriptorProto{Name: &name, Field: fields}
	}
	entryOf := func(value string) *descriptorpb.DescriptorProto {
		m := message(value+"Entry", field("key", 1, descriptorpb.FieldDescriptorProto_TYPE_STRING, "", one), field("value", 2, msg, value, one))
		m.Options = &descriptorpb.MessageOptions{MapEntry: proto.Bool(true)}
		return m
	}
	feature := message("Feature", field("bytes_list", 1, msg, "BytesList", one), field("float_list", 2, msg, "FloatList", one), field("int64_list", 3, msg, "Int64List", one))
	features := message("Features", field("feature", 1, msg, "Features.FeatureEntry", many))
	features.NestedType = append(features.NestedType, entryOf("Feature"))
	lists := message("FeatureLists", field("feature_list", 1, msg, "FeatureLists.FeatureListEntry", many))
	lists.NestedType = append(lists.NestedType, entryOf("FeatureList"))
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{Name: proto.String("example.proto"), Package: proto.String("tensorflow"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{
			message("BytesList", field("value", 1, descriptorpb.FieldDescriptorProto_TYPE_BYTES, "", many)),
			message("FloatList", field("value", 1, descriptorpb.FieldDescriptorProto_TYPE_FLOAT, "", many)),
			message("Int64List", field("value", 1, descriptorpb.FieldDescriptorProto_TYPE_INT64, "", many)),
			feature, features, message("FeatureList", field("feature", 1, msg, "Feature", many)), lists,
			message("Example", field("features", 1, msg, "Features", one)),
			message("SequenceExample", field("context", 1, msg, "Features", one), field("feature_lists", 2, msg, "FeatureLists", one)),
		}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return file.Messages()
}

func part(tag byte, content ...[]byte) []byte {
	all := slices.Concat(content...)
	return append(binary.AppendUvarint([]byte{tag}, uint64(len(all))), all...)
}

func floatFeature(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return part(2<<3|2, part(field1, b))
}

func intFeature(values ...int64) []byte {
	var b []byte
	for _, v := range values {
		b = binary.AppendUvarint(b, uint64(v))
	}
	return part(3<<3|2, part(field1, b))
}

func textFeature(values ...string) []byte {
	var b []byte
	for _, v := range values {
		b = append(b, part(field1, []byte(v))...)
	}
	return part(1<<3|2, b)
}

func mapEntry(name string, value []byte) []byte {
	return part(field1, part(field1, []byte(name)), part(field2, value))
}

func example(entries ...[]byte) []byte { return part(field1, entries...) }

const exampleColumns = `format: tfrecord
on_error: fail
event_time: at
columns:
  - {name: label, path: label, dtype: float32}
  - {name: pair, paths: [a, b], dtype: float64, default: -1}
  - {name: user, path: user, dtype: int64, hash: {buckets: 1000}, missing: mask}
  - {name: n, path: n, dtype: int32, default: 7}
  - {name: word, path: word, dtype: string, default: none}
  - {name: emb, path: emb, dtype: float32, shape: [2, 2], default: 0}
  - {name: ids, path: /ids/*, dtype: int64, max: 3}
  - {name: tags, path: /tags/*, dtype: bytes}
  - {name: ok, path: ok, dtype: bool, default: false}
  - {name: steps, path: /steps/*/*, dtype: float32}
  - {name: whole, path: $value, dtype: bytes}
`

func TestAnExampleBecomesARow(t *testing.T) {
	full := slices.Concat(example(
		mapEntry("label", floatFeature(0.5)), mapEntry("a", intFeature(3)), mapEntry("b", floatFeature(1.5)), mapEntry("user", textFeature("ann")),
		mapEntry("n", intFeature(-4)), mapEntry("word", textFeature("wörd")), mapEntry("emb", floatFeature(1, 2, 3, 4)), mapEntry("ids", intFeature(1, -2, 1<<40, 9)),
		mapEntry("tags", textFeature("", "x")), mapEntry("ok", intFeature(1)), mapEntry("at", intFeature(1_700_000_000)), mapEntry("unwanted", intFeature(1))),
		part(field2, mapEntry("steps", slices.Concat(part(field1, floatFeature(1)), part(field1), part(field1, floatFeature(2, 3))))))
	// The features have another order, values that are not packed, an entry with its value before its name, a
	// name twice, and unknown fields.
	odd := slices.Concat(part(15<<3|2, []byte("?")), example(
		part(field1, part(field2, part(3<<3|2, []byte{int1, 5})), part(field1, []byte("n"))),
		mapEntry("label", part(2<<3|2, []byte{float1, 0, 0, 0x80, 0x3f})), mapEntry("user", intFeature(12)), mapEntry("n", intFeature(6)),
		mapEntry("ids", part(3<<3|2, []byte{int1, 1, field1, 2, 2, 3})), mapEntry("b", nil), mapEntry("a", part(2<<3|2))))
	d := compile(t, exampleColumns)
	for range 2 { // the second time the decoder expects the order that it has seen
		f, err := decodeAll(t, d, lines(string(full), string(odd)))
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{
			"label": "[0.5 1]", "pair": "[[3 1.5] [-1 -1]]", "n": "[-4 6]", "word": "[wörd none]", "emb": "[[1 2 3 4] [0 0 0 0]]",
			"ids": fmt.Sprint([]any{[]int64{1, -2, 1 << 40}, []int64{1, 2, 3}}), "ok": "[true false]", "steps": "[[1 2 3] []]",
			"user": fmt.Sprint([]any{Hash64([]byte("ann"), 1000, ""), Hash64([]byte("12"), 1000, "")}),
		} {
			if got := fmt.Sprint(rowsOf(t, f, name)); got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
		if got := rowsOf(t, f, "tags"); fmt.Sprintf("%q", got) != `[["" "x"] []]` {
			t.Errorf("tags: %q", got)
		}
		if got := rowsOf(t, f, "whole"); !reflect.DeepEqual(got[0], full) {
			t.Errorf("whole: %T %q", got[0], got[0])
		}
	}
	b, err := d.NewBuilder(2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Append(b, lines(string(full)), 0, 1); err != nil || b.Times[0] != 1_700_000_000_000 {
		t.Errorf("%v, time %d", err, b.Times[0])
	}
}

func TestAnExampleThatDoesNotFitIsTold(t *testing.T) {
	for _, c := range []struct{ record, column, reason string }{
		{string(example()), "label", "is missing"},
		{string(example(mapEntry("label", intFeature(1, 2)))), "label", "has 2 values, not one"},
		{string(example(mapEntry("label", textFeature("x")))), "label", "is bytes, which does not become float32"},
		{string(example(mapEntry("label", part(2<<3|2, part(field1, []byte("123")))))), "label", "is no list of float"},
		{string(example(mapEntry("label", floatFeature(1)), mapEntry("n", intFeature(1<<33)))), "n", "out of the range of int32"},
		{string(example(mapEntry("label", floatFeature(1)), mapEntry("emb", floatFeature(1, 2, 3)))), "emb", "has 3 values, and its shape has 4"},
		{string(example(mapEntry("label", floatFeature(1)), mapEntry("ok", intFeature(2)))), "ok", "is no bool"},
		{string(example(mapEntry("label", floatFeature(1)), mapEntry("word", textFeature("\xff")))), "word", "is not UTF-8"},
		{string(example(mapEntry("label", slices.Concat(floatFeature(1), floatFeature(2))))), "", "is no feature"},
		{"no example", "", "is no tf.Example"},
		{string(example(mapEntry("label", floatFeature(1)))[:9]), "", "is no tf.Example"},
	} {
		d := compile(t, exampleColumns)
		_, err := decodeAll(t, d, lines(c.record))
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Column != c.column || !strings.Contains(e.Reason, c.reason) {
			t.Errorf("%q: %v, want column %q: %s", c.record, err, c.column, c.reason)
		}
	}
}

func TestOnErrorDefaultReplacesBadFeaturesAndCountsThem(t *testing.T) {
	d := compile(t, `format: tfrecord
on_error: default
columns:
  - {name: x, path: x, dtype: float32, default: 9}
  - {name: l, path: /l/*, dtype: int32}
`)
	f, err := decodeAll(t, d, lines(string(example(mapEntry("x", textFeature("no")), mapEntry("l", intFeature(1, 1<<40, 2)))), "garbage",
		string(example(mapEntry("x", floatFeature(1))))))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(rowsOf(t, f, "x"), rowsOf(t, f, "l")); got != "[9 9 1] [[1 2] [] []]" {
		t.Errorf("got %v, want %v", got, "[9 9 1] [[1 2] [] []]")
	}
	if got := fmt.Sprint(d.Errors()); got != "[{$value 1} {x 1} {l 1}]" {
		t.Errorf("got %q, want %q", got, "[{$value 1} {x 1} {l 1}]")
	}
}

// FuzzExampleIsProtobuf checks that our scanner and the protobuf library read the same, if both accept a record.
func FuzzExampleIsProtobuf(f *testing.F) {
	f.Add(slices.Concat(example(mapEntry("i", intFeature(1, -1)), mapEntry("f", floatFeature(1, 2)), mapEntry("s", textFeature("a", ""))),
		part(field2, mapEntry("l", slices.Concat(part(field1, intFeature(1)), part(field1, intFeature(2, 3)))))))
	f.Add(example(part(field1, part(field2, part(3<<3|2, []byte{int1, 5})), part(field1, []byte("i"))), mapEntry("i", nil), mapEntry("f", part(2<<3|2, []byte{float1, 1, 2, 3, 4}))))
	d := compile(f, `format: tfrecord
columns:
  - {name: i, path: /i/*, dtype: int64}
  - {name: f, path: /f/*, dtype: float32}
  - {name: s, path: /s/*, dtype: bytes}
  - {name: l, path: /l/*/*, dtype: int64}
`)
	types := exampleTypes(f)
	f.Fuzz(func(t *testing.T, record []byte) {
		batch := &sources.Batch{Arena: record, Recs: []sources.Record{{Value: [2]int32{0, int32(len(record))}}}}
		got, err := decodeAll(t, d, batch)
		want := dynamicpb.NewMessage(types.ByName("SequenceExample"))
		if err != nil || !unmarshals(record, want) {
			return
		}
		oracle := func(outer, name, list string) []any {
			all := want.Get(want.Descriptor().Fields().ByName(protoreflect.Name(outer))).Message()
			entry := all.Get(all.Descriptor().Fields().ByNumber(1)).Map().Get(protoreflect.ValueOfString(name).MapKey())
			return valuesOf(entry, list)
		}
		floats := oracle("context", "f", "float_list")
		for _, v := range oracle("context", "f", "int64_list") { // a column of floats takes integers, too
			floats = append(floats, float32(v.(int64)))
		}
		for name, want := range map[string][]any{"i": oracle("context", "i", "int64_list"), "f": floats, "s": oracle("context", "s", "bytes_list")} {
			if g, w := fmt.Sprint(rowsOf(t, got, name)[0]), fmt.Sprint(want); g != w {
				t.Fatalf("%x: %s is %s, want %s", record, name, g, w)
			}
		}
		if g, w := fmt.Sprint(rowsOf(t, got, "l")[0]), fmt.Sprint(oracle("feature_lists", "l", "int64_list")); g != w {
			t.Fatalf("%x: l is %s, want %s", record, g, w)
		}
	})
}

// unmarshals calls proto.Unmarshal, which panics at an entry without a name in a dynamic map.
func unmarshals(record []byte, m proto.Message) (ok bool) {
	defer func() { ok = recover() == nil && ok }()
	return proto.Unmarshal(record, m) == nil
}

// valuesOf returns the values of one kind in a Feature, or in all steps of a FeatureList.
func valuesOf(v protoreflect.Value, list string) []any {
	all := []any{}
	if !v.IsValid() {
		return all
	}
	m := v.Message()
	if steps := m.Descriptor().Fields().ByName("feature"); steps != nil {
		for i := range m.Get(steps).List().Len() {
			all = append(all, valuesOf(m.Get(steps).List().Get(i), list)...)
		}
		return all
	}
	l := m.Get(m.Descriptor().Fields().ByName(protoreflect.Name(list))).Message()
	values := l.Get(l.Descriptor().Fields().ByName("value")).List()
	for i := range values.Len() {
		all = append(all, values.Get(i).Interface())
	}
	return all
}

// BenchmarkExample reads a label, 13 floats and 26 hashed texts of 8 bytes.
func BenchmarkExample(b *testing.B) {
	records := make([]string, 1000)
	for i := range records {
		entries := [][]byte{mapEntry("label", floatFeature(float32(i&1)))}
		for k := range 13 {
			entries = append(entries, mapEntry(fmt.Sprintf("x%d", k), floatFeature(float32(i*k))))
		}
		for k := range 26 {
			entries = append(entries, mapEntry(fmt.Sprintf("c%d", k), textFeature(fmt.Sprintf("%08x", i*2654435761+k))))
		}
		records[i] = string(example(entries...))
	}
	d := compile(b, `format: tfrecord
columns:
  - {name: label, path: label, dtype: float32}
  - {name: x, paths: [x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12], dtype: float32}
  - {name: c, paths: [c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, c16, c17, c18, c19, c20, c21, c22, c23, c24, c25], dtype: int64, hash: {buckets: 1048576}}
`)
	batch := lines(records...)
	builder, err := d.NewBuilder(len(records))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(batch.Arena)))
	for b.Loop() {
		builder.Reset()
		if n, err := d.Append(builder, batch, 0, len(records)); n != len(records) || err != nil {
			b.Fatal(n, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(records)), "ns/record")
}

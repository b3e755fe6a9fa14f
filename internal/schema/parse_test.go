package schema

import (
	"strings"
	"testing"
)

func TestNamesOfAvroAreFoundAsItsSpecificationSays(t *testing.T) {
	s, err := ParseAvro([]byte(`{"type": "record", "name": "A", "namespace": "shop", "fields": [
		{"name": "own", "type": ["null", "A"]},
		{"name": "kind", "type": {"type": "enum", "name": "other.Kind", "symbols": ["X"]}},
		{"name": "size", "type": {"type": "fixed", "name": "Size", "size": 4}, "aliases": ["length", 5]},
		{"name": "again", "type": "other.Kind"}, {"name": "more", "type": "shop.Size"}, {"name": "deep", "type": {"type": {"type": "long", "logicalType": "timestamp-nanos"}}},
		{"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 9}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	a := s.Avro
	if a.Name != "shop.A" || a.Fields[0].Type.Branches[1] != a || a.Field("kind").Type != a.Field("again").Type || a.Field("length").Type != a.Field("more").Type ||
		a.Field("size").Type.Name != "shop.Size" || a.Field("deep").Type.Logical != TimestampNanos || a.Field("price").Type.Logical != None || a.Field("none") != nil {
		t.Errorf("the schema was read as %+v", a)
	}
}

func TestAvroSchemasThatCannotBeReadAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"{":                             "is not JSON",
		"null":                          "is the JSON null",
		"5":                             "a type is \"5\"",
		`"long" 7`:                      "has something after its JSON",
		`"Click"`:                       "uses a type \"Click\" and does not define it before",
		"[]":                            "a union has no types",
		`["null", ["int"]]`:             "a union in it",
		`{"name": "A"}`:                 "an object has no type",
		`{"type": "record"}`:            "a record has no name",
		`{"type": "array"}`:             "an array has no items",
		`{"type": "map"}`:               "a map has no values",
		`{"type": "enum", "name": "E"}`: "has no symbols",
		`{"type": "fixed", "name": "F", "size": -1}`:                                             "has no size",
		`{"type": "fixed", "name": "F", "size": 1e9}`:                                            "has no size",
		`{"type": "record", "name": "A"}`:                                                        "has no list of fields",
		`{"type": "record", "name": "A", "fields": [{}]}`:                                        "a field without a name",
		`{"type": "record", "name": "A", "fields": [{"name": "x"}]}`:                             "has no type",
		`[{"type": "fixed", "name": "F", "size": 1}, {"type": "fixed", "name": "F", "size": 1}]`: "defines \"F\" twice",
		strings.Repeat(`{"type":"array","items":`, 100) + `"int"` + strings.Repeat("}", 100):     "nested deeper than 64",
		"[" + strings.Repeat(`"int",`, 70000) + `"int"]`:                                         "more than 65536 types",
		strings.Repeat(" ", MaxText+1):                                                           "at most 4194304",
	} {
		if _, err := ParseAvro([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
}

func FuzzAvroSchema(f *testing.F) {
	f.Add([]byte(`{"type":"record","name":"A","namespace":"n","fields":[{"name":"x","type":["null","A"],"aliases":["y"]},{"name":"m","type":{"type":"map","values":"long"}}]}`))
	f.Add([]byte(`{"type":"fixed","name":"F","size":7,"logicalType":"decimal","precision":3,"scale":1}`))
	f.Add([]byte(`[{"type":"enum","name":"E","symbols":["A"]},"E","null"]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ParseAvro(text)
		if (err == nil) == (s == nil) {
			t.Fatal(s, err)
		}
	})
}

package decode

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/internal/schema"
	"github.com/headrace/headrace/sources"
)

const (
	clickV1 = `{"type": "record", "name": "shop.Click", "fields": [
		{"name": "user", "type": "long"},
		{"name": "country", "type": ["null", "string"]},
		{"name": "old_score", "aliases": ["score"], "type": "double"},
		{"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}]}`
	clickV2 = `{"type": "record", "name": "shop.Click", "fields": [
		{"name": "country", "type": "string"},
		{"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["BUY", "LOOK"]}},
		{"name": "user", "type": "int"}]}`
	clickText = `{"type": "record", "name": "shop.Click", "fields": [{"name": "user", "type": "string"}]}`
	clickList = `{"type": "record", "name": "L", "fields": [
		{"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "I", "fields": [{"name": "price", "type": ["null", "int"]}]}}}]}`
	clickNulls = `{"type": "record", "name": "N", "fields": [{"name": "n", "type": {"type": "array", "items": {"type": "array", "items": "null"}}}]}`
	clickSelf  = `{"type": "record", "name": "S", "fields": [{"name": "next", "type": ["null", "S"]}, {"name": "user", "type": "long"}]}`
)

var clicks = shelf{1: clickV1, 2: clickV2, 3: clickText, 4: clickList, 5: clickNulls, 6: clickSelf, 9: `{"type": "record"}`}

// Records of the two versions: user 5, country de, score 0.5, at 1 s; then country fr, LOOK, user 6.
var (
	oneV1 = wire(1, 10, 2, 4, 'd', 'e', 0, 0, 0, 0, 0, 0, 0xe0, 0x3f, 0x80, 0x89, 0x7a)
	oneV2 = wire(2, 4, 'f', 'r', 2, 12)
)

func TestVersionsOfASchemaAreReadByTheNamesOfTheirFields(t *testing.T) {
	d := written(t, `event_time: at
columns:
- {name: user, path: user, dtype: int64}
- {name: country, path: country, dtype: int64, hash: {buckets: 0}}
- {name: score, path: score, dtype: float32, default: "-1"}
- {name: kind, path: kind, dtype: string, missing: mask}
- {name: list, path: /tags/*, dtype: string, missing: mask}
- {name: both, paths: [user, /user], dtype: float64}
- {name: key, path: $key, dtype: string, default: nobody}
`, clicks)
	batch := lines(oneV1, oneV2, oneV1)
	b, err := d.NewBuilder(3)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := d.Append(b, batch, 0, 3); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	if b.Times[0] != 1000 || b.Times[1] != 0 {
		t.Errorf("times %v", b.Times[:3])
	}
	f := finish1(t, d, b)
	for name, want := range map[string]string{"user": "[5 6 5]", "score": "[0.5 -1 0.5]", "kind": "[ LOOK ]", "list": "[[] [] []]", "both": "[[5 5] [6 6] [5 5]]", "key": "[nobody nobody nobody]"} {
		if got := fmt.Sprint(rowsOf(t, f, name)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	hashed := rowsOf(t, f, "country")
	if j := compile(t, "format: json\ncolumns:\n- {name: c, path: /c, dtype: int64, hash: {buckets: 0}}\n"); true {
		g, err := decodeAll(t, j, lines(`{"c":"de"}`, `{"c":"fr"}`))
		if err != nil {
			t.Fatal(err)
		}
		if same := rowsOf(t, g, "c"); hashed[0] != same[0] || hashed[1] != same[1] {
			t.Errorf("hashes %v, of JSON %v", hashed, same)
		}
	}
	if masks := maskOf(f, "kind"); string(masks) != "\x00\x01\x00" {
		t.Errorf("mask %v", masks)
	}
}

func maskOf(f *frame.Frame, name string) []byte {
	for i := range f.Columns {
		if f.Columns[i].Layout.Field.Name == name {
			return f.Columns[i].Mask
		}
	}
	return nil
}

func TestWhatIsWrongWithAnAvroRecordIsNamed(t *testing.T) {
	const user = "columns:\n- {name: u, path: user, dtype: int64}\n"
	const price = "columns:\n- {name: p, path: /items/*/price, dtype: int32}\n"
	for _, c := range []struct{ columns, record, want string }{
		{user, "", "is not in the registry's wire format"},
		{user, "\x01\x00\x00\x00\x01\x0a", "begins with a byte 0"},
		{user, "\x00\x00\x00", "4 bytes of schema id"},
		{user, wire(77, 1), "its schema 77: is not in the registry"},
		{user, wire(9, 1), "its schema 9: in the Avro schema a record has no name"},
		{user, oneV1[:7], "the record ends here, within a value (schema 1)"},
		{user, oneV1 + "x", "1 bytes are left after the last field"},
		{user, wire(1, 10, 4), "names branch 2 of a union of 2"},
		{user, wire(2, 9), "has a negative length"},
		{user, wire(2, 100, 1), "has a length of 50 bytes, and the record ends after 1"},
		{user, wire(3, 2, 'a'), "column u (/user), byte 5: \"\\x02a\": is a string, which does not become int64; choose another dtype"},
		{user, wire(4, 0), "is missing: the writer's schema has no field user in L; it has items (schema 4); give the column a default"},
		{"columns:\n- {name: c, path: country, dtype: string}\n", wire(1, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), "is null (schema 1); give the column a default"},
		{"columns:\n- {name: k, path: kind, dtype: string}\n", wire(2, 0, 4, 2), "names symbol 2 of shop.Kind, which has 2"},
		{"columns:\n- {name: u, path: items, dtype: int64}\n", wire(4, 0), "is an array: write a * for its elements"},
		{"columns:\n- {name: u, path: /user/id, dtype: int64}\n", oneV1, "is missing: the writer's schema has a long there, which has no fields"},
		{"columns:\n- {name: u, path: user, dtype: bool}\n", oneV1, "is a long, which does not become bool"},
		{"columns:\n- {name: u, path: old_score, dtype: int64, hash: {buckets: 9}}\n", oneV1, "is a double; only text, bytes, whole numbers and bools are hashed"},
		{"columns:\n- {name: u, path: user, dtype: int32}\n", wire(1, 0x80, 0x80, 0x80, 0x80, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), "4294967296\": is out of the range of int32"},
		{price, wire(4, 2, 0, 0), "an element of the array has no value"},
		{price, wire(4, 1, 100, 2, 2, 0), "its size reaches beyond the record"},
		{"columns:\n- {name: p, path: /n/*/*, dtype: int32, default: \"0\"}\n", wire(5, append([]byte{2}, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10, 0, 0)...), "elements without bytes"},
		{user, wire(6, []byte(strings.Repeat("\x02", 3000))...), "records inside each other"},
	} {
		d := written(t, c.columns, clicks)
		_, err := decodeAll(t, d, lines(c.record))
		e, ok := errors.AsType[*Error](err)
		if !ok || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.record, err, c.want)
		} else if !strings.HasPrefix(err.Error(), "record at offset 0") {
			t.Errorf("%v names no offset", e)
		}
	}
}

func TestOnErrorDefaultReplacesWhatAnAvroRecordLacks(t *testing.T) {
	d := written(t, `on_error: default
columns:
- {name: u, path: user, dtype: int64, default: "-1"}
- {name: c, path: country, dtype: string, default: none}
- {name: p, path: /items/*/price, dtype: int32, default: "7"}
- {name: k, path: $key, dtype: string, missing: mask}
`, clicks)
	f, err := decodeAll(t, d, lines(oneV1, "junk", wire(3, 2, 'a'), wire(4, 4, 0, 2, 8, 0), oneV1[:9]))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"u": "[5 -1 -1 -1 -1]", "c": "[de none none none none]", "p": "[[7] [7] [7] [7 4] [7]]"} {
		if got := fmt.Sprint(rowsOf(t, f, name)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if got := fmt.Sprint(d.Errors()); got != "[{$value 2} {u 1}]" {
		t.Errorf("counted %s", got)
	}
}

func TestATombstoneIsNoRowOfAvro(t *testing.T) {
	d := written(t, "columns:\n- {name: u, path: user, dtype: int64}\n", clicks)
	batch := lines(oneV1, "", oneV2)
	batch.Recs[1].Tombstone = true
	f, err := decodeAll(t, d, batch)
	if err != nil || fmt.Sprint(rowsOf(t, f, "u")) != "[5 6]" {
		t.Error(f, err)
	}
}

// awaited is a registry whose answer has not come yet.
type awaited struct{ err error }

func (a awaited) Schema(uint32) (*schema.Schema, error) { return nil, a.err }

func TestASchemaThatIsNotThereYetIsNoFaultOfTheRecord(t *testing.T) {
	want := &sources.Temporary{Err: errors.New("the registry has not answered")}
	d := written(t, "columns:\n- {name: u, path: user, dtype: int64}\n", awaited{want})
	_, err := decodeAll(t, d, lines(oneV1))
	if got, ok := errors.AsType[*sources.Temporary](err); !ok || got != want {
		t.Error(err)
	}
}

// later is a registry that gets the schema of an id only after some records with this id.
type later struct{ Schemas }

func TestASchemaThatTheRegistryHasLaterIsUsed(t *testing.T) {
	registry := &later{awaited{errors.New("is not in the registry")}}
	d := written(t, "on_error: default\ncolumns:\n- {name: u, path: user, dtype: int64, default: \"-1\"}\n", registry)
	for _, want := range []string{"[-1 -1]", "[5 5]"} {
		f, err := decodeAll(t, d, lines(oneV1, oneV1))
		if err != nil || fmt.Sprint(rowsOf(t, f, "u")) != want {
			t.Errorf("%v, want %s, %v", rowsOf(t, f, "u"), want, err)
		}
		registry.Schemas = clicks
	}
}

// A block of an array may state its size in bytes. If the items do not have that size, reading them is an
// error. Skipping uses the size, as Avro specifies, and does not notice.
func TestABlockOfAnAvroArrayTakesTheBytesThatItSays(t *testing.T) {
	for _, c := range []struct {
		name   string
		record []byte
		want   string
	}{
		{"its bytes", []byte{3, 6, 2, 8, 0, 0}, ""}, // two items, 3 bytes: 4 and null
		{"too few", []byte{3, 4, 2, 8, 0, 0}, "it says 2 bytes, and its items take 3"},
		{"too many", []byte{3, 8, 2, 8, 0, 0}, "it says 4 bytes, and its items take 3"},
		{"none", []byte{0xff, 0xff, 0, 0, 0}, "within a value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := written(t, "columns:\n- {name: p, path: /items/*/price, dtype: int32, default: \"7\"}\n", shelf{1: clickList})
			_, err := decodeAll(t, d, lines(wire(1, c.record...)))
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// FuzzAvroRecord checks for any bytes that skipping a value finds the same errors as reading it, except inside
// blocks that are skipped by their size.
func FuzzAvroRecord(f *testing.F) {
	for _, s := range clicks {
		f.Add(s, "/user", []byte(oneV1[5:]))
	}
	f.Add(clickList, "/items/*/price", []byte{4, 0, 2, 8, 0})
	f.Add(clickNulls, "/n/*/*", []byte{2, 4, 0, 0})
	f.Add(`{"type":"map","values":["null","string",{"type":"fixed","name":"F","size":16,"logicalType":"uuid"}]}`, "/k", []byte{2, 2, 'k', 2, 2, 'v', 0})
	f.Fuzz(func(t *testing.T, text, path string, record []byte) {
		if !strings.HasPrefix(path, "/") || len(path) > 40 || strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r > '}' || strings.ContainsRune("\"\\", r) }) || strings.Count(path, "/") > 4 {
			return
		}
		quoted, err := json.Marshal(path)
		if err != nil {
			return
		}
		dtype := "bytes"
		if strings.Contains(path, "*") {
			dtype = "float64, default: \"0\""
		}
		s := shelf{1: text}
		if _, err := s.Schema(1); err != nil {
			return
		}
		columns := "columns:\n- {name: a, path: " + string(quoted) + ", dtype: " + dtype + ", missing: mask}\n"
		lenient := written(t, "on_error: default\n"+columns, s)
		other := written(t, "on_error: default\ncolumns:\n- {name: a, path: no-such-field, dtype: bytes, missing: mask}\n", s)
		_, err1 := decodeAll(t, lenient, lines(wire(1, record...)))
		_, err2 := decodeAll(t, other, lines(wire(1, record...)))
		if err1 != nil || err2 != nil {
			t.Fatalf("%v, %v", err1, err2)
		}
		broken := func(d *Decoder) bool { e := d.Errors(); return len(e) > 0 && e[0].Column == "$value" }
		good := other // the decoder that found no error
		if broken(other) {
			good = lenient
		}
		if broken(lenient) != broken(other) && good.walking.jumps == 0 {
			t.Fatalf("%s\n%s %x: reading says broken %v (%v), skipping %v", text, path, record, broken(lenient), lenient.Errors(), broken(other))
		}
	})
}

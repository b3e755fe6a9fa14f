package decode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/headrace/headrace/internal/dataset"
)

const jsonPaths = `
format: json
columns:
- {name: n, path: /a, dtype: bytes, default: "-"}
`

// wantedPaths are looked up by the scanner, and by the oracle in the value that encoding/json makes of the record.
var wantedPaths = []string{"/a", "/b/c", "/b/d", "/b", "/t/*", "/i/*/x", "/i/*/y/z", "/i/1", "/m/*/n/*", "/é~0~1", "/0", "/s/*/*"}

// collected returns what the scanner finds at each path, as kinds and texts.
func collected(d *Decoder, record string) (found [][]string, f *fault) {
	batch := lines(record)
	d.take(batch.Arena, 0, len(record))
	if d.blank() {
		return nil, nil
	}
	clear(d.slots)
	d.scratch = d.scratch[:0]
	for i := range d.lists {
		d.lists[i].slots, d.lists[i].base = nil, 0
	}
	if f := d.walk(); f != nil {
		return nil, f
	}
	for i := range d.sources {
		values := []string{}
		slots := d.lists[i].slots
		if !d.sources[i].star {
			slots = []slot{d.slots[i]}
		}
		for _, s := range slots {
			values = append(values, d.show(s))
		}
		found = append(found, values)
	}
	return found, nil
}

func (d *Decoder) show(s slot) string {
	switch s.kind {
	case missing:
		return "missing"
	case str:
		return "string " + string(d.bytesOf(s))
	case escaped:
		return "string " + string(d.unescape(s))
	case object, array:
		return kindNames[s.kind]
	}
	return string(d.bytesOf(s))
}

// expected returns the same from encoding/json.
func expected(record []byte) [][]string {
	dec := json.NewDecoder(bytes.NewReader(record))
	dec.UseNumber()
	var doc any
	if err := dec.Decode(&doc); err != nil {
		return nil
	}
	var all [][]string
	for _, text := range wantedPaths {
		p, _ := dataset.ParsePath("json", text)
		stars := 0
		for _, s := range p.Stars {
			if s {
				stars++
			}
		}
		values := []string{}
		follow(doc, p, 0, stars, &values)
		all = append(all, values)
	}
	return all
}

// follow appends the values at the path from token i on. After the last *, each element gives exactly one value,
// which may be missing. Before the last *, a missing element gives none.
func follow(v any, p dataset.Path, i, stars int, out *[]string) {
	if i == len(p.Tokens) {
		*out = append(*out, showAny(v))
		return
	}
	if p.Stars[i] {
		list, _ := v.([]any)
		for _, e := range list {
			follow(e, p, i+1, stars-1, out)
		}
		return
	}
	switch c := v.(type) {
	case map[string]any:
		if e, ok := c[p.Tokens[i]]; ok {
			follow(e, p, i+1, stars, out)
			return
		}
	case []any:
		if n, err := strconv.Atoi(p.Tokens[i]); err == nil && n >= 0 && n < len(c) && strconv.Itoa(n) == p.Tokens[i] {
			follow(c[n], p, i+1, stars, out)
			return
		}
	}
	if stars == 0 {
		*out = append(*out, "missing")
	}
}

func showAny(v any) string {
	switch v := v.(type) {
	case nil:
		return "missing"
	case string:
		return "string " + v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	case map[string]any:
		return "an object"
	}
	return "an array"
}

func jsonDecoder(t testing.TB) *Decoder {
	var spec strings.Builder
	spec.WriteString("format: json\ncolumns:\n")
	for i, p := range wantedPaths {
		fmt.Fprintf(&spec, "- {name: c%d, path: %q, dtype: bytes, default: \"\"}\n", i, p)
	}
	return compile(t, spec.String())
}

// sameJSON checks one record with a decoder that has read other records before.
func sameJSON(t *testing.T, d *Decoder, record string) {
	t.Helper()
	valid := json.Valid([]byte(record)) && utf8.ValidString(record)
	got, f := collected(d, record)
	if blank := strings.Trim(record, " \t\r\n") == ""; blank {
		return
	}
	if (f == nil) != valid {
		t.Fatalf("%q: accepted %v (%+v), but encoding/json accepted %v", record, f == nil, f, valid)
	}
	if !valid {
		return
	}
	if want := expected([]byte(record)); !reflect.DeepEqual(got, want) {
		t.Fatalf("%q:\ngot  %q\nwant %q", record, got, want)
	}
}

var jsonSeeds = []string{
	`{"a":1,"b":{"c":"x","d":null},"t":[1,"2",true],"i":[{"x":1},{"y":{"z":"q"},"x":2},null,3]}`,
	`{"a":"12345678","b":"1"}`, `{"a":"1234567","b":"123456789012345"}`, `{"a":"a\u00e9\ud83d\ude00\ud800x\n"}`,
	`{"b":{"c":1},"b":{"d":2}}`, `{"t":[1,2],"t":[3]}`, `{"t":[1],"t":5}`, `{"i":[{"x":1,"x":2}],"a":1,"a":[]}`,
	`{"i":[{"y":{"z":1},"y":{}}]}`, `{"m":[{"n":[1,2]},{"n":[]},{"n":[3],"n":[4,5]}]}`, `{"s":[[1,2],[],3,[null]]}`,
	`{"\u0061":1,"\u00e9~/":2}`, `[1,{"a":1}]`, `{"0":5}`, "{\"a\":\"\xff\"}", "{\"\xff\":1}", `{"a":01}`, `{"a":1.}`, `{"a":-}`, `{"a":1e5,"b":1E-5}`,
	`{"a":tru}`, `{"a":"` + "\x01" + `"}`, `{"a":"\q"}`, `{"a":"\u12g4"}`, `{"a":1,}`, `{,"a":1}`, `{"a" : 1 , "b" : { } }`, `{"a":1}}`, `{"a":1`, `{"a"`,
	`{"a":`, `"a"`, ` 1 `, `nul`, `{"a":null,"b":{"c":nul}}`, `{"a":1 }`, `{"a":12345678}`, `{"a":1234567}`, `{"a":"x"` + strings.Repeat(" ", 40) + "}",
	strings.Repeat("[", 10000) + strings.Repeat("]", 10000), strings.Repeat("[", 10001) + strings.Repeat("]", 10001),
}

func FuzzJSONIsEncodingJSON(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add(s, s)
	}
	for i, s := range jsonSeeds[1:] {
		f.Add(jsonSeeds[i], s)
	}
	d := jsonDecoder(f)
	f.Fuzz(func(t *testing.T, before, record string) {
		for _, r := range []string{before, record, record, before, record} {
			sameJSON(t, d, r)
		}
	})
}

// The decoder remembers the order of keys, which makes the records of one writer fast. Records that lose, gain,
// swap and repeat members, with odd spacing, must not mislead it.
func TestJSONWhateverTheKeysBefore(t *testing.T) {
	d, r := jsonDecoder(t), seeded(t)
	names := []string{"a", "b", "c", "d", "t", "i", "x", "y", "z", "m", "n", "s", "0", "é~/", "another name that is long", "\\u0061", "\xff"}
	for range 3000 {
		var value func(depth int) string
		value = func(depth int) string {
			switch k := r.IntN(12 - depth); {
			case depth < 4 && k < 4:
				var members []string
				for range r.IntN(5) {
					name := names[r.IntN(len(names)-min(1, r.IntN(20)))]
					members = append(members, `"`+name+`":`+strings.Repeat(" ", r.IntN(40)/39)+value(depth+1))
				}
				return "{" + strings.Join(members, []string{",", ", "}[r.IntN(30)/29]) + "}"
			case depth < 4 && k < 6:
				var parts []string
				for range r.IntN(4) {
					parts = append(parts, value(depth+1))
				}
				return "[" + strings.Join(parts, ",") + "]"
			}
			return []string{"1", "-2.5e3", "null", "true", `"68fd1e64"`, `"é"`, `"a\"b"`, `""`, "1234567", "12345678", "0", "01", `"x`}[r.IntN(11+r.IntN(100)/99*2)]
		}
		s := value(0)
		sameJSON(t, d, s)
		if r.IntN(2) == 0 {
			sameJSON(t, d, s)
		}
	}
}

func TestJSONSpeaksOfWhatIsWrongAndWhere(t *testing.T) {
	for record, want := range map[string]string{
		`{"a":1,}`:         "byte 7: \"}\": bad JSON: a member's name in quotes belongs here",
		`{"a":"x`:          "byte 7: \"\": bad JSON: the record ends inside a value (a string is not closed)",
		"{\"a\":\"\xff\"}": "byte 6: \"\\xff\\\"}\": bad JSON: not UTF-8",
		`{"a":01}`:         "byte 6: \"1}\": bad JSON: a comma or a closing brace belongs here",
		`{"a":1} x`:        "byte 8: \"x\": bad JSON: something follows the value, and a record holds one value",
	} {
		_, err := decodeAll(t, compile(t, jsonPaths), lines(record))
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, not ... %s", record, err, want)
		}
	}
}

package decode

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/internal/schema"
)

// shelf has the schemas of a registry by id.
type shelf map[uint32]string

func (s shelf) Schema(id uint32) (*schema.Schema, error) {
	text, ok := s[id]
	if !ok {
		return nil, fmt.Errorf("is not in the registry")
	}
	return schema.ParseAvro([]byte(text))
}

const registryURL = "registry: {url: \"http://registry:8081\"}\n"

// written compiles a spec for a topic whose records name a schema of the shelf.
func written(t testing.TB, columns string, s Schemas) *Decoder {
	t.Helper()
	return topicDecoder(t, "avro", columns, s)
}

func topicDecoder(t testing.TB, format, columns string, s Schemas) *Decoder {
	t.Helper()
	text := "name: d\nkafka: {brokers: [\"k:1\"], topic: a}\ndecode:\n" + indent("format: "+format+"\n"+registryURL+columns)
	spec, err := dataset.Parse([]byte(text), "d.yaml")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	d, err := Compile(spec, WithSchemas(s))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func wire(id uint32, record ...byte) string {
	return string(append(binary.BigEndian.AppendUint32([]byte{0}, id), record...))
}

// TestAvroIsReadAsFastavroReadsIt has the cases of testdata/avro/make.py.
func TestAvroIsReadAsFastavroReadsIt(t *testing.T) {
	text, err := os.ReadFile("testdata/avro/records.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Schema  json.RawMessage
		Columns json.RawMessage
		Records []string
		Values  [][]json.RawMessage
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 50 {
		t.Fatalf("only %d cases", len(cases))
	}
	for n, c := range cases {
		d := written(t, "columns: "+string(c.Columns)+"\n", shelf{7: string(c.Schema)})
		var records []string
		for _, r := range c.Records {
			b, err := hex.DecodeString(r)
			if err != nil {
				t.Fatal(err)
			}
			records = append(records, wire(7, b...))
		}
		f, err := decodeAll(t, d, lines(records...))
		if err != nil {
			t.Fatalf("case %d: %v\n%s\n%s", n, err, c.Schema, c.Columns)
		}
		for i := range f.Columns {
			for row, want := range c.Values[i] {
				if !same(&f.Columns[i], row, string(want)) {
					t.Errorf("case %d, row %d, column %s: %v, want %s\n%s\n%s", n, row, f.Columns[i].Layout.Field.Name, f.Columns[i].Row(row), want, c.Schema, c.Columns)
				}
			}
		}
	}
}

// same compares a value of a column with the text that make.py wrote.
func same(c *frame.Received, row int, want string) bool {
	var w any
	dec := json.NewDecoder(strings.NewReader(want))
	dec.UseNumber()
	if dec.Decode(&w) != nil {
		return false
	}
	if c.Layout.Field.Mask && c.Mask[row] == 0 {
		return w == nil
	}
	return sameValue(c.Row(row), w)
}

func sameValue(got, want any) bool {
	switch g := got.(type) {
	case []any:
		w, ok := want.([]any)
		if !ok || len(g) != len(w) {
			return false
		}
		for i := range g {
			if !sameValue(g[i], w[i]) {
				return false
			}
		}
		return true
	case string, bool:
		return g == want
	case []byte:
		return want == "hex:"+hex.EncodeToString(g)
	case int32, int64:
		return fmt.Sprint(g) == fmt.Sprint(want)
	case float32:
		w, err := want.(json.Number).Float64()
		return err == nil && g == float32(w)
	case float64:
		w, err := want.(json.Number).Float64()
		return err == nil && g == w
	}
	return false
}

// An element of an inner array that is null is an element without a value, as in JSON. If it were left out, lists
// of one record would no longer match element by element.
func TestANullAtAnIndexBelowAStarIsAnElementWithoutAValue(t *testing.T) {
	schema := `{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":{"type":"array","items":["null","long"]}}}]}`
	record := wire(7, 8, 2, 2, 2, 0, 2, 0, 0, 2, 2, 6, 0, 0, 0)
	const text = `{"a":[[1],[null],[3],[]]}`
	for more, want := range map[string]string{`, default: "9"`: "[[1 9 3 9]]", "": "an element of the array has no value"} {
		columns := "columns: [{name: x, path: /a/*/0, dtype: int64" + more + "}]\n"
		for format, d := range map[string]*Decoder{text: compile(t, "format: json\n"+columns), record: written(t, columns, shelf{7: schema})} {
			f, err := decodeAll(t, d, lines(format))
			got := fmt.Sprint(err)
			if err == nil {
				got = fmt.Sprint(rowsOf(t, f, "x"))
			}
			if !strings.Contains(got, want) {
				t.Errorf("%q: %s, want %s", format, got, want)
			}
		}
	}
}

package dataset_test

import (
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	. "github.com/headrace/headrace/internal/dataset"
)

func TestEveryExampleOfTheDocumentationIsAccepted(t *testing.T) {
	text, err := os.ReadFile("../../docs/DATASETS.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	if len(examples) < 8 {
		t.Fatalf("only %d examples found", len(examples))
	}
	for _, e := range examples {
		all, err := ParseAll(e[1], "DATASETS.md")
		if err != nil {
			t.Errorf("%v\n%s", err, e[1])
			continue
		}
		for _, s := range all {
			if _, err := s.Schema(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestEveryFieldIsInTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../docs/DATASETS.md")
	if err != nil {
		t.Fatal(err)
	}
	// Set every optional part, so that its fields are among the leaves.
	s := mustParse(t, criteo+"shuffle: {seed: 1}\n")
	s.Decode.Fields, s.Decode.Header, s.Decode.EventTime = []string{"a"}, true, "0"
	all := Leaves(s)
	maps.Copy(all, Leaves(mustParse(t, "name: a\nfiles: {root: /data}\ndecode: {format: binary, columns: [{name: x, dtype: int32, shape: [2]}]}\n")))
	maps.Copy(all, Leaves(mustParse(t, "name: a\nkafka: {brokers: [k:1], topic: t}\ndecode: {format: avro, registry: {connection: r}, columns: [{name: x, path: x, dtype: int32}]}\n")))
	maps.Copy(all, Leaves(mustParse(t, "name: a\nkafka: {brokers: [k:1], topic: t}\ndecode: {format: protobuf, schema: {inline: x}, message: M, columns: [{name: x, path: x, dtype: int32}]}\n")))
	maps.DeleteFunc(all, func(field, _ string) bool { return strings.HasPrefix(field, "kafka.") }) // docs/kafka.md
	for field := range all {
		if strings.HasPrefix(field, "decode.columns.") {
			field = field[strings.LastIndexByte(field, '.')+1:]
		}
		if !strings.Contains(string(text), field) {
			t.Errorf("%s is not explained", field)
		}
	}
}

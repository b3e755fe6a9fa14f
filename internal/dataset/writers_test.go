package dataset_test

import (
	"strings"
	"testing"

	. "github.com/headrace/headrace/internal/dataset"
)

func TestWhereTheSchemasOfRecordsAre(t *testing.T) {
	const kafka, files = "kafka: {brokers: [\"k:1\"], topic: a}", "files: {root: /data}"
	for _, c := range []struct{ source, decoding, want string }{
		{kafka, "format: avro, registry: {connection: main}", ""},
		{kafka, "format: avro, schema: {inline: '\"long\"'}", ""},
		{files, "format: avro", ""},
		{files, "format: protobuf, schema: {file: /a.proto}", ""},
		{files, "format: protobuf, schema: {inline: x}, message: A", ""},
		{files, "format: protobuf", "what the messages of the files are"},
		{files, "format: protobuf, registry: {connection: a}", "whose messages name no schema"},
		{kafka, "format: avro", "decode.registry: must be given"},
		{kafka, "format: avro, registry: {}", "names no registry, or two"},
		{kafka, `format: avro, registry: {connection: a, url: "http://r"}`, "names no registry, or two"},
		{kafka, `format: avro, registry: {url: "http://u:p@r"}`, "holds a login"},
		{kafka, "format: avro, registry: {url: r}", "is no address of a registry"},
		{kafka, "format: avro, registry: {connection: a}, schema: {inline: x}", "a record's schema is in one place"},
		{kafka, "format: avro, schema: {file: a.avsc}", "is relative"},
		{kafka, "format: avro, schema: {}", "names no schema, or two"},
		{kafka, "format: json, registry: {connection: a}", "is for avro and protobuf"},
		{kafka, "format: protobuf, registry: {connection: a}", ""},
		{kafka, "format: protobuf, schema: {file: /a.desc}, message: shop.Click", ""},
		{kafka, "format: protobuf, schema: {file: /a.desc}", ""},
		{kafka, "format: protobuf", "schema: {file: /schemas/click.proto}"},
		{kafka, "format: protobuf, registry: {connection: a}, message: A", "each record says which message it is"},
		{kafka, "format: avro, schema: {file: /a.avsc}, message: A", "is for protobuf, and decode.format is avro"},
		{kafka, "format: json, message: A", "is for avro and protobuf"},
	} {
		text := "name: d\n" + c.source + "\ndecode: {" + c.decoding + ", columns: [{name: x, path: /a/b, dtype: int64}]}\n"
		spec, err := Parse([]byte(text), "")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v", c.source, c.decoding, err)
		}
		if err != nil {
			continue
		}
		stored, err := spec.JSON()
		if err != nil {
			t.Fatal(err)
		}
		again, err := FromJSON(stored)
		if err != nil {
			t.Errorf("%s: %v", stored, err)
		} else if back, _ := again.JSON(); string(back) != string(stored) {
			t.Errorf("%s\n%s", stored, back)
		}
	}
}

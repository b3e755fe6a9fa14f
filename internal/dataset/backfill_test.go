package dataset_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/headrace/headrace/internal/dataset"
)

const backfilled = `name: clicks
backfill:
  files: {root: /data/clicks, paths: ["day_*.csv"]}
  decode:
    format: csv
    header: true
    columns:
      - {name: user, path: user, dtype: int64, hash: {buckets: 1000}}
      - {name: label, path: clicked, dtype: float32}
kafka:
  brokers: [kafka-1:9092]
  topic: clicks
  start_offsets: {0: 1500}
  end: never
decode:
  format: json
  on_error: skip
  columns:
    - {name: label, path: /clicked, dtype: float32}
    - {name: user, path: /user, dtype: int64, hash: {buckets: 1000}}
`

func TestADatasetWithABackfillHasTwoInputs(t *testing.T) {
	s := mustParse(t, backfilled)
	all := s.Inputs()
	if len(all) != 2 || s.CatchUp.Order != CatchUpInOrder || !s.Live() {
		t.Fatalf("%d inputs, catch_up %s, live %v", len(all), s.CatchUp.Order, s.Live())
	}
	old, live := all[0], all[1]
	switch {
	case old.Kind().Name != "files" || old.Kind().Unit != "bytes" || old.Live() || old.Decode.Format != "csv" || !old.Skips():
		t.Errorf("the history is read as %+v", old)
	case live.Kind().Name != "kafka" || !live.Live() || live.Decode.Format != "json":
		t.Errorf("the source is read as %+v", live)
	case old.Lease.Max == live.Lease.Max || old.Lease.Initial != 256<<10 || live.Lease.Initial != 10_000:
		t.Errorf("leases of %+v and %+v", old.Lease, live.Lease)
	case old.Decode.Columns[0].Name != "label":
		t.Error("the columns are not in the dataset's order")
	}
	if s.InputOf("files:clicks").Kind().Name != "files" || s.InputOf("kafka:c/t/0").Kind().Name != "kafka" {
		t.Error("a partition must belong to the input of its kind")
	}
	if f := s.Folders(); len(f) != 1 || f[0] != "/data/clicks" {
		t.Errorf("folders %v", f)
	}

	text, err := s.JSON()
	if err != nil {
		t.Fatal(err)
	}
	again, err := FromJSON(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if other, err := again.JSON(); err != nil || !bytes.Equal(text, other) {
		t.Errorf("%v\n%s\n%s", err, text, other)
	}
	if d := Diff(s, again); len(d) != 0 {
		t.Errorf("the spec differs after it was read from its own JSON: %v", d)
	}
}

// Settings that the history's decode block leaves out are those of the dataset.
func TestABackfillOfTheSameFormatNeedsNoDecode(t *testing.T) {
	s := mustParse(t, "name: a\nbackfill: {files: {root: /d}}\ncatch_up: newest_first\nkafka: {brokers: [k:9092], topic: a, end: never}\n"+
		"decode: {format: json, event_time: /at, columns: [{name: x, path: /x, dtype: int64}]}\n")
	if d := s.Inputs()[0].Decode; d.Format != "json" || len(d.Columns) != 1 || d.EventTime != "/at" || s.CatchUp.Order != CatchUpNewestFirst {
		t.Errorf("the history is decoded as %+v", d)
	}
}

func TestWhatIsWrongWithABackfillIsNamedWithItsLine(t *testing.T) {
	for _, c := range []struct{ replace, by, want string }{
		{"label, path: clicked, dtype: float32", "label, path: clicked, dtype: int64", "clicks.yaml:7: backfill.decode.columns: column label is int64, and in decode.columns it is float32; files and topic must give the same columns"},
		{"      - {name: label, path: clicked, dtype: float32}\n", "", "backfill.decode.columns: has no column label, which the dataset has"},
		{"name: label, path: clicked", "name: lable, path: clicked", "has column lable, which decode.columns has not"},
		{"hash: {buckets: 1000}}\n      -", "hash: {buckets: 999}}\n      -", "column user has another hash"},
		{"path: clicked, dtype: float32", "path: clicked, dtype: float23", "clicks.yaml:9: backfill.decode.columns[1].dtype: \"float23\""},
		{"paths: [\"day_*.csv\"]", "paths: [../x]", "clicks.yaml:3: backfill.files.paths[0]: \"../x\": leaves files.root"},
		{"files: {root: /data/clicks,", "files: {root: /data/clicks, end: never,", "backfill.files.end: \"never\": does not go with backfill"},
		{"end: never\ndecode", "end: latest\ndecode", "backfill: comes before a source without an end, and kafka has one here; set kafka.end: never"},
		{"    header: true\n", "    header: true\n    on_error: skip\n", "backfill.decode.on_error: \"skip\": is the same for all records"},
		{"kafka:\n  brokers: [kafka-1:9092]\n  topic: clicks\n  start_offsets: {0: 1500}\n", "files:\n  root: /data/more\n", "comes before a live source of another kind, and both are files"},
		{"  files: {root: /data/clicks, paths: [\"day_*.csv\"]}\n", "", "backfill: names no source"},
		{"  files: {root: /data/clicks, paths: [\"day_*.csv\"]}\n", "  kafka: {topic: x}\n", "no such field in backfill"},
		{"kafka:\n", "catch_up: oldest_first\nkafka:\n", "catch_up: \"oldest_first\": is not known here; did you mean newest_first? use one of in_order, newest_first"},
		{"kafka:\n", "passes: 2\nkafka:\n", "passes: \"2\": does not go with kafka.end: never: such input is read once, as it comes; remove passes"},
		{"kafka:\n", "shuffle: {seed: 1}\nkafka:\n", "shuffle: does not go with kafka.end: never"},
	} {
		text := strings.Replace(backfilled, c.replace, c.by, 1)
		if text == backfilled {
			t.Fatalf("nothing was replaced: %q", c.replace)
		}
		if _, err := Parse([]byte(text), "clicks.yaml"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q by %q: got the error %v, want one with %q", c.replace, c.by, err, c.want)
		}
	}
	if _, err := Parse([]byte(strings.Replace(criteo, "decode:", "catch_up: in_order\ndecode:", 1)), ""); err == nil || !strings.Contains(err.Error(), "catch_up: \"in_order\": needs a backfill") {
		t.Errorf("catch_up alone: got the error %v, want one with %q", err, "catch_up: \"in_order\": needs a backfill")
	}
}

const liveTopic = "name: a\nkafka: {brokers: [k:9092], topic: a, end: never}\ndecode: {format: json, columns: [{name: x, path: /x, dtype: int64}]}\n"

func TestRecordsThatAreTooOldGoWithALiveTopicAndMayChange(t *testing.T) {
	plain := mustParse(t, liveTopic)
	s := mustParse(t, liveTopic+"catch_up: {drop_older_than: 6h}\n")
	if s.CatchUp != (CatchUp{DropOlderThan: Duration(6 * time.Hour)}) || plain.CatchUp != (CatchUp{}) {
		t.Errorf("%+v, %+v", s.CatchUp, plain.CatchUp)
	}
	both := mustParse(t, strings.Replace(backfilled, "kafka:", "catch_up: {order: newest_first, drop_older_than: 90m}\nkafka:", 1))
	if all := both.Inputs(); all[0].CatchUp != (CatchUp{}) || all[1].CatchUp != (CatchUp{DropOlderThan: Duration(90 * time.Minute)}) {
		t.Errorf("the inputs catch up as %+v and %+v", all[0].CatchUp, all[1].CatchUp)
	}
	for _, s := range []*Spec{plain, s, both} {
		text, err := s.JSON()
		if err != nil {
			t.Fatal(err)
		}
		again, err := FromJSON(text)
		if err != nil || again.CatchUp != s.CatchUp || len(Diff(s, again)) != 0 {
			t.Errorf("%v\n%s", err, text)
		}
	}
	// Older versions have stored the spec in this form.
	text, err := mustParse(t, backfilled).JSON()
	if err != nil || !bytes.Contains(text, []byte(`"catch_up":"in_order"`)) {
		t.Errorf("%v\n%s", err, text)
	}
	for _, c := range Diff(plain, s) {
		if !c.Compatible || c.Field != "catch_up.drop_older_than" {
			t.Errorf("the change must be one of catch_up.drop_older_than, and compatible: %+v", c)
		}
	}
	for text, want := range map[string]string{
		liveTopic + "catch_up: drop_older_than\n":                                              "catch_up: \"drop_older_than\": needs an age; as in catch_up: {drop_older_than: 6h}",
		liveTopic + "catch_up: {drop_older_than: 10ms}\n":                                      "catch_up.drop_older_than: \"10ms\": is too short",
		liveTopic + "catch_up: {order: in_order, drop_older_than: 1h}\n":                       "catch_up.order: \"in_order\": needs a backfill",
		liveTopic + "catch_up: {drop_older: 1h}\n":                                             "no such field in catch_up; fields are order, drop_older_than",
		liveTopic + "catch_up: {drop_older_than: soon}\n":                                      "catch_up.drop_older_than: \"soon\"",
		strings.Replace(liveTopic, "never", "latest", 1) + "catch_up: {drop_older_than: 1h}\n": "is for a source without an end; set kafka.end: never",
		"name: a\nfiles: {root: /d}\ndecode: lines\ncatch_up: {drop_older_than: 1h}\n":         "does not go with files, which does not find records by their time; it is for live input: kafka.end: never",
	} {
		if _, err := Parse([]byte(text), "a.yaml"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Each Avro file has the schema of its records, so the topic's schema settings do not apply to the history.
func TestAHistoryInAvroFilesNeedsNoRegistry(t *testing.T) {
	s := mustParse(t, "name: a\nbackfill: {files: {root: /d}}\nkafka: {brokers: [k:9092], topic: a, end: never}\n"+
		"decode: {format: avro, registry: {url: \"http://r:8081\"}, columns: [{name: x, path: x, dtype: int64}]}\n")
	old := s.Inputs()[0]
	if old.Decode.Registry != nil || old.Decode.Format != "avro" || old.Kind().Unit != "records" || s.Decode.Registry == nil {
		t.Errorf("%+v of %s", old.Decode, old.Kind().Unit)
	}
	for text, want := range map[string]string{
		"registry: {url: \"http://r:8081\"}": "decode.registry: does not go with files: each Avro file has the schema of its records",
		"schema: {inline: '\"long\"'}":       "decode.schema: does not go with files",
	} {
		_, err := Parse([]byte("name: a\nfiles: {root: /d}\ndecode: {format: avro, "+text+", columns: [{name: x, path: x, dtype: int64}]}\n"), "a.yaml")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestWhichFieldsOfABackfillMayChange(t *testing.T) {
	old := mustParse(t, backfilled)
	for _, c := range []struct {
		replace, by string
		may         bool
	}{
		{"kafka:\n", "catch_up: newest_first\nkafka:\n", true},
		{"root: /data/clicks,", "root: /data/clicks, max_record: 1MiB,", true},
		{"root: /data/clicks,", "root: /data/other,", false},
		{"header: true", "fields: [user, clicked]", false},
		{"path: clicked, dtype: float32}", "path: other, dtype: float32}", false},
	} {
		text := strings.Replace(backfilled, c.replace, c.by, 1)
		changes := Diff(old, mustParse(t, text))
		if len(changes) == 0 {
			t.Fatalf("%q: no change", c.by)
		}
		for _, ch := range changes {
			if ch.Compatible != c.may {
				t.Errorf("%v: compatible %v", ch, ch.Compatible)
			}
		}
	}
}

func TestTheHistorysFolderIsRelativeToTheSpecsFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "clicks.yaml")
	if err := os.WriteFile(name, []byte(strings.Replace(backfilled, "/data/clicks", "history", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	docs, err := ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if f := docs[0].Spec.Folders(); len(f) != 1 || f[0] != filepath.Join(dir, "history") {
		t.Errorf("the folders are %v, want only the one next to the spec's file", f)
	}
}

// Without a format, the files have that of the dataset; what the block says besides counts.
func TestFieldsOfABackfillWithoutAFormatCount(t *testing.T) {
	const topic = "kafka: {brokers: [k:9092], topic: a, end: never}\n"
	decodeOf := func(backfill, decode string) DecodeSpec {
		t.Helper()
		return mustParse(t, "name: a\nbackfill: {files: {root: /d}"+backfill+"}\n"+topic+"decode: {"+decode+"}\n").Inputs()[0].Decode
	}
	json := "format: json, event_time: /at, columns: [{name: x, path: /x, dtype: int64}]"
	if d := decodeOf(", decode: {columns: [{name: x, path: /old/x, dtype: int64}]}", json); d.Format != "json" || d.Columns[0].Path != "/old/x" || d.EventTime != "/at" {
		t.Errorf("columns of its own: %+v", d)
	}
	binary := "format: binary, columns: [{name: x, dtype: int32}]"
	if d := decodeOf(", decode: {record_size: 6}", binary); d.RecordSize != 6 || len(d.Columns) != 1 {
		t.Errorf("a record_size of its own: %+v", d)
	}
	if d := decodeOf(", decode: {columns: [{name: x, dtype: int32, offset: 8}]}", binary); d.RecordSize != 12 {
		t.Errorf("columns of its own in records of %d bytes, want 12", d.RecordSize)
	}
	proto := "columns: [{name: x, path: x, dtype: int64}], format: protobuf, "
	if d := decodeOf(", decode: {schema: {file: /old.proto}, message: Old}", proto+"registry: {connection: r}"); d.Registry != nil || d.Schema == nil || d.Schema.File != "/old.proto" || d.Message != "Old" {
		t.Errorf("a schema of its own: %+v", d)
	}
	if d := decodeOf("", proto+"schema: {file: /s.proto}, message: Click"); d.Schema == nil || d.Schema.File != "/s.proto" || d.Message != "Click" {
		t.Errorf("the schema of the dataset: %+v", d)
	}
	if d := decodeOf(", decode: {schema: {file: /old.proto}}", proto+"schema: {file: /s.proto}, message: Click"); d.Schema.File != "/old.proto" || d.Message != "" {
		t.Errorf("a schema of its own, without a message: %+v", d)
	}
}

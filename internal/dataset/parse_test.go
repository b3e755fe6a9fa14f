package dataset_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	. "github.com/headrace/headrace/internal/dataset"
)

const criteo = `# the click log
name: clicks
files:
  root: /data/clicks
  paths: ["day_*.tsv"]
decode:
  format: tsv
  columns:
    - {name: label, path: 0, dtype: float32}
    - name: dense
      paths: ["1..13"]
      dtype: float32
      default: 0
    - name: cat
      paths: ["14..39"]
      dtype: int64
      hash: {buckets: 1000000, salt: v1}
      default: 0
    - {name: tags, path: 40, dtype: int64, split: ",", weights: ":", max: 8, missing: mask}
`

func mustParse(t *testing.T, text string) *Spec {
	t.Helper()
	s, err := Parse([]byte(text), "clicks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestParseFillsInTheDefaults(t *testing.T) {
	s := mustParse(t, criteo)
	if s.Passes != 1 || s.Order != "any" || s.Shuffle != nil || filesOf(s).Verify != "fast" || filesOf(s).MaxRecord != 16<<20 {
		t.Errorf("defaults: %+v %+v", s, filesOf(s))
	}
	if s.Decode.Delimiter != "\t" || s.Decode.Quote != NoQuote || s.Decode.OnError != "fail" {
		t.Errorf("defaults of decode: %+v", s.Decode)
	}
	if s.Lease.Target.String() != "2s" || s.Lease.Initial != 256<<10 || s.Lease.Min != 16<<10 || s.Lease.Max != 1<<30 || s.Lease.Stall.String() != "10m0s" {
		t.Errorf("defaults of lease: %+v", s.Lease)
	}
}

func TestParseTakesAWholeFolderAndOneByteColumnsWithoutBeingTold(t *testing.T) {
	s := mustParse(t, "name: a\nfiles: {root: /data}\ndecode: raw\n")
	if !reflect.DeepEqual(filesOf(s).Paths, []string{"."}) {
		t.Errorf("paths %q", filesOf(s).Paths)
	}
	schema, err := s.Schema()
	if err != nil || len(schema.Fields) != 1 || schema.Fields[0].Name != "value" || schema.Fields[0].DType != Bytes {
		t.Errorf("schema %+v, %v", schema, err)
	}
}

func TestSchemaPacksSplitsAndAddsWeights(t *testing.T) {
	schema, err := mustParse(t, criteo).Schema()
	if err != nil {
		t.Fatal(err)
	}
	want := []Field{
		{Name: "label", DType: Float32, Shape: []int{}},
		{Name: "dense", DType: Float32, Shape: []int{13}},
		{Name: "cat", DType: Int64, Shape: []int{26}},
		{Name: "tags", DType: Int64, Shape: []int{}, Ragged: true, Mask: true},
		{Name: "tags_weights", DType: Float32, Shape: []int{}, Ragged: true},
	}
	if !reflect.DeepEqual(schema.Fields, want) {
		t.Errorf("got  %+v\nwant %+v", schema.Fields, want)
	}
}

func TestBinaryColumnsWithoutAnOffsetLieBehindTheOneBefore(t *testing.T) {
	const head = "name: a\nfiles: {root: /data}\ndecode:\n  format: binary\n"
	short := mustParse(t, head+"  columns:\n  - {name: label, dtype: int32}\n  - {name: name, path: $value, dtype: bytes}\n  - {name: x, dtype: float32, shape: 125}\n  - {name: late, dtype: bytes, shape: [2], offset: 600}\n")
	long := mustParse(t, head+"  record_size: 602\n  columns:\n  - {name: label, dtype: int32, offset: 0}\n  - {name: name, path: $value, dtype: bytes}\n  - {name: x, dtype: float32, offset: 4, shape: [125]}\n  - {name: late, dtype: bytes, shape: [2], offset: 600}\n")
	if d := Diff(short, long); d != nil {
		t.Errorf("the spec with its defaults written out differs: %v", d)
	}
	schema, err := short.Schema()
	if err != nil || !reflect.DeepEqual(schema.Fields[2].Shape, []int{125}) || len(schema.Fields[3].Shape) != 0 {
		t.Errorf("%+v, %v", schema, err)
	}
}

func TestJSONIsStableAndReadBackTheSame(t *testing.T) {
	s := mustParse(t, criteo)
	text, err := s.JSON()
	if err != nil {
		t.Fatal(err)
	}
	again, err := FromJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	text2, err := again.JSON()
	if err != nil || !bytes.Equal(text, text2) {
		t.Errorf("%v\n%s\n%s", err, text, text2)
	}
	other := mustParse(t, strings.Replace(criteo, "paths: [\"1..13\"]", "paths:\n      - 1..13", 1))
	text3, _ := other.JSON()
	if !bytes.Equal(text, text3) {
		t.Errorf("the same spec, written in another way, has other JSON:\n%s\n%s", text, text3)
	}
}

// mistakes are specs, and what the error must say.
func TestMistakesAreNamedWithLineFieldValueAndWayOut(t *testing.T) {
	const head = "name: clicks\nfiles: {root: /data}\n"
	const tsv = head + "decode:\n  format: tsv\n  columns:\n"
	const bin = head + "decode:\n  format: binary\n  columns:\n"
	for name, c := range map[string]struct{ text, want string }{
		"unknown field":             {head + "decode: raw\npases: 2\n", "clicks.yaml:4: pases: no such field; did you mean passes?"},
		"unknown field far away":    {head + "decode: raw\nzzzzzzzz: 2\n", "fields are name, files, kafka, decode"},
		"unknown field inside":      {head + "decode:\n  format: raw\n  colums: []\n", "clicks.yaml:5: decode.colums: no such field in decode; did you mean columns?"},
		"twice":                     {head + "decode: raw\npasses: 1\npasses: 2\n", "clicks.yaml:5: passes: is written twice; the first is on line 4"},
		"merge key":                 {"<<: {name: b}\n" + head + "decode: raw\n", "merge keys are not read here"},
		"no value":                  {head + "decode: raw\nshuffle:\n", "clicks.yaml:4: shuffle: has no value"},
		"list for a mapping":        {head + "decode: raw\nlease: [1]\n", "lease: is a list, and must be a mapping; its fields are target"},
		"mapping for a value":       {head + "decode: raw\norder: {a: 1}\n", "order: is a mapping, and must be a single value"},
		"no such resume":            {head + "decode: raw\nresume: newest\n", "clicks.yaml:4: resume: \"newest\""},
		"no name":                   {"files: {root: /data}\ndecode: raw\n", "name: must be given"},
		"bad name":                  {"name: a b\nfiles: {root: /data}\ndecode: raw\n", `clicks.yaml:1: name: "a b": is not a name`},
		"no files":                  {"name: a\ndecode: raw\n", "files: must be given"},
		"no root":                   {"name: a\nfiles: {paths: [a]}\ndecode: raw\n", "files.root: must be given"},
		"relative root":             {"name: a\nfiles: {root: data}\ndecode: raw\n", `clicks.yaml:2: files.root: "data": is relative`},
		"absolute path":             {"name: a\nfiles:\n  root: /data\n  paths:\n  - /etc/passwd\ndecode: raw\n", `clicks.yaml:5: files.paths[0]: "/etc/passwd": is absolute`},
		"path out of root":          {"name: a\nfiles: {root: /data, paths: [../x]}\ndecode: raw\n", "files.paths[0]: \"../x\": leaves files.root"},
		"bad glob":                  {"name: a\nfiles: {root: /data, paths: ['a[']}\ndecode: raw\n", "is not a glob pattern"},
		"verify":                    {"name: a\nfiles: {root: /data, verify: fulll}\ndecode: raw\n", "did you mean full? use one of fast, full"},
		"max_record":                {"name: a\nfiles: {root: /data, max_record: 2GiB}\ndecode: raw\n", `files.max_record: "2GiB": must be from 1 to 1GiB`},
		"size unit":                 {head + "decode: raw\nlease: {min: 16KB}\n", `lease.min: "16KB": is not a size: write a whole number, or one with KiB`},
		"size overflow":             {head + "decode: raw\nlease: {max: 9999999999TiB}\n", "does not fit in 64 bits"},
		"duration":                  {head + "decode: raw\nlease: {target: 2}\n", `lease.target: "2": is not a duration`},
		"duration not positive":     {head + "decode: raw\nlease: {target: 0s}\n", "must be longer than nothing"},
		"lease order":               {head + "decode: raw\nlease: {min: 2KiB, max: 1KiB}\n", `lease.min: "2KiB": is larger than lease.max, 1KiB`},
		"lease initial":             {head + "decode: raw\nlease: {initial: 1KiB}\n", "is not between lease.min, 16KiB, and lease.max, 1GiB"},
		"passes zero":               {head + "decode: raw\npasses: 0\n", `passes: "0": must be 1 or more`},
		"passes text":               {head + "decode: raw\npasses: many\n", "is not a whole number"},
		"order":                     {head + "decode: raw\norder: strickt\n", "did you mean strict?"},
		"strict and shuffle":        {head + "decode: raw\norder: strict\nshuffle: {seed: 1}\n", "clicks.yaml:5: shuffle: does not go with order: strict"},
		"shuffle block":             {head + "decode: raw\nshuffle: {block: 0}\n", "shuffle.block: \"0\": must be 1 or more"},
		"shuffle seed":              {head + "decode: raw\nshuffle: {seed: -1}\n", "is not a whole number from 0 to 2^64-1"},
		"format":                    {head + "decode: orc\n", `decode.format: "orc": is not known here; use one of csv, tsv, json, lines, raw`},
		"no format":                 {head + "decode: {on_error: fail}\n", "decode.format: must be given; use one of csv"},
		"no columns":                {head + "decode: csv\n", "decode.columns: must be given"},
		"header for json":           {head + "decode: {format: json, header: true, columns: [{name: a, path: /a, dtype: bool}]}\n", "decode.header: is only for csv and tsv, and decode.format is json"},
		"header and fields":         {head + "decode: {format: csv, header: true, fields: [a], columns: [{name: a, path: a, dtype: bool}]}\n", "decode.fields: does not go with header: true"},
		"header yes":                {head + "decode: {format: csv, header: yes, columns: [{name: a, path: a, dtype: bool}]}\n", "is neither true nor false"},
		"fields twice":              {head + "decode: {format: csv, fields: [a, a], columns: [{name: a, path: a, dtype: bool}]}\n", "is the name of field 0 too"},
		"delimiter":                 {head + "decode: {format: csv, delimiter: '||', columns: [{name: a, path: 0, dtype: bool}]}\n", `decode.delimiter: "||": must be one ASCII character`},
		"delimiter newline":         {head + "decode: {format: csv, delimiter: \"\\n\", columns: [{name: a, path: 0, dtype: bool}]}\n", "cannot be a line end"},
		"quote":                     {head + "decode: {format: csv, quote: ',', columns: [{name: a, path: 0, dtype: bool}]}\n", "decode.quote: \",\": is the delimiter too"},
		"on_error":                  {head + "decode: {format: raw, on_error: ignore}\n", "use one of fail, default, skip"},
		"max_bad without skip":      {head + "decode: raw\nmax_bad: 10\n", "clicks.yaml:4: max_bad: \"10\": needs decode.on_error: skip or on_crash: isolate, and on_error is fail"},
		"on_crash of another word":  {head + "decode: raw\non_crash: skip\n", "on_crash"},
		"on_crash with bit_exact":   {head + "decode: raw\non_crash: isolate\nbit_exact: {virtual_ranks: 4, block: 1KiB}\n", "does not go with bit_exact"},
		"dead_letter without skip":  {head + "decode: raw\ndead_letter: {files: /a}\n", "dead_letter: needs decode.on_error: skip"},
		"max_bad":                   {head + "decode: {format: raw, on_error: skip}\nmax_bad: 0%\n", "is no limit: write a number of records, as in 1000, or a share"},
		"skip with bit_exact":       {head + "decode: {format: raw, on_error: skip}\nbit_exact: {virtual_ranks: 2}\n", "decode.on_error: \"skip\": does not go with bit_exact"},
		"dead_letter nowhere":       {head + "decode: {format: raw, on_error: skip}\ndead_letter: {}\n", "dead_letter: names no place"},
		"dead_letter twice":         {head + "decode: {format: raw, on_error: skip}\ndead_letter: {files: /a, topic: b}\n", "does not go with dead_letter.files"},
		"dead_letter relative":      {head + "decode: {format: raw, on_error: skip}\ndead_letter: {files: a}\n", "is not an absolute folder"},
		"dead_letter topic":         {head + "decode: {format: raw, on_error: skip}\ndead_letter: {topic: b}\n", "dead_letter.topic: \"b\": does not go with files: nothing can be written"},
		"column without name":       {tsv + "  - {path: 0, dtype: bool}\n", "clicks.yaml:6: decode.columns[0].name: must be given"},
		"column name":               {tsv + "  - {name: $offset, path: 0, dtype: bool}\n", "begins with $"},
		"column twice":              {tsv + "  - {name: a, path: 0, dtype: bool}\n  - {name: a, path: 1, dtype: bool}\n", `clicks.yaml:7: decode.columns[1].name: "a": is the name of decode.columns[0] too`},
		"weights name taken":        {tsv + "  - {name: a, path: 0, dtype: int64, split: ',', weights: ':'}\n  - {name: a_weights, path: 1, dtype: bool}\n", "is the name of decode.columns[0] too"},
		"dtype":                     {tsv + "  - name: a\n    path: 0\n    dtype: int\n", `clicks.yaml:8: decode.columns[0].dtype: "int": is not known here; use one of bool, int32`},
		"no dtype":                  {tsv + "  - {name: a, path: 0}\n", "decode.columns[0].dtype: must be given; use one of bool"},
		"no path":                   {tsv + "  - {name: a, dtype: bool}\n", "decode.columns[0].path: must be given: where the value is; a field's number from 0"},
		"path and paths":            {tsv + "  - {name: a, path: 0, paths: [1], dtype: bool}\n", "does not go with path"},
		"no paths":                  {tsv + "  - {name: a, paths: [], dtype: bool}\n", "decode.columns[0].paths: is empty"},
		"run as a path":             {tsv + "  - {name: a, path: 1..3, dtype: bool}\n", `write paths: ["1..3"]`},
		"run backwards":             {tsv + "  - {name: a, paths: [3..1], dtype: bool}\n", "runs backwards; write 1..3"},
		"field name without names":  {tsv + "  - {name: a, path: label, dtype: bool}\n", "set decode.header: true or decode.fields"},
		"field name not there":      {head + "decode: {format: csv, fields: [label, user], columns: [{name: a, path: lable, dtype: bool}]}\n", "did you mean label?"},
		"field number not there":    {head + "decode: {format: csv, fields: [label, user], columns: [{name: a, path: 2, dtype: bool}]}\n", "names only 2 fields, 0 to 1"},
		"field number too large":    {tsv + "  - {name: a, path: 99999999, dtype: bool}\n", "is too large"},
		"pointer without slash":     {head + "decode: {format: json, columns: [{name: a, path: user.id, dtype: bool}]}\n", "write /user/id"},
		"pointer escape":            {head + "decode: {format: json, columns: [{name: a, path: /a~x, dtype: bool}]}\n", "a ~ in a JSON Pointer"},
		"fields of lines":           {head + "decode: {format: lines, columns: [{name: a, path: 0, dtype: bool}]}\n", "format lines has no fields; use $value"},
		"meta":                      {tsv + "  - {name: a, path: $vlaue, dtype: bool}\n", "is not known; use $key, $value"},
		"path of a topic":           {"name: a\nkafka: {brokers: [b:9092], topic: t}\ndecode: {format: json, columns: [{name: a, path: $path.dt, dtype: bool}]}\n", "decode.columns[0].path: \"$path.dt\": is for files: kafka"},
		"path without a key":        {tsv + "  - {name: a, path: $path., dtype: bool}\n", "$path.<name>"},
		"path split":                {tsv + "  - {name: a, path: $path.dt, dtype: string, split: \",\"}\n", "decode.columns[0].split: \",\": does not go with $path.dt"},
		"path in a matrix":          {tsv + "  - {name: a, paths: [$path.dt, 1], dtype: int64}\n", "is not packed into a matrix column"},
		"key of a file":             {tsv + "  - {name: a, path: $key, dtype: bool}\n", "files have no keys"},
		"matrix of strings":         {tsv + "  - {name: a, paths: [1, 2], dtype: string}\n", "cannot be packed into a matrix column"},
		"matrix with split":         {tsv + "  - {name: a, paths: [1, 2], dtype: int64, split: ','}\n", "a matrix column has one value per field"},
		"split is the delimiter":    {tsv + "  - {name: a, path: 1, dtype: int64, split: \"\\t\"}\n", "is the delimiter of the format too"},
		"split of two bytes":        {tsv + "  - {name: a, path: 1, dtype: int64, split: '::'}\n", "must be one ASCII character"},
		"weights without split":     {tsv + "  - {name: a, path: 1, dtype: int64, weights: ':'}\n", "needs split"},
		"weights equal split":       {tsv + "  - {name: a, path: 1, dtype: int64, split: ',', weights: ','}\n", "is the split too"},
		"max without split":         {tsv + "  - {name: a, path: 1, dtype: int64, max: 3}\n", "needs split"},
		"max negative":              {tsv + "  - {name: a, path: 1, dtype: int64, split: ',', max: -3}\n", "is negative; 0 keeps all"},
		"hash of a float":           {tsv + "  - {name: a, path: 1, dtype: float32, hash: {buckets: 10}}\n", "does not go with hash, which gives int64"},
		"hash negative":             {tsv + "  - {name: a, path: 1, dtype: int64, hash: {buckets: -10}}\n", "is negative; 0 keeps all 64 bits"},
		"missing":                   {tsv + "  - {name: a, path: 1, dtype: int64, missing: msk}\n", "did you mean mask?"},
		"default int":               {tsv + "  - {name: a, path: 1, dtype: int32, default: 1.5}\n", `clicks.yaml:6: decode.columns[0].default: "1.5": is not an int32`},
		"default float32 too large": {tsv + "  - {name: a, path: 1, dtype: float32, default: 1e50}\n", "is out of the range of float32"},
		"default bool":              {tsv + "  - {name: a, path: 1, dtype: bool, default: yes}\n", "is not a bool"},
		"default not a bucket":      {tsv + "  - {name: a, path: 1, dtype: int64, hash: {buckets: 10}, default: 10}\n", "is not a bucket: they are 0 to 9"},
		"on_error without default":  {head + "decode:\n  format: tsv\n  on_error: default\n  columns:\n  - {name: a, path: 1, dtype: int64}\n", "must be given, because decode.on_error is default; or write missing: mask"},
		"event_time star":           {head + "decode: {format: json, event_time: /a/*, columns: [{name: a, path: /a, dtype: bool}]}\n", "decode.event_time: \"/a/*\": has a *"},
		"binary without columns":    {head + "decode: binary\n", "must be given: at least one column; as in columns: [{name: x, dtype: float32, shape: [125]}]"},
		"binary string":             {bin + "  - {name: a, dtype: string}\n", `decode.columns[0].dtype: "string": is not known here; use one of bool, int32, int64, float32, float64, bytes`},
		"binary bytes":              {bin + "  - {name: a, dtype: bytes}\n", "decode.columns[0].shape: must be given: how many bytes"},
		"binary shape":              {bin + "  - {name: a, dtype: bool, shape: [3, 0]}\n", `clicks.yaml:6: decode.columns[0].shape[1]: "0": must be 1 or more`},
		"binary shape text":         {bin + "  - {name: a, dtype: bool, shape: [3, x]}\n", "decode.columns[0].shape[1]: "},
		"binary shape huge":         {bin + "  - {name: a, dtype: int64, shape: [100000, 100000, 100000]}\n", "decode.columns[0].shape: takes more than 1GiB"},
		"binary dimensions":         {bin + "  - {name: a, dtype: bool, shape: [1, 1, 1, 1, 1, 1, 1, 1, 1]}\n", "has 9 dimensions; at most 8"},
		"binary offset":             {bin + "  - {name: a, dtype: bool, offset: -1}\n", `decode.columns[0].offset: "-1": must be from 0 to 1GiB`},
		"binary record_size":        {strings.Replace(bin, "  columns", "  record_size: 7\n  columns", 1) + "  - {name: a, dtype: int32}\n  - {name: b, dtype: int32}\n", `clicks.yaml:8: decode.columns[1].offset: "4": plus the 4 bytes of the column is more than decode.record_size, 7`},
		"binary record over max":    {bin + "  - {name: a, dtype: bool, offset: 17000000}\n", `is larger than the source's max_record, 16MiB`},
		"binary paths":              {bin + "  - {name: a, paths: [0], dtype: bool}\n", "decode.columns[0].paths: is not for binary"},
		"binary hash":               {bin + "  - {name: a, dtype: int64, hash: {buckets: 3}}\n", "decode.columns[0].hash: is for text, and decode.format is binary"},
		"binary path":               {bin + "  - {name: a, path: 0, dtype: bool}\n", "format binary has no fields; use $value"},
		"binary path and offset":    {bin + "  - {name: a, path: $value, offset: 3, dtype: bytes}\n", "decode.columns[0].offset: is only for columns of decode.format binary that have no path"},
		"shape of a field":          {tsv + "  - {name: a, path: 1, dtype: int64, shape: [3]}\n", "decode.columns[0].shape: is only for columns of decode.format binary"},
		"record_size of tsv":        {strings.Replace(tsv, "  columns", "  record_size: 7\n  columns", 1) + "  - {name: a, path: 1, dtype: int64}\n", "decode.record_size: \"7\": is only for binary, and decode.format is tsv"},
		"not yaml":                  {"name: [\n", "clicks.yaml:"},
		"tab":                       {"name: a\nfiles:\n\troot: /data\n", "clicks.yaml:3: is not YAML"},
		"empty":                     {"# nothing\n", "holds no dataset"},
		"two":                       {head + "decode: raw\n---\nname: b\nfiles: {root: /b}\ndecode: raw\n", "holds 2 datasets where one is expected"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(c.text), "clicks.yaml")
			if err == nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
			var one *SpecError
			if !errors.As(err, &one) || one.Reason == "" || one.File != "clicks.yaml" {
				t.Errorf("no SpecError: %#v", err)
			}
		})
	}
}

func TestAllMistakesAreToldAtOnceInOrderOfLines(t *testing.T) {
	_, err := Parse([]byte("name: a b\npasses: 0\nfiles: {root: x}\ndecode: {format: csv}\norder: no\n"), "")
	var all SpecErrors
	if !errors.As(err, &all) || len(all) != 5 {
		t.Fatalf("got %v", err)
	}
	for i, e := range all {
		if i > 0 && e.Line < all[i-1].Line {
			t.Errorf("line %d after line %d", e.Line, all[i-1].Line)
		}
	}
}

func TestParseAllReadsSeveralDocumentsAndRefusesOneNameTwice(t *testing.T) {
	const doc = "files: {root: /data}\ndecode: raw\n"
	all, err := ParseAll([]byte("name: a\n"+doc+"---\nname: b\n"+doc), "x.yaml")
	if err != nil || len(all) != 2 || all[1].Name != "b" {
		t.Fatalf("%v, %v", all, err)
	}
	_, err = ParseAll([]byte("name: a\n"+doc+"---\nname: a\n"+doc), "x.yaml")
	if err == nil || !strings.Contains(err.Error(), `x.yaml:5: name: "a": is used twice; the first is on line 1`) {
		t.Errorf("got the error %v, want one with %q", err, `x.yaml:5: name: "a": is used twice; the first is on line 1`)
	}
}

func TestAnAliasStandsForWhatItNames(t *testing.T) {
	s := mustParse(t, "name: a\nfiles: {root: /data}\ndecode:\n  format: csv\n  columns:\n  - {name: a, path: 0, dtype: &t int64}\n  - {name: b, path: 1, dtype: *t}\n")
	if s.Decode.Columns[1].DType != "int64" {
		t.Errorf("dtype %q", s.Decode.Columns[1].DType)
	}
}

func TestFromJSONRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, text := range []string{``, `{}`, `[]`, `{"name":"a","future":1}`, `{"name":"a"} x`} {
		if _, err := FromJSON([]byte(text)); err == nil {
			t.Errorf("accepted %s", text)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(criteo))
	f.Add([]byte("name: a\nfiles: {root: /data}\ndecode: raw\n---\n&a [*a]\n"))
	f.Add([]byte("name: a\nfiles: {root: /data}\ndecode:\n  format: binary\n  record_size: 9\n  columns:\n  - {name: a, dtype: float32, shape: [2], offset: 1}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := ParseAll(text, "f.yaml")
		if err != nil {
			var one *SpecError
			if !errors.As(err, &one) {
				t.Fatalf("not a SpecError: %v", err)
			}
			return
		}
		for _, s := range all {
			out, err := s.JSON()
			if err != nil {
				t.Fatal(err)
			}
			again, err := FromJSON(out)
			if err != nil {
				t.Fatalf("%s: %v", out, err)
			}
			if out2, _ := again.JSON(); !bytes.Equal(out, out2) {
				t.Fatalf("%s\n%s", out, out2)
			}
			if _, err := s.Schema(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

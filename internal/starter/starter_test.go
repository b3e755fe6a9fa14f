package starter

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/sample"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/files"
	"github.com/headrace/headrace/sources/kafka"
	"github.com/headrace/headrace/sources/pulsar"
	"github.com/headrace/headrace/sources/rocketmq"
)

func init() { dataset.Register(files.Kind, kafka.Kind, pulsar.Kind, rocketmq.Kind) }

// folder holds the files of a test.
type folder struct {
	t    *testing.T
	path string
}

func newFolder(t *testing.T) folder { return folder{t, t.TempDir()} }

func (f folder) write(name, text string) {
	f.t.Helper()
	path := filepath.Join(f.path, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f folder) open(spec *dataset.Spec) (sources.Source, error) {
	return spec.ForALook().Open(dataset.Opening{AllowedRoots: []string{f.path}, Logger: slog.New(slog.DiscardHandler)})
}

func (f folder) look(name string) *Plan {
	f.t.Helper()
	p, err := Look(f.t.Context(), filepath.Join(f.path, name), f.path, "", Openers{Source: f.open})
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

func lines(n int, line func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(line(i) + "\n")
	}
	return b.String()
}

// decodes fails the test if the plan's spec does not decode all n records.
func (f folder) decodes(p *Plan, n int64) {
	f.t.Helper()
	docs, err := dataset.Documents([]byte(p.File("x.yaml", "run")), "x.yaml", f.path)
	if err != nil {
		f.t.Fatalf("%v\n%s", err, p.Spec())
	}
	c, err := sample.Check(context.Background(), docs[0].Spec, f.open, 0)
	if err != nil || c.Records != n || c.Bad != 0 {
		f.t.Errorf("check found %+v, %v; want %d good records\n%s", c, err, n, p.Spec())
	}
}

// usual is what people bring: files with the spec that is written for them.
var usual = []struct {
	name, file, text string
	n                int64
	says             []string // lines of the spec
	label            string
}{
	{"csv with a header, quotes and missing values", "clicks.csv",
		"user_id,age,page,clicked,at\n" + lines(50, func(i int) string {
			age := fmt.Sprint(i)
			if i == 7 {
				age = ""
			}
			return fmt.Sprintf(`%d,%s,"a, ""b"" %d",%d,2026-01-02T03:04:%02dZ`, i*31, age, i%5, i%2, i%60)
		}), 50,
		[]string{"format: csv", "header: true", "event_time: at", "{name: user_id, path: user_id, dtype: int64, hash: {buckets: 1000}}",
			"{name: age, path: age, dtype: int64, default: 0}", "{name: page, path: page, dtype: int64, hash: {buckets: 1000}}", "{name: clicked, path: clicked, dtype: int64}"}, "clicked"},
	{"tsv without a header", "day.tsv",
		lines(50, func(i int) string { return fmt.Sprintf("%d\t%.3f\tword%d", i%2, float64(i)/7, i) }), 50,
		[]string{"format: tsv", `{name: f0, path: "0", dtype: int64}`, `{name: f1, path: "1", dtype: float32}`, `{name: f2, path: "2", dtype: int64, hash: {buckets: 1000}}`}, "f0"},
	{"semicolons", "s.csv", "x;y\n" + lines(30, func(i int) string { return fmt.Sprintf("%d;%d.5", i, i) }), 30,
		[]string{"format: csv", `delimiter: ";"`, "header: true", `{name: "y", path: "y", dtype: float32}`}, "y"},
	{"a header of words alone", "w.csv", "city,country\n" + lines(30, func(i int) string { return fmt.Sprintf("c%d,k%d", i, i%3) }), 30,
		[]string{"header: true", "{name: city, path: city, dtype: int64, hash: {buckets: 1000}}"}, ""},
	{"a header with odd and empty names", "odd.csv", "my col,,a,a!,9\n" + lines(30, func(i int) string { return fmt.Sprintf("%d,%d,%d,%d,%d", i, i, i, i, i%2) }), 30,
		[]string{`{name: my_col, path: "my col", dtype: int64}`, `{name: f1, path: "1"`, `{name: a_2, path: "a!"`}, "f_9"},
	{"json lines, nested, with lists", "e.jsonl",
		lines(40, func(i int) string {
			return fmt.Sprintf(`{"user":{"id":"u%d","vip":%v},"tags":["a","b%d"],"price":%d.25,"is_fraud":%d,"ts":%d,"none":null}`, i, i%2 == 0, i, i, i%2, 1700000000+i)
		}), 40,
		[]string{"format: json", "event_time: /ts", "{name: user_id, path: /user/id, dtype: int64, hash: {buckets: 1000}}", "{name: user_vip, path: /user/vip, dtype: bool}",
			"{name: tags, path: /tags/*, dtype: int64, hash: {buckets: 1000}}", "{name: price, path: /price, dtype: float32}"}, "is_fraud"},
	{"json members that some lack", "m.json", lines(40, func(i int) string {
		if i%2 == 0 {
			return fmt.Sprintf(`{"x":%d,"target":1.5}`, i)
		}
		return `{"target":2.5}`
	}), 40, []string{"{name: x, path: /x, dtype: int64, default: 0}"}, "target"},
	{"json texts that some lack", "t.jsonl", lines(40, func(i int) string {
		switch i % 3 {
		case 0:
			return fmt.Sprintf(`{"review":"%s","label":%d}`, strings.Repeat("so good ", 9), i%2)
		case 1:
			return fmt.Sprintf(`{"review":null,"label":%d}`, i%2)
		}
		return fmt.Sprintf(`{"label":%d}`, i%2)
	}), 40, []string{`{name: review, path: /review, dtype: string, default: ""}`}, "label"},
	{"floats that float32 does not hold", "wide.csv", "x,z,label\n" + lines(40, func(i int) string { return fmt.Sprintf("1e%d,%d.5,-1e%d", i, i, i) }), 40,
		[]string{"{name: x, path: x, dtype: float64}", "{name: z, path: z, dtype: float32}", "{name: label, path: label, dtype: float64}"}, "label"},
	{"a header with spaces", "sp.csv", "x, label\n" + lines(30, func(i int) string { return fmt.Sprintf("%d,%d", i, i%2) }), 30,
		[]string{`{name: label, path: " label", dtype: int64}`}, "label"},
	{"a header with several empty names", "gaps.csv", "x,,,label\n" + lines(30, func(i int) string { return fmt.Sprintf("%d,%d,%d,%d", i, i, i, i%2) }), 30,
		[]string{"header: true", `{name: f1, path: "1"`, `{name: f2, path: "2"`}, "label"},
	{"a label of True and False", "b.csv", "x,label\n" + lines(30, func(i int) string { return fmt.Sprintf("%d,%s", i, []string{"True", "False"}[i%2]) }), 30,
		[]string{"{name: label, path: label, dtype: bool}"}, "label"},
	{"text without fields", "notes.txt", lines(20, func(i int) string { return strings.Repeat("word ", i+1) }), 20, []string{"decode: lines"}, ""},
	{"one record", "one.csv", "1,2.5,x\n", 1, []string{`{name: f0, path: "0"`}, "f1"},
	{"CRLF", "crlf.csv", "a,label\r\n1,0\r\n2,1\r\n", 2, []string{"header: true", "{name: label, path: label, dtype: int64}"}, "label"},
}

func TestASpecIsWrittenForWhatTheRecordsAre(t *testing.T) {
	for _, tc := range usual {
		t.Run(tc.name, func(t *testing.T) {
			f := newFolder(t)
			f.write(tc.file, tc.text)
			p := f.look(tc.file)
			for _, line := range tc.says {
				if !strings.Contains(p.Spec(), line) {
					t.Errorf("the spec does not say %s:\n%s", line, p.Spec())
				}
			}
			if got := p.labelName(); got != tc.label {
				t.Errorf("it predicts %q, want %q\n%s", got, tc.label, p.Spec())
			}
			f.decodes(p, tc.n)
		})
	}
}

func (p *Plan) labelName() string {
	if p.label < 0 {
		return ""
	}
	return p.columns[p.label].name
}

func TestValuesThatOnlyComeLaterAreReadToo(t *testing.T) {
	f := newFolder(t)
	f.write("late.csv", "x,z,clicked,at\n"+lines(3*lookedAt, func(i int) string {
		switch {
		case i == lookedAt+1:
			return ",1,0,2026-01-02T03:04:05Z" // missing
		case i == lookedAt+2:
			return "1.5,1,0,2026-01-02T03:04:05Z" // no whole number any more
		case i == lookedAt+3:
			return "1,n/a,0,yesterday" // no number, and no time
		}
		return fmt.Sprintf("%d,%d,%d,2026-01-02T03:04:05Z", i, i, i%2)
	}))
	p := f.look("late.csv")
	f.decodes(p, 3*lookedAt)
	for _, line := range []string{"{name: x, path: x, dtype: float64, default: 0}", "{name: z, path: z, dtype: int64, hash: {buckets: 100000}}"} {
		if !strings.Contains(p.Spec(), line) {
			t.Errorf("the spec does not say %s:\n%s", line, p.Spec())
		}
	}
}

func TestLaterFloatsThatFloat32DoesNotHoldMakeAFloat64(t *testing.T) {
	f := newFolder(t)
	f.write("wide.csv", "x,label\n"+lines(3*lookedAt, func(i int) string {
		if i == lookedAt+1 {
			return "1e39,-1e39"
		}
		return fmt.Sprintf("%d.5,%d.5", i, i)
	}))
	p := f.look("wide.csv")
	f.decodes(p, 3*lookedAt)
	for _, line := range []string{"{name: x, path: x, dtype: float64}", "{name: label, path: label, dtype: float64}"} {
		if !strings.Contains(p.Spec(), line) {
			t.Errorf("the spec does not say %s:\n%s", line, p.Spec())
		}
	}
}

// The label of a record after the first ones is no number, and no other column can hold it.
func TestTheSpecsFileDoesNotSayThatBadRecordsAreDecoded(t *testing.T) {
	f := newFolder(t)
	f.write("bad.csv", "x,label\n"+lines(3*lookedAt, func(i int) string {
		if i == lookedAt+1 {
			return "1,none"
		}
		return fmt.Sprintf("%d,%d", i, i%2)
	}))
	p := f.look("bad.csv")
	if notes := strings.Join(p.Notes, "\n"); !strings.Contains(notes, fmt.Sprintf("1 of %d records cannot be decoded", 3*lookedAt)) {
		t.Errorf("the notes do not say that a record cannot be decoded: %q", notes)
	}
	head, _, _ := strings.Cut(p.File("bad.yaml", "run"), "\n")
	if strings.Contains(head, "decoded") || !strings.Contains(head, fmt.Sprintf("the spec was tried on %d.", 3*lookedAt)) {
		t.Errorf("the file begins with %q, want that it was tried on %d records", head, 3*lookedAt)
	}
}

func TestValuesThatAreNearlyALabelAreNoted(t *testing.T) {
	f := newFolder(t)
	f.write("yes.csv", "x,clicked\n"+lines(30, func(i int) string { return fmt.Sprintf("%d,%s", i, []string{"yes", "no"}[i%2]) }))
	f.write("spaces.csv", "x, label\n"+lines(30, func(i int) string { return fmt.Sprintf("%d, %d", i, i%2) }))
	for name, says := range map[string]string{"yes.csv": "field clicked holds words for yes and no", "spaces.csv": "field label has numbers with a space in front"} {
		if p := f.look(name); !strings.Contains(strings.Join(p.Notes, "\n"), says) {
			t.Errorf("%s: the notes %q do not say %q", name, p.Notes, says)
		}
	}
}

func TestAFolderIsReadByItsMostFrequentEnding(t *testing.T) {
	f := newFolder(t)
	for i := range 3 {
		f.write(fmt.Sprintf("data/2026/d%d.csv.gz", i), zipped(t, fmt.Sprintf("a,label\n%d,0\n%d,1\n", i, i+5)))
	}
	f.write("data/README.md", "about the data")
	f.write("data/_SUCCESS", "")
	f.write("data/.d.csv.gz.crc", "x")
	p := f.look("data")
	if !strings.Contains(p.Spec(), `paths: ["**/*.csv.gz"]`) || !strings.Contains(p.Spec(), "root: data") {
		t.Errorf("the spec does not read **/*.csv.gz below data:\n%s", p.Spec())
	}
	f.decodes(p, 6)
}

func TestAFolderMayBeALink(t *testing.T) {
	f := newFolder(t)
	f.write("disk/a.csv", "a,label\n1,0\n2,1\n")
	for link, to := range map[string]string{"data": "disk", "disk/b.csv": "a.csv"} {
		if err := os.Symlink(to, filepath.Join(f.path, link)); err != nil {
			t.Fatal(err)
		}
	}
	p := f.look("data")
	if !strings.Contains(p.Spec(), "root: data") || !strings.Contains(p.Spec(), `paths: ["**/*.csv"]`) {
		t.Errorf("the spec does not read **/*.csv below data:\n%s", p.Spec())
	}
	f.decodes(p, 4)
}

func TestFoldersNamedKeyValueBecomeColumns(t *testing.T) {
	f := newFolder(t)
	for i := range 4 {
		f.write(fmt.Sprintf("data/dt=2026-11-2%d/hour=%02d/country=c%d/a.csv", i, i, i%2), fmt.Sprintf("x,label\n%d.5,0\n%d.25,1\n", i, i))
	}
	f.write("data/late.csv", "x,label\n1.5,0\n")
	p := f.look("data")
	for _, line := range []string{
		`{name: dt, path: "$path.dt", dtype: string, default: ""}  # from the folder dt=..., which not all files lie in`,
		`{name: hour, path: "$path.hour", dtype: int64, default: 0}`,
		`{name: country, path: "$path.country", dtype: int64, hash: {buckets: 1000}, default: 0}`,
	} {
		if !strings.Contains(p.Spec(), line) {
			t.Errorf("the spec does not say %s:\n%s", line, p.Spec())
		}
	}
	if p.columns[p.label].name != "label" {
		t.Errorf("column %d is predicted:\n%s", p.label, p.Spec())
	}
	f.decodes(p, 9)
}

func zipped(t *testing.T, text string) string {
	t.Helper()
	var b strings.Builder
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestAParquetFileIsDescribedByItsSchema(t *testing.T) {
	f := newFolder(t)
	text, err := os.ReadFile("../parquet/testdata/default.parquet")
	if err != nil {
		t.Fatal(err)
	}
	f.write("events.parquet", string(text))
	p := f.look("events.parquet")
	if !strings.Contains(p.Spec(), "format: parquet") || len(p.columns) < 3 || p.Records == 0 {
		t.Errorf("%d records and %d columns, want some records and at least 3 columns of Parquet:\n%s", p.Records, len(p.columns), p.Spec())
	}
	f.decodes(p, p.Records)
}

// Excel writes a byte order mark in front of its CSV.
func TestAByteOrderMarkIsNoPartOfAName(t *testing.T) {
	const bom = "\xef\xbb\xbf"
	row := func(i int) string { return fmt.Sprintf("%d,%d", i%2, i) }
	for name, text := range map[string]string{
		"a.csv": bom + "label,x\n" + lines(40, row), "quoted.csv": bom + "\"label\",\"x\"\n" + lines(40, row),
		"a.tsv":    bom + strings.ReplaceAll("label,x\n"+lines(40, row), ",", "\t"),
		"a.jsonl":  bom + lines(40, func(i int) string { return fmt.Sprintf(`{"label":%d,"x":%d}`, i%2, i) }),
		"z.csv.gz": zipped(t, bom+"label,x\n"+lines(40, row)), "folder/a.csv": bom + "label,x\n" + lines(20, row),
		"none.csv": bom + lines(40, row),
	} {
		f := newFolder(t)
		f.write(name, text)
		n := int64(40)
		if folder, _, in := strings.Cut(name, "/"); in {
			f.write("folder/c.csv", text)
			name = folder
		}
		p := f.look(name)
		want := "label"
		if name == "none.csv" {
			want = "f0"
		}
		if p.columns[0].name != want || p.columns[0].dtype != "int64" || p.labelName() != want {
			t.Errorf("%s: the first column and the label are not %q as int64:\n%s", name, want, p.Spec())
		}
		f.decodes(p, n)
	}
}

func TestAFloatOfParquetStaysOneThoughAllItsValuesAreWhole(t *testing.T) {
	f := newFolder(t)
	text, err := os.ReadFile("testdata/floats.parquet") // floats.py wrote it
	if err != nil {
		t.Fatal(err)
	}
	f.write("floats.parquet", string(text))
	p := f.look("floats.parquet")
	f.decodes(p, 40)
	for _, line := range []string{
		"{name: double, path: double, dtype: float32}", "{name: large, path: large, dtype: float64}", "{name: single, path: single, dtype: float32}",
		"{name: half, path: half, dtype: float32}", "{name: holes, path: holes, dtype: float32, default: 0}", "{name: decimal, path: decimal, dtype: float32}",
		"{name: cents, path: cents, dtype: float32}", "{name: list, path: /list/*, dtype: float32}", "{name: in_x, path: /in/x, dtype: float32}",
		"{name: user_id, path: user_id, dtype: float32}  # floats are not hashed. If it is an id, write whole numbers",
		"{name: hash, path: hash, dtype: int64, hash: {buckets: 1000}}", "{name: count, path: count, dtype: int64}", "{name: label, path: label, dtype: float32}",
	} {
		if !strings.Contains(p.Spec(), line) {
			t.Errorf("the spec does not say %s:\n%s", line, p.Spec())
		}
	}
	if p.labelName() != "label" || !p.columns[p.label].binary {
		t.Errorf("it predicts %q, which is no label of two values", p.labelName())
	}
}

func TestWholeNumbersThatInt64DoesNotHoldAreHashed(t *testing.T) {
	f := newFolder(t)
	f.write("h.csv", "h,label\n"+lines(40, func(i int) string { return fmt.Sprintf("%d,%d", uint64(1)<<63+uint64(i)*7919, i%2) }))
	p := f.look("h.csv")
	if !strings.Contains(p.Spec(), "{name: h, path: h, dtype: int64, hash: {buckets: 1000}}") {
		t.Errorf("field h is not hashed:\n%s", p.Spec())
	}
	f.decodes(p, 40)
}

func TestDataThatCannotBeReadIsAnErrorThatSaysWhatToDo(t *testing.T) {
	f := newFolder(t)
	f.write("empty.csv", "")
	f.write("array.json", "[1,2]\n")
	f.write("twice.csv", "a,a\n1,2\n3,4\n")
	f.write("bin.dat", "\x00\x01\x02\n\xff\xfe")
	f.write("latin.csv", "name,label\n"+lines(20, func(i int) string { return fmt.Sprintf("caf\xe9%d,%d", i, i%2) }))
	f.write("data.zip", "PK\x03\x04 and so on")
	f.write("book.xlsx", "PK\x03\x04 and so on")
	f.write("a.npy", "\x93NUMPY\x01\x00 and so on")
	f.write("t.tar", strings.Repeat("\x00", 257)+"ustar"+strings.Repeat("\x00", 300))
	f.write("t.tar.gz", zipped(t, "x"))
	f.write("mixed/a.csv", "x,label\n"+lines(20, func(i int) string { return fmt.Sprintf("%d,%d", i, i%2) }))
	f.write("mixed/b.csv", "u,v\n"+lines(20, func(i int) string { return fmt.Sprintf("%d,%d", i, i%2) }))
	if err := os.Mkdir(filepath.Join(f.path, "nothing"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(f.path, "pipe.csv"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.write("caf\xe9.csv", "a,label\n1,0\n")
	for _, tc := range []struct{ data, says, hint string }{
		{filepath.Join(f.path, "pipe.csv"), "neither a file nor a folder", "into a file first"},
		{filepath.Join(f.path, "caf\xe9.csv"), "no UTF-8", "another name"},
		{filepath.Join(f.path, "empty.csv", "a.csv"), "not a directory", ""},
		{filepath.Join(f.path, "none.csv"), "no such file", "a folder"},
		{filepath.Join(f.path, "empty.csv"), "is empty", "write some records"},
		{filepath.Join(f.path, "nothing"), "holds no file", ""},
		{filepath.Join(f.path, "array.json"), "no object", "jq -c"},
		{filepath.Join(f.path, "bin.dat"), "no text", "binary"},
		{filepath.Join(f.path, "latin.csv"), "latin.csv is text, and not in UTF-8", "iconv -f latin1 -t utf-8"},
		{filepath.Join(f.path, "data.zip"), "data.zip is a zip archive", "unzip -d data"},
		{filepath.Join(f.path, "book.xlsx"), "book.xlsx is a workbook of Excel", "save it as CSV"},
		{filepath.Join(f.path, "a.npy"), "a.npy is an array of numpy", "tofile"},
		{filepath.Join(f.path, "t.tar"), "t.tar is a tar archive", "tar -C data -xf"},
		{filepath.Join(f.path, "t.tar.gz"), "t.tar.gz is a tar archive", "tar -C data -xf"},
		{filepath.Join(f.path, "mixed"), "mixed/a.csv is the first of them, and another one is different: b.csv", "give each kind a folder"},
		{filepath.Join(f.path, "twice.csv"), `two fields are called "a"`, ""},
		{"s3://", "it needs a bucket", "s3://lake/clicks"},
		{"https://x.org/a.csv", "https:// is not read yet", "curl -LO"},
		{"kafka://host", "a broker and a topic", "kafka://HOST:9092/TOPIC"},
		{"mqtt://host/t", "mqtt:// is not known", "kafka://"},
	} {
		_, err := Look(t.Context(), tc.data, f.path, "", Openers{Source: f.open})
		told, ok := errors.AsType[*advice.Error](err)
		if !ok && tc.hint != "" || !strings.Contains(err.Error(), tc.says) || ok && !strings.Contains(told.Hint, tc.hint) {
			t.Errorf("%s: %v (%+v); want an error with %q and a hint with %q", tc.data, err, told, tc.says, tc.hint)
		}
	}
}

func TestTopicsOfEachKindAreNamedInTheSpec(t *testing.T) {
	for data, says := range map[string][]string{
		"kafka://k1:9092,k2:9092/clicks":                    {"kafka:", `brokers: ["k1:9092", "k2:9092"]`, `topic: "clicks"`},
		"pulsar://p:6650/public/default/clicks":             {`service: "pulsar://p:6650"`, `admin: "http://p:8080"`, `topic: "public/default/clicks"`},
		"pulsar://p:6650/clicks?admin=http://other:18080":   {`admin: "http://other:18080"`},
		"rocketmq://mq:9876/clicks":                         {`name_servers: ["mq:9876"]`, `topic: "clicks"`},
		"kafka://127.0.0.1:9092/some.topic-with_everything": {`topic: "some.topic-with_everything"`, "name: some.topic-with_everything"},
	} {
		o, err := parseOrigin(t.Context(), data, t.TempDir(), Openers{})
		if err != nil {
			t.Errorf("%s: %v", data, err)
			continue
		}
		p := &Plan{Name: o.name, origin: o, label: -1, layout: layout{format: "raw"}}
		if _, err := p.parse(p.Spec(), t.TempDir()); err != nil {
			t.Errorf("%s: %v\n%s", data, err, p.Spec())
		}
		for _, line := range says {
			if !strings.Contains(p.Spec(), line) {
				t.Errorf("%s: the spec does not say %s:\n%s", data, line, p.Spec())
			}
		}
	}
}

// A program that trains one model in one process would, in several ranks, write checkpoints
// that claim the records of all ranks for the model of one.
func TestTheProgramsRefuseSeveralRanks(t *testing.T) {
	f := newFolder(t)
	f.write("d.csv", "x,label\n"+lines(10, func(i int) string { return fmt.Sprintf("%d,%d", i, i%2) }))
	p := f.look("d.csv")
	for _, with := range frameworks {
		text := programOf(t, p, with)
		refuses, reads := strings.Index(text, "headrace.init(alone=True)"), strings.Index(text, "checkpoints")
		if with == "numpy" || with == "torch" {
			reads = strings.Index(text, "Checkpointer(")
		}
		if refuses < 0 || refuses > reads {
			t.Errorf("%s does not refuse before it reads:\n%s", with, text)
		}
	}
}

var frameworks = []string{"numpy", "torch", "tf"}

func programOf(t *testing.T, p *Plan, with string) string {
	t.Helper()
	text, err := p.Program(with, "headrace run -f d.yaml -- python train.py")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// linesOf counts the lines of a program that are not blank; the docstring and comments count.
// columns counts those that are there only because the data has many columns: all lines of NUMBERS
// and of IDS but the first.
func linesOf(text string) (all, columns int) {
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) != "" {
			all++
		}
		if strings.HasPrefix(line, `    "`) && strings.HasSuffix(line, ",\n") || line == "}\n" {
			columns++
		}
	}
	return all, columns
}

// A newcomer reads the whole program before running it. So it has at most 40 lines that are not
// blank, whatever the data is. Only the names of many columns need more of them.
func TestTheProgramsHaveAtMost40Lines(t *testing.T) {
	const most, width = 40, 120
	for _, tc := range usual {
		f := newFolder(t)
		f.write(tc.file, tc.text)
		p := f.look(tc.file)
		for _, with := range frameworks {
			text := programOf(t, p, with)
			if all, columns := linesOf(text); all-columns > most || columns > 3 {
				t.Errorf("%s, %s: %d lines, %d of them for many columns; want at most %d others:\n%s", tc.name, with, all, columns, most, text)
			}
		}
	}
	binary, number := func(i int) string { return fmt.Sprint(i % 2) }, func(i int) string { return fmt.Sprint(i) }
	for _, tc := range []struct {
		numbers, ids int
		label        func(i int) string
	}{{0, 1, binary}, {1, 0, binary}, {0, 1, number}, {1, 0, number}, {2, 3, binary}, {300, 90, binary}, {300, 0, number}} {
		p := newFolder(t).wide(tc.numbers, tc.ids, tc.label)
		for _, with := range frameworks {
			text := programOf(t, p, with)
			all, columns := linesOf(text)
			if all-columns > most || columns > (tc.numbers+tc.ids)/3 {
				t.Errorf("%d numbers, %d ids, %s: %d lines, %d of them for many columns; want at most %d others:\n%s", tc.numbers, tc.ids, with, all, columns, most, text)
			}
			for line := range strings.Lines(text) {
				// The first line has the path of the test's folder, which may be long.
				if n := len(line) - len("\n"); n > width && !strings.HasPrefix(line, `"""`) {
					t.Errorf("%d numbers, %d ids, %s: a line of %d characters: %s", tc.numbers, tc.ids, with, n, line)
				}
			}
			for i := range max(tc.numbers, tc.ids) {
				of, id := fmt.Sprintf(`"number_%d": (`, i), fmt.Sprintf(`"id_%d": `, i)
				if strings.Count(text, of) != 1 && i < tc.numbers || strings.Count(text, id) != 1 && i < tc.ids {
					t.Fatalf("%s: the program does not have %s and %s once each:\n%s", with, of, id, text)
				}
			}
		}
	}
}

// wide looks at a file with many columns.
func (f folder) wide(numbers, ids int, label func(i int) string) *Plan {
	f.t.Helper()
	header := []string{"label"}
	for i := range numbers {
		header = append(header, fmt.Sprintf("number_%d", i))
	}
	for i := range ids {
		header = append(header, fmt.Sprintf("id_%d", i))
	}
	f.write("wide.csv", strings.Join(header, ",")+"\n"+lines(30, func(i int) string {
		row := []string{label(i)}
		for j := range numbers {
			row = append(row, fmt.Sprintf("%d.5", i*j))
		}
		for j := range ids {
			row = append(row, fmt.Sprintf("w%d", i*j))
		}
		return strings.Join(row, ",")
	}))
	return f.look("wide.csv")
}

package files

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/sourcetest"
)

// tree writes files into a new folder: name to content.
func tree(t testing.TB, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func spec(dir string, paths ...string) *Spec {
	return &Spec{Root: dir, Paths: paths, Verify: "fast", MaxRecord: 1 << 20}
}

func lineSource(t testing.TB, o Options) *Source {
	t.Helper()
	o.Dataset = "clicks"
	if o.Framing.Kind == 0 {
		o.Framing = Framing{Kind: Lines}
	}
	if o.AllowedRoots == nil {
		o.AllowedRoots = []string{o.Spec.Root}
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func names(segs []sources.Segment) []string {
	var all []string
	for _, g := range segs {
		all = append(all, g.Name)
	}
	return all
}

func TestPathsGlobsAndFoldersAreSortedAndListedOnce(t *testing.T) {
	dir := tree(t, map[string]string{
		"day_1.tsv": "a", "day_2.tsv": "a", "day_10.tsv": "a", "day_1.txt": "a",
		"2024/01/x.tsv": "a", "2024/02/x.tsv": "a", "2024/02/deep/x.tsv": "a", "2024/_SUCCESS": "a", "2024/.x.tsv.crc": "a",
		"odd[1].tsv": "a", "_tmp/x.tsv": "a", ".hidden/x.tsv": "a", "empty.tsv": "",
	})
	for _, c := range []struct {
		paths, want []string
	}{
		{[]string{"day_2.tsv", "day_1.tsv", "./day_2.tsv"}, []string{"day_1.tsv", "day_2.tsv"}},
		{[]string{"day_*.tsv"}, []string{"day_1.tsv", "day_10.tsv", "day_2.tsv"}},
		{[]string{"day_?.t[sx]?"}, []string{"day_1.tsv", "day_1.txt", "day_2.tsv"}},
		{[]string{"2024"}, []string{"2024/01/x.tsv", "2024/02/deep/x.tsv", "2024/02/x.tsv"}},
		{[]string{"2024/*"}, []string{"2024/01/x.tsv", "2024/02/deep/x.tsv", "2024/02/x.tsv", "2024/_SUCCESS"}},
		{[]string{"2024/*/x.tsv"}, []string{"2024/01/x.tsv", "2024/02/x.tsv"}},
		{[]string{"**/x.tsv"}, []string{"2024/01/x.tsv", "2024/02/deep/x.tsv", "2024/02/x.tsv"}},
		{[]string{"2024/**/**/x.tsv", "**/deep/**"}, []string{"2024/01/x.tsv", "2024/02/deep/x.tsv", "2024/02/x.tsv"}},
		{[]string{"_tmp", ".hidden/*"}, []string{".hidden/x.tsv", "_tmp/x.tsv"}},
		{[]string{"odd[1].tsv"}, []string{"odd[1].tsv"}},
		{[]string{"."}, []string{"2024/01/x.tsv", "2024/02/deep/x.tsv", "2024/02/x.tsv", "day_1.tsv", "day_1.txt", "day_10.tsv", "day_2.tsv", "odd[1].tsv"}},
		{[]string{"empty.tsv"}, nil},
	} {
		t.Run(strings.Join(c.paths, " "), func(t *testing.T) {
			s := lineSource(t, Options{Spec: spec(dir, c.paths...)})
			if got := names(sourcetest.Segments(t, s, s.partition, 3)); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestAPathThatNamesNothingIsTold(t *testing.T) {
	dir := tree(t, map[string]string{"day_1.tsv": "a", "sub/x.tsv": "b", "empty/.hidden": "x"})
	for path, want := range map[string]string{
		"day_3.tsv":     "files:clicks: there is no file day_3.tsv in " + dir + " (did you mean day_1.tsv?)",
		"sub/y.tsv":     "there is no file sub/y.tsv in " + dir + " (did you mean sub/x.tsv?)",
		"week_*.tsv":    `files:clicks: files.paths "week_*.tsv" matches no file in ` + dir,
		"empty":         "files:clicks: folder " + dir + "/empty holds no file",
		"nowhere/*":     `files.paths "nowhere/*" matches no file`,
		"day_1.tsv/x":   "day_1.tsv/x: not a directory",
		"**/nothing.js": "matches no file",
	} {
		t.Run(path, func(t *testing.T) {
			s := lineSource(t, Options{Spec: spec(dir, "sub", path)})
			_, err := s.Segments(t.Context(), s.partition, -1, 10)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got  %v\nwant %s", err, want)
			}
			if b, err := s.Bounds(t.Context(), []sources.PartitionID{s.partition}); err != nil || b[0].Err == nil {
				t.Errorf("bounds do not have the error: %v, %v", b, err)
			}
		})
	}
}

func TestARootMustBeAllowed(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	if err := os.Symlink(other, filepath.Join(dir, "away")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		root    string
		allowed []string
		want    string
	}{
		{other, []string{dir}, "root " + other + " is refused: it is in none of the roots that this host allows, " + dir},
		{dir + "x", []string{dir}, "is refused"},
		{dir + "/../x", []string{dir}, "is refused"},
		{dir, nil, "no roots are allowed on this host"},
		{dir, []string{"relative"}, "is refused"},
		{dir + "/away", []string{dir}, "leads out of the allowed root " + dir + " by a symbolic link"},
		{dir + "/nothing", []string{dir}, "no such file or directory"},
		{"data", []string{dir}, `root "data" is relative`},
	} {
		_, err := Open(Options{Dataset: "clicks", Spec: spec(c.root), Framing: Framing{Kind: Lines}, AllowedRoots: c.allowed})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "files:clicks") {
			t.Errorf("root %s: got %v, want %s", c.root, err, c.want)
		}
	}
	for _, allowed := range []string{dir, filepath.Dir(dir), "/"} {
		s := lineSource(t, Options{Spec: spec(dir), AllowedRoots: []string{other, allowed}})
		s.Close()
	}
}

func TestALinkOutOfTheRootIsRefusedWhereverItIsMet(t *testing.T) {
	secret := tree(t, map[string]string{"secret": "s", "d/secret": "s"})
	dir := tree(t, map[string]string{"a": "a"})
	for name, target := range map[string]string{"link": secret + "/secret", "up": "../" + filepath.Base(secret) + "/secret", "folder": secret} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{name, ".", name[:1] + "*", "**/" + name} {
			s := lineSource(t, Options{Spec: spec(dir, path)})
			_, err := s.Segments(t.Context(), s.partition, -1, 10)
			if err == nil || !strings.Contains(err.Error(), name+" leads out of root") {
				t.Errorf("%s by %s: got the error %v, want one with %q", name, path, err, name+" leads out of root")
			}
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	// A file is replaced by such a link after it was planned.
	s := lineSource(t, Options{Spec: spec(dir)})
	segs := sourcetest.Segments(t, s, s.partition, 10)
	if err := errors.Join(os.Remove(dir+"/a"), os.Symlink(secret+"/secret", dir+"/a")); err != nil {
		t.Fatal(err)
	}
	if _, err := readRange(t, s, segs[0], 0, 1); err == nil || !strings.Contains(err.Error(), "a leads out of root") {
		t.Errorf("got the error %v, want one with %q", err, "a leads out of root")
	}
}

func TestLinksInsideTheRootAreFollowedButNotInCircles(t *testing.T) {
	dir := tree(t, map[string]string{"real/x": "a"})
	if err := errors.Join(os.Symlink("real", dir+"/alias"), os.Symlink("real/x", dir+"/y")); err != nil {
		t.Fatal(err)
	}
	s := lineSource(t, Options{Spec: spec(dir)})
	if got := names(sourcetest.Segments(t, s, s.partition, 10)); !slices.Equal(got, []string{"alias/x", "real/x", "y"}) {
		t.Errorf("got %q", got)
	}
	if err := os.Symlink("../real", dir+"/real/again"); err != nil {
		t.Fatal(err)
	}
	s = lineSource(t, Options{Spec: spec(dir)})
	if _, err := s.Segments(t.Context(), s.partition, -1, 10); err == nil || !strings.Contains(err.Error(), "/again: is a symbolic link to a folder that it lies in") {
		t.Errorf("got the error %v, want one with %q", err, "/again: is a symbolic link to a folder that it lies in")
	}
}

func TestWhatIsNoTextIsRefusedByName(t *testing.T) {
	for content, want := range map[string]string{
		"\x1f\x8b\x08rest":     "x.csv: is compressed with gzip",
		"\x28\xb5\x2f\xfdrest": "is compressed with zstd",
		"Obj\x01rest":          "is an Avro file; set decode.format: avro",
		"BZh91AY&SY rest":      "is compressed with bzip2",
		"BZh9\x17rE8P\x90rest": "is compressed with bzip2",
		"\xff\xfea\x00":        "is UTF-16 text",

		"PAR1\x15\x04\x15\x10\x4c\x00 a file that was cut short": "is a Parquet file; set decode.format: parquet",
		"PAR1 rest \x03\x00\x00\x00PAR1":                         "is a Parquet file; set decode.format: parquet",
		"ORC\x0a\x1a\x0a\x03\x00\x00 a file that was cut short":  "is an ORC file",
		"ORC rest \x82\xf4\x03\x03ORC\x18":                       "is an ORC file",
	} {
		dir := tree(t, map[string]string{"x.csv": content})
		s := lineSource(t, Options{Spec: spec(dir)})
		if _, err := s.Segments(t.Context(), s.partition, -1, 10); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got the error %v, want one with %q", content, err, want)
		}
		raw := lineSource(t, Options{Spec: spec(dir), Framing: Framing{Kind: Whole}})
		if n := len(sourcetest.Segments(t, raw, raw.partition, 10)); n != 1 {
			t.Errorf("%q has %d segments with raw framing", content, n)
		}
	}
}

func TestATextMayBeginAsAnotherFormatDoes(t *testing.T) {
	for _, text := range []string{"ORCID,name\n1,a\n", "ORC,name\n1,ORC\n", "ORC", "PAR1,PAR2\n1,2\n", "PAR1\n2\nPAR1", "PAR1", "BZhang,1\n", "BZh1,BZh2\n", "BZh", "Obj,1\n"} {
		var gz bytes.Buffer
		w := gzip.NewWriter(&gz)
		if _, err := w.Write([]byte(text)); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		for name, content := range map[string]string{"x.csv": text, "x.csv.gz": gz.String()} {
			s := lineSource(t, Options{Spec: spec(tree(t, map[string]string{name: content}))})
			segs := sourcetest.Segments(t, s, s.partition, 10)
			if len(segs) != 1 || segs[0].Start != 0 || segs[0].End != int64(len(text)) {
				t.Errorf("%s, %q: %+v", name, text, segs)
			}
		}
	}
}

func TestAPipeIsRefusedAndNeverWaitedFor(t *testing.T) {
	dir := tree(t, map[string]string{"a": "a"})
	mkfifo(t, dir+"/pipe")
	s := lineSource(t, Options{Spec: spec(dir)})
	if _, err := s.Segments(t.Context(), s.partition, -1, 10); err == nil || !strings.Contains(err.Error(), "pipe: is a named pipe, not a file; leave it out of files.paths") {
		t.Errorf("got the error %v, want one with %q", err, "pipe: is a named pipe, not a file; leave it out of files.paths")
	}
}

func TestAKnownFileKeepsItsNumberAndOthersAreNumberedOn(t *testing.T) {
	dir := tree(t, map[string]string{"b": "1\n", "d": "2\n"})
	s := lineSource(t, Options{Spec: spec(dir)})
	known := sourcetest.Segments(t, s, s.partition, 10)
	for _, name := range []string{"a", "c"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("new\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(dir + "/b"); err != nil {
		t.Fatal(err)
	}
	s = lineSource(t, Options{Spec: spec(dir), Known: known})
	segs := sourcetest.Segments(t, s, s.partition, 1)
	var got []string
	for _, g := range segs {
		got = append(got, fmt.Sprint(g.ID, g.Name))
	}
	if want := []string{"0b", "1d", "2a", "3c"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestKnownSegmentsOfAnotherRootAreRefused(t *testing.T) {
	dir := tree(t, map[string]string{"a": "a", "sub/a": "a"})
	s := lineSource(t, Options{Spec: spec(dir, "a")})
	known := sourcetest.Segments(t, s, s.partition, 10)
	o := Options{Dataset: "clicks", Spec: spec(dir + "/sub"), Framing: Framing{Kind: Lines}, AllowedRoots: []string{dir}, Known: known}
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "was listed under root "+dir) {
		t.Errorf("got the error %v, want one with %q", err, "was listed under root "+dir)
	}
	o.Spec, o.Known = spec(dir), append(known, known...)
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "segment 0 is known twice") {
		t.Errorf("got the error %v, want one with %q", err, "segment 0 is known twice")
	}
}

func TestListingGoesNoFurtherThanItIsAsked(t *testing.T) {
	dir := tree(t, map[string]string{"a": "a\n", "b": "\x1f\x8b not text", "c": "c\n"})
	s := lineSource(t, Options{Spec: spec(dir)})
	segs, err := s.Segments(t.Context(), s.partition, -1, 1)
	if err != nil || len(segs) != 1 {
		t.Fatalf("%v, %v", segs, err)
	}
	for range 2 {
		if _, err := s.Segments(t.Context(), s.partition, 0, 1); err == nil || !strings.Contains(err.Error(), "b: is compressed") {
			t.Fatalf("got the error %v, want one with %q", err, "b: is compressed")
		}
	}
	b, err := s.Bounds(t.Context(), []sources.PartitionID{s.partition})
	if err != nil || !b[0].Estimated || b[0].Head != (sources.Position{Segment: 0, Offset: 2}) {
		t.Errorf("bounds %+v, %v", b, err)
	}
	// Once the file is repaired, the same listing goes on.
	if err := os.WriteFile(dir+"/b", []byte("b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := names(sourcetest.Segments(t, s, s.partition, 2)); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("got %q", got)
	}
}

func manyFiles(t testing.TB, n int) string {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		if i%1000 == 0 {
			if err := os.Mkdir(fmt.Sprintf("%s/%03d", dir, i/1000), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(fmt.Sprintf("%s/%03d/%d", dir, i/1000, i), []byte("x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestManyFilesAreListedAPortionAtATime(t *testing.T) {
	const n = 10_000
	s := lineSource(t, Options{Spec: spec(manyFiles(t, n), "**/*")})
	if got := len(sourcetest.Segments(t, s, s.partition, 999)); got != n {
		t.Errorf("%d segments of %d files", got, n)
	}
}

func TestTheHeaderLineIsNoRecordAndIsTold(t *testing.T) {
	for content, want := range map[string]string{
		"a,b\r\n1,2\r\n":                 "a,b",
		byteOrderMark + "\n\na,b\n1,2\n": "a,b",
		"\"a\nx\",b\n1,2":                "\"a\nx\",b",
	} {
		s := one(t, []byte(content), Framing{Kind: Quoted, Quote: '"', Delimiter: ',', Header: true, Text: true}, tinyBlocks)
		segs := sourcetest.Segments(t, s, s.partition, 10)
		r := sources.Range{Partition: s.partition, Start: 0, End: segs[0].End}
		c, err := s.Open(t.Context(), r, sources.Position{Offset: segs[0].End - 1}, segs[0].Locator)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(c.(sources.Headed).Header()); got != want {
			t.Errorf("%q: header %q", content, got)
		}
		c.Close()
		got, err := readRange(t, s, segs[0], 0, segs[0].End)
		if err != nil || len(got) != 1 || string(got[0].Value) != "1,2" {
			t.Errorf("%q: records %v, %v", content, lines(got), err)
		}
	}
	for _, content := range []string{"", "a,b\n", "a,b", "\n\n"} {
		s := one(t, []byte(content), Framing{Kind: Lines, Header: true}, defaultBlocks)
		if segs := sourcetest.Segments(t, s, s.partition, 10); len(segs) > 0 {
			t.Errorf("%q has no record, but %d segments", content, len(segs))
		}
	}
	s := one(t, []byte(strings.Repeat("x", maxHeader+1)), Framing{Kind: Lines, Header: true}, defaultBlocks)
	if _, err := s.Segments(t.Context(), s.partition, -1, 10); err == nil || !strings.Contains(err.Error(), "its header line does not end within 1048576 bytes") {
		t.Errorf("got the error %v, want one with %q", err, "its header line does not end within 1048576 bytes")
	}
}

func TestAFileThatHoldsNoWholeNumberOfRecordsIsRefusedWhenItIsListed(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "rows.bin"), make([]byte, 1001), 0o600); err != nil {
		t.Fatal(err)
	}
	s := lineSource(t, Options{Spec: spec(dir), Framing: Framing{Kind: Fixed, Size: 500}})
	_, err := s.Segments(t.Context(), s.partition, -1, 10)
	want := "rows.bin: has 1001 bytes, which are 2 records of 500 bytes and 1 bytes more: is decode.record_size right?"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got the error %v, want one with %q", err, want)
	}
}

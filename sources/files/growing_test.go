package files

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/sourcetest"
)

// grown opens a folder with end: never.
func grown(t *testing.T, dir, complete string, known []sources.Segment) *Source {
	t.Helper()
	f := &Spec{Root: dir, MaxRecord: 1 << 20, End: endNever, Complete: complete}
	f.Fill()
	s, err := Open(Options{Dataset: "d", Framing: Framing{Kind: Lines, EmptyLines: true}, AllowedRoots: []string{dir}, Spec: f, Known: known})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// drop writes a file whose last change was `age` ago.
func drop(t *testing.T, dir, name string, age time.Duration) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(name+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	when := time.Now().Add(-age)
	if err := os.Chtimes(path, when, when); err != nil {
		t.Fatal(err)
	}
}

// arrived returns the names of the files that the next look lists.
func arrived(t *testing.T, s *Source, after *int64) string {
	t.Helper()
	s.list.growing.looked = time.Time{}
	var names []string
	for {
		segs, err := s.Segments(t.Context(), s.partition, *after, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range segs {
			got, err := readRange(t, s, g, g.Start, g.End)
			if err != nil || len(got) != 1 || string(got[0].Value) != g.Name || g.ID != *after+1 || !g.Sealed {
				t.Fatalf("segment %+v: %v, %v", g, got, err)
			}
			names, *after = append(names, g.Name), g.ID
		}
		if len(segs) < 2 {
			return strings.Join(names, " ")
		}
	}
}

func init() { dataset.Register(Kind) }

const (
	old      = time.Hour
	longRest = dataset.Duration(10 * time.Minute) // so long that a file is still young when the test looks, on any machine
)

func TestFilesThatComeLaterAreListedOnce(t *testing.T) {
	dir := t.TempDir()
	s, after := grown(t, dir, completeRest, nil), int64(-1)
	expect := func(want string) {
		t.Helper()
		if got := arrived(t, s, &after); got != want {
			t.Fatalf("arrived: %q, want %q", got, want)
		}
	}
	expect("")
	drop(t, dir, "b", old)
	drop(t, dir, "c", old)
	expect("b c")
	expect("")
	drop(t, dir, "a", old) // its name sorts before the listed ones
	drop(t, dir, "dt=2026-11-22/d", old)
	expect("a dt=2026-11-22/d")
	for _, name := range []string{"x.tmp", "y.inprogress", "part-0-0.inprogress.1a2b", ".hidden", "_SUCCESS", "z._COPYING_", "_temporary/0/part"} {
		drop(t, dir, name, old)
	}
	expect("")
	if err := os.Remove(filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	drop(t, dir, "e", old)
	expect("e")
}

func TestAFileThatIsWrittenJustNowWaits(t *testing.T) {
	dir := t.TempDir()
	s, after := grown(t, dir, completeRest, nil), int64(-1)
	s.spec.Rest = longRest
	drop(t, dir, "new", 0)
	drop(t, dir, "of the future", -time.Hour)
	if got := arrived(t, s, &after); got != "" {
		t.Fatalf("arrived: %q, want %q", got, "")
	}
	// The writer's clock is ahead. Then the time counts for which the file has not changed.
	for name, was := range s.list.growing.young {
		was.since = was.since.Add(-time.Duration(longRest))
		s.list.growing.young[name] = was
	}
	drop(t, dir, "new", time.Second) // it changes
	if got := arrived(t, s, &after); got != "of the future" {
		t.Fatalf("arrived: %q, want %q", got, "of the future")
	}
	drop(t, dir, "new", time.Duration(longRest))
	if got := arrived(t, s, &after); got != "new" {
		t.Fatalf("arrived: %q, want %q", got, "new")
	}
	if n := len(s.list.growing.young); n != 0 {
		t.Errorf("%d files are remembered as young", n)
	}
}

func TestAFolderWithSuccessIsComplete(t *testing.T) {
	dir := t.TempDir()
	s, after := grown(t, dir, completeSuccess, nil), int64(-1)
	drop(t, dir, "day=1/hour=0/part-0", 0)
	drop(t, dir, "day=2/part-0", 0)
	if got := arrived(t, s, &after); got != "" {
		t.Fatalf("arrived: %q, want %q", got, "")
	}
	drop(t, dir, "day=1/_SUCCESS", 0)
	if got := arrived(t, s, &after); got != "day=1/hour=0/part-0" {
		t.Fatalf("arrived: %q, want %q", got, "day=1/hour=0/part-0")
	}
	drop(t, dir, "_SUCCESS", 0)
	if got := arrived(t, s, &after); got != "day=2/part-0" {
		t.Fatalf("arrived: %q, want %q", got, "day=2/part-0")
	}
}

func TestAnotherProcessListsWhatIsLeft(t *testing.T) {
	dir := t.TempDir()
	first, after := grown(t, dir, completeRenamed, nil), int64(-1)
	drop(t, dir, "a", 0)
	drop(t, dir, "b", 0)
	known := sourcetest.Segments(t, first, first.partition, 10)
	drop(t, dir, "c", 0)
	second := grown(t, dir, completeRenamed, known[:1]) // the ledger has only the first segment
	after = known[0].ID
	if got := arrived(t, second, &after); got != "b c" {
		t.Fatalf("arrived: %q, want %q", got, "b c")
	}
}

func TestListedFilesTakeNoMoreThanTheirNames(t *testing.T) {
	dir := t.TempDir()
	s, after := grown(t, dir, completeRenamed, nil), int64(-1)
	for i := range 50 {
		drop(t, dir, fmt.Sprintf("f%02d", i), 0)
		if got := arrived(t, s, &after); got != fmt.Sprintf("f%02d", i) {
			t.Fatalf("arrived: %q, want %q", got, fmt.Sprintf("f%02d", i))
		}
	}
	if len(s.segments) > 2 || cap(s.list.files) > 8 {
		t.Errorf("%d segments and %d names are kept", len(s.segments), cap(s.list.files))
	}
}

func TestASpecWithoutAnEndIsChecked(t *testing.T) {
	for text, want := range map[string]string{
		"files: {root: /data, end: never}":                              "",
		"files: {root: /data, end: never, complete: success}":           "",
		"files: {root: \"s3://lake/data\", end: never}":                 "",
		"files: {root: /data, end: latest}":                             "files.end",
		"files: {root: /data, refresh: 1s}":                             "for folders that grow",
		"files: {root: /data, end: never, complete: success, rest: 1s}": "goes with complete: rest",
		"files: {root: /data, end: never}\npasses: 2":                   "does not go with files.end: never",
		"files: {root: /data, end: never}\nshuffle: {seed: 1}":          "does not go with files.end: never",
		"files: {root: /data, end: never, refresh: 1ms}":                "too often",
		"files: {root: /data, end: never, complete: soon}":              "files.complete",
		"files: {root: /data, end: never, remember: 168h}":              "",
		"files: {root: /data, end: never, remember: 168h, late: skip}":  "",
		"files: {root: /data, remember: 168h}":                          "for folders that grow",
		"files: {root: /data, end: never, retain: 168h}":                "",
		"files: {root: /data, retain: 168h}":                            "files.retain: is for folders that grow",
		"files: {root: /data, end: never, retain: 10ms}":                "10ms\": is too short",
		"files: {root: /data, end: never, retain: -1h}":                 "-1h0m0s\": is too short",
		"files: {root: /data, end: never, late: skip}":                  "goes with files.remember",
		"files: {root: /data, end: never, remember: 168h, late: never}": "files.late",
		"files: {root: /data, end: never, remember: 1s}":                "too short",
		"files: {root: /data, end: never, remember: 1h, rest: 50m}":     "too short for files.rest",
	} {
		spec, err := dataset.Parse([]byte("name: d\ndecode: lines\n"+text+"\n"), "d.yaml")
		if want == "" && (err != nil || !spec.Live()) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

package dataset_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/headrace/headrace/internal/dataset"
)

const relative = `# one
name: a
files: {root: data/clicks} # here
decode: raw
---
name: b
files:
  root: "../other"
decode: raw
--- # nothing more
# a last word
`

func TestReadFileTakesARelativeRootFromItsOwnFolder(t *testing.T) {
	folder := t.TempDir()
	name := filepath.Join(folder, "two.yaml")
	if err := os.WriteFile(name, []byte(relative), 0o600); err != nil {
		t.Fatal(err)
	}
	docs, err := ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if len(docs) != 2 {
		t.Fatalf("%d documents", len(docs))
	}
	if got, want := filesOf(docs[0].Spec).Root, filepath.Join(folder, "data/clicks"); got != want {
		t.Errorf("root %s, want %s", got, want)
	}
	if got, want := filesOf(docs[1].Spec).Root, filepath.Join(filepath.Dir(folder), "other"); got != want {
		t.Errorf("root %s, want %s", got, want)
	}
	for _, d := range docs {
		alone, err := Parse(d.YAML, "")
		if err != nil {
			t.Fatalf("%s\n%v", d.YAML, err)
		}
		if len(Diff(alone, d.Spec)) > 0 {
			t.Errorf("the rewritten text has another spec:\n%s", d.YAML)
		}
	}
	if !strings.Contains(string(docs[0].YAML), "# one\n") || !strings.Contains(string(docs[0].YAML), " # here\n") {
		t.Errorf("comments were lost:\n%s", docs[0].YAML)
	}
}

func TestLinesCountFromTheTopOfAFileWithSeveralDocuments(t *testing.T) {
	_, err := Documents([]byte(relative+"---\nname: c\nfiles: {root: x}\ndecode: rwa\n"), "f.yaml", "/home/u")
	if err == nil || !strings.Contains(err.Error(), `f.yaml:15: decode.format: "rwa"`) {
		t.Errorf("got the error %v, want one with %q", err, `f.yaml:15: decode.format: "rwa"`)
	}
}

func TestARelativeRootThatCanNotBeRewrittenSaysSo(t *testing.T) {
	_, err := Documents([]byte("name: c\nfiles: {root: \"d\\x61ta\"}\ndecode: raw\n"), "f.yaml", "/home/u")
	if err == nil || !strings.Contains(err.Error(), "f.yaml:2: files.root: \"data\": is relative, and is not written plainly") {
		t.Errorf("got the error %v, want one with %q", err, "f.yaml:2: files.root: \"data\": is relative, and is not written plainly")
	}
}

func FuzzDocuments(f *testing.F) {
	f.Add([]byte(relative))
	f.Add([]byte("name: c\nfiles: {root: &r ä}\ndecode: raw\n...\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		docs, err := Documents(text, "f.yaml", "/home/u")
		if err != nil {
			return
		}
		for _, d := range docs {
			if !filepath.IsAbs(filesOf(d.Spec).Root) {
				t.Fatalf("root %q", filesOf(d.Spec).Root)
			}
		}
	})
}

package view

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var rewriteFiles = flag.Bool("rewrite", false, "write the golden files anew")

// sameAsFile compares text with testdata/name; -rewrite writes it.
func sameAsFile(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewriteFiles {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s differs (if the change is meant, run go test . -rewrite)\n got:\n%s\nwant:\n%s", path, text, want)
	}
}

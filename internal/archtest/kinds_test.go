package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mayNameKinds are the folders whose code may contain the name of a kind of source: adapters, tests,
// benchmarks, test data and examples.
var mayNameKinds = []string{"sources", "internal/proof", "internal/archtest", "internal/ckpt/ckpttest", "bench", "examples", "build", ".git", ".venv", ".tools"}

// notKinds are texts that look like the name of a kind but mean something else.
var notKinds = map[string][]string{
	"flashckpt/manifest/validate.go": {"files"},         // a member of a manifest
	"internal/chunk/locator.go":      {"landing:%s/%d"}, // the identity of a partition of pushed records
	"internal/dataset/parse.go":      {"files"},         // where dead letters go
	"internal/pulsarwire/client.go":  {"pulsar"},        // the scheme of an address
	"master/landing/chunks.go":       {"landing"},       // a folder
}

// Only adapters name a kind of source. A branch on the name would have to be found and extended for each
// new kind. So other code asks the kind what it needs to know (sources.Kind).
func TestOnlyAdaptersNameKindsOfSources(t *testing.T) {
	const root = "../.."
	folders, err := os.ReadDir(root + "/sources")
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, f := range folders {
		if f.IsDir() && f.Name() != "sourcetest" && f.Name() != "brokers" { // these two are no kinds: the suite, and the code that adapters share
			kinds = append(kinds, f.Name())
		}
	}
	if !slices.Contains(kinds, "files") || !slices.Contains(kinds, "kafka") {
		t.Fatalf("the kinds are %v", kinds)
	}
	seen := 0
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, name)
		if d.IsDir() {
			if slices.Contains(mayNameKinds, rel) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".pb.go") {
			return nil
		}
		seen++
		for _, text := range literals(t, name) {
			for _, kind := range kinds {
				if (text == kind || strings.HasPrefix(text, kind+".") || strings.HasPrefix(text, kind+":")) && !slices.Contains(notKinds[rel], text) {
					t.Errorf("%s contains %q: ask the kind what it can do instead (docs/WRITE-A-SOURCE.md)", rel, text)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 100 {
		t.Fatalf("only %d files were looked at", seen)
	}
}

// literals returns the strings of a file, without its imports.
func literals(t *testing.T, name string) (all []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if _, is := n.(*ast.ImportSpec); is {
			return false
		}
		if l, is := n.(*ast.BasicLit); is && l.Kind == token.STRING {
			if text, err := strconv.Unquote(l.Value); err == nil {
				all = append(all, text)
			}
		}
		return true
	})
	return all
}

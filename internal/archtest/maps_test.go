package archtest

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// needsMap is how many files a package may have without a file map.
const needsMap = 5

var fileName = regexp.MustCompile(`[\w*]+\.go\b`)

// A file map is the indented lines of a package comment that name .go files. It tells a newcomer which file
// to open, so it must name every file, and only files that exist.
func TestFileMapsNameEachFileOfTheirPackage(t *testing.T) {
	const root = "../.."
	maps := 0
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		files := sourceFiles(t, filepath.Join(root, name))
		named, at := fileMap(t, files)
		if len(named) == 0 {
			if len(files) > needsMap {
				t.Errorf("%s has %d files and no map: list them in doc.go, indented, and say what each is about", name, len(files))
			}
			continue
		}
		maps++
		for _, pattern := range named {
			if !slices.ContainsFunc(files, func(f string) bool { return match(pattern, f) }) {
				t.Errorf("the map of %s names %s, which does not exist", name, pattern)
			}
		}
		for _, f := range files {
			if b := filepath.Base(f); f != at && !slices.ContainsFunc(named, func(pattern string) bool { return match(pattern, f) }) {
				t.Errorf("the map of %s leaves out %s", name, b)
			}
		}
	}
	if maps < 10 {
		t.Fatalf("only %d maps were found, so this test does not find the maps in the comments", maps)
	}
}

func match(pattern, file string) bool {
	ok, err := filepath.Match(pattern, filepath.Base(file))
	return err == nil && ok
}

// sourceFiles returns the files of a package, without tests and generated code.
func sourceFiles(t *testing.T, dir string) (files []string) {
	t.Helper()
	all, err := filepath.Glob(dir + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if !strings.HasSuffix(f, "_test.go") && !strings.HasSuffix(f, ".pb.go") {
			files = append(files, f)
		}
	}
	return files
}

// fileMap returns the names of files in the indented lines of a package comment, and the file with that
// comment.
func fileMap(t *testing.T, files []string) (named []string, at string) {
	t.Helper()
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f, text, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if parsed.Doc == nil {
			continue
		}
		for line := range strings.Lines(parsed.Doc.Text()) {
			if strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "  ") {
				named, at = append(named, fileName.FindAllString(line, -1)...), f
			}
		}
	}
	return named, at
}

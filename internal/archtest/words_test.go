package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// retired are words that once had several meanings. No exported name may use one in a meaning that it has
// lost. docs/ARCHITECTURE.md, "Retired words", has the same table.
var retired = []struct {
	word    string // as the page writes it
	meaning string // the meaning that it lost
	write   string // the word to use instead
	matches func(exported) bool
	example exported // a name that this test must find
}{
	{"hold", "stop the yields of trainers", "pause yields", holds, exported{folder: "shardsvc", name: "CutHold"}},
	{"hold", "keep data from being deleted at the source", "retain", holds, exported{folder: "shardsvc", name: "HoldMarks"}},
	{"settle", "find out whether a frozen cut has a manifest", "resolve",
		func(e exported) bool {
			return e.has("settle", "settled", "settling", "settles") && e.has("cut", "cuts")
		},
		exported{folder: "shardsvc", name: "ReportSettleCut"}},
	{"cut", "a batch's part of a lease", "take",
		func(e exported) bool {
			return strings.HasPrefix(e.folder, "agent/") && !e.field && e.has("cut", "cuts", "cutback") && !e.has("call", "reply")
		},
		exported{folder: "agent/hold", name: "Cut"}},
	{"epoch", "one reading of a bounded input", "pass",
		func(e exported) bool {
			return slices.Contains([]string{"sources", "internal/dataset", "internal/decode"}, e.folder) && e.has("epoch", "epochs")
		},
		exported{folder: "internal/dataset", name: "Epochs", field: true}},
	{"index", "a message inside an entry of a broker", "offset, which has both",
		func(e exported) bool {
			return (e.folder == "sources" || strings.HasPrefix(e.folder, "shardsvc") || strings.HasPrefix(e.folder, "api/")) && e.has("index")
		},
		exported{folder: "sources", name: "Index", field: true}},
}

// "Hold" stays the word for leases: a worker holds a lease, and asserts the leases that it held after a restart
// of the master. These names are about leases.
var ofLeases = map[string][]string{
	"api/headrace/v1": {"Held", "HeldReply", "GetHeld"},
	"shardsvc":        {"Held", "ReplyHeld", "ReportHeldRefused"},
}

func holds(e exported) bool {
	return e.has("hold", "holds", "held", "holding") && !slices.Contains(ofLeases[e.folder], e.name)
}

func TestNoExportedNameUsesARetiredWord(t *testing.T) {
	names := 0
	for _, p := range packages(t) {
		folder := strings.TrimPrefix(p.ImportPath, module)
		files, err := filepath.Glob(filepath.Join("../..", folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			for _, e := range exportedNames(t, f) {
				e.folder = folder
				names++
				for _, r := range retired {
					if r.matches(e) {
						t.Errorf("%s: %s uses %q, which does not mean %q any more: write %q", f, e.name, r.word, r.meaning, r.write)
					}
				}
			}
		}
	}
	if names < 1000 {
		t.Fatalf("only %d exported names were seen", names)
	}
	for _, r := range retired {
		if !r.matches(r.example) {
			t.Errorf("%s.%s would not be found, though %q is retired for %q", r.example.folder, r.example.name, r.word, r.meaning)
		}
	}
}

func TestTheGlossaryListsTheRetiredWords(t *testing.T) {
	page, err := os.ReadFile("../../docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "\n### Retired words\n")
	if !ok {
		t.Fatal(`docs/ARCHITECTURE.md has no "Retired words"`)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	var listed, want []string
	for l := range strings.Lines(rest) {
		if strings.HasPrefix(l, "| ") {
			listed = append(listed, strings.TrimSpace(l))
		}
	}
	for _, r := range retired {
		want = append(want, "| "+r.word+" | "+r.meaning+" | "+r.write+" |")
	}
	if len(listed) == 0 || !slices.Equal(listed[1:], want) { // without the head of the table
		t.Errorf("the page lists\n%s\nand the test\n%s", strings.Join(listed, "\n"), strings.Join(want, "\n"))
	}
}

// exported is a name that other packages can use.
type exported struct {
	folder, name string
	field        bool
}

// has says whether one of these words is in the name. The words are in lower case.
func (e exported) has(words ...string) bool {
	return slices.ContainsFunc(wordsOf(e.name), func(w string) bool { return slices.Contains(words, w) })
}

// wordsOf splits a name into its words: HoldYields is hold, yields.
func wordsOf(name string) (words []string) {
	begin := 0
	for i, r := range name {
		if i > begin && (unicode.IsUpper(r) || r == '_') {
			words = append(words, strings.ToLower(name[begin:i]))
			begin = i
			if r == '_' {
				begin++
			}
		}
	}
	return append(words, strings.ToLower(name[begin:]))
}

// exportedNames returns the exported names that a file declares, with methods and fields.
func exportedNames(t *testing.T, name string) (all []exported) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	add := func(id *ast.Ident, field bool) {
		if id.IsExported() {
			all = append(all, exported{name: id.Name, field: field})
		}
	}
	for _, d := range file.Decls {
		if f, is := d.(*ast.FuncDecl); is {
			add(f.Name, false)
			continue
		}
		for _, s := range d.(*ast.GenDecl).Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				for _, id := range s.Names {
					add(id, false)
				}
			case *ast.TypeSpec:
				add(s.Name, false)
				ast.Inspect(s.Type, func(n ast.Node) bool {
					if f, is := n.(*ast.Field); is {
						for _, id := range f.Names {
							add(id, true)
						}
					}
					return true
				})
			}
		}
	}
	return all
}

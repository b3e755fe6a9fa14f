package archtest

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// optional are the interfaces that code asks a source or a cursor for by a type assertion. A struct that
// embeds sources.Source hides them: it compiles, and the source seems not to have the capability.
var optional = map[string]string{
	"Committer": "Source", "Comparer": "Source", "Dater": "Source", "Deleter": "Source", "Forgetter": "Source",
	"Joiner": "Source", "Keeper": "Source", "Namer": "Source", "Poster": "Source", "Retainer": "Source",
	"Rewriter": "Source", "decode.Writing": "Source",
	"Headed": "Cursor", "Tailing": "Cursor",
}

// ofMasters are asked of a master's sources only. A master reads no records and wraps no source.
const ofMasters = "Committer Comparer Dater Deleter Forgetter Joiner Keeper Poster Retainer"

// hidden says for each type that embeds a source or a cursor what it hides, and why that is right. It must
// pass on everything else.
var hidden = []struct{ wrapper, what, why string }{
	{"cmd/headrace.pushedLook", ofMasters, "it is for a look at records"},
	{"cmd/headrace.pushedLook", "Rewriter", "pushed records are not compacted"},
	{"cmd/headrace.pushedLook", "decode.Writing", "it is wrapped, and the outer source has the schemas"},
	{"internal/registry.toRead", ofMasters, "it is for reading"},
	{"internal/registry.toRead", "decode.Writing", "the types that embed it have the schemas"},
	{"internal/registry.reading", ofMasters, "it is for reading"},
	{"internal/registry.giving", ofMasters, "it is for reading"},
	{"internal/registry.cursor", "Tailing", "tailing has it, for cursors that have it"},
	{"internal/registry.cursor", "Headed", "only files have it, and no registry goes with files"},
	{"internal/registry.tailing", "Headed", "only files have it, and no registry goes with files"},
}

func TestWrappedSourcesHideNothingThatIsAskedOfThem(t *testing.T) {
	folders := wrapperFolders(t)
	if !slices.Contains(folders, "internal/registry") {
		t.Fatalf("the folders with wrappers are %v", folders)
	}
	patterns := []string{"./sources", "./internal/decode"}
	for _, f := range folders {
		patterns = append(patterns, "./"+f)
	}
	found, err := exports("../..", patterns...)
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", found)
	all := capabilities(t, imports)
	used := map[string]bool{}
	for _, f := range folders {
		for _, w := range wrappersIn(t, fset, imports, f, all) {
			for name, of := range optional {
				if !types.Implements(w.typ, all[of]) {
					continue
				}
				key := w.name + " " + name
				why := whyHidden(w.name, name)
				switch has := types.Implements(w.typ, all[name]); {
				case has && why != "":
					t.Errorf("%s is a %s, and the list says that it hides this: remove it from the list", w.name, name)
				case !has && why == "":
					t.Errorf("%s embeds a sources.%s and hides %s: pass it on, or add it to the list with the reason", w.name, of, name)
				}
				used[key] = true
			}
		}
	}
	for _, h := range hidden {
		for name := range strings.FieldsSeq(h.what) {
			if !used[h.wrapper+" "+name] {
				t.Errorf("the list has %s and %s, which are not there", h.wrapper, name)
			}
		}
	}
}

func whyHidden(wrapper, name string) string {
	for _, h := range hidden {
		if h.wrapper == wrapper && slices.Contains(strings.Fields(h.what), name) {
			return h.why
		}
	}
	return ""
}

// capabilities finds the interfaces Source and Cursor, and the optional ones.
func capabilities(t *testing.T, imports types.Importer) map[string]*types.Interface {
	all := map[string]*types.Interface{}
	for folder, prefix := range map[string]string{"sources": "", "internal/decode": "decode."} {
		pkg, err := imports.Import(module + folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range pkg.Scope().Names() {
			i, ok := pkg.Scope().Lookup(name).Type().Underlying().(*types.Interface)
			if !ok || !token.IsExported(name) {
				continue
			}
			if all[prefix+name] = i; optional[prefix+name] == "" && prefix == "" && name != "Source" && name != "Cursor" {
				t.Errorf("the list of optional interfaces lacks sources.%s: say what it is asked of", name)
			}
		}
	}
	for name := range optional {
		if all[name] == nil {
			t.Fatalf("there is no interface %s", name)
		}
	}
	return all
}

// wrapperFolders are the folders of the product that have a struct that embeds an interface of package
// sources.
func wrapperFolders(t *testing.T) (folders []string) {
	const root = "../.."
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, name)
		if d.IsDir() && slices.Contains([]string{"build", ".git", ".venv", ".tools", "bench", "internal/proof"}, rel) {
			return filepath.SkipDir
		}
		folder := filepath.Dir(rel)
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || slices.Contains(folders, folder) {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			st, ok := n.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range st.Fields.List {
				if sel, ok := field.Type.(*ast.SelectorExpr); ok && len(field.Names) == 0 && fmt.Sprint(sel.X) == "sources" && !slices.Contains(folders, folder) {
					if sel.Sel.Name == "Source" || sel.Sel.Name == "Cursor" {
						folders = append(folders, folder)
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return folders
}

type wrapper struct {
	name string
	typ  types.Type // pointer to the struct
}

// wrappersIn are the structs of a package that are a source or a cursor because they embed one.
func wrappersIn(t *testing.T, fset *token.FileSet, imports types.Importer, folder string, all map[string]*types.Interface) (found []wrapper) {
	list := exec.Command("go", "list", "-f", `{{join .GoFiles "\n"}}`, ".")
	list.Dir = filepath.Join("../..", folder)
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for name := range strings.FieldsSeq(string(out)) {
		f, err := parser.ParseFile(fset, filepath.Join(list.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	pkg, err := (&types.Config{Importer: imports}).Check(module+folder, fset, files, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range pkg.Scope().Names() {
		tn, ok := pkg.Scope().Lookup(name).(*types.TypeName)
		if !ok || !embedsInterface(tn.Type()) {
			continue
		}
		typ := types.NewPointer(tn.Type())
		if types.Implements(typ, all["Source"]) || types.Implements(typ, all["Cursor"]) {
			found = append(found, wrapper{folder + "." + name, typ})
		}
	}
	return found
}

// embedsInterface says whether a struct embeds an interface, or another struct that does.
func embedsInterface(typ types.Type) bool {
	if p, ok := typ.(*types.Pointer); ok {
		typ = p.Elem()
	}
	st, ok := typ.Underlying().(*types.Struct)
	if !ok {
		return false
	}
	for f := range st.Fields() {
		if f.Embedded() && (types.IsInterface(f.Type()) || embedsInterface(f.Type())) {
			return true
		}
	}
	return false
}

package archtest

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rooms, bottom to top, with their files. A file of a room uses what its own room and
// the rooms below it declare.
var rooms = []struct {
	name  string
	files string
}{
	{"turn", "turn clock effects event event_cut options keys values stored cut_state cut_values"},
	{"ledger", `ledger holder dataset partition virtual members lines again bound goback carve lead lease token ack pieces tally head held giveback
		excluded request parked steal stall adopt gone resume dirty ledger_load ledger_view ledger_marks ledger_check query_serve`},
	{"group", "group groupkind session worker generation steps group_view"},
	{"checkpoints", `checkpoints kind shared replicated private past kept ask freeze bind restore gate settle rewind removed doubt yields
		query_cut needed`},
	{"core", "doc core load flush invariant tick"},
}

// TestNoRoomUsesARoomAboveIt keeps the order of the rooms, by what the compiler knows of
// each name.
func TestNoRoomUsesARoomAboveIt(t *testing.T) {
	for _, u := range usesOfRooms(t) {
		if u.to > u.from {
			t.Errorf("%s of room %s uses %s, which room %s above it declares in %s", u.file, rooms[u.from].name, u.what, rooms[u.to].name, u.declared)
		}
	}
}

// roomUse is one name that a file uses of another room.
type roomUse struct {
	from, to       int
	file, declared string
	what           string // Type.name, or name
	field          bool
}

func usesOfRooms(t *testing.T) []roomUse {
	roomOf := map[string]int{}
	for i, r := range rooms {
		for _, f := range strings.Fields(r.files) {
			roomOf[f+".go"] = i
		}
	}
	fset := token.NewFileSet()
	paths, err := filepath.Glob("../../shardsvc/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		if _, ok := roomOf[filepath.Base(path)]; !ok {
			t.Errorf("%s stands in no room: give it one in this file", path)
		}
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	pkg, err := (&types.Config{Importer: importer.ForCompiler(fset, "gc", exports(t, "../../shardsvc"))}).Check("github.com/headrace/headrace/shardsvc", fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	owner := map[types.Object]string{} // of fields and methods
	for _, name := range pkg.Scope().Names() {
		tn, ok := pkg.Scope().Lookup(name).(*types.TypeName)
		if !ok {
			continue
		}
		if n, ok := tn.Type().(*types.Named); ok {
			for m := range n.Methods() {
				owner[m.Origin()] = name
			}
			if st, ok := n.Underlying().(*types.Struct); ok {
				for f := range st.Fields() {
					owner[f] = name
				}
			}
		}
	}
	seen := map[roomUse]bool{}
	for id, o := range info.Uses {
		switch x := o.(type) {
		case *types.Var:
			o = x.Origin()
		case *types.Func:
			o = x.Origin()
		}
		if o.Pkg() != pkg || o.Parent() != pkg.Scope() && owner[o] == "" {
			continue
		}
		u := roomUse{file: filepath.Base(fset.Position(id.Pos()).Filename), declared: filepath.Base(fset.Position(o.Pos()).Filename), what: o.Name()}
		u.from, u.to = roomOf[u.file], roomOf[u.declared]
		if owner[o] != "" {
			u.what = owner[o] + "." + u.what
		}
		_, u.field = o.(*types.Var)
		if u.from != u.to {
			seen[u] = true
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b roomUse) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.what, b.what))
	})
}

// exports finds what the compiler wrote of each package that dir depends on.
func exports(t *testing.T, dir string) func(path string) (io.ReadCloser, error) {
	list := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}", ".")
	list.Dir = dir
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	at := map[string]string{}
	for l := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(l), "=")
		at[path] = file
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(at[path]) }
}

func TestPrintRooms(t *testing.T) {
	if os.Getenv("PRINT_ROOMS") == "" {
		t.Skip()
	}
	n := map[string]int{}
	for _, u := range usesOfRooms(t) {
		n[fmt.Sprintf("%s -> %s %s field=%v", rooms[u.from].name, rooms[u.to].name, u.what, u.field)]++
	}
	for _, k := range slices.Sorted(maps.Keys(n)) {
		fmt.Println(n[k], k)
	}
}

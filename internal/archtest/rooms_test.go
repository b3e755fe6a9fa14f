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
	"sync"
	"testing"
)

// rooms are listed from bottom to top, with their files. A file may use the names of its own room and of the
// rooms below it.
var rooms = []struct {
	name  string
	files string
}{
	{"turn", "turn clock effects reclaimed refusal event event_cut event_round input options keys values settled_values value_bytes stored cut_state cut_values landing_values"},
	{"ledger", `ledger holder dataset dataset_state landing leftover trim partition virtual backfill members lines again bound goback carve lead lease token ack pieces tally head held giveback suspect
		listed excluded old dropped stopped bad request standing parked steal level stall adopt resume dirty ledger_load`},
	{"group", "group groupkind session followers worker reclaim made generation steps series"},
	{"checkpoints", `checkpoints kind shared replicated private past kept ask freeze bind restore gate resolve rewind removed doubt pause`},
	{"view", "ledger_view ledger_marks ledger_check group_view imbalance query_serve query_reclaim query_cut needed gone trimmable"},
	{"core", "doc core load flush invariant tick"},
}

// TestNoRoomUsesARoomAboveIt keeps the order of the rooms. It uses the type checker to find where each name is
// declared.
func TestNoRoomUsesARoomAboveIt(t *testing.T) {
	for _, u := range usesOfRooms(t) {
		if u.to > u.from {
			t.Errorf("%s of room %s uses %s, which room %s above it declares in %s", u.file, rooms[u.from].name, u.what, rooms[u.to].name, u.declared)
		}
	}
}

// TestEachRoomOwnsItsState: no room changes a field of another room, and only the view reads one. Two
// exceptions: the state of the turn belongs to all rooms, and any room may read the names that
// shardsvc/doc.go lists, because they never change.
func TestEachRoomOwnsItsState(t *testing.T) {
	names := docLists(t, " Names that never change:")[""]
	read := map[string]bool{}
	for _, u := range usesOfRooms(t) {
		to := rooms[u.to].name
		switch {
		case !u.field || to == "turn":
		case u.written:
			t.Errorf("%s of room %s changes %s, which is state of room %s: ask that room by a method", u.file, rooms[u.from].name, u.what, to)
		case rooms[u.from].name == "view":
		case !slices.Contains(names, u.what):
			t.Errorf("%s of room %s reads %s, which is state of room %s: ask that room by a method", u.file, rooms[u.from].name, u.what, to)
		default:
			read[u.what] = true
		}
	}
	for _, name := range names {
		if !read[name] {
			t.Errorf("shardsvc/doc.go lists the name %s, but no room reads it", name)
		}
		if core(t).assigned[name] {
			t.Errorf("shardsvc/doc.go says that %s never changes, but a file assigns to it", name)
		}
	}
}

// TestTheViewChangesNothing: tools ask the view at any time, so it must not change state. This test does not
// see a change by a method that the view calls; the scenarios do (shardsvc/view_test.go). The view is in
// this package because it reads many fields (docs/ARCHITECTURE.md, Tried), and the test checks that it
// still does.
func TestTheViewChangesNothing(t *testing.T) {
	read := map[string]bool{}
	for _, u := range usesOfRooms(t) {
		if rooms[u.from].name != "view" || !u.field {
			continue
		}
		if rooms[u.to].name != "turn" {
			read[u.what] = true
		}
		if u.written {
			t.Errorf("%s changes %s, which is state of room %s: the view only reads", u.file, u.what, rooms[u.to].name)
		}
	}
	if len(read) <= 100 {
		t.Fatalf("the view reads only %d fields of other rooms: it could be a package", len(read))
	}
}

// TestRoomsAskOnlyWhatIsOffered: shardsvc/doc.go lists the methods that each room offers, and the methods of
// the values that it hands out. Other rooms may call only these. Two exceptions: the core, which distributes
// the parts of a message, may call any method, and the view may call any method of the values that it reads.
func TestRoomsAskOnlyWhatIsOffered(t *testing.T) {
	offered := docLists(t, " offers:", " offer:")
	asked := map[string]map[string]bool{}
	for _, r := range rooms {
		asked[r.name] = map[string]bool{}
	}
	for _, u := range usesOfRooms(t) {
		from, to := rooms[u.from].name, rooms[u.to].name
		owner, method, ok := strings.Cut(u.what, ".")
		if !ok || u.field || to == "turn" || from == "core" || from == "view" && owner != to {
			continue
		}
		if owner != to {
			method = u.what
		}
		if !slices.Contains(offered[to], method) {
			t.Errorf("%s of room %s asks %s of the %s, which the list in shardsvc/doc.go does not offer", u.file, from, method, to)
		}
		asked[to][method] = true
	}
	for to, methods := range offered {
		for _, m := range methods {
			if !asked[to][m] {
				t.Errorf("shardsvc/doc.go says that the %s offers %s, but no other room calls it", to, m)
			}
		}
	}
	if len(offered["ledger"]) == 0 || len(offered["group"]) == 0 {
		t.Errorf("no lists found: %v", offered)
	}
}

// docLists returns the words of each list in shardsvc/doc.go whose heading ends with one of ends, by the room
// that the heading names.
func docLists(t *testing.T, ends ...string) map[string][]string {
	doc, err := os.ReadFile("../../shardsvc/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	lists, room, in := map[string][]string{}, "", false
	for l := range strings.Lines(string(doc)) {
		l, ok := strings.CutPrefix(strings.TrimRight(l, "\n"), "//")
		if !ok {
			continue
		}
		if slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(l, end) }) {
			name, _ := strings.CutPrefix(l, " The ")
			room, _, _ = strings.Cut(name, " ")
			in = true
		} else if strings.HasPrefix(l, "\t") && in {
			lists[room] = append(lists[room], strings.Fields(l)...)
		} else if l != "" {
			in = false
		}
	}
	return lists
}

// roomUse is one use of a name of another room in a file.
type roomUse struct {
	from, to       int
	file, declared string
	what           string // Type.name, or name
	field, written bool   // the name is a field; the use assigns to it
}

// usage has the names that the files of the core use from each other.
type usage struct {
	uses     []roomUse
	assigned map[string]bool // the fields, as Type.name, to which a file assigns
}

func usesOfRooms(t *testing.T) []roomUse { return core(t).uses }

func core(t *testing.T) usage {
	u, err := readCore()
	if err != nil {
		t.Fatal(err)
	}
	return u
}

var readCore = sync.OnceValues(func() (usage, error) {
	roomOf := map[string]int{}
	for i, r := range rooms {
		for _, f := range strings.Fields(r.files) {
			roomOf[f+".go"] = i
		}
	}
	fset := token.NewFileSet()
	paths, err := filepath.Glob("../../shardsvc/*.go")
	if err != nil {
		return usage{}, err
	}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		if _, ok := roomOf[filepath.Base(path)]; !ok {
			return usage{}, fmt.Errorf("%s is in no room: add it to the list of rooms in this file", path)
		}
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return usage{}, err
		}
		files = append(files, f)
	}
	found, err := exports("../../shardsvc", ".")
	if err != nil {
		return usage{}, err
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	pkg, err := (&types.Config{Importer: importer.ForCompiler(fset, "gc", found)}).Check("github.com/headrace/headrace/shardsvc", fset, files, info)
	if err != nil {
		return usage{}, err
	}
	owner := map[types.Object]string{} // the type of each field and method
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
	written := map[*ast.Ident]bool{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.AssignStmt:
				for _, l := range x.Lhs {
					assigned(l, written)
				}
			case *ast.IncDecStmt:
				assigned(x.X, written)
			case *ast.CallExpr:
				if id, ok := x.Fun.(*ast.Ident); ok && (id.Name == "delete" || id.Name == "clear") {
					assigned(x.Args[0], written)
				}
			}
			return true
		})
	}
	seen, changed := map[roomUse]bool{}, map[string]bool{}
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
		if u.written = u.field && written[id]; u.written {
			changed[u.what] = true
		}
		if u.from != u.to {
			seen[u] = true
		}
	}
	uses := slices.SortedFunc(maps.Keys(seen), func(a, b roomUse) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.what, b.what))
	})
	return usage{uses, changed}, nil
})

// assigned marks the field that an assignment, delete or clear changes.
func assigned(l ast.Expr, written map[*ast.Ident]bool) {
	switch x := l.(type) {
	case *ast.SelectorExpr:
		written[x.Sel] = true
	case *ast.IndexExpr:
		assigned(x.X, written)
	}
}

// exports finds the compiler's export data of the packages that match patterns in dir, and of all that
// they depend on.
func exports(dir string, patterns ...string) (func(path string) (io.ReadCloser, error), error) {
	list := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}"}, patterns...)...)
	list.Dir = dir
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	at := map[string]string{}
	for l := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(l), "=")
		at[path] = file
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(at[path]) }, nil
}

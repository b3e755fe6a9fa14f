package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Each function takes and releases its locks itself. If a function releases a lock of its caller, a reader
// of the caller cannot see that what it has read under the lock may have changed.
func TestEachFunctionTakesAndReleasesItsLocks(t *testing.T) {
	const root = "../.."
	seen := 0
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if rel, _ := filepath.Rel(root, name); d.IsDir() && slices.Contains([]string{"build", ".git", ".venv", ".tools"}, rel) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		found, wrong := oddLocks(fset, f)
		seen += found
		for _, w := range wrong {
			t.Error(w)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 500 {
		t.Fatalf("only %d calls of Lock were found", seen)
	}
}

func TestALockOfTheCallerIsFound(t *testing.T) {
	const text = `package p
func (s *S) fine() { s.mu.Lock(); defer s.mu.Unlock(); s.other.RLock(); func() { s.other.RUnlock() }() }
func (s *S) releases() { s.mu.Unlock(); s.wait(); s.mu.Lock() }
func (s *S) keeps() { s.mu.Lock() }
`
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "p.go", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"p.go:3: releases unlocks s.mu, which it has not locked", "p.go:4: keeps locks s.mu and does not unlock it"}
	if _, wrong := oddLocks(fset, f); !slices.Equal(wrong, want) {
		t.Errorf("found %q, want %q", wrong, want)
	}
}

// oddLocks counts the calls of Lock in a file, and names the functions that release a lock before they
// have taken it, or never.
func oddLocks(fset *token.FileSet, f *ast.File) (seen int, wrong []string) {
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		at := func(what string) {
			p := fset.Position(fn.Pos())
			wrong = append(wrong, fmt.Sprintf("%s:%d: %s %s", p.Filename, p.Line, fn.Name.Name, what))
		}
		var locked []string
		released := map[string]bool{}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) > 0 {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			lock := types.ExprString(sel.X)
			switch sel.Sel.Name {
			case "Lock", "RLock", "TryLock":
				seen++
				locked = append(locked, lock)
			case "Unlock", "RUnlock":
				if !slices.Contains(locked, lock) && !released[lock] {
					at("unlocks " + lock + ", which it has not locked")
				}
				released[lock] = true
			}
			return true
		})
		for _, lock := range slices.Compact(locked) {
			if !released[lock] {
				at("locks " + lock + " and does not unlock it")
			}
		}
	}
	return seen, wrong
}

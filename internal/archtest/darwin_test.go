package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The command is also for macOS, and nobody builds it there before a release. A build for another
// system compiles the standard library and each dependency once more, which takes minutes of CPU
// where nothing is cached. So the types are checked here, and of dependencies only the declarations.
func TestTheCommandHasTheTypesOfMacOS(t *testing.T) {
	list := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Module,Standard", "./cmd/headrace")
	list.Dir = filepath.Join("..", "..")
	list.Env = append(os.Environ(), "GOOS=darwin", "GOARCH=arm64", "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]*types.Package{"unsafe": types.Unsafe}
	files, ours := token.NewFileSet(), 0
	for dec := json.NewDecoder(bytes.NewReader(out)); ; { // a package stands behind all that it imports
		var p struct {
			ImportPath, Dir string
			GoFiles         []string
			ImportMap       map[string]string
			Module          *struct{ Main bool }
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if p.ImportPath == "unsafe" {
			continue
		}
		own := p.Module != nil && p.Module.Main
		var parsed []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			parsed = append(parsed, f)
		}
		conf := types.Config{
			IgnoreFuncBodies: !own,
			Sizes:            types.SizesFor("gc", "arm64"),
			Importer: importing(func(path string) (*types.Package, error) {
				if to := p.ImportMap[path]; to != "" {
					path = to
				}
				if known[path] == nil {
					return nil, errors.New("go list does not name it")
				}
				return known[path], nil
			}),
			Error: func(err error) {
				if own {
					t.Error(err)
				}
			},
		}
		known[p.ImportPath], _ = conf.Check(p.ImportPath, files, parsed, nil)
		if own {
			ours++
		}
	}
	if ours < 40 || !strings.Contains(string(out), "node_other.go") || strings.Contains(string(out), "node_linux.go") {
		t.Errorf("go list gave %d packages of the module, want those of macOS", ours)
	}
}

type importing func(path string) (*types.Package, error)

func (i importing) Import(path string) (*types.Package, error) { return i(path) }

//go:build !planted

package planted_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/headrace/headrace/internal/proof/planted"
)

// A program that is built as ever has no symbol of this package in it, and no name
// of any bug.
func TestAReleaseHoldsNothingOfTheBugs(t *testing.T) {
	if planted.On {
		t.Fatal("this is not a build without bugs")
	}
	exe := filepath.Join(t.TempDir(), "headrace")
	if out, err := exec.Command("go", "build", "-trimpath", "-o", exe, "../../../cmd/headrace").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	symbols, err := exec.Command("go", "tool", "nm", exe).Output()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(symbols, []byte("headrace/shardsvc.(*Core).Step")) {
		t.Fatal("the list of symbols has not even those that are surely there")
	}
	if bytes.Contains(symbols, []byte("internal/proof/planted")) {
		t.Error("there is a symbol of internal/proof/planted")
	}
	program, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range planted.Names {
		if bytes.Contains(program, []byte(name)) {
			t.Errorf("the program has the text %q", name)
		}
	}
}

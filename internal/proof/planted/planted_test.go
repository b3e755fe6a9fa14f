package planted

import (
	"os/exec"
	"strings"
	"testing"
)

func TestAnEditThatDoesNotFitIsNamed(t *testing.T) {
	const source = "package x\n\nfunc f() int {\n\treturn 1\n}\n\nfunc g() int {\n\treturn 1\n}\n"
	edit := func(before, after string) Edit { return Edit{"x.go", before, after, "wrong", "bugs/wrong.txt"} }
	for _, c := range []struct {
		name, err string
		edits     []Edit
	}{
		{"not there", "0 times in x.go", []Edit{edit("\treturn 2\n", "")}},
		{"twice there", "2 times in x.go", []Edit{edit("\treturn 1\n", "")}},
		{"two of the same lines", "the same lines", []Edit{edit("func f() int {\n\treturn 1\n", "func f() int {\n"), edit("func f() int {\n", "")}},
		{"no Go", "is not Go", []Edit{edit("func f() int {\n", "func f( int {\n")}},
	} {
		if _, err := patch("x.go", source, c.edits); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v; want %q", c.name, err, c.err)
		}
	}
	got, err := patch("x.go", source, []Edit{edit("func f() int {\n", "func f() int {\n\tif PLANTED {\n\t\treturn 2\n\t}\n")})
	want := "package x" + imports + "\n\nfunc f() int {\n\tif planted.Is(\"wrong\") {\n\t\treturn 2\n\t}\n\treturn 1\n}\n\nfunc g() int {\n\treturn 1\n}\n"
	if err != nil || got != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
}

// The program that users run has nothing of the bugs in it.
func TestAReleaseHoldsNothingOfTheBugs(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "../../../cmd/headrace").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), "headrace/headrace/shardsvc\n") {
		t.Fatal("the list of cmd/headrace's packages lacks packages that it certainly imports")
	}
	if strings.Contains(string(out), "internal/proof/planted") {
		t.Error("cmd/headrace imports internal/proof/planted, want no planted bug in the program")
	}
}

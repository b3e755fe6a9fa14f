package planted

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Bug is a fault that can be put into the program.
type Bug struct {
	Name  string
	What  string // what goes wrong, in a sentence
	Edits []Edit
}

// Edit turns one text of a source file into another.
type Edit struct {
	File      string // from the root of the repository
	Old, New  string // whole lines
	bug, from string // the bug's name and file, for messages
}

//go:embed bugs/*.txt
var files embed.FS

// Bugs lists all planted bugs, by name.
func Bugs() ([]Bug, error) {
	entries, err := files.ReadDir("bugs")
	if err != nil {
		return nil, err
	}
	all := make([]Bug, 0, len(entries))
	for _, e := range entries {
		text, err := files.ReadFile("bugs/" + e.Name())
		if err != nil {
			return nil, err
		}
		b, err := parse("bugs/"+e.Name(), string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

// Always changes the bug so that it is always on: for a program with this one bug and no Choose.
func (b Bug) Always() Bug {
	edits := slices.Clone(b.Edits)
	for i := range edits {
		edits[i].New = strings.ReplaceAll(edits[i].New, "PLANTED", "true")
	}
	b.Edits = edits
	return b
}

// parse reads a bug's file: a sentence, then its edits, each as
//
//	--- FILE
//	old lines
//	+++
//	new lines
//
// with an empty line before each edit.
func parse(from, text string) (Bug, error) {
	b := Bug{Name: strings.ReplaceAll(strings.TrimSuffix(path.Base(from), ".txt"), "_", " ")}
	parts := strings.Split(text, "\n--- ")
	b.What = strings.TrimSpace(parts[0])
	if b.What == "" || strings.Contains(b.What, "\n") {
		return Bug{}, fmt.Errorf("%s: it must begin with one line that says what goes wrong", from)
	}
	for i, part := range parts[1:] {
		file, rest, _ := strings.Cut(part, "\n")
		before, after, ok := strings.Cut(rest, "\n+++\n")
		if !ok || file == "" || before == "" {
			return Bug{}, fmt.Errorf("%s, edit %d: it must have the form --- FILE, old lines, +++, new lines", from, i+1)
		}
		b.Edits = append(b.Edits, Edit{file, before + "\n", strings.TrimRight(after, "\n") + "\n", b.Name, from})
	}
	if len(b.Edits) == 0 {
		return Bug{}, fmt.Errorf("%s: it must have an edit after its first line", from)
	}
	return b, nil
}

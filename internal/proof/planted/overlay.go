package planted

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const imports = `; import "github.com/headrace/headrace/internal/proof/planted"`

// Patched gives the source files that the bugs change, with all bugs in them. root is the root of the
// repository. The error names every edit whose text is not exactly once in today's source.
func Patched(root string, bugs []Bug) (map[string]string, error) {
	edits := map[string][]Edit{}
	var names []string
	for _, b := range bugs {
		for _, e := range b.Edits {
			if edits[e.File] == nil {
				names = append(names, e.File)
			}
			edits[e.File] = append(edits[e.File], e)
		}
	}
	out := make(map[string]string, len(names))
	var errs []error
	for _, name := range names {
		source, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			errs = append(errs, fmt.Errorf("internal/proof/planted/%s: %w", edits[name][0].from, err))
			continue
		}
		text, err := patch(name, string(source), edits[name])
		if err != nil {
			errs = append(errs, err)
		}
		out[name] = text
	}
	return out, errors.Join(errs...)
}

func patch(name, source string, edits []Edit) (string, error) {
	at := func(e Edit) int { return strings.Index(source, e.Old) }
	var errs []error
	for _, e := range edits {
		if n := strings.Count(source, e.Old); n != 1 {
			errs = append(errs, fmt.Errorf("internal/proof/planted/%s: its text is %d times in %s and must be there exactly once:\n%s", e.from, n, name, e.Old))
		}
	}
	if len(errs) > 0 {
		return "", errors.Join(errs...)
	}
	slices.SortFunc(edits, func(a, b Edit) int { return cmp.Compare(at(a), at(b)) })
	var b strings.Builder
	done, uses := 0, false
	for i, e := range edits {
		if at(e) < done {
			return "", fmt.Errorf("internal/proof/planted/%s and %s change the same lines of %s", edits[i-1].from, e.from, name)
		}
		b.WriteString(source[done:at(e)])
		b.WriteString(strings.ReplaceAll(e.New, "PLANTED", fmt.Sprintf("planted.Is(%q)", e.bug)))
		done = at(e) + len(e.Old)
		uses = uses || strings.Contains(e.New, "PLANTED")
	}
	b.WriteString(source[done:])
	text := b.String()
	if uses { // on the line of the package clause, so that line numbers do not change
		i := strings.Index("\n"+text, "\npackage ")
		end := i + strings.IndexByte(text[i:], '\n')
		text = text[:end] + imports + text[end:]
	}
	if _, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution); err != nil {
		return "", fmt.Errorf("%s is not Go with its planted bugs in it: %w", name, err)
	}
	return text, nil
}

// Overlay writes the patched files to dir, and overlay.json for the flag -overlay of the go command.
// root is the root of the repository; the working folder does not matter.
func Overlay(root, dir string, bugs []Bug) error {
	patched, err := Patched(root, bugs)
	if err != nil {
		return err
	}
	var overlay struct{ Replace map[string]string }
	overlay.Replace = make(map[string]string, len(patched))
	for name, text := range patched {
		from, err1 := filepath.Abs(filepath.Join(root, name))
		to, err2 := filepath.Abs(filepath.Join(dir, name+".txt")) // not .go, or the go command would see a package here
		if err := errors.Join(err1, err2, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, []byte(text), 0o644)); err != nil {
			return err
		}
		overlay.Replace[from] = to
	}
	text, err := json.MarshalIndent(overlay, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o644)
}

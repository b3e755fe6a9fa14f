package files

import (
	"path"
	"strings"

	"github.com/headrace/headrace/internal/dataset"
)

// DeletesBy implements dataset.Deleter.
func (f *Spec) DeletesBy() string { return Kind.Name + ".retain" }

// DeletesOf reports whether files.retain may delete files that another dataset reads. It
// compares roots and paths only, so it does not notice that two names are one folder.
func (f *Spec) DeletesOf(other dataset.Part) bool {
	o, is := other.(*Spec)
	if !is || f.Retain == 0 || !f.live() {
		return false
	}
	for _, a := range f.Paths {
		for _, b := range o.Paths {
			if mayMeet(f.Root, a, o.Root, b) {
				return true
			}
		}
	}
	return false
}

// mayMeet reports whether two patterns below their roots may match one file.
func mayMeet(rootA, a, rootB, b string) bool {
	if x, y := ending(a), ending(b); x != "" && y != "" && !strings.HasSuffix(x, y) && !strings.HasSuffix(y, x) &&
		!mayHold(rootA, a, rootB, b) && !mayHold(rootB, b, rootA, a) {
		return false // *.csv and *.parquet
	}
	return mayMatch(rootA, a, begins(rootB, b)) || mayMatch(rootB, b, begins(rootA, a))
}

// mayHold reports whether a pattern matches folders in which another one names files, by the
// ending of the folder: *.csv and *.csv/*.gz. All that lies in such a folder is read.
func mayHold(rootA, a, rootB, b string) bool {
	folder, file := strings.Split(path.Join(rootA, a), "/"), strings.Split(path.Join(rootB, b), "/")
	last := len(folder) - 1
	return last < len(file)-1 && !strings.Contains(a+b, "**") && strings.HasSuffix(file[last], ending(folder[last]))
}

// begins returns the text with which all names that a pattern matches begin, root included.
func begins(root, pattern string) string {
	if pattern = path.Clean(pattern); pattern == "." {
		return path.Clean(root)
	}
	return strings.TrimSuffix(path.Clean(root), "/") + "/" + literal(pattern)
}

// mayMatch reports whether names that begin with text may be among those of a pattern.
func mayMatch(root, pattern, text string) bool {
	first := begins(root, pattern)
	if strings.ContainsAny(pattern, `*?[\`) {
		return strings.HasPrefix(text, first)
	}
	return text == first || strings.HasPrefix(text, strings.TrimSuffix(first, "/")+"/")
}

// ending returns the end that all names that a pattern matches have, or "": .csv of **/*.csv.
func ending(pattern string) string {
	text := pattern[strings.LastIndexAny(pattern, `*?]\`)+1:]
	if text == pattern || !strings.HasPrefix(text, ".") || strings.Contains(text, "/") {
		return ""
	}
	return text
}

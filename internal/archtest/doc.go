// Package archtest has tests of the whole repository's structure. They check which of our
// packages a package may import (the table is in imports_test.go), the rooms of the core
// (shardsvc/doc.go), and the file maps in package comments. They also check names: no
// package is called "util", only its adapter names a kind of source, and no word is used
// that we have retired. Three more check code: the command has no type errors on macOS, a
// function releases only locks that it has taken, and a type that embeds a source hides
// nothing that is asked of it.
package archtest

// Package planted holds bugs that the simulation must find. A simulation that
// finds no bug may be blind; one that finds each of these is not.
//
// No production file has a line of any bug. Each bug is a file in bugs/: its name
// is the file's, its first line says what goes wrong, and its edits say which text
// of which source file becomes which other text. Overlay writes patched copies of
// those files, with all bugs in them, for the -overlay flag of go build and go
// test. One build holds them all, and PLANTED in an edit is true for the bug that
// Choose named.
//
// An edit names its place by text, not by a line number. That text must stand
// exactly once in its file. If you change such a file, internal/archtest fails and
// names the bug: take over the new text into the bug's file.
package planted

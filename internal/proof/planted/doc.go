// Package planted holds bugs that the simulation must find. A simulation that finds no bug may be unable
// to find any. This one must find each of these.
//
// No production file has a line of any bug. Each bug is a file in bugs/. The name of the bug is the
// name of the file. Its first line says what goes wrong. Its edits replace text in source files.
// Overlay writes patched copies of those files, with all bugs in them, for the flag -overlay of go
// build and go test. One build has all the bugs. In an edit, PLANTED is true if Choose has named the
// bug.
//
// An edit finds its place by text, not by line number. That text must be in its file exactly once. If
// you change such a text in a source file, internal/archtest fails and names the bug: copy the new
// text into the bug's file.
package planted

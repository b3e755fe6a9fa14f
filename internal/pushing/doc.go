// Package pushing holds what `headrace push` decides: how lines of text become transactions,
// which of them are visible already, and when a user is told why nothing goes on. cmd/headrace
// has the flags, opens files and connections, and prints.
//
//	lines.go    an input as lines
//	upload.go   lines as transactions
//	waits.go    what is told while a master does not take records
package pushing

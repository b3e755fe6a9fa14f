// Package deadletter is the form of bad records outside the ledger: one JSON object each,
// in a file of a folder or as the value of a record in a topic (docs/BAD-RECORDS.md). The
// master writes them; `headrace deadletter` reads them.
//
//	letter.go   the JSON object
//	files.go    letters in a folder
//	choose.go   which letters a verb means
//	replay.go   letters as records of another dataset
//	show.go     letters for people
package deadletter

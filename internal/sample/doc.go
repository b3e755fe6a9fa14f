// Package sample reads records of a dataset in this process, to look at them: it takes no
// lease and asks no master. `headrace peek` shows the first rows; `headrace check` counts
// what cannot be decoded. cmd/headrace says how a source is opened.
//
//	reader.go  all records of a dataset, in order
//	rows.go    the first rows, decoded
//	raw.go     the first records, before anything is decoded
//	value.go   one decoded value, for a cell or for JSON
//	check.go   numbers of errors by field
//	seam.go    where a backfill ends and its live source begins
//	try.go     whether a source has what its spec says, without reading it
package sample

// Package sources defines what a source is: a place where records live. It has the types that
// say where a record is (Position, Range, Segment), and the interfaces that an adapter
// implements. It imports only the standard library.
//
// Adapters live one folder each below it; only cmd/headrace and tests import
// them. Every adapter passes the conformance suite in sourcetest.
//
//	sources.go   Source, Cursor, Batch, and where records are
//	columns.go   records that are rows of columns
//	kind.go      what a kind of source can do
//	first.go     the first segments of many partitions
//	keeper.go    how far a record is from being deleted at its source
//	errors.go    kinds of errors
package sources

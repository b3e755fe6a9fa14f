// Package landing reads records that were pushed to the master. A partition is a run of
// sealed segments, and each segment is one chunk of a transaction; an offset is a record's
// number in its chunk. The master appends segments as transactions are committed, so
// nothing is listed here: the package opens locators.
//
// Agents get chunks from the folder of the master on the same machine, or from the master.
//
//	spec.go    the part of a dataset's spec
//	source.go  partitions, and the chunks that were read last
//	cursor.go  one range
//	keeps.go   which chunks are deleted, for the master's guard
package landing

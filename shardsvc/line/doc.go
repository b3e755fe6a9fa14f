// Package line is the geometry of the input: where records lie, in numbers only.
//
// A pass reads its records along a line of int64 units, which begins at 0. Unshuffled, the
// line is the segments of a partition laid end to end: with segments [100, 150) and
// [0, 30), position 60 of the line is offset 10 of the second segment. Shuffled, it is the
// permuted blocks. Positions of the line are kept in memory only. The store and messages
// have places in order space, (segment, offset), which stay valid when segments are
// dropped.
//
// The package has plain values only, and knows no lease, no trainer and no cut. The package
// imports sources and the standard library.
//
//	segments.go  the table of a partition's segments, and how its end moves
//	line.go      one pass over a table: positions to places and back
//	shuffle.go   the permutation of blocks, and the short blocks in it
//	rangemap.go  sorted disjoint ranges with a value; settled sets
//	queue.go     a FIFO that keeps its memory
package line

// Command decode is the Go part of bench-decode; bench.py drives it.
//
//	decode generate -format tsv -records 400000 -seed 1 FILE
//	decode read -format tsv -rows 1024 FILE
//
// generate writes records of a label, 13 numbers (one in ten absent) and 26
// categories of 8 hex digits: Criteo's layout. read is the decoding alone, file
// to frames on one core, without master, agent, socket or trainer.
//
//	main.go      the two verbs
//	generate.go  the records
package main

// Command decode is the Go part of bench-decode. bench.py runs it.
//
//	decode generate -format tsv -records 400000 -seed 1 FILE
//	decode read -format tsv -rows 1024 FILE
//
// generate writes records in Criteo's layout: a label, 13 numbers (one in ten is missing) and 26
// categories of 8 hex digits. read only decodes, from file to frames on one core, without master,
// agent, socket and trainer.
//
//	main.go      the two verbs
//	generate.go  the records
package main

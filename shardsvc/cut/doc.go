// Package cut is the one definition of a cut: the records that are in the model at
// a step. It has the types, the one validator, the binary form that the core
// stores, the JSON form that manifests and messages carry, and the set operations.
//
// A cut says for each partition which passes are settled wholly, and for each later
// pass a low mark and the settled ranges above it. Example: of pass 1 everything
// below offset 250 is settled, and [300, 460) and [1000, 1200) besides. A cut also
// lists the segments that its positions refer to, so that it can be restored on a
// master that has lost its state.
//
// Positions are in order space (docs/ARCHITECTURE.md). Without shuffle these are
// the source's own segments and offsets. With shuffle there is one segment, 0, with
// the permuted blocks one after another.
//
// The package is pure: no I/O, no clock. It imports sources and the standard
// library. All code that handles checkpoints uses it: the core, the master, agents,
// flashckpt, the command line and the proof tools. A cut may come from a file that
// anybody wrote: Decode and ParseJSON return only cuts that the validator accepts.
//
//	cut.go       Cut, Dataset, Partition, Pass, Range: the types
//	count.go     Units and Tally: how much is settled, and how many records that is
//	virtual.go   virtual ranks of a bit_exact dataset
//	validate.go  what must hold in every cut; validate_pass.go in a pass
//	error.go     Error, and its three kinds
//	binary.go    the form that the core stores; reader.go its numbers and texts
//	json.go      the form in manifests and messages; json_ranges.go its lists
//	set.go       sets of pieces: has, minus, units
package cut

// Package ckpt holds the decisions of `headrace ckpt`, `headrace audit` and `headrace
// rewind`: which checkpoints a path means, what is in their models, which of them may be
// removed, and what going back to one does. It reads checkpoints itself and needs no
// master. Where one was asked, a Ledger holds what it keeps. cmd/headrace has the flags,
// asks the user, and prints.
//
//	find.go     paths to checkpoints
//	ledger.go   what a master's ledger says of checkpoints
//	list.go     the checkpoints of a folder
//	memory.go   those in the memory of this node
//	show.go     one checkpoint: its files and what is in its model
//	verify.go   files compared with their manifests
//	needs.go    the same for the checkpoints that one needs: the bases of deltas
//	choose.go   which checkpoints a removal means, and which of them stay
//	remove.go   the removal: ledger first, then the manifest, then the data
//	rewind.go   going back to a checkpoint
//	rewound.go  what going back did, or would do
//	audit.go    which records are in a model
//	contains.go whether one record is in a model
//	held.go     whether a source holds a record at a position
//	diff.go     what one model has and another has not
//
// Folder ckpttest writes checkpoints for tests.
package ckpt

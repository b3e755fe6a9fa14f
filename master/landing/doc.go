// Package landing is the master's side of pushed records. It stores chunks as they are
// staged, and makes a transaction visible by one call of the shard service. It keeps no
// state of what is staged: a commit names its chunks, and their keys say for which
// transaction they were staged and when.
//
// Why a commit is no listing: discovery polls, and after a crash it could not tell which
// chunks of a transaction it had appended already. serve.Land appends all segments and
// remembers the transaction in one commit of the store.
//
//	landing.go   the service and what it knows of datasets
//	stage.go     chunks come in, up to the limit of bytes
//	commit.go    a transaction becomes visible; the end
//	land.go      the last chunks and the commit in one call
//	notes.go     what is visible is noted in the bucket, for a master that loses its state
//	visible.go   which chunks are visible, for looking at records
//	clean.go     when what nothing needs is deleted; staged chunks, and deleted datasets
//	settled.go   chunks that are trained on are deleted
//	delete.go    how a chunk is deleted beside commits
//	chunks.go    chunks for readers of the same machine
//	calls.go     gRPC
//	pages.go     HTTP
package landing

// Package shardsvc is the heart of Headrace: a pure core that plans, leases and
// settles records. It does no I/O, has no clock and starts no goroutine: the
// shell (shardsvc/serve) loads it from the store, tells it what happened and
// when (Step), has it encode what became durable (Flush), commits that, and
// only then sends the replies. It imports sources and the standard library.
//
// The state of a (partition, pass) lives in order space, kept as one line of
// int64 units: segments laid end to end, or the permuted blocks of a shuffled
// pass. On that line every planned unit is in exactly one of pending, leased
// and settled; CheckInvariants proves it after every Step in tests.
//
//	event.go       what can happen
//	effects.go     what comes out: puts, replies, reports
//	core.go        Core, Config, Step and its dispatch
//	query.go       read-only views for tools and metrics (query_serve.go: segments)
//	load.go        from stored pairs back to a core; start of a term
//	keys.go        the durable keys
//	values.go      the durable values, each versioned by its first byte
//	flush.go       dirty state to puts, once per batch
//	rangemap.go    sorted disjoint ranges with a value; settled sets
//	queue.go       a FIFO that keeps its memory
//	shuffle.go     the permutation of blocks
//	dataset.go     datasets, their partitions, segments and heads
//	partition.go   the line of a partition, its passes, folding
//	carve.go       what to grant next, and how much
//	lease.go       leases
//	token.go       their tokens; what is kept of closed ones
//	ack.go         acks and what they settle; steps
//	giveback.go    rows that come back: loss, release, failure, tries
//	request.go     lease requests, waiting, standings
//	steal.go       whose tail to ask for
//	session.go     agents and their sessions; recovery of a new term
//	held.go        leases that are asserted again
//	worker.go      trainer processes: joins, leaves
//	generation.go  what a new process of a rank means, per model kind
//	clock.go       deadlines: sessions, stalls, steal scans
//	invariant.go   the inequality and the exactly-one-of check
package shardsvc

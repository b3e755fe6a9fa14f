// Package shardsvc is the heart of Headrace: a pure core that plans, leases and
// settles records. It does no I/O, has no clock and starts no goroutine: the
// shell (shardsvc/serve) loads it from the store, tells it what happened and
// when (Step), has it encode what became durable (Flush), commits that, and
// only then sends the replies. It imports sources, shardsvc/line (ranges, geometry, shuffle) and the standard library.
//
// The state of a (partition, pass) lives in order space, kept as one line of
// int64 units: segments laid end to end, or the permuted blocks of a shuffled
// pass. On that line every planned unit is in exactly one of pending, leased
// and settled; CheckInvariants proves it after every Step in tests.
//
//	event.go       what can happen
//	effects.go     what comes out: puts, replies, reports
//	event_cut.go   what can happen to cuts
//	core.go        Core, Config, Step and its dispatch
//	needed.go      from where on sources must keep their records
//	query.go       read-only views for tools and metrics (query_serve.go: segments)
//	query_cut.go   the same for cuts: what is kept, marks to commit and to hold
//	load.go        from stored pairs back to a core; start of a term
//	keys.go        the durable keys
//	values.go      the durable values, each versioned by its first byte
//	flush.go       dirty state to puts, once per batch
//	virtual.go     virtual ranks: one partition each, granted by itself (bit_exact)
//	dataset.go     datasets, their partitions and segments
//	head.go        ends of segments that grow; diverged
//	partition.go   the line of a partition, its passes, folding
//	carve.go       what to grant next, and how much
//	lease.go       leases
//	lead.go        leases that end ahead of head
//	token.go       their tokens; what is kept of closed ones
//	ack.go         acks and what they settle; steps
//	pieces.go      how acked pieces lie in the store, and which fold
//	tally.go       the records in what is settled
//	cut_state.go   where in its life a kept cut is; what a cut is, package cut says
//	kept.go        the cuts that are kept, and their lives
//	ask.go         who asks for a cut, and what it waits for
//	freeze.go      from settled sets and acks to a cut
//	lines.go       from a cut back to settled sets
//	yields.go      yields of all trainers, held for an exact cut of a shared model
//	bind.go        bind and drop: what is in a bound cut folds
//	restore.go     going back to a cut: calls, the choice, the phase
//	gate.go        who gets nothing before it restored
//	settle.go      private ranks that are gone: their frozen cuts, their acks
//	rewind.go      what going back does to the settled sets; a person who goes back
//	relay.go       settled sets of a pass, laid anew
//	adopt.go       cuts that only their manifest knows
//	giveback.go    rows that come back: loss, release, failure, tries
//	excluded.go    what the source has lost: settled, with a record that stays
//	request.go     lease requests, waiting, standings
//	steal.go       whose tail to ask for
//	session.go     agents and their sessions; recovery of a new term
//	held.go        leases that are asserted again
//	worker.go      trainer processes: joins, leaves
//	generation.go  what a new process of a rank means, per model kind
//	clock.go       deadlines: sessions, stalls, steal scans
//	invariant.go   the inequality and the exactly-one-of check
package shardsvc

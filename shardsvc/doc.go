// Package shardsvc is the heart of Headrace: a pure core that plans, leases and
// settles records. It does no I/O, has no clock and starts no goroutine: the
// shell (shardsvc/serve) loads it from the store, tells it what happened and
// when (Step), has it encode what became durable (Flush), commits that, and
// only then sends the replies. It imports sources, shardsvc/line (ranges,
// geometry, shuffle), shardsvc/cut (what a cut is) and the standard library.
//
// The core has rooms. Each owns its state and stands above those it uses. A room asks
// the one above it only through a small interface that it declares itself
// (aboveLedger, groupKind), and one below by the methods listed here. Only a room changes
// its own state. Tests in internal/archtest keep it so.
//
// turn: what all rooms share in a Step, and the forms of what goes in, out and to the
// store.
//
//	turn.go        the job's configuration, and where its life is
//	clock.go       deadlines
//	event.go       what can happen
//	event_cut.go   what can happen to cuts
//	event_round.go what ranks say of their rounds
//	options.go     what a dataset's options can be
//	effects.go     what comes out: puts, replies, reports
//	refusal.go     why a restore is refused
//	keys.go        the durable keys
//	values.go      the durable values, each versioned by its first byte: the job, its input, who is there
//	settled_values.go  those of what is settled, and by whom
//	cut_values.go  those of cuts
//	landing_values.go those of pushed transactions
//	value_bytes.go how they are written and read
//	cut_state.go   where in its life a kept cut is
//	stored.go      stored pairs, sorted by what they are
//
// The ledger: in whose hands each record is. The state of a (partition, pass) lives on
// one line of int64 units. On it every planned unit is in exactly one of pending,
// leased and settled; CheckInvariants proves it after every Step in tests.
//
//	ledger.go        the ledger, and what it asks of the rooms above
//	dataset.go       datasets, their partitions and segments
//	dataset_state.go where in its life a dataset is
//	landing.go       transactions that were pushed: their segments and their ids in one Step
//	partition.go     the passes of a partition, and their folding
//	virtual.go       virtual ranks: one partition each, granted by itself (bit_exact)
//	head.go          ends of segments that grow; diverged
//	holder.go        processes that may hold leases, and the accounts of ranks
//	resume.go        what a process that starts goes on from, as datasets say it
//	request.go       lease requests, and how they wait
//	standing.go      whether a request is granted rows now, or why not
//	parked.go        requests of processes that are given no rows yet
//	carve.go         what to grant next, and how much
//	lease.go         leases
//	lead.go          leases that end ahead of head
//	token.go         their tokens; what is kept of closed ones
//	held.go          leases that are asserted again
//	steal.go         whose tail to ask for
//	stall.go         how long a holder may make no progress
//	ack.go           acks and what they settle
//	pieces.go        how acked pieces lie in the store, and which fold
//	tally.go         the records in what is settled
//	giveback.go      rows that come back: loss, release, failure, tries
//	excluded.go      what the source has lost: settled, with a record that stays
//	members.go       from settled sets and acks to a cut
//	lines.go         from a cut back to settled sets
//	bound.go         what is in a bound cut folds
//	goback.go        from a cut to the settled sets of the job, or of one rank
//	again.go         what would be pending again
//	adopt.go         cuts that only their manifest knows
//	dirty.go         what the next Flush encodes
//	ledger_load.go   from stored pairs back to a ledger
//
// The ledger offers:
//
//	account admit adopt allOut anyAcked attach checkRecords closeStep comesAgain confirmed
//	dataset detach dirtyRank dismiss dropRequests end fit fitBody foldCut goBack goBackRank
//	goOn hasMoreThan kickAll linesOfBody linesOfFit markBound members moves newestLease park
//	partition recordsAgain rejected report reported resumeOf revokeLeases sameRun setStill
//	setTaking stalled standUnder standing succeed takeBack takeStepsDue taken unpark
//	withSegments
//
// The group: who is there.
//
//	group.go       the group
//	groupkind.go   what it asks of the model kind
//	session.go     agents and their sessions; recovery of a new term
//	worker.go      trainer processes: joins, leaves
//	made.go        which of two processes of a rank is the newer one
//	generation.go  one start of the whole group, and its end
//	steps.go       reported steps; processes that stall
//	series.go      rounds: what all ranks may yield
//
// The group offers:
//
//	drop endGeneration fence fenceRank olderThanAll rankOf refuseJoin refuseOlder replace setKind setTopStep
//	setWorldSize startGeneration
//
// Checkpoints: which records are in which model.
//
//	checkpoints.go  the room
//	kind.go         what differs between model kinds
//	shared.go       the model outlives its workers
//	replicated.go   all ranks have the same model
//	private.go      each rank has its own
//	past.go         what is known of ranks and processes
//	kept.go         the cuts that are kept, and their lives
//	ask.go          who asks for a cut, and what it waits for
//	freeze.go       a cut is made
//	pause.go        yields of all trainers, paused for an exact cut of a shared model
//	bind.go         bind and drop
//	removed.go      cuts that are being removed
//	resolve.go      private ranks that are gone: their frozen cuts, their acks
//	restore.go      going back to a cut: calls, the choice, the phase
//	doubt.go        whether others still train a shared model
//	gate.go         who gets nothing before it restored
//	rewind.go       a person goes back
//
// The checkpoints offer:
//
//	after kept linesOf newestBound ownLines rewindTarget whole
//
// The view: what others may know. It reads all rooms and changes nothing: a test keeps it
// from assigning to what is theirs.
//
//	ledger_view.go   datasets, partitions, passes and leases, for tools and metrics
//	ledger_marks.go  low marks
//	ledger_check.go  the ledger's invariants
//	group_view.go    agents and workers
//	query_serve.go   segments, for sources that are opened again
//	query_cut.go     kept cuts, marks to commit and to retain, the dry run of a rewind
//	needed.go        from where on sources must keep their records
//	gone.go          what a cut needs and the source has deleted
//
// The core itself: one door.
//
//	core.go       Core, Step and its dispatch
//	tick.go       what a deadline does
//	load.go       from stored pairs back to a core; start of a term
//	flush.go      what has changed, to puts, once per batch
//	invariant.go  the inequality and the exactly-one-of check
package shardsvc

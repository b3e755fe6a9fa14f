// Package shardsvc is the heart of Headrace: a pure core that plans, leases and
// settles records. It does no I/O, has no clock and starts no goroutine.
//
// The shell (shardsvc/serve) loads the core from the store, and tells it what happened
// and when (Step). It has the core encode what must become durable (Flush) and commits
// that. Only then it sends the replies. The core imports the standard library, sources and
// four packages below this one:
//
//	line     ranges, geometry, shuffle
//	cut      what a cut is
//	rounds   when a group trains its next round
//	gone     what a source has deleted of a cut's input
//
// The core has rooms. Each room owns its state and uses only the rooms below it. It calls
// the methods that are listed here: methods of the room, and of the values that the room
// hands out, such as an account or a holder. It asks the room above it only through a small
// interface that it declares itself (aboveLedger, aboveGroup, groupKind). No room changes a
// field of another one, and only the view reads such fields. The core itself, which hands the
// parts of a message to the rooms, may call any method, and all rooms share the turn. Tests in
// internal/archtest check this.
//
// Names that never change:
//
//	account.no agent.speaker holder.account rank.account rank.index worker.holder worker.rank
//
// They say which rank or process is meant, and any room may read them.
//
// The turn: the state that all rooms share in a Step, and the types of events, effects and
// stored values.
//
//	turn.go        the job's configuration, and how far its life has come
//	clock.go       deadlines
//	event.go       events
//	event_cut.go   events of cuts
//	event_round.go reports of rounds
//	input.go       the inputs of a dataset: its source, and its backfill
//	options.go     which options of a dataset are valid
//	effects.go     effects: puts, replies, reports
//	reclaimed.go   why leased rows are pending again
//	refusal.go     why a restore is refused
//	keys.go        the durable keys
//	values.go      the durable values, each versioned by its first byte: job, input, ranks, agents
//	settled_values.go  durable values of settled ranges
//	cut_values.go  durable values of cuts
//	landing_values.go  durable values of pushed transactions
//	value_bytes.go how the bytes of values are written and read
//	cut_state.go   the states of a kept cut
//	stored.go      stored pairs, sorted by kind
//
// The ledger: whether each record is pending, leased or settled, and who holds it. The
// state of a (partition, pass) lives on one line of int64 units. On it every planned unit
// is in exactly one of pending, leased and settled; CheckInvariants proves it after every
// Step in tests.
//
//	ledger.go        the ledger, and its questions to the rooms above
//	dataset.go       datasets, their partitions and segments
//	dataset_state.go the states of a dataset
//	leftover.go      removed datasets whose source still has something of them
//	landing.go       transactions that were pushed: their segments and their ids in one Step
//	trim.go          segments whose records are deleted leave the table
//	partition.go     the passes of a partition, and their folding
//	backfill.go      which input is granted first
//	virtual.go       virtual ranks: one partition each, granted by itself (bit_exact)
//	head.go          ends of segments that grow; diverged
//	holder.go        processes that may hold leases, and the accounts of ranks
//	resume.go        how a new process goes on, as datasets say it
//	request.go       lease requests, and how they wait
//	standing.go      whether a request is granted rows now, or why not
//	parked.go        requests of processes that are given no rows yet
//	carve.go         which range to grant next, and how much of it
//	lease.go         leases
//	lead.go          leases that end ahead of head
//	token.go         their tokens, also of closed leases
//	held.go          leases that are asserted again
//	steal.go         which holder to ask for a tail
//	level.go         the rows of a round, spread evenly over its ranks
//	stall.go         how long a holder may make no progress
//	ack.go           acks
//	pieces.go        how acked pieces lie in the store, and which fold
//	tally.go         how many records are settled
//	giveback.go      rows that come back: loss, release, failure, tries
//	listed.go        ranges that a partition lists: those that are excluded, or dropped
//	excluded.go      records that the source has lost: settled, and listed for ever
//	old.go           records that are older than a dataset wants: excluded, and listed
//	dropped.go       rows that fill no round: settled at a step, and listed
//	stopped.go       why a dataset stopped: every range that is known to be lost
//	bad.go           records that cannot be decoded: their limits, their dead letters
//	suspect.go       records that crash their trainers
//	members.go       from settled sets and acks to a cut
//	lines.go         from a cut back to settled sets
//	bound.go         acks that are in a bound cut fold
//	goback.go        from a cut to the settled sets of the job, or of one rank
//	again.go         which records would be pending again
//	adopt.go         cuts that this master does not keep: only their manifest has them
//	dirty.go         the changes that the next Flush encodes
//	ledger_load.go   from stored pairs back to a ledger
//
// The ledger offers:
//
//	account ackedBeside admit adopt allOut anyAcked asking attach bindDrops called
//	checkRecords closeStep comesAgain confirmed cutsDue dataset detach dirtyRank dismiss
//	dropRequests dropRest end find fit fitBody foldCut goBack goBackRank goOn hasMoreThan
//	kickAll lastStepIn leasesOf level linesOfBody linesOfFit markBound members moves
//	newestLease noneLeft park partition recordsAgain rejected replyTo report reported
//	resumeOf revokeLeases sameRun setStill setTaking stalled standUnder standing succeed
//	suspect takeBack takeStepsDue taken unpark virtualRanks withSegments
//	account.hasReported account.lastStep account.newestProcess account.toldEnd
//	holder.calledBy holder.gone holder.hasAcked holder.holds holder.isDetached
//	holder.isEnding holder.isRunning holder.process holder.session
//
// The group: which agents and processes are there.
//
//	group.go       the group
//	groupkind.go   its questions to the room above, and to the model kind
//	session.go     agents and their sessions; recovery of a new term
//	worker.go      trainer processes: joins, leaves
//	followers.go   which of several processes has failed first
//	reclaim.go     a person takes back what a process holds
//	made.go        which of two processes of a rank is the newer one
//	generation.go  one start of the whole group, and its end
//	steps.go       reported steps; processes that stall
//	series.go      rounds: how far all ranks may yield
//
// The group offers:
//
//	begunAnew caller drop dropsUnknown endGeneration everyRank fence fenceRank giveWay
//	hasProcess heardOf highestStep inRounds knownOr member olderThanAll processes rankOf reclaimable
//	refuseJoin refuseOlder replace setTopStep setWorldSize standUnder startGeneration tell
//	tellOf world
//	agent.process rank.joinedIn rank.newestIncarnation rank.value rank.worker
//	worker.agentName
//
// Checkpoints: which records are in which model.
//
//	checkpoints.go  the room
//	kind.go         what each model kind decides in its own way
//	shared.go       the model outlives its workers
//	replicated.go   all ranks have the same model
//	private.go      each rank has its own
//	past.go         the past of ranks and processes
//	kept.go         the cuts that are kept, and their lives
//	ask.go          calls about cuts; asks that wait until their cut is complete
//	freeze.go       a cut is made
//	pause.go        yields of all trainers, paused for an exact cut of a shared model
//	bind.go         bind and drop
//	removed.go      cuts that are being removed
//	resolve.go      private ranks that are gone: their frozen cuts, their acks
//	restore.go      going back to a cut: calls, the choice, the phase
//	doubt.go        whether others still train a shared model
//	gate.go         which processes get no rows before they have restored
//	rewind.go       a person goes back
//
// The checkpoints offer:
//
//	after kept linesOf newestBound overlaps ownLines ownerOf rewindTarget whole
//
// The view: answers for tools, metrics and sources. It reads all rooms and changes nothing;
// a test keeps it from assigning to their state.
//
//	ledger_view.go   datasets, partitions, passes and leases, for tools and metrics
//	ledger_marks.go  low marks
//	ledger_check.go  the ledger's invariants
//	group_view.go    agents and workers
//	imbalance.go     a rank that waits beside one that stands still
//	query_serve.go   segments, for sources that are opened again
//	query_reclaim.go the dry run of taking back
//	query_cut.go     kept cuts, marks to commit and to retain, the dry run of a rewind
//	needed.go        from where on sources must keep their records
//	trimmable.go     how far the table of segments may be trimmed
//	gone.go          what shardsvc/gone is told of partitions
//
// The core itself: one door.
//
//	core.go       Core, Step and its dispatch
//	tick.go       deadlines that have come
//	load.go       from stored pairs back to a core; start of a term
//	flush.go      changes to puts, once per batch
//	invariant.go  the inequality and the exactly-one-of check
package shardsvc

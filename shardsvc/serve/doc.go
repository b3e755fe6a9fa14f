// Package serve is the shell around the core of shardsvc. It gives the core time,
// durability and a network, and decides nothing about records.
//
// # Goroutines
//
//	agent --gRPC--> reader --.                                  .--> outbox --> sender --gRPC--> agent
//	agent --gRPC--> reader --+--> inbox --> loop --> committer --+--> outbox --> sender --gRPC--> agent
//	unary calls, discovery --'     ^  (core)   two    (fsync)    '--> waiting calls
//	                               |         buffers     |
//	                               '------- done --------'
//
// ONE loop owns the core. It drains its inbox into one of two buffers (the core's Effects)
// while ONE committer makes the other durable; then they swap. There is no timer: a batch
// is everything that arrived while the batch before it was synced. Nothing is sent before
// its batch is durable, grants included: the committer sends replies after Commit has
// returned.
//
// Each stream has a reader (wire to events), a sender (outbox to wire), and its
// gRPC handler, which waits for the stream's end and gives the reason. The outbox
// is bounded; a full one closes that stream (RESOURCE_EXHAUSTED) and no other. When
// MaxPending changes wait for the commit, the loop stops reading its inbox. The readers
// then stop reading, and gRPC's flow control holds the agents.
//
// Run starts loop and committer and ends with the first failure: a failed commit
// ends the process, and nothing of that batch is answered. Streams are started
// by gRPC and ended by Run.
//
// # Time
//
// The core's clock is the process's monotonic clock. Sessions expire only in a
// Tick, and the loop gives one only when it has drained its inbox after the
// deadline; time during which it could not read (a slow commit, a stopped
// process) is added to all deadlines.
//
// # File map
//
//	config.go      Config and defaults; errors
//	server.go      New, Register, Run, and how other goroutines get into the loop
//	loop.go        the loop
//	blocked.go     how long the loop could not read
//	committer.go   the committer: makes a batch durable, then sends its replies
//	stream.go      one agent's stream: handler, reader, sender
//	outbox.go      what waits to be sent to one agent
//	codec.go       a session's messages without generated code (shardsvc/wire)
//	inbound.go     one message on its way to the loop
//	discovery.go   what the master's discovery calls
//	landing.go     what the master's landing calls: pushed transactions
//	letters.go     dead letters: those that wait to be written, and reading written ones
//	apply.go       Datasets service: apply and its rules
//	datasets.go    Datasets service: everything else
//	release.go     what a deleted dataset has at its source is removed
//	cutcalls.go    answers with a cut
//	bodies.go      the JSON of a cut, made once
//	resolve.go     looks for checkpoints whose process is gone
//	bindings.go    when cuts were bound
//	checkpoints.go Checkpoints service
//	marks.go       what may be committed to brokers, and what must not be deleted
//	stored.go      how a dataset's spec is stored
//	views.go       the core's views to protos
//	status.go      errors with details
//	retention.go   how far unread records are from deletion, as the guard found it
//	silence.go     sources that do not answer the master
//	imbalance.go   ranks that wait for each other: one for rows, one for its peers
//	gone.go        what the sources have deleted, by dataset
//	reports.go     the core's reports to log and counters
//	metrics.go     counters, and what a scrape reads from the core
//	track.go       age of data and drain time
//	meter.go       looks at the counts once a second
package serve

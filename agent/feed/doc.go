// Package feed hands batches to trainers. It owns the trainers' socket, a
// control connection per process and a data connection per stream; it reads the
// leases that a stream was granted, decodes them into frames of whole batches,
// and watches the trainers' processes.
//
// It decides nothing about leases. Each event goes to the Desk, and the Desk's decisions
// come back through Apply. A frame leaves only after the Desk said Go to exactly its
// records, so a record is never both stolen and delivered.
//
// A stream has four goroutines, started in stream.start and ended with its
// connection: one takes credits off the socket, one reads the source, one
// decodes and cuts, one sends. The only lock that two of them share is
// stream.mu; the Desk is never called under it. Lock order: the Desk's, then
// Server.mu, then stream.mu, then alone.mu, then patience.mu.
//
//	server.go     the socket's life, accepting, Apply
//	socket.go     where to listen, who may connect
//	control.go    HELLO and what follows on a control connection
//	rest.go       the last messages of an ended process
//	stepfiles.go  steps of an ended process that no living process has heard of
//	trainer.go    one trainer process: messages to it, its end
//	calls.go      questions about cuts
//	persist.go    checkpoints in memory, to storage
//	stored.go     checkpoints in a bucket, for trainers
//	peers.go      checkpoints in the memory of other nodes, for trainers
//	resume.go     the batches that a returning trainer brings
//	fate.go       how a process ended, as its parent says
//	alone.go      records that may crash their trainer leave one by one
//	patience.go   how long such a record waits for the step of another
//	process.go    pidfds: exits noticed and numbered in their order, processes ended
//	data.go       ATTACH, CREDIT
//	stream.go     one stream: its leases, queue and credit
//	read.go       leases to runs of records
//	readings.go   which leases are read side by side
//	cut.go        records to rows of frames, in the order of the leases
//	seal.go       when a frame is large or old enough to leave
//	cutfail.go    records and leases that cannot be read
//	send.go       frames to the trainer, once the Desk says Go
//	names.go      which names of partitions and segments a connection was told
//	rounds.go     rounds of a synchronous group
//	lend.go       how a frame goes: in shared memory, or over the socket
//	regions.go    the shared memory of a data connection
//	order.go      positions: pieces of a grant, order space, batch ends
//	metrics.go    what it exports
//	fault.go      errors of sources and decoders, for master and trainer
package feed

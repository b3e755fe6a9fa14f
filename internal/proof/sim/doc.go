// Package sim runs whole jobs on one virtual clock: a master, agents, trainers, a disk, and the
// connections between them. One seed decides everything, and the simulation breaks all of them.
// shardsvc.Core and agent/hold.Core are the real ones. The code around them does what their shells do
// (shardsvc/serve, agent, agent/feed, the Python client), without gRPC, files, sockets and goroutines. A
// seed takes milliseconds and always goes the same way.
//
// After every Step the core checks itself (CheckInvariants, Check). The promises of the whole job are
// judged from the trainers' own journals, which know nothing of leases: each record is in the model once
// and in one trainer's hands at a time; the order is kept where it was asked for; the job ends in time
// after the last trouble; nothing that was answered is lost; nothing is left behind. docs/SIMULATION.md
// says how to read a trace.
//
//	sim.go        World: one run from its seed to its Result
//	plan.go       what a seed decides beforehand
//	trouble.go    what goes wrong; shrink.go: the fewest troubles with which a seed fails
//	clock.go      the queue of all planned events; chance
//	process.go    kill -9, SIGSTOP
//	link.go       connections: delay, order, breaks, partitions
//	disk.go       the master's store
//	input.go      the input, and the truth about it
//	crash.go      records that crash their trainer
//	lost.go       records that sources delete: excluded, listed in cuts, reported as gone
//	master.go     the shell of shardsvc: one loop, one committer, two buffers
//	push.go       an input that is pushed, by transactions
//	catchup.go    an input with a history; records that are too old
//	trim.go       pushed input: chunks that are deleted and trimmed
//	log.go        an input in a live source (memsource): producers and the broker
//	follow.go     the same: the master; read.go: the agents
//	discover.go   the master's discovery
//	wire.go       the bytes between agents and masters
//	agent.go      the shell of hold; seat.go, feed.go: its side of a trainer
//	stepfile.go   step files of a node: what an ended trainer of a shared model had stepped
//	trainer.go    a trainer's main thread
//	dropped.go    records that no full round has at the end are dropped
//	rounds.go     rounds of a group: all ranks get one, or none does
//	watchdog.go   a trainer's control thread and watchdog
//	exact.go      bit_exact: the batches of each step, known beforehand
//	launch.go     starts processes again: ranks, or whole groups
//	books.go      the journals and the verdict; left.go: what must not be left
//	call.go       questions of trainers about cuts; tool.go: calls of tools, which may be repeated
//	save.go       checkpoints: saved by one or all ranks, bound, removed
//	storage.go    the folder of checkpoints, and power loss
//	memory.go     checkpoints in the memory of a node
//	replicas.go   their replicas in the memory of another node
//	restore.go    going back to a checkpoint; cut.go: compares a cut with its model
//	records.go    event times; how many records a cut says it has
//	pause.go      exact saves of a shared model, while all yields are paused
//	marks.go      compares the marks that brokers are told with the checkpoints on storage
//	trace.go      one line for each event
//	cmd/          the program
package sim

// Package sim runs whole jobs on one virtual clock: a master, agents, trainers,
// a disk and the connections between them, as one seed decides, and breaks all
// of them. shardsvc.Core and agent/hold.Core are the real ones; what is around
// them here does what their shells do (shardsvc/serve, agent, agent/feed, the
// Python client), without gRPC, files, sockets and goroutines. A seed takes
// milliseconds and always goes the same way.
//
// After every Step the core that took it checks itself (CheckInvariants, Check).
// What the job as a whole promises is judged from the trainers' own journals,
// which know nothing of leases: each record in the model once, in one trainer's
// hands at a time, in order where that was asked for, an end in time after the
// last trouble, nothing that was answered lost, and nothing left behind.
// docs/SIMULATION.md says how to read a trace.
//
//	sim.go        World: one run from its seed to its Result
//	plan.go       what a seed decides beforehand
//	trouble.go    what goes wrong; shrink.go: the fewest of it with which a seed fails
//	clock.go      the queue of all that will happen; chance
//	process.go    kill -9, SIGSTOP
//	link.go       connections: delay, order, breaks, partitions
//	disk.go       the master's store
//	input.go      what there is to read, and the truth about it
//	crash.go      records that crash their trainer
//	lost.go       what sources delete: excluded, listed in cuts, told of what is gone
//	master.go     the shell of shardsvc: one loop, one committer, two buffers
//	push.go       an input that is pushed, by transactions
//	catchup.go    an input with a history; records that are too old
//	trim.go       of it, chunks that are deleted and trimmed
//	log.go        an input in a live source (memsource): the world's side
//	follow.go     of it, the master's side; read.go: the agents'
//	discover.go   the master's discovery
//	wire.go       the bytes between agents and masters
//	agent.go      the shell of hold; seat.go, feed.go: its side of a trainer
//	stepfile.go   what an ended trainer of a shared model had stepped: files of its node
//	trainer.go    a trainer: its main thread
//	dropped.go    what no full round has at the end is dropped
//	rounds.go     rounds of a group: all ranks get one, or none does
//	watchdog.go   its control thread and watchdog
//	exact.go      bit_exact: the batches of each step, known beforehand
//	launch.go     who starts processes again: ranks, or whole groups
//	books.go      the journals and the verdict; left.go: what may not be left
//	call.go       what trainers ask about cuts; tool.go: what tools ask, and may ask twice
//	save.go       checkpoints: saved by one or all ranks, bound, removed
//	storage.go    the folder they lie in, and power loss
//	memory.go     those in the memory of a node
//	replicas.go   their replicas in the memory of another one
//	restore.go    who goes back to one; cut.go: a cut against its model
//	records.go    event times; how many records a cut says it has
//	pause.go      exact saves of a shared model, while nobody yields
//	marks.go      what brokers are told, against the checkpoints on storage
//	trace.go      one line for all that happens
//	cmd/          the program
package sim

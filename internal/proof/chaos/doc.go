// Package chaos kills everything, many times, and looks for what was lost.
//
// It runs a whole job of real processes: a master, agents, trainers in Python. It
// ends and freezes them at moments that a seed determines, and starts them again.
// Then it compares what the trainers' own journals say with the truth about the
// input: no record is lost, none comes twice without a reason, order is kept where
// it was asked for, the job ends within the deadline, and nothing is left behind.
// It does not ask the ledger what is right, because it tests the ledger too.
//
// docs/CHAOS.md says how to run it and how to read what it says.
//
// Its trainers (trainer/) save checkpoints. Every checkpoint that was ever saved is compared with
// its own cut: each record that the cut names must be in the model exactly once. The generator knows
// where each record begins. At the end the models must hold all of the input. Processes are killed at
// random, and by traps in the trainers at named points of a batch and of a save. A trap kills the
// trainer, its agent, the master, or two of them at once:
//
//	yield      the trainer has a batch
//	apply      the batch is in the model, and not stepped
//	step       the batch is stepped; its acks and the report are on their way
//	acked      the trainer knows that the acks are durable
//	captured   a save has copied the state, and has not asked for its cut
//	frozen     the master has stored the cut; no file is written
//	files      the files are written and synced; part: a rank's part is
//	manifest   the manifest is written and not renamed
//	renamed    the checkpoint counts; the master does not know it
//	bound      the master knows it; the broker is told next
//	restored   the master has gone back, and nothing was granted since
//	paused     all trainers of a shared model wait, and the model is not copied yet
//	copying    half of the state is copied into memory
//	sealed     the checkpoint is complete in memory, and not on storage
//	persist    the checkpoint is being written from memory to storage
//
// The run also damages a rank's newest checkpoint; then the one before it must be restored. With
// --journal the trainers save nothing, and the journals alone say what is in the models.
//
//	chaos.go     Options, Run: one run from its seed to its Result
//	campaign.go  many runs, until enough processes are killed
//	choices.go   what a run tests, apart from its input
//	group.go     the same trouble for a plain consumer group, whose script is group.py
//	topic.go     the input in a topic
//	queue.go     the broker of a run, the judge's questions to it, its death; kafka.go, pulsar.go, rocketmq.go
//	landing.go   records that are pushed while they are read, by processes that die between their calls
//	end.go       waiting for the end of data, as long as something moves
//	tail.go      when a run without an end of its input is over
//	data.go      the input, and the truth about it
//	crew.go      the processes, and how each is started
//	keep.go      starts each process again that has ended
//	trouble.go   what happens to the processes, and when
//	lull.go      an agent that dies after a quiet time, so that no other trouble can excuse a repeat
//	people.go    what people do meanwhile: pin, go back, lose the master's disk
//	saving.go    what a run with checkpoints adds: settings, traps, the shared model's server
//	saved.go     compares every checkpoint with its cut
//	carried.go   cuts that a trainer keeps in a file of its own
//	memory.go    checkpoints in memory: nodes, how they are lost, what must survive
//	shared.go    with what a shared model began, and what an exact checkpoint of it may hold
//	rounds.go    compares the rounds of a group's ranks
//	drops.go     full rounds only: the records that no round has
//	exact.go     compares bit_exact steps with those of an undisturbed job
//	early.go     finds commits that told the broker too much
//	model.go     what a model must be for given records; reading a model's file
//	journal.go   reading what the trainers wrote down
//	oracle.go    judges the journals
//	books.go     asks the master
//	givenup.go   which trainers the master gave up; only their stepped batches may come again
//	left.go      looks for what a run must not leave behind
//	postmortem.go  the report of a run that hangs: leases, stacks, missing records
//	trainer/     the trainers, and the server of a shared model, in Python
//	cmd/         the program
package chaos

// Package chaos kills everything, many times, and looks for what was lost.
//
// It runs a whole job of real processes (a master, agents, trainers in Python),
// ends and freezes them at moments that a seed determines, starts them again,
// and then compares what the trainers' own journals say with the truth about the
// input: no record lost, none twice without a reason, order kept where it was
// asked for, an end within the deadline, and nothing left behind. It does not ask
// the ledger for its judgement; the ledger is judged too.
//
// docs/CHAOS.md says how to run it and how to read what it says.
//
// Its trainers (trainer/) save checkpoints. Every one that was ever saved is
// compared with its own cut: the records that the cut names, by the generator's
// list of where each begins, must be in the model, once. So must all of the input
// at the end. Processes are killed at random, and at named points of a batch and
// of a save by traps in the trainers. A trap kills the trainer, its agent, the
// master, or two of them at once:
//
//	yield      a batch is in the trainer's hands
//	apply      it is in the model, and not stepped
//	step       it is stepped; its acks and the report are under way
//	acked      the trainer knows that they are durable
//	captured   a save has copied the state; its cut is not asked for
//	frozen     the cut is stored at the master; no file is written
//	files      the files are written and synced; part: so is a rank's part
//	manifest   the manifest is written and not renamed
//	renamed    the checkpoint counts; the master does not know
//	bound      the master knows; the broker is about to be told
//	restored   the master has gone back, and nothing was granted since
//	paused     all trainers of a shared model wait, and it is not copied yet
//	copying    half of the state is copied into memory
//	sealed     it is whole in memory, and not on storage
//	persist    somewhere on its way from memory to storage
//
// A rank's newest checkpoint is damaged too: then the one before it is restored.
// With --journal the trainers save nothing: what is in the models is
// then judged by their journals alone.
//
//	chaos.go     Options, Run: one run from its seed to its Result
//	campaign.go  many of them, until so many kills are done
//	choices.go   what a run is about beside its input
//	group.go     the same for a plain consumer group, whose script is group.py
//	topic.go     the input in a topic
//	queue.go     a broker of its own, what the judge asks of it, and its death; kafka.go, pulsar.go, rocketmq.go
//	landing.go   records that are pushed while they are read, by processes that die between their calls
//	end.go       waiting for the end of data, as long as something moves
//	tail.go      when a run is over whose input has no end
//	data.go      what there is to read, and the truth about it
//	crew.go      the processes: who there is, how each is started again
//	port.go      where they listen
//	keep.go      whoever ends is started again
//	trouble.go   what happens to them, and when
//	lull.go      an agent that dies when all was quiet, so that no other trouble excuses what comes of it
//	people.go    what people do meanwhile: pin, go back, lose the master's disk
//	saving.go    what trainers have that save, and the traps in them
//	saved.go     every checkpoint, against its cut and the generator
//	carried.go   cuts that a trainer keeps in a file of its own
//	memory.go    checkpoints in memory: nodes, what is lost with them, what must not be
//	shared.go    what a shared model began with, and what an exact checkpoint of it may hold
//	rounds.go    rounds of a group, by the journals of all its ranks
//	drops.go     full rounds only: what of an input no round has
//	exact.go     bit_exact steps, against those of an undisturbed job
//	early.go     what the broker was told too early
//	model.go     what they train, by the generator and from a file
//	journal.go   what the trainers wrote down; the trainers write it
//	oracle.go    what that means
//	books.go     what the master says
//	givenup.go   which trainers the master has given up: only then may what they stepped come again
//	left.go      what may not be left behind
//	postmortem.go  what a run that does not end looks like: leases, stacks, who had what
//	trainer/     the trainers, and the server of a shared model, in Python
//	cmd/         the program
package chaos

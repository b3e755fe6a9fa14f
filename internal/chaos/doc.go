// Package chaos kills everything, many times, and looks for what was lost.
//
// It runs a whole job of real processes (a master, agents, trainers in Python),
// ends and freezes them at moments that a seed determines, starts them again,
// and then compares what the trainers' own journals say with the truth about the
// input: no record lost, none twice without a reason, order kept where it was
// asked for, an end within the deadline, and nothing left behind. It does not ask
// the ledger for its judgement; the ledger is judged too.
//
//	chaos.go     Options, Run: one run from its seed to its Result
//	data.go      what there is to read, and the truth about it
//	crew.go      the processes: who there is, how each is started again
//	process.go   one process: start, signal, wait
//	trouble.go   what happens to them, and when
//	journal.go   what the trainers wrote down; trainer.py writes it
//	oracle.go    what that means
//	books.go     what the master says
//	left.go      what may not be left behind
//	cmd/         the program
package chaos

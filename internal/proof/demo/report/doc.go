// Package report says what became of each record of the quick start's click
// log, from two things only: the truth that the generator wrote and the journals
// that the trainers kept. It imports nothing of the shard service, asks no
// master, and trusts no ledger; a test keeps it so.
//
// What is counted, and when. A trainer writes YIELDED when a batch is in its
// hands, BEGIN before it touches the model for it, APPLIED after its last change,
// STEPPED when stream.step() has returned; each entry is one write(2), so it
// outlives a SIGKILL of its process (not the host). Hence for a record in a batch
// of a journal:
//
//	APPLIED     it is in the model, for sure
//	BEGIN only  in doubt: the trainer died between the two, and some, all or
//	            nothing of the batch is in the model. At most one batch of each
//	            process.
//	neither     this process did not apply it
//
// and for a record of the log, always the worse reading of a doubt:
//
//	never   no process applied it for sure
//	twice   applied for sure, and again for sure or in doubt
//	once    applied for sure by one, and in doubt by none
//
// The three add up to the number of records. A position that is not the
// beginning of a record, or values that are not those written there, count as
// foreign: the report is then not clean whatever the other figures say.
//
//	entry.go     the bytes of a journal, read as they are written
//	journal.go   one process's journal, resolved to record numbers
//	count.go     once, twice, never; why twice
//	quality.go   progressive log loss and AUC
//	makespan.go  time against the ideal
//	fresh.go     from produced to learned, for a topic
//	group.go     what a plain consumer group made of the same records
//	report.go    all of it, as JSON; print.go as text
//
// The program in clickreport computes the same from a kept folder.
package report

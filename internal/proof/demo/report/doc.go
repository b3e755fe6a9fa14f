// Package report says what became of each record of the quick start's click log. It uses only two inputs:
// the truth that the generator wrote, and the journals that the trainers wrote. It imports nothing of
// the shard service, asks no master, and uses no ledger; a test checks this.
//
// This is how records are counted. A trainer writes YIELDED when it gets a batch, BEGIN before it first
// changes the model for it, APPLIED after its last change, and STEPPED when stream.step() has
// returned. Each entry is one write(2), so it survives a SIGKILL of the process (not the death of the
// host). For a record in a batch of one journal:
//
//	APPLIED     it is certainly in the model
//	BEGIN only  in doubt: the trainer died between the two entries, and some, all or
//	            none of the batch is in the model; at most one batch of each process
//	neither     this process did not apply it
//
// For a record of the log, a doubt always counts against us:
//
//	never   no process has certainly applied it
//	twice   certainly applied, and applied again, certainly or in doubt
//	once    certainly applied by one process, and in doubt in none
//
// The three add up to the number of records. A row whose position is not the beginning of a record, or
// whose values are not those written there, counts as foreign. Then the report is not clean, whatever
// the other figures say.
//
//	entry.go     the bytes of a journal, also while it is being written
//	journal.go   one process's journal, with rows turned into record numbers
//	count.go     once, twice, never; why twice
//	quality.go   progressive log loss and AUC
//	makespan.go  time, compared with the ideal
//	fresh.go     time from production to training, for a topic
//	group.go     what a plain consumer group did with the same records
//	report.go    all of it, as JSON; print.go as text
//
// The program in clickreport computes the same from a kept folder.
package report

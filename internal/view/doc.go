// Package view turns a master's answers into values and tables. The values are printed by -o
// json and -o yaml, which promise (docs/CLI.md) that fields are added and never renamed or
// removed. Amounts are in the dataset's unit. Functions whose names begin with Ask call the
// master; all others are pure.
//
//	job.go        a job with its agents, workers and newest checkpoint
//	job_tables.go the job as `headrace status` prints it
//	screen.go     the job as `headrace top` repaints it, with the latest changes
//	dataset.go    one dataset: progress, description, the message of a second run
//	status.go     one dataset by partition
//	partition.go  a partition, its distances and its leases
//	change.go     results of apply, pause, resume and delete
//	reclaimed.go  what was taken back from a process
//	retention.go  how long a broker still keeps the records that are needed
//	silence.go    a source that does not answer
//	imbalance.go  a rank that waits for rows while another one makes no progress
//	records.go    numbers of records with their event times
//	excluded.go   ranges that are settled without being trained on, excluded or dropped
//	bad.go        records that could not be decoded
//	cut.go        one cut of the ledger
//	gone.go       deleted ranges that going back to a cut would need
package view
